//! The one table of error kinds: the word on the wire, the HTTP status, the JSON-RPC code and the exit code of each (SPEC 14).
//!
//! Owns the table and the public shape of an error. Modules keep their own typed errors and map them to a kind; nothing is ever
//! classified by its text.

use serde::{Deserialize, Serialize};

/// What sort of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    BadRequest,
    NotFound,
    TypeError,
    SyntaxError,
    ScriptError,
    ToolError,
    UpstreamUnavailable,
    PermissionDenied,
    Timeout,
    HeapLimit,
    BufferLimit,
    OutputLimit,
    CallLimit,
    Cancelled,
    ClientGone,
    Exited,
    QueueFull,
    SessionBusy,
    SessionLost,
    Interrupted,
    TooLarge,
    Quota,
    Expired,
    Storage,
    Unsupported,
    Internal,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorRow {
    /// The word on the wire.
    pub word: &'static str,
    /// HTTP status when it is the reason why something was not started or not served.
    pub status: u16,
    /// JSON-RPC error code where a protocol error is due.
    pub rpc: i32,
    /// Exit code of the CLI. `Exited` has the script's own instead.
    pub exit: u8,
}

const fn row(word: &'static str, status: u16, rpc: i32, exit: u8) -> ErrorRow {
    ErrorRow { word, status, rpc, exit }
}

impl ErrorKind {
    /// Every kind, in the order of SPEC 14.
    pub const ALL: [Self; 26] = [
        Self::BadRequest,
        Self::NotFound,
        Self::TypeError,
        Self::SyntaxError,
        Self::ScriptError,
        Self::ToolError,
        Self::UpstreamUnavailable,
        Self::PermissionDenied,
        Self::Timeout,
        Self::HeapLimit,
        Self::BufferLimit,
        Self::OutputLimit,
        Self::CallLimit,
        Self::Cancelled,
        Self::ClientGone,
        Self::Exited,
        Self::QueueFull,
        Self::SessionBusy,
        Self::SessionLost,
        Self::Interrupted,
        Self::TooLarge,
        Self::Quota,
        Self::Expired,
        Self::Storage,
        Self::Unsupported,
        Self::Internal,
    ];

    /// The kind's row: exhaustive, so that a new kind cannot be forgotten on one face.
    pub const fn row(self) -> ErrorRow {
        match self {
            Self::BadRequest => row("bad_request", 400, -32602, 2),
            Self::NotFound => row("not_found", 404, -32602, 1),
            Self::TypeError => row("type_error", 422, -32602, 1),
            Self::SyntaxError => row("syntax_error", 400, -32602, 1),
            Self::ScriptError => row("script_error", 500, -32603, 1),
            Self::ToolError => row("tool_error", 502, -32603, 1),
            Self::UpstreamUnavailable => row("upstream_unavailable", 502, -32603, 1),
            Self::PermissionDenied => row("permission_denied", 403, -32603, 1),
            Self::Timeout => row("timeout", 504, -32603, 124),
            Self::HeapLimit => row("heap_limit", 507, -32603, 1),
            Self::BufferLimit => row("buffer_limit", 507, -32603, 1),
            Self::OutputLimit => row("output_limit", 507, -32603, 1),
            Self::CallLimit => row("call_limit", 429, -32603, 1),
            Self::Cancelled => row("cancelled", 499, -32800, 130),
            Self::ClientGone => row("client_gone", 499, -32800, 130),
            Self::Exited => row("exited", 500, -32603, 1),
            Self::QueueFull => row("queue_full", 429, -32000, 1),
            Self::SessionBusy => row("session_busy", 409, -32000, 1),
            Self::SessionLost => row("session_lost", 410, -32000, 1),
            Self::Interrupted => row("interrupted", 503, -32000, 1),
            Self::TooLarge => row("too_large", 413, -32602, 1),
            Self::Quota => row("quota", 413, -32000, 1),
            Self::Expired => row("expired", 410, -32602, 1),
            Self::Storage => row("storage", 507, -32603, 1),
            Self::Unsupported => row("unsupported", 501, -32601, 1),
            Self::Internal => row("internal", 500, -32603, 1),
        }
    }

    /// The word on the wire.
    pub const fn word(self) -> &'static str {
        self.row().word
    }

    /// The kind of a word; `None` for a word that is not in the table.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl std::fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for ErrorKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for ErrorKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::from_word(&word).ok_or_else(|| serde::de::Error::custom(format!("unknown error kind {word:?}")))
    }
}

/// A failure as a caller sees it: a kind to act on and a message that names the limit, its value and the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PublicError {
    pub kind: ErrorKind,
    pub message: String,
}

impl PublicError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Shorthand for the commonest kind at the edges.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadRequest, message)
    }

    /// For what SPEC marks as later.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorKind;

    #[test]
    fn words_are_unique_and_lead_back() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(ErrorKind::from_word("oops"), None);
    }

    #[test]
    fn the_table_as_published() {
        let table: String = ErrorKind::ALL
            .map(|kind| {
                let row = kind.row();
                format!("{} {} {} {}\n", row.word, row.status, row.rpc, row.exit)
            })
            .concat();
        insta::assert_snapshot!(table);
    }
}
