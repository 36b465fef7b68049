//! The ports of a run: what a script may reach outside its isolate, as traits that the daemon implements.
//!
//! Owns the traits and the plain types they exchange. Knows no store, no MCP client and no HTTP: the ops depend on these traits,
//! the daemon depends on the ops, never the reverse. Everything here is called on the isolate's own thread, so the traits are
//! `!Send`; an implementation hands work over to other threads by itself and must not block.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// A future that stays on the isolate's thread.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Everything one run may reach. The host puts it into the isolate's `OpState` when the job arrives.
#[derive(Clone)]
pub struct RunPorts {
    pub output: Rc<dyn Output>,
    pub tools: Rc<dyn Tools>,
    pub artifacts: Rc<dyn Artifacts>,
    pub lifecycle: Rc<dyn Lifecycle>,
}

impl std::fmt::Debug for RunPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunPorts").finish_non_exhaustive()
    }
}

/// Severity of a log record, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Which of the two text streams of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Where what a run says goes. Every method returns at once; bounding is the implementation's business.
pub trait Output {
    /// Bytes of a text stream as the script wrote them; a character may be split between two calls.
    fn write(&self, stream: Stream, bytes: &[u8]);
    /// One log record; `attrs` is a JSON object as text.
    fn log(&self, level: LogLevel, message: &str, attrs: Option<&str>);
    /// One structured value, as JSON text.
    fn emit(&self, json: &str);
    /// The run's value as JSON text; called at most once, and not at all for `undefined`.
    fn result(&self, json: &str);
    /// The kind of the failure that ends the run (a word of SPEC 14), said just before it is thrown.
    fn failing(&self, kind: &str);
}

/// The end of a run at the script's own wish.
pub trait Lifecycle {
    /// The script wants to end now with this exit code. Records the reason and asks V8 to terminate; JavaScript stops at its
    /// next check, which the returning op reaches.
    fn exit(&self, code: i32);
}

/// How a script names a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolNaming {
    /// By the identifiers of SPEC 4.3: namespace and method.
    Identifier,
    /// By the server's and the tool's own names.
    Wire,
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// Wire name of the server, or the namespace, as `naming` says.
    pub server: String,
    pub tool: String,
    pub naming: ToolNaming,
    /// The arguments as JSON text: an object.
    pub args: String,
    /// Time limit in milliseconds; `None` means the configured one.
    pub timeout_ms: Option<u64>,
    /// Number by which [`Tools::cancel`] finds this call; unique within the run.
    pub call_id: u32,
}

/// What an upstream answered.
#[derive(Debug, Clone)]
pub struct ToolReply {
    /// Wire name of the server.
    pub server: String,
    /// Wire name of the tool.
    pub tool: String,
    /// The whole `CallToolResult` as JSON text.
    pub result: String,
}

/// Why a call produced no result. `kind` is a word of SPEC 14; `message` says which server and tool, what happened, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolFailure {
    pub kind: &'static str,
    pub server: String,
    pub tool: String,
    pub message: String,
}

/// The MCP servers of the run.
pub trait Tools {
    /// The namespaces of this run as JSON text: `[{"ident","server"}]`. Synchronous and cheap: no server is started.
    fn namespaces(&self) -> String;
    /// What is known of one namespace's tools as JSON text, or `None` while its server has not been asked yet:
    /// `{"tools":[{"ident","name","description","inputSchema","outputSchema"?}],"collisions":[{"ident","names":[..]}]}`.
    fn tools(&self, namespace: &str) -> Option<String>;
    /// Ranked discovery over the tools already known, as JSON text: `[{"name":"ns.tool","description","score"}]`.
    fn search(&self, query: &str, limit: u32) -> String;
    /// One call. Dropping the future abandons the call; [`Tools::cancel`] also tells the server.
    fn call(&self, call: ToolCall) -> LocalBoxFuture<Result<ToolReply, ToolFailure>>;
    /// Cancels a pending call; unknown numbers are ignored.
    fn cancel(&self, call_id: u32);
}

/// What `artifact()` was given, after JavaScript has sorted it out.
#[derive(Debug)]
pub struct NewArtifact {
    /// As the script said it; the host sanitises it (SPEC 8.3).
    pub name: String,
    /// Explicit media type, if any.
    pub mime: Option<String>,
    /// Time to live in milliseconds; `None` means the configured one.
    pub ttl_ms: Option<u64>,
    pub body: ArtifactBody,
}

/// The bytes of a new artifact.
#[derive(Debug)]
pub enum ArtifactBody {
    Bytes(Vec<u8>),
    /// A file that the run may read (the op has checked the permission).
    Path(std::path::PathBuf),
}

/// Why an artifact could not be stored or read. `kind` is a word of SPEC 14.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArtifactFailure {
    pub kind: &'static str,
    pub message: String,
}

/// The run's way into the artifact store.
pub trait Artifacts {
    /// Stores one artifact. Resolves with its metadata as JSON text
    /// (`{"id","name","mime","size","sha256","uri"}`) once the commit that holds it is durable and its frame is sent.
    fn put(&self, new: NewArtifact) -> LocalBoxFuture<Result<String, ArtifactFailure>>;
}
