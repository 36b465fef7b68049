//! The one table of settings: name, type, unit, default, environment variable, flag, documentation (SPEC 13).
//!
//! Owns parsing and precedence (default < file < env < flag). Values are validated here, all problems at once, and are immutable
//! afterwards: the daemon hands `Arc<Settings>` around. What a request may change is decided in `run/spec.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Default,
    File,
    Env,
    Flag,
}

/// A setting as the table describes it.
#[derive(Debug, Clone, Copy)]
pub struct SettingRow {
    pub name: &'static str,
    /// What the value is: a duration, a number of bytes, a count.
    pub unit: &'static str,
    pub default: &'static str,
    pub doc: &'static str,
}

impl SettingRow {
    /// `exec.maxHeapBytes` is `MCPX_EXEC_MAX_HEAP_BYTES`.
    pub fn env(&self) -> String {
        format!("MCPX_{}", separated(self.name, '_').to_uppercase())
    }

    /// `exec.maxHeapBytes` is `--exec-max-heap-bytes` (here without the dashes in front).
    pub fn flag(&self) -> String {
        separated(self.name, '-')
    }
}

fn separated(name: &str, separator: char) -> String {
    let mut out = String::new();
    for character in name.chars() {
        match character {
            '.' => out.push(separator),
            upper if upper.is_ascii_uppercase() => {
                out.push(separator);
                out.push(upper.to_ascii_lowercase());
            }
            other => out.push(other),
        }
    }
    out
}

/// A value that does not parse, or a name that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("setting {name} = {value:?} (from {origin}): {problem}")]
    Value { name: &'static str, value: String, origin: String, problem: String },
    #[error("there is no setting {name:?} (from {origin}){hint}")]
    Unknown { name: String, origin: String, hint: String },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<SettingsError>),
}

trait Value: Sized {
    const UNIT: &'static str;
    fn parse(text: &str) -> Result<Self, String>;
}

impl Value for Duration {
    const UNIT: &'static str = "duration";
    fn parse(text: &str) -> Result<Self, String> {
        parse_duration(text)
    }
}

/// Bytes.
impl Value for u64 {
    const UNIT: &'static str = "bytes";
    fn parse(text: &str) -> Result<Self, String> {
        text.trim()
            .parse::<bytesize::ByteSize>()
            .map(|size| size.as_u64())
            .map_err(|_| "expected a size such as 65536, 64KiB or 1GiB".to_owned())
    }
}

impl Value for usize {
    const UNIT: &'static str = "count";
    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "expected a whole number".to_owned())
    }
}

/// Parses a duration with its unit: `500ms`, `1.5s`, `5m30s`, `2h`.
///
/// # Errors
/// A sentence that says which form is accepted: no unit, no number, negative, or more than about 30 years.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "expected a duration with its unit, such as 500ms, 90s, 5m30s or 2h";
    let text = text.trim();
    // One fractional number and a unit, which humantime does not take.
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let parsed = if number.contains('.') && !number.contains(char::is_whitespace) {
        let scale = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(FORM.to_owned()),
        };
        let number: f64 = number.parse().map_err(|_| FORM.to_owned())?;
        Duration::try_from_secs_f64(number * scale).map_err(|_| FORM.to_owned())?
    } else {
        humantime::parse_duration(text).map_err(|_| FORM.to_owned())?
    };
    if parsed > Duration::from_secs(1_000_000_000) {
        return Err("the duration is longer than 30 years".to_owned());
    }
    Ok(parsed)
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty = $name:literal, $default:literal;)*) => {
        /// Every setting, validated.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        /// The table, in the order of its documentation.
        pub const TABLE: &[SettingRow] = &[
            $(SettingRow {
                name: $name,
                unit: <$type as Value>::UNIT,
                default: $default,
                doc: concat!($($doc),+),
            },)*
        ];

        impl Settings {
            fn from_texts(texts: &BTreeMap<&'static str, (String, Origin)>) -> Result<Self, SettingsError> {
                let mut problems = Vec::new();
                $(let $field = {
                    let (text, origin) = &texts[$name];
                    <$type as Value>::parse(text).map_err(|problem| problems.push(SettingsError::Value {
                        name: $name,
                        value: text.clone(),
                        origin: describe($name, *origin),
                        problem,
                    })).ok()
                };)*
                match ($($field,)*) {
                    ($(Some($field),)*) => Ok(Self { $($field),* }),
                    _ => Err(SettingsError::Several(problems)),
                }
            }
        }
    };
}

settings! {
    /// Own time of a run: what it computes and waits, less what it waits for tools. 0s means none.
    exec_timeout: Duration = "exec.timeout", "120s";
    /// Wall-clock time of a run, never paused.
    exec_max_wall: Duration = "exec.maxWall", "15m";
    /// V8 heap of a run.
    exec_max_heap_bytes: u64 = "exec.maxHeapBytes", "512MiB";
    /// ArrayBuffers of a run.
    exec_max_buffer_bytes: u64 = "exec.maxBufferBytes", "512MiB";
    /// Output of a run: stdout, stderr, log records and emits each.
    exec_max_output_bytes: u64 = "exec.maxOutputBytes", "1MiB";
    /// Tool calls of a run.
    exec_max_calls: usize = "exec.maxCalls", "1000";
    /// Runs at a time; 0 means twice the cores, at least 4.
    exec_concurrency: usize = "exec.concurrency", "0";
    /// Runs that may wait for a place.
    exec_queue: usize = "exec.queue", "256";
    /// Isolates kept ready.
    exec_warm: usize = "exec.warm", "2";
    /// Threads that V8 will not give back, before new runs are refused.
    exec_max_stuck: usize = "exec.maxStuck", "2";
    /// Size of one artifact.
    artifacts_max_bytes: u64 = "artifacts.maxBytes", "64MiB";
    /// Life of an artifact whose script names none. 0s means for ever.
    artifacts_ttl: Duration = "artifacts.ttl", "24h";
    /// Bytes of an artifact's file name.
    artifacts_name_max_length: usize = "artifacts.nameMaxLength", "128";
    /// Artifacts in one page of a listing.
    artifacts_list_limit: usize = "artifacts.listLimit", "1000";
    /// Size of an HTTP request's body.
    http_body_limit: u64 = "http.bodyLimit", "64MiB";
    /// Time of one tool call.
    pool_call_timeout: Duration = "pool.callTimeout", "120s";
    /// Time an MCP server has to start and list its tools.
    pool_start_timeout: Duration = "pool.startTimeout", "60s";
    /// Time a stopping daemon gives its runs to end.
    daemon_shutdown_grace: Duration = "daemon.shutdownGrace", "5s";
    /// Idle time after which the daemon ends. 0s means never; an autostarted daemon gets 4h.
    daemon_idle_exit: Duration = "daemon.idleExit", "0s";
}

fn describe(name: &str, origin: Origin) -> String {
    let row = TABLE.iter().find(|row| row.name == name);
    match (origin, row) {
        (Origin::Env, Some(row)) => row.env(),
        (Origin::Flag, Some(row)) => format!("--{}", row.flag()),
        (Origin::File, _) => "the configuration".to_owned(),
        _ => "the default".to_owned(),
    }
}

/// What the layers above the defaults say, as texts.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// `settings` of the configuration files: dotted names.
    pub file: BTreeMap<String, String>,
    /// The environment, of which only `MCPX_...` names of the table are looked at.
    pub env: BTreeMap<String, String>,
    /// Flags given on the command line: dotted names.
    pub flag: BTreeMap<String, String>,
}

impl Settings {
    /// Merges the layers and validates every value.
    ///
    /// # Errors
    /// All problems at once: values that do not parse, and unknown names in the file layer with the nearest known one.
    pub fn resolve(layers: &Layers) -> Result<Self, SettingsError> {
        let mut texts = BTreeMap::new();
        for row in TABLE {
            let (text, origin) = if let Some(text) = layers.flag.get(row.name) {
                (text.clone(), Origin::Flag)
            } else if let Some(text) = layers.env.get(&row.env()) {
                (text.clone(), Origin::Env)
            } else if let Some(text) = layers.file.get(row.name) {
                (text.clone(), Origin::File)
            } else {
                (row.default.to_owned(), Origin::Default)
            };
            texts.insert(row.name, (text, origin));
        }
        let unknown: Vec<_> = layers
            .file
            .keys()
            .chain(layers.flag.keys())
            .filter(|name| !TABLE.iter().any(|row| row.name == name.as_str()))
            .map(|name| SettingsError::Unknown {
                name: name.clone(),
                origin: "the configuration".to_owned(),
                hint: nearest(name).map(|near| format!("; did you mean {near}?")).unwrap_or_default(),
            })
            .collect();
        let settings = Self::from_texts(&texts);
        match (settings, unknown.is_empty()) {
            (Ok(settings), true) => Ok(settings),
            (Err(SettingsError::Several(mut problems)), _) => {
                problems.extend(unknown);
                Err(SettingsError::Several(problems))
            }
            (Err(other), _) => Err(other),
            (Ok(_), false) => Err(SettingsError::Several(unknown)),
        }
    }

    /// Runs at a time, with 0 resolved to twice the cores and at least 4.
    pub fn concurrency(&self) -> usize {
        if self.exec_concurrency > 0 {
            return self.exec_concurrency;
        }
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        (2 * cores).max(4)
    }
}

fn nearest(name: &str) -> Option<&'static str> {
    TABLE
        .iter()
        .map(|row| (strsim::normalized_damerau_levenshtein(row.name, name), row.name))
        .filter(|(score, _)| *score > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_flags_and_variables() {
        let row = TABLE.iter().find(|row| row.name == "exec.maxHeapBytes").expect("it is in the table");
        assert_eq!(row.env(), "MCPX_EXEC_MAX_HEAP_BYTES");
        assert_eq!(row.flag(), "exec-max-heap-bytes");
    }

    #[test]
    fn precedence() {
        let mut layers = Layers::default();
        let timeout = |layers: &Layers| Settings::resolve(layers).expect("valid").exec_timeout;
        assert_eq!(timeout(&layers), Duration::from_secs(120));
        layers.file.insert("exec.timeout".into(), "3s".into());
        assert_eq!(timeout(&layers), Duration::from_secs(3));
        layers.env.insert("MCPX_EXEC_TIMEOUT".into(), "2s".into());
        assert_eq!(timeout(&layers), Duration::from_secs(2));
        layers.flag.insert("exec.timeout".into(), "1.5s".into());
        assert_eq!(timeout(&layers), Duration::from_millis(1500));
    }

    #[test]
    fn all_problems_at_once() {
        let mut layers = Layers::default();
        layers.env.insert("MCPX_EXEC_TIMEOUT".into(), "soon".into());
        layers.env.insert("MCPX_EXEC_WARM".into(), "many".into());
        layers.file.insert("exec.timout".into(), "1s".into());
        let text = Settings::resolve(&layers).expect_err("three problems").to_string();
        for part in ["exec.timeout", "MCPX_EXEC_WARM", "did you mean exec.timeout?"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn durations() {
        let good = [("1.5s", 1500), (" 2s ", 2000), ("5m30s", 330_000), ("0s", 0), ("250ms", 250), ("0.5m", 30_000)];
        for (text, millis) in good {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["120", "", "-1s", "NaN", "1e306s", "99999999999999h", "18446744073709551615s", "s", "1.2.3s", "2S"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_defaults_as_published() {
        let table: String =
            TABLE.iter().map(|row| format!("{} ({}) = {}\n", row.name, row.unit, row.default)).collect();
        insta::assert_snapshot!(table);
    }
}
