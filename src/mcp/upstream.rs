//! The handle over all configured servers.
//!
//! Owns who is called what (wire names, namespaces), and one call from text to text. Cheap to clone; usable from any
//! thread and from any tokio runtime, because everything that needs a clock, a task or a child process happens on the
//! runtime it was made with. When the last clone is dropped, all servers are closed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::catalog::{Found, Tool, ToolTable};
use super::connection::{Connection, Ended, NoAnswer};
use super::error::{Ending, Fault, UpstreamError};
use super::names;
use super::search::{SearchHit, search};
use super::server::{Server, ServerSummary};
use crate::config::Config;

/// Limits for every server that does not set its own.
#[derive(Debug, Clone)]
pub struct UpstreamLimits {
    /// From spawn to a listed set of tools (`pool.startTimeout`).
    pub start_timeout: Duration,
    /// From sending a call to its answer (`pool.callTimeout`).
    pub call_timeout: Duration,
    /// So much of a server's standard error is kept for error messages, bytes.
    pub stderr_tail_bytes: usize,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(120),
            stderr_tail_bytes: 8 * 1024,
        }
    }
}

/// How a call names server and tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// By their own names.
    Wire,
    /// By namespace and identifier (SPEC 4.3).
    Identifier,
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct CallRequest {
    pub server: String,
    pub tool: String,
    pub naming: Naming,
    /// The arguments as JSON text: an object. Empty text means no arguments.
    pub args_json: String,
    /// Time limit; `None` means the configured one.
    pub timeout: Option<Duration>,
    /// Cancelling it ends the call and tells the server.
    pub cancel: CancellationToken,
}

/// What a tool answered.
#[derive(Debug, Clone)]
pub struct CallReply {
    /// Wire name.
    pub server: String,
    /// Wire name.
    pub tool: String,
    /// The whole `CallToolResult`, as the server wrote it.
    pub result_json: String,
    pub is_error: bool,
    /// The tool's `destructiveHint`.
    pub destructive_hint: Option<bool>,
    /// From sending the call to its answer; a start is not part of it.
    pub duration: Duration,
}

/// A server under the name that scripts use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub ident: String,
    /// Wire name.
    pub server: String,
}

/// All configured servers.
#[derive(Debug, Clone)]
pub struct Upstreams {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    servers: Vec<Arc<Server>>,
    by_name: HashMap<String, usize>,
    by_ident: HashMap<String, usize>,
    namespaces: Vec<Namespace>,
    collisions: Vec<names::Collision>,
    stop: CancellationToken,
    /// Closes everything when the last handle goes.
    _guard: DropGuard,
}

impl Upstreams {
    /// A handle over the servers of `config`; starts none. `base_env` is the environment that every child gets, below
    /// its own. `runtime` needs its I/O and time drivers and must outlive all calls.
    #[must_use]
    pub fn new(config: &Config, limits: UpstreamLimits, base_env: BTreeMap<String, String>, runtime: Handle) -> Self {
        let stop = CancellationToken::new();
        let base_env = Arc::new(base_env);
        let make = |spec: &crate::config::ServerSpec| {
            Server::new(spec.clone(), limits.clone(), Arc::clone(&base_env), runtime.clone(), stop.clone())
        };
        let servers: Vec<_> = config.servers().iter().map(make).collect();
        let by_name = servers.iter().enumerate().map(|(index, server)| (server.name().to_owned(), index)).collect();
        let idents: Vec<_> = servers
            .iter()
            .filter(|server| !server.spec.disabled)
            .map(|server| Namespace {
                ident: server.spec.namespace.clone().unwrap_or_else(|| names::namespace(server.name())),
                server: server.name().to_owned(),
            })
            .collect();
        let collisions = names::collisions(idents.iter().map(|n| (n.ident.as_str(), n.server.as_str())));
        for collision in &collisions {
            tracing::warn!(namespace = collision.ident, servers = ?collision.names, "several servers make one namespace");
        }
        let shared = |ident: &str| collisions.iter().any(|collision| collision.ident == ident);
        let namespaces: Vec<_> = idents.into_iter().filter(|n| !shared(&n.ident)).collect();
        let index_of = |name: &str| servers.iter().position(|server| server.name() == name);
        let by_ident = namespaces.iter().filter_map(|n| Some((n.ident.clone(), index_of(&n.server)?))).collect();
        let guard = stop.clone().drop_guard();
        Self { inner: Arc::new(Inner { servers, by_name, by_ident, namespaces, collisions, stop, _guard: guard }) }
    }

    /// All servers in config order, disabled and unusable ones included. Starts none.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerSummary> {
        let namespace = |name: &str| self.inner.namespaces.iter().find(|n| n.server == name).map(|n| n.ident.clone());
        let summary = |server: &Arc<Server>| ServerSummary {
            name: server.name().to_owned(),
            namespace: namespace(server.name()),
            state: server.state(),
        };
        self.inner.servers.iter().map(summary).collect()
    }

    /// The namespaces that are bound, in config order.
    #[must_use]
    pub fn namespaces(&self) -> &[Namespace] {
        &self.inner.namespaces
    }

    /// Namespaces that several servers make; none of them is bound, `call` by wire name reaches each.
    #[must_use]
    pub fn namespace_collisions(&self) -> &[names::Collision] {
        &self.inner.collisions
    }

    /// The wire name behind a namespace.
    #[must_use]
    pub fn server_of(&self, namespace: &str) -> Option<&str> {
        self.inner.by_ident.get(namespace).and_then(|index| self.inner.servers.get(*index)).map(|server| server.name())
    }

    /// What is known of a server's tools (by wire name), without starting it and without waiting. Tables survive the
    /// server's exit.
    #[must_use]
    pub fn known_tools(&self, server: &str) -> Option<Arc<ToolTable>> {
        self.server(server, Naming::Wire).ok()?.known.get()
    }

    /// Searches the tools that are known, of the servers that have a namespace.
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<SearchHit> {
        let known = |n: &Namespace| Some((n.ident.clone(), self.known_tools(&n.server)?));
        let tables: Vec<_> = self.inner.namespaces.iter().filter_map(known).collect();
        search(&tables, query, limit)
    }

    /// The tools of a server (by wire name); starts it if needed.
    ///
    /// # Errors
    /// No such server, or it did not start.
    ///
    /// # Cancel safety
    /// Safe: the start goes on.
    pub async fn tools(&self, server: &str) -> Result<Arc<ToolTable>, UpstreamError> {
        let server = self.server(server, Naming::Wire)?;
        server.connection().await?;
        server.known.get().ok_or_else(|| {
            UpstreamError::new(server.name(), Fault::Internal { what: "it is ready and its tools are not known" })
        })
    }

    /// Calls one tool, starting its server if needed. The call is sent at most once. An answer with `isError` is an
    /// answer.
    ///
    /// # Errors
    /// Server or tool unknown or ambiguous; the arguments are no object; the server did not start, ended, refused or
    /// gave no answer in time; the call was cancelled. Every error names server and tool.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call and tells the server. A start that others may share goes on.
    pub async fn call(&self, request: CallRequest) -> Result<CallReply, UpstreamError> {
        let server = self.server(&request.server, request.naming).map_err(|error| error.on_tool(&request.tool))?;
        let fail = |fault: Fault| UpstreamError::new(server.name(), fault).on_tool(&request.tool);
        let mut arguments = arguments(&request.args_json).map_err(|what| fail(Fault::BadArguments { what }))?;
        let (limit, setting) = server.call_limit(request.timeout);
        let mut fresh = false;
        loop {
            let prepared = tokio::select! {
                biased;
                () = request.cancel.cancelled() => return Err(fail(Fault::Cancelled)),
                prepared = prepare(server, &request) => prepared,
            };
            let (connection, tool) = prepared.map_err(|error| error.on_tool(&request.tool))?;
            let begun = Instant::now();
            let answer = connection.call(&tool.name, &mut arguments, limit, &request.cancel).await;
            let fail = |fault: Fault| UpstreamError::new(server.name(), fault).on_tool(&tool.name);
            let fault = match answer {
                Ok(result_json) => {
                    return Ok(CallReply {
                        is_error: is_error(&result_json).map_err(|what| fail(Fault::NotAResult { what }))?,
                        server: server.name().to_owned(),
                        destructive_hint: tool.destructive_hint,
                        tool: tool.name,
                        result_json,
                        duration: begun.elapsed(),
                    });
                }
                // The session had ended before it took the call; a fresh one sends it for the first time.
                Err(NoAnswer::NotSent) if !fresh => {
                    fresh = true;
                    continue;
                }
                Err(NoAnswer::NotSent) => ended(connection.ended().await),
                Err(NoAnswer::Ended(end)) => ended(end),
                Err(NoAnswer::TimedOut) => {
                    Fault::CallTimeout { limit, setting, oversized_lines: connection.oversized_lines() }
                }
                Err(NoAnswer::Refused(code, message)) => Fault::Refused { code, message },
                Err(NoAnswer::Cancelled) => Fault::Cancelled,
                Err(NoAnswer::Odd) => Fault::NotAResult { what: "an unexpected message".to_owned() },
            };
            return Err(fail(fault));
        }
    }

    /// Closes every server: standard input first, then SIGTERM after 2 s, then SIGKILL after 1 s more, always to the
    /// whole process group. Returns when all are reaped, after little more than 3 s at most. Pending and later calls
    /// fail. May be repeated.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        for server in &self.inner.servers {
            server.closed().await;
        }
    }

    fn server(&self, name: &str, naming: Naming) -> Result<&Arc<Server>, UpstreamError> {
        let inner = &*self.inner;
        let index = match naming {
            Naming::Wire => &inner.by_name,
            Naming::Identifier => &inner.by_ident,
        };
        if let Some(server) = index.get(name).and_then(|index| inner.servers.get(*index)) {
            return Ok(server);
        }
        let shared = inner.collisions.iter().find(|collision| collision.ident == name);
        let fault = match (naming, shared) {
            (Naming::Identifier, Some(collision)) => Fault::SharedNamespace { names: collision.names.clone() },
            _ => Fault::NoSuchServer {
                nearest: names::nearest(name, index.keys().map(String::as_str)).map(str::to_owned),
            },
        };
        Err(UpstreamError::new(name, fault))
    }
}

fn ended(end: Ended) -> Fault {
    match end.ending {
        Ending::Closed => Fault::Closing,
        ending => Fault::Ended { ending, evidence: end.evidence },
    }
}

/// What a call needs to know of its tool.
struct Target {
    name: String,
    destructive_hint: Option<bool>,
}

/// The session and the tool of a call. A tool that is not in the table may be new, so the server is asked once more.
async fn prepare(server: &Arc<Server>, request: &CallRequest) -> Result<(Arc<Connection>, Target), UpstreamError> {
    let connection = server.connection().await?;
    if let Some(target) = target(server, request)? {
        return Ok((connection, target));
    }
    connection.relist().await;
    if let Some(target) = target(server, request)? {
        return Ok((connection, target));
    }
    if !connection.is_open() {
        return Err(UpstreamError::new(server.name(), ended(connection.ended().await)));
    }
    let table = server.known.get().unwrap_or_default();
    let known = table.tools().iter().map(|tool| match request.naming {
        Naming::Wire => tool.name.as_str(),
        Naming::Identifier => tool.ident.as_str(),
    });
    let nearest = names::nearest(&request.tool, known).map(str::to_owned);
    Err(UpstreamError::new(server.name(), Fault::NoSuchTool { nearest }))
}

fn target(server: &Server, request: &CallRequest) -> Result<Option<Target>, UpstreamError> {
    let Some(table) = server.known.get() else { return Ok(None) };
    let take = |tool: &Tool| Target { name: tool.name.clone(), destructive_hint: tool.destructive_hint };
    match request.naming {
        Naming::Wire => Ok(table.by_name(&request.tool).map(take)),
        Naming::Identifier => match table.find(&request.tool) {
            Found::Tool(tool) => Ok(Some(take(tool))),
            Found::Shared(collision) => {
                Err(UpstreamError::new(server.name(), Fault::SharedTool { names: collision.names.clone() }))
            }
            Found::Nothing => Ok(None),
        },
    }
}

/// Reads the arguments; the error says what they are instead of an object.
fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(Value::Array(_)) => Err("an array".to_owned()),
        Ok(Value::Null) => Err("null".to_owned()),
        Ok(Value::String(_)) => Err("a string".to_owned()),
        Ok(Value::Number(_)) => Err("a number".to_owned()),
        Ok(Value::Bool(_)) => Err("a boolean".to_owned()),
        Err(error) => Err(format!("text that is no JSON ({error})")),
    }
}

/// Whether a `CallToolResult` reports an error; the error says what the text is instead of a result.
fn is_error(result: &str) -> Result<bool, String> {
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(default, rename = "isError")]
        is_error: Value,
        #[serde(default, rename = "resultType")]
        result_type: Value,
    }
    if !result.starts_with('{') {
        return Err(format!("{:.60}", result));
    }
    let envelope: Envelope = serde_json::from_str(result).map_err(|error| error.to_string())?;
    match envelope.result_type.as_str() {
        // "input_required" and "task" of revision 2026-07-28 are no results yet, and we cannot go on from them.
        Some(kind) if kind != "complete" => {
            Err(format!("an unfinished result of type {kind:?}, which is not supported yet"))
        }
        _ => Ok(envelope.is_error == Value::Bool(true)),
    }
}
