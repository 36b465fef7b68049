//! What makes a config unusable as a whole.
//!
//! Owns the errors that stop loading. A fault of one server that need not stop the others is not here: it is kept in
//! the server's own [`Transport::Broken`](super::Transport::Broken).

use std::path::PathBuf;

/// Why no config could be made of the files. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file named by `--config` or `MCPX_CONFIG` is not there.
    #[error("config file {} does not exist (named by --config or MCPX_CONFIG)", path.display())]
    Missing { path: PathBuf },
    /// The file is there and cannot be read.
    #[error("config file {} cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Not JSONC. Line and column count from 1, the column in characters.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax { path: PathBuf, line: usize, column: usize, message: String },
    /// JSON, of another shape than a config file has.
    #[error("{}: {message}", path.display())]
    Shape { path: PathBuf, message: String },
    /// A key of an `mcpx` block that nobody knows.
    #[error("{}: server {server:?}: unknown key {key:?} in its mcpx block{}; known keys are {known}", path.display(), did_you_mean(suggestion))]
    UnknownKey { path: PathBuf, server: String, key: String, suggestion: Option<String>, known: String },
    /// A key of an `mcpx` block that is specified and not implemented yet: an error, because ignoring it would mislead.
    #[error("{}: server {server:?}: {key:?} in its mcpx block is not supported yet; remove it", path.display())]
    Later { path: PathBuf, server: String, key: String },
    /// A value of an `mcpx` block that cannot be used.
    #[error("{}: server {server:?}: mcpx.{key} {message}", path.display())]
    Value { path: PathBuf, server: String, key: &'static str, message: String },
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|word| format!(" (did you mean {word:?}?)")).unwrap_or_default()
}
