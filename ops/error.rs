//! What an op of ours can fail with, and the JavaScript class and machine code that each failure carries.
//!
//! Owns the mapping only. The words in `code` are those of SPEC 14; the host maps them further.

use crate::interface::{ArtifactFailure, ToolFailure};

/// Failure of an op. JavaScript sees `class` as the error's class and `code` as its property `code`.
#[derive(Debug, thiserror::Error, deno_error::JsError)]
pub enum OpError {
    /// The isolate has no run yet (or no longer). Only our own JavaScript can meet it.
    #[class(generic)]
    #[error("no run is active in this isolate")]
    NoRun,
    /// A tool call without a result.
    #[class("McpxToolFailure")]
    #[property("code" = self.code())]
    #[property("server" = self.server())]
    #[property("tool" = self.tool())]
    #[error("{message}")]
    Tool { kind: &'static str, server: String, tool: String, message: String },
    /// An artifact that was not stored.
    #[class("McpxFailure")]
    #[property("code" = self.code())]
    #[error("{message}")]
    Artifact { kind: &'static str, message: String },
    /// Base64 that is none.
    #[class(type)]
    #[error("artifact(): the data of this content item is not base64")]
    NotBase64,
    /// Something that would reach beyond the run.
    #[class("NotSupported")]
    #[error("{what} is not available in an mcpx script: {why}")]
    Refused { what: &'static str, why: &'static str },
    /// An environment variable's name that no system would take.
    #[class(type)]
    #[error("the name of an environment variable must not be empty nor contain '=' or NUL: {0:?}")]
    EnvName(String),
    /// An environment variable's value with a NUL.
    #[class(type)]
    #[error("the value of an environment variable must not contain NUL")]
    EnvValue,
    #[class(inherit)]
    #[error(transparent)]
    Permission(#[from] deno_permissions::PermissionCheckError),
    #[class(inherit)]
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl OpError {
    fn code(&self) -> &'static str {
        match self {
            Self::Tool { kind, .. } | Self::Artifact { kind, .. } => kind,
            _ => "internal",
        }
    }

    fn server(&self) -> String {
        if let Self::Tool { server, .. } = self { server.clone() } else { String::new() }
    }

    fn tool(&self) -> String {
        if let Self::Tool { tool, .. } = self { tool.clone() } else { String::new() }
    }
}

impl From<ToolFailure> for OpError {
    fn from(failure: ToolFailure) -> Self {
        let ToolFailure { kind, server, tool, message } = failure;
        Self::Tool { kind, server, tool, message }
    }
}

impl From<ArtifactFailure> for OpError {
    fn from(failure: ArtifactFailure) -> Self {
        Self::Artifact { kind: failure.kind, message: failure.message }
    }
}
