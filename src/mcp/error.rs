//! What can go wrong with an upstream.
//!
//! Owns the error type, its kind (a word of SPEC 14) and its wording: which server, which tool, what happened, what to
//! do. A kind follows from the fault's variant, never from a text.

use std::fmt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

/// Why an upstream did not do what it was asked.
#[derive(Debug, Clone)]
pub struct UpstreamError {
    /// Wire name of the server, or what the caller took for it.
    pub server: String,
    /// Wire name of the tool, or what the caller took for it.
    pub tool: Option<String>,
    /// What happened.
    pub fault: Box<Fault>,
}

/// What a server's own output tells about a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The end of its standard error.
    pub stderr: String,
    /// The end of what it printed on standard output that is no JSON-RPC message.
    pub noise: String,
    /// How many such lines there were.
    pub noise_lines: u64,
    /// How many lines were dropped because they were too long.
    pub oversized_lines: u64,
}

/// How a start or a session ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// The child was gone; `None` when its status could not be learned.
    Exited(Option<ExitStatus>),
    /// It closed its standard output and stayed alive; it was killed.
    ClosedOutput,
    /// It closed its standard input and stayed alive; it was killed.
    ClosedInput,
    /// It did not answer a ping after a call had timed out; it was killed.
    Hung,
    /// The daemon or the config's owner closed it.
    Closed,
}

/// What happened, one variant per message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// No such server or namespace.
    NoSuchServer { nearest: Option<String> },
    /// The server has no such tool.
    NoSuchTool { nearest: Option<String> },
    /// Several tools make this identifier.
    SharedTool { names: Vec<String> },
    /// Several servers make this namespace.
    SharedNamespace { names: Vec<String> },
    /// Its config entry says `disabled`.
    Disabled,
    /// Its config entry asks for something that is not implemented yet.
    Unsupported { what: String },
    /// Its config entry cannot be used.
    BadEntry { reason: String },
    /// The program could not be run at all.
    Spawn { command: String, source: Arc<std::io::Error> },
    /// It ended before it was ready.
    EndedAtStart { ending: Ending, evidence: Evidence },
    /// It was not ready in time; `step` is the request it did not answer.
    StartTimeout { step: &'static str, limit: Duration, evidence: Evidence },
    /// It answered, and not as an MCP server does.
    Handshake { step: &'static str, message: String, evidence: Evidence },
    /// The session ended while the call was pending; whether the call had any effect is unknown.
    Ended { ending: Ending, evidence: Evidence },
    /// No answer in time. `setting` names what changes the limit.
    CallTimeout { limit: Duration, setting: &'static str, oversized_lines: u64 },
    /// The caller gave up.
    Cancelled,
    /// The server answered the call with a JSON-RPC error.
    Refused { code: i64, message: String },
    /// The answer is no tool result; `what` says what it is.
    NotAResult { what: String },
    /// The arguments are no JSON object.
    BadArguments { what: String },
    /// The daemon is stopping, or the config was replaced.
    Closing,
    /// A task of ours died.
    Internal { what: &'static str },
}

impl UpstreamError {
    pub(super) fn new(server: impl Into<String>, fault: Fault) -> Self {
        Self { server: server.into(), tool: None, fault: Box::new(fault) }
    }

    /// The same error, of a call to `tool`.
    pub(super) fn on_tool(mut self, tool: &str) -> Self {
        self.tool.get_or_insert_with(|| tool.to_owned());
        self
    }

    /// The word of SPEC 14 for this error.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &*self.fault {
            Fault::NoSuchServer { .. } | Fault::NoSuchTool { .. } => "not_found",
            Fault::SharedTool { .. } | Fault::SharedNamespace { .. } | Fault::BadArguments { .. } => "bad_request",
            Fault::Unsupported { .. } => "unsupported",
            Fault::CallTimeout { .. } => "timeout",
            Fault::Cancelled => "cancelled",
            Fault::Refused { .. } | Fault::NotAResult { .. } => "tool_error",
            Fault::Internal { .. } => "internal",
            Fault::Disabled
            | Fault::BadEntry { .. }
            | Fault::Spawn { .. }
            | Fault::EndedAtStart { .. }
            | Fault::StartTimeout { .. }
            | Fault::Handshake { .. }
            | Fault::Ended { .. }
            | Fault::Closing => "upstream_unavailable",
        }
    }
}

impl std::error::Error for UpstreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.fault {
            Fault::Spawn { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, tool) = (&self.server, self.tool.as_deref().unwrap_or_default());
        match &*self.fault {
            Fault::NoSuchServer { nearest } => {
                write!(f, "no server {server:?}{}", DidYouMean(nearest))?;
                f.write_str("; servers come from mcpServers in the config")
            }
            Fault::NoSuchTool { nearest } => {
                write!(f, "server {server:?} has no tool {tool:?}{}", DidYouMean(nearest))
            }
            Fault::SharedTool { names } => write!(
                f,
                "server {server:?}: {tool:?} could be any of the tools {}; say which with call({server:?}, name, args)",
                Quoted(names)
            ),
            Fault::SharedNamespace { names } => write!(
                f,
                "the namespace {server:?} could be any of the servers {}; say which with call(name, tool, args), or give one \
                 an mcpx.namespace",
                Quoted(names)
            ),
            Fault::Disabled => write!(f, "server {server:?} is disabled in the config; remove \"disabled\" to use it"),
            Fault::Unsupported { what } => write!(f, "server {server:?}: {what} is not supported yet"),
            Fault::BadEntry { reason } => write!(f, "server {server:?} cannot be used: {reason}"),
            Fault::Spawn { command, source } => {
                write!(f, "server {server:?} did not start: cannot run {command:?}: {source}; ")?;
                f.write_str("check command, cwd and PATH in its config")
            }
            Fault::EndedAtStart { ending, evidence } => {
                write!(f, "server {server:?} did not start: {}{evidence}", AtStart(ending))
            }
            Fault::StartTimeout { step, limit, evidence } => write!(
                f,
                "server {server:?} did not answer {step} within {}; it was stopped; mcpx.startTimeout of the server or \
                 pool.startTimeout changes the limit{evidence}",
                humantime::format_duration(*limit)
            ),
            Fault::Handshake { step, message, evidence } => {
                write!(f, "server {server:?} is not a usable MCP server: {step} failed: {message}{evidence}")
            }
            Fault::Ended { ending, evidence } => write!(
                f,
                "{} while the call was pending; it may or may not have taken effect and is not repeated; the next call \
                 starts the server again{evidence}",
                Mid { server, tool, ending }
            ),
            Fault::CallTimeout { limit, setting, oversized_lines } => {
                let limit = humantime::format_duration(*limit);
                write!(
                    f,
                    "server {server:?}: tool {tool:?} gave no answer within {limit}; {setting} changes the limit"
                )?;
                if *oversized_lines > 0 {
                    write!(f, "; {oversized_lines} line(s) of the server were too long and dropped")?;
                }
                Ok(())
            }
            Fault::Cancelled => write!(f, "server {server:?}: the call of {tool:?} was cancelled"),
            Fault::Refused { code, message } => {
                write!(f, "server {server:?} refused the call of {tool:?}: {message} (JSON-RPC error {code})")
            }
            Fault::NotAResult { what } => {
                write!(f, "server {server:?} answered the call of {tool:?} with {what} instead of a tool result")
            }
            Fault::BadArguments { what } => {
                write!(f, "server {server:?}: the arguments of {tool:?} must be a JSON object, not {what}")
            }
            Fault::Closing => {
                write!(f, "server {server:?} is being closed because the daemon stops or reloads its config")
            }
            Fault::Internal { what } => write!(f, "server {server:?}: {what}"),
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.noise_lines > 0 {
            write!(
                f,
                "; {} line(s) on its standard output are not JSON-RPC, ending in {:?}",
                self.noise_lines, self.noise
            )?;
        }
        if self.oversized_lines > 0 {
            write!(f, "; {} line(s) were too long and dropped", self.oversized_lines)?;
        }
        if self.stderr.is_empty() {
            f.write_str("; it wrote nothing to standard error")
        } else {
            write!(f, "; its standard error ends in:\n{}", self.stderr.trim_end())
        }
    }
}

struct DidYouMean<'a>(&'a Option<String>);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |word| write!(f, " (did you mean {word:?}?)"))
    }
}

struct Quoted<'a>(&'a [String]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{name:?}")?;
        }
        Ok(())
    }
}

struct AtStart<'a>(&'a Ending);

impl fmt::Display for AtStart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ending::Exited(Some(status)) => write!(f, "it ended with {status} before it was ready"),
            Ending::Exited(None) => f.write_str("it ended before it was ready"),
            Ending::ClosedOutput => f.write_str("it closed its standard output before it was ready"),
            Ending::ClosedInput => f.write_str("it closed its standard input before it was ready"),
            Ending::Hung => f.write_str("it hung"),
            Ending::Closed => f.write_str("it was closed"),
        }
    }
}

struct Mid<'a> {
    server: &'a str,
    tool: &'a str,
    ending: &'a Ending,
}

impl fmt::Display for Mid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, tool, ending } = self;
        write!(f, "server {server:?}")?;
        match ending {
            Ending::Exited(Some(status)) => write!(f, " exited ({status})")?,
            Ending::Exited(None) => f.write_str(" exited")?,
            Ending::ClosedOutput => f.write_str(" closed its standard output")?,
            Ending::ClosedInput => f.write_str(" closed its standard input")?,
            Ending::Hung => f.write_str(" hung (no answer to a ping after a call timed out) and was stopped")?,
            Ending::Closed => f.write_str(" was closed")?,
        }
        if tool.is_empty() { Ok(()) } else { write!(f, ", tool {tool:?},") }
    }
}
