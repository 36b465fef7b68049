//! One entry of `mcpServers`.
//!
//! Owns what the keys of an entry and of its `mcpx` block mean. A fault in the `mcpx` block is ours to report at once;
//! a fault in the rest (which other clients write, too) makes only this server unusable and is kept as
//! [`Transport::Broken`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::expand::expand;
use super::files::ConfigFile;
use crate::mcp::names;

/// Keys of the `mcpx` block.
const KNOWN: [&str; 4] = ["callTimeout", "disabled", "namespace", "startTimeout"];

/// Keys that are specified and come later.
const LATER: [&str; 17] = [
    "default",
    "description",
    "excludeTools",
    "extraIncludeTools",
    "idleTimeout",
    "logging",
    "max",
    "min",
    "preconditions",
    "prelude",
    "profiles",
    "requiresSecrets",
    "requiresServers",
    "scope",
    "sharing",
    "tools",
    "protocol",
];

/// One configured MCP server.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// The name in the config, which is also its wire name.
    pub name: String,
    /// Canonical path of the file that defines it.
    pub source: PathBuf,
    pub transport: Transport,
    /// Explicit namespace; checked to be a free identifier.
    pub namespace: Option<String>,
    pub disabled: bool,
    /// Overrides `pool.callTimeout`.
    pub call_timeout: Option<Duration>,
    /// Overrides `pool.startTimeout`.
    pub start_timeout: Option<Duration>,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A child process that speaks on its standard streams.
    Stdio(StdioSpec),
    /// A way that is recognised and not implemented yet; `what` names it for the error.
    Unsupported { what: &'static str },
    /// The entry cannot be used; `reason` says why and what to do, without naming the server.
    Broken { reason: String },
}

/// What to start. Everything is expanded and absolute.
#[derive(Clone)]
pub struct StdioSpec {
    /// An absolute path, or a bare name that the child's `PATH` resolves.
    pub command: PathBuf,
    pub args: Vec<String>,
    /// On top of the environment that every server gets.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
}

impl std::fmt::Debug for StdioSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of the environment are often secrets, and arguments may be; neither belongs in a log.
        f.debug_struct("StdioSpec")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// Whether the server is mcpx serving itself, which would call itself without end.
pub(super) fn is_self_reference(server: &ServerSpec) -> bool {
    let Transport::Stdio(stdio) = &server.transport else { return false };
    stdio.command.file_name() == Some(OsStr::new("mcpx")) && stdio.args.iter().any(|arg| arg == "serve")
}

/// Reads one entry.
///
/// # Errors
/// The `mcpx` block has an unknown key or a value that cannot be used.
pub(super) fn read_entry(
    name: &str,
    entry: &Value,
    file: &ConfigFile,
    env: &BTreeMap<String, String>,
) -> Result<ServerSpec, ConfigError> {
    let mut server = ServerSpec {
        name: name.to_owned(),
        source: file.path.clone(),
        transport: Transport::Broken { reason: "its config entry must be an object".to_owned() },
        namespace: None,
        disabled: false,
        call_timeout: None,
        start_timeout: None,
    };
    let Value::Object(entry) = entry else { return Ok(server) };
    // `disabled` beside the command is how some other clients write it.
    server.disabled = entry.get("disabled") == Some(&Value::Bool(true));
    read_block(&mut server, entry, file)?;
    server.transport = read_transport(entry, file, env).unwrap_or_else(|reason| Transport::Broken { reason });
    Ok(server)
}

fn read_block(server: &mut ServerSpec, entry: &Map<String, Value>, file: &ConfigFile) -> Result<(), ConfigError> {
    let wrong = |key, message: String| ConfigError::Value {
        path: file.path.clone(),
        server: server.name.clone(),
        key,
        message,
    };
    let block = match entry.get("mcpx") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(block)) => block,
        Some(_) => {
            let message = format!("server {:?}: mcpx must be an object", server.name);
            return Err(ConfigError::Shape { path: file.path.clone(), message });
        }
    };
    let (mut disabled, mut namespace, mut call_timeout, mut start_timeout) = (server.disabled, None, None, None);
    for (key, value) in block {
        match (key.as_str(), value) {
            ("disabled", Value::Bool(flag)) => disabled = *flag,
            ("disabled", _) => return Err(wrong("disabled", "must be true or false".to_owned())),
            ("namespace", Value::String(word)) => {
                names::check_namespace(word).map_err(|fault| wrong("namespace", fault.to_string()))?;
                namespace = Some(word.clone());
            }
            ("namespace", _) => return Err(wrong("namespace", "must be a string".to_owned())),
            ("callTimeout", value) => {
                call_timeout = Some(duration(value).map_err(|message| wrong("callTimeout", message))?);
            }
            ("startTimeout", value) => {
                start_timeout = Some(duration(value).map_err(|message| wrong("startTimeout", message))?);
            }
            (key, _) => return Err(unknown_key(key, server, file)),
        }
    }
    server.disabled = disabled;
    server.namespace = namespace;
    server.call_timeout = call_timeout;
    server.start_timeout = start_timeout;
    Ok(())
}

fn unknown_key(key: &str, server: &ServerSpec, file: &ConfigFile) -> ConfigError {
    let (path, server, key) = (file.path.clone(), server.name.clone(), key.to_owned());
    if LATER.contains(&key.as_str()) {
        return ConfigError::Later { path, server, key };
    }
    let suggestion = names::nearest(&key, KNOWN).map(str::to_owned);
    ConfigError::UnknownKey { path, server, key, suggestion, known: KNOWN.join(", ") }
}

/// A duration in words ("90s", "2m") or a number of milliseconds; never zero.
fn duration(value: &Value) -> Result<Duration, String> {
    let read = match value {
        Value::String(text) => match text.trim().parse::<u64>() {
            Ok(millis) => Some(Duration::from_millis(millis)),
            Err(_) => humantime::parse_duration(text).ok(),
        },
        Value::Number(millis) => millis.as_u64().map(Duration::from_millis),
        _ => None,
    };
    read.filter(|duration| !duration.is_zero()).ok_or_else(|| {
        format!("is {value}; it must be a duration above zero such as \"90s\", or a number of milliseconds")
    })
}

fn read_transport(
    entry: &Map<String, Value>,
    file: &ConfigFile,
    env: &BTreeMap<String, String>,
) -> Result<Transport, String> {
    if let Some(url) = entry.get("url").or_else(|| entry.get("httpUrl")) {
        let Value::String(url) = url else { return Err("url must be a string".to_owned()) };
        expand(url, env).map_err(|missing| format!("url: {missing}"))?;
        return Ok(Transport::Unsupported { what: "reaching a server by url (only stdio servers work so far)" });
    }
    if entry.contains_key("aliasOf") {
        return Ok(Transport::Unsupported { what: "aliasOf" });
    }
    let mut words = match entry.get("command") {
        None | Some(Value::Null) => return Err("it needs command, url or aliasOf".to_owned()),
        Some(Value::Array(words)) => strings("command", words, env)?,
        Some(Value::String(word)) => vec![expand(word, env).map_err(|missing| format!("command: {missing}"))?],
        Some(_) => return Err("command must be a string or an array of strings".to_owned()),
    };
    match entry.get("args") {
        None | Some(Value::Null) => {}
        Some(Value::Array(args)) => words.extend(strings("args", args, env)?),
        Some(_) => return Err("args must be an array of strings".to_owned()),
    }
    let mut words = words.into_iter();
    let command = words.next().filter(|word| !word.is_empty()).ok_or("command must not be empty")?;
    // A path is relative to the file that says it; a bare name is looked up in PATH.
    let command = if command.contains('/') { file.folder().join(command) } else { PathBuf::from(command) };
    let cwd = match entry.get("cwd") {
        None | Some(Value::Null) => file.home_folder.clone(),
        Some(Value::String(cwd)) => file.folder().join(expand(cwd, env).map_err(|missing| format!("cwd: {missing}"))?),
        Some(_) => return Err("cwd must be a string".to_owned()),
    };
    let env = match entry.get("env") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::Object(pairs)) => read_env(pairs, env)?,
        Some(_) => return Err("env must be an object".to_owned()),
    };
    Ok(Transport::Stdio(StdioSpec { command, args: words.collect(), env, cwd }))
}

fn strings(key: &str, words: &[Value], env: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    words
        .iter()
        .enumerate()
        .map(|(index, word)| match word {
            Value::String(word) => expand(word, env).map_err(|missing| format!("{key}[{index}]: {missing}")),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(format!("{key}[{index}] must be a string")),
        })
        .collect()
}

fn read_env(pairs: &Map<String, Value>, env: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    let mut read = BTreeMap::new();
    for (key, value) in pairs {
        // The operating system takes no other names, and would fail the start with a message about none of this.
        if key.is_empty() || key.contains(['=', '\0']) {
            return Err(format!("env has an impossible variable name {key:?}"));
        }
        let value = match value {
            Value::String(text) => expand(text, env).map_err(|missing| format!("env.{key}: {missing}"))?,
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return Err(format!("env.{key} must be a string")),
        };
        read.insert(key.clone(), value);
    }
    Ok(read)
}
