//! One ordered message of a run's stream, and the objects inside it: the wire types of SPEC 5.1 and 5.2.
//!
//! Owns shapes only. Who may send what, and when, is `sink.rs`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::ErrorKind;

/// A message of the stream. On the wire every frame is an object whose `type` is the first word of SPEC 5.2.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Frame {
    #[serde(rename_all = "camelCase")]
    Start {
        run_id: String,
        /// `embedded`, `bun` or `node`.
        runtime: String,
        /// Why this runtime, when the request said `auto` and it was not the obvious one.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// `isolate` or `process`.
        isolation: String,
        /// The effective permissions, as a text that `--permissions` takes.
        permissions: String,
        cwd: String,
    },
    Log {
        level: String,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        attrs: Option<Box<RawValue>>,
    },
    Emit {
        value: Box<RawValue>,
    },
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    Artifact {
        artifact: Artifact,
    },
    Result {
        value: Box<RawValue>,
    },
    Error {
        error: RunError,
    },
    End(End),
}

/// The fields of any frame, as they are on the wire. (serde cannot read a raw value out of a tagged enum.)
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyFrame {
    r#type: String,
    run_id: Option<String>,
    runtime: Option<String>,
    reason: Option<String>,
    isolation: Option<String>,
    permissions: Option<String>,
    cwd: Option<String>,
    level: Option<String>,
    message: Option<String>,
    attrs: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Box<RawValue>>,
    text: Option<String>,
    artifact: Option<Artifact>,
    error: Option<RunError>,
}

/// A value that is there, `null` included. (An `Option` alone takes `null` for absence.)
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Frame {
    /// Reads one line of a stream; `None` for a frame of a kind that this version does not know.
    ///
    /// # Errors
    /// The line is not a frame.
    pub fn from_json(line: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        use serde::de::Error as _;
        let AnyFrame {
            r#type,
            run_id,
            runtime,
            reason,
            isolation,
            permissions,
            cwd,
            level,
            message,
            attrs,
            value,
            text,
            artifact,
            error,
        } = serde_json::from_slice(line)?;
        let frame = match r#type.as_str() {
            "start" => Self::Start {
                run_id: run_id.unwrap_or_default(),
                runtime: runtime.unwrap_or_default(),
                reason,
                isolation: isolation.unwrap_or_default(),
                permissions: permissions.unwrap_or_default(),
                cwd: cwd.unwrap_or_default(),
            },
            "log" => Self::Log { level: level.unwrap_or_default(), message: message.unwrap_or_default(), attrs },
            "emit" => Self::Emit { value: value.ok_or_else(|| serde_json::Error::missing_field("value"))? },
            "stdout" => Self::Stdout { text: text.unwrap_or_default() },
            "stderr" => Self::Stderr { text: text.unwrap_or_default() },
            "artifact" => {
                Self::Artifact { artifact: artifact.ok_or_else(|| serde_json::Error::missing_field("artifact"))? }
            }
            "result" => Self::Result { value: value.ok_or_else(|| serde_json::Error::missing_field("value"))? },
            "error" => Self::Error { error: error.ok_or_else(|| serde_json::Error::missing_field("error"))? },
            "end" => Self::End(serde_json::from_slice(line)?),
            _ => return Ok(None),
        };
        Ok(Some(frame))
    }

    /// The word in `type`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Log { .. } => "log",
            Self::Emit { .. } => "emit",
            Self::Stdout { .. } => "stdout",
            Self::Stderr { .. } => "stderr",
            Self::Artifact { .. } => "artifact",
            Self::Result { .. } => "result",
            Self::Error { .. } => "error",
            Self::End(_) => "end",
        }
    }
}

/// The last frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    pub exit_code: i32,
    /// Milliseconds from the run's start.
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncated>,
    /// Whether nothing of the run is alive any more: thread, timers, operations, children.
    pub retired: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// Bytes of output that were dropped from the middle, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncated {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stdout: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stderr: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub logs: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub emits: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Where a run's time went, in milliseconds with their fraction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// Waiting for a place and an isolate.
    pub queue_ms: f64,
    /// From the isolate's hand-over to the first statement of the script.
    pub start_ms: f64,
    /// From there to the outcome.
    pub run_ms: f64,
}

impl Eq for Timings {}

impl Timings {
    /// Milliseconds, to the microsecond.
    pub(crate) fn millis(duration: Duration) -> f64 {
        (duration.as_secs_f64() * 1e6).round() / 1e3
    }
}

/// What is known of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub id: String,
    pub name: String,
    pub mime: String,
    pub size: u64,
    /// 64 hex digits.
    pub sha256: String,
    pub uri: String,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    pub kind: ErrorKind,
    /// Class of the error in the script's terms: `TypeError`, `ToolError`, ...
    pub name: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// Line in the author's source, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column in the author's source, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl RunError {
    /// A failure that is not a JavaScript error: no position, no stack.
    pub fn plain(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, name: "Error".to_owned(), message: message.into(), stack: None, line: None, column: None }
    }
}
