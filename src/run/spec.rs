//! A validated run: what to execute, for whom, within which limits.
//!
//! Owns the step from the wire ([`ExecRequest`]) to [`RunSpec`]: every option is either understood or refused here, none is
//! ignored. Options of capabilities that do not exist yet are `unsupported`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::permissions::PermissionSet;
use crate::api::{ExecOptions, ExecRequest};
use crate::error::{ErrorKind, PublicError};
use crate::id::RunId;
use crate::settings::{Settings, parse_duration};

/// Where the script's text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// The request carried it.
    Text(String),
    /// A file on this machine.
    File(PathBuf),
}

/// Limits of one run (SPEC 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Own time; `None` for a local run without one.
    pub own_time: Option<Duration>,
    pub wall: Duration,
    /// Bytes.
    pub heap: u64,
    /// Bytes of ArrayBuffers.
    pub buffers: u64,
    /// Bytes of each kind of output.
    pub output: u64,
    pub calls: usize,
}

/// One run, ready to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSpec {
    pub id: RunId,
    pub script: Script,
    /// Modules that came with the request: specifier relative to the script, to text.
    pub modules: BTreeMap<String, String>,
    pub args: Vec<String>,
    /// Exported function to call instead of the default export.
    pub export: Option<String>,
    /// The caller's working directory; `None` means a private temp folder.
    pub cwd: Option<PathBuf>,
    /// The caller's environment; `None` means the minimal one of SPEC 6.1.
    pub env: Option<BTreeMap<String, String>>,
    pub stdin: Option<String>,
    pub permissions: PermissionSet,
    pub limits: RunLimits,
    /// Namespaces (or server names) that exist in the run; `None` means all.
    pub namespaces: Option<Vec<String>>,
    /// A label for artifacts.
    pub session: Option<String>,
}

/// Who asks: decides what a request may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Whether the caller is known to share this daemon's file system (SPEC 3).
    pub local: bool,
}

impl RunSpec {
    /// Validates a request.
    ///
    /// # Errors
    /// `bad_request` naming the field, `permission_denied` for paths of a caller that does not share our file system,
    /// `unsupported` for what does not exist yet.
    pub fn from_request(request: ExecRequest, caller: Caller, settings: &Settings) -> Result<Self, PublicError> {
        let ExecRequest { source, file, modules, options } = request;
        refuse_unsupported(&options)?;
        check_words(&options)?;
        let script = match (source, file) {
            (Some(_), Some(_)) => return Err(PublicError::bad_request("source and file exclude each other; give one")),
            (None, None) => return Err(PublicError::bad_request("source is required (or file, for a local caller)")),
            (Some(source), None) if source.trim().is_empty() => {
                return Err(PublicError::bad_request("source is empty; give the script's text"));
            }
            (Some(source), None) => Script::Text(source),
            (None, Some(file)) => Script::File(own_path("file", &file, caller)?),
        };
        let cwd = options.cwd.as_deref().map(|cwd| own_path("options.cwd", cwd, caller)).transpose()?;
        let permissions = match &options.permissions {
            Some(text) => PermissionSet::parse(text)?,
            None => PermissionSet::workspace(),
        };
        Ok(Self {
            id: match &options.run_id {
                Some(id) => id.parse().map_err(|error| PublicError::bad_request(format!("options.runId: {error}")))?,
                None => RunId::random(),
            },
            script,
            modules,
            args: options.args.clone().unwrap_or_default(),
            export: options.export.clone(),
            cwd,
            env: checked_env(options.env.clone())?,
            stdin: options.stdin.clone(),
            permissions,
            limits: limits(&options, settings)?,
            namespaces: options.ns.clone(),
            session: options.session.clone(),
        })
    }
}

fn own_path(field: &str, text: &str, caller: Caller) -> Result<PathBuf, PublicError> {
    if !caller.local {
        return Err(PublicError::new(
            ErrorKind::PermissionDenied,
            format!("{field} names a path on the daemon's machine; only a local caller may, others send the source"),
        ));
    }
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(PublicError::bad_request(format!("{field} must be an absolute path, not {text:?}")));
    }
    Ok(path.to_owned())
}

fn checked_env(env: Option<BTreeMap<String, String>>) -> Result<Option<BTreeMap<String, String>>, PublicError> {
    for (name, value) in env.iter().flatten() {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(PublicError::bad_request(format!("options.env: {name:?} is no variable a system would take")));
        }
    }
    Ok(env)
}

fn limits(options: &ExecOptions, settings: &Settings) -> Result<RunLimits, PublicError> {
    let own_time = match options.timeout.as_deref() {
        None => settings.exec_timeout,
        Some(text) => parse_duration(text)
            .map_err(|problem| PublicError::bad_request(format!("options.timeout {text:?}: {problem}")))?,
    };
    let wanted = options.limits.unwrap_or_default();
    let lowered = |name: &str, wanted: Option<u64>, most: u64, setting: &str| match wanted {
        None => Ok(most),
        Some(0) => Err(PublicError::bad_request(format!("options.limits.{name} must be more than 0"))),
        Some(value) if value > most => Err(PublicError::bad_request(format!(
            "options.limits.{name} is {value}, over the configured {most} ({setting}); a request can only lower it"
        ))),
        Some(value) => Ok(value),
    };
    let calls = lowered("calls", wanted.calls, settings.exec_max_calls as u64, "exec.maxCalls")?;
    Ok(RunLimits {
        // 0s is "none"; the wall clock bounds what a request may ask for.
        own_time: (!own_time.is_zero()).then_some(own_time.min(settings.exec_max_wall)),
        wall: settings.exec_max_wall,
        heap: lowered("heapBytes", wanted.heap_bytes, settings.exec_max_heap_bytes, "exec.maxHeapBytes")?,
        buffers: lowered("bufferBytes", wanted.buffer_bytes, settings.exec_max_buffer_bytes, "exec.maxBufferBytes")?,
        output: lowered("outputBytes", wanted.output_bytes, settings.exec_max_output_bytes, "exec.maxOutputBytes")?,
        calls: usize::try_from(calls).unwrap_or(usize::MAX),
    })
}

fn not_yet(what: &str) -> PublicError {
    PublicError::unsupported(format!("{what} is not supported in this version"))
}

/// Options whose capability does not exist yet. Using one is an error, never ignored.
fn refuse_unsupported(options: &ExecOptions) -> Result<(), PublicError> {
    let used = [
        ("options.runId", options.run_id.is_some()),
        ("options.stdinStream", options.stdin_stream == Some(true)),
        ("options.detach", options.detach == Some(true)),
        ("options.isolation \"process\"", options.isolation.as_deref() == Some("process")),
        ("options.placeholders", options.placeholders.is_some()),
        ("options.allowRepeat", options.allow_repeat.is_some()),
        ("options.launcher", options.launcher.as_deref().is_some_and(|launcher| launcher != "none")),
        ("options.launcherName", options.launcher_name.is_some()),
        ("options.phases", options.phases.is_some()),
        ("options.task", options.task.is_some()),
        ("options.captureConsole", options.capture_console == Some(true)),
        ("options.typecheck", matches!(options.typecheck.as_deref(), Some("on" | "strict"))),
        ("options.runtime bun and node", matches!(options.runtime.as_deref(), Some("bun" | "node"))),
    ];
    if let Some((what, _)) = used.iter().find(|(_, used)| *used) {
        return Err(not_yet(what));
    }
    if let Some(artifacts) = &options.artifacts {
        if artifacts.delivery.as_deref().is_some_and(|delivery| matches!(delivery, "inline" | "stream")) {
            return Err(not_yet("options.artifacts.delivery other than \"reference\""));
        }
        if artifacts.dir.is_some() || artifacts.shared_fs.is_some() || artifacts.max_bytes.is_some() {
            return Err(not_yet("options.artifacts.dir, sharedFs and maxBytes"));
        }
    }
    Ok(())
}

/// Options with a fixed set of words.
fn check_words(options: &ExecOptions) -> Result<(), PublicError> {
    let delivery = options.artifacts.as_ref().and_then(|artifacts| artifacts.delivery.as_deref());
    let capabilities = options
        .capabilities
        .iter()
        .flatten()
        .map(|word| ("options.capabilities", Some(word.as_str()), &["artifacts"][..]));
    let words = [
        ("options.runtime", options.runtime.as_deref(), &["auto", "embedded", "deno", "bun", "node"][..]),
        ("options.isolation", options.isolation.as_deref(), &["isolate", "process"][..]),
        ("options.output", options.output.as_deref(), &["text", "structured", "stream"][..]),
        ("options.typecheck", options.typecheck.as_deref(), &["off", "on", "strict"][..]),
        ("options.artifacts.delivery", delivery, &["reference", "inline", "stream"][..]),
    ];
    for (field, word, known) in words.into_iter().chain(capabilities) {
        if let Some(word) = word
            && !known.contains(&word)
        {
            return Err(PublicError::bad_request(format!("{field} must be one of {}, not {word:?}", known.join(", "))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Layers;

    fn spec(json: &str, local: bool) -> Result<RunSpec, PublicError> {
        let settings = Settings::resolve(&Layers::default()).expect("the defaults are valid");
        RunSpec::from_request(serde_json::from_str(json).expect("a request"), Caller { local }, &settings)
    }

    fn refused(json: &str) -> PublicError {
        spec(json, false).expect_err(json)
    }

    #[test]
    fn sources() {
        assert!(refused("{}").message.contains("source is required"));
        assert!(refused(r#"{"source":" \n"}"#).message.contains("source is empty"));
        assert!(refused(r#"{"source":"1","file":"/x"}"#).message.contains("exclude"));
        assert_eq!(refused(r#"{"file":"/x.ts"}"#).kind, ErrorKind::PermissionDenied);
        assert_eq!(spec(r#"{"file":"/x.ts"}"#, true).map(|spec| spec.script), Ok(Script::File("/x.ts".into())));
        assert!(spec(r#"{"file":"x.ts"}"#, true).is_err());
    }

    #[test]
    fn limits_can_only_be_lowered() {
        assert_eq!(
            spec(r#"{"source":"1","options":{"limits":{"calls":5}}}"#, false).map(|spec| spec.limits.calls),
            Ok(5)
        );
        assert!(refused(r#"{"source":"1","options":{"limits":{"calls":1001}}}"#).message.contains("exec.maxCalls"));
        assert!(refused(r#"{"source":"1","options":{"limits":{"heapBytes":0}}}"#).message.contains("heapBytes"));
    }

    #[test]
    fn timeouts() {
        let own = |text: &str| {
            let json = serde_json::json!({"source": "1", "options": {"timeout": text}}).to_string();
            spec(&json, false).map(|spec| spec.limits.own_time)
        };
        assert_eq!(own("1s"), Ok(Some(Duration::from_secs(1))));
        assert_eq!(own("0s"), Ok(None));
        assert_eq!(own("100h"), Ok(Some(Duration::from_secs(900))));
        for text in ["99999999999999h", "1e306s", "18446744073709551615s", "-1s", "NaN", "120"] {
            assert!(own(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_does_not_exist_yet_is_said() {
        for options in [
            r#"{"typecheck":"on"}"#,
            r#"{"phases":{"before":["1"]}}"#,
            r#"{"task":{"ttl":1}}"#,
            r#"{"runtime":"bun"}"#,
            r#"{"isolation":"process"}"#,
            r#"{"artifacts":{"dir":"/x"}}"#,
        ] {
            let json = format!(r#"{{"source":"1","options":{options}}}"#);
            assert_eq!(refused(&json).kind, ErrorKind::Unsupported, "{options}");
        }
        let off = r#"{"typecheck":"off","captureConsole":false,"launcher":"none","detach":false,"runtime":"deno"}"#;
        assert!(spec(&format!(r#"{{"source":"1","options":{off}}}"#), false).is_ok());
        assert!(refused(r#"{"source":"1","options":{"output":"xml"}}"#).message.contains("options.output"));
    }
}
