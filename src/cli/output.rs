//! What a person sees: answers on stdout, everything else on stderr.
//!
//! The only place that writes to the terminal. A reader that went away (`| head`) is no error.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::error::ErrorKind;
use crate::run::frame::RunError;

/// Why a command failed.
#[derive(Debug)]
pub(super) struct CliError {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl CliError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// An error with its causes.
    pub(super) fn from_chain(kind: ErrorKind, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.ends_with(&text) {
                message = format!("{message}\ncaused by: {text}");
            }
            cause = error.source();
        }
        Self { kind, message }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::new(ErrorKind::Internal, error.to_string())
    }
}

/// Prints an error and gives the exit code of its kind.
pub(super) fn report(error: &CliError) -> ExitCode {
    say(&format!("mcpx: error: {}", error.message));
    ExitCode::from(error.kind.row().exit)
}

/// Text for stdout, as it is.
pub(super) fn answer(text: &str) {
    bytes(text.as_bytes());
}

/// Bytes for stdout, as they are.
pub(super) fn bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    // Nobody reads any more: there is nobody to tell either.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Text for stderr, as it is.
pub(super) fn aside(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// A line for stderr.
pub(super) fn say(line: &str) {
    aside(&format!("{line}\n"));
}

/// A script's failure, with the position in its source.
pub(super) fn script_failed(error: &RunError) {
    let mut text = format!("error: {}: {}", error.name, error.message);
    if let Some(line) = error.line {
        text += &format!("\n    at line {line}, column {}", error.column.unwrap_or(1));
    }
    if !matches!(error.kind, ErrorKind::ScriptError) {
        text += &format!("\n    ({})", error.kind);
    }
    let frames =
        error.stack.as_deref().into_iter().flat_map(str::lines).filter(|line| line.trim_start().starts_with("at "));
    for frame in frames.take(10) {
        text += &format!("\n    {}", frame.trim_start());
    }
    say(&text);
}
