//! The ports of a run: `mcpx_ops::interface` implemented over the sink, the upstreams and the store.
//!
//! Made on the isolate's thread and used there only. Nothing here blocks: calls go to the upstreams' tasks, bytes to the store's
//! writer thread; files are read on the blocking pool of the isolate's own runtime.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcpx_ops::interface::{
    ArtifactBody, ArtifactFailure, Artifacts, Lifecycle, LocalBoxFuture, LogLevel, NewArtifact, Output, RunPorts,
    Stream, ToolCall, ToolFailure, ToolNaming, ToolReply, Tools,
};
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::clock::OwnTime;
use super::frame::Artifact;
use super::outcome::{Stop, StopReason};
use super::sink::{FrameSink, Text};
use crate::error::ErrorKind;
use crate::mcp::{CallRequest, Naming, Upstreams};
use crate::store::{self, ArtifactMeta, Store, StoreError};

/// What the ports of one run are made of; crosses to the isolate's thread.
#[derive(Debug, Clone)]
pub struct PortParts {
    pub sink: FrameSink,
    pub stop: Arc<Stop>,
    pub clock: Arc<OwnTime>,
    pub upstreams: Upstreams,
    pub store: Store,
    /// Label of the run in the store.
    pub run: String,
    pub session: Option<String>,
    /// Namespaces or server names that exist in the run; `None` means all.
    pub namespaces: Option<Vec<String>>,
    /// Tool calls that the run may make.
    pub max_calls: usize,
    /// Life of an artifact whose script names none; `None` is for ever.
    pub artifact_ttl: Option<Duration>,
}

impl PortParts {
    /// The ports, on the thread that will use them.
    pub fn into_ports(self) -> RunPorts {
        let parts = Rc::new(self);
        RunPorts {
            output: Rc::new(SinkOutput(parts.sink.clone())),
            tools: Rc::new(RunTools { parts: parts.clone(), calls: Cell::new(0), pending: RefCell::default() }),
            artifacts: Rc::new(RunArtifacts(parts.clone())),
            lifecycle: Rc::new(RunLifecycle(parts.stop.clone())),
        }
    }
}

struct SinkOutput(FrameSink);

impl Output for SinkOutput {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let stream = match stream {
            Stream::Stdout => Text::Stdout,
            Stream::Stderr => Text::Stderr,
        };
        self.0.write(stream, bytes);
    }

    fn log(&self, level: LogLevel, message: &str, attrs: Option<&str>) {
        let level = match level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        self.0.log(level, message, attrs.and_then(raw));
    }

    fn emit(&self, json: &str) {
        if let Some(value) = raw(json) {
            self.0.emit(value);
        }
    }

    fn result(&self, json: &str) {
        if let Some(value) = raw(json) {
            self.0.result(value);
        }
    }

    fn failing(&self, kind: &str) {
        self.0.failing(ErrorKind::from_word(kind).unwrap_or(ErrorKind::ScriptError));
    }
}

/// JSON text as a value that is never taken apart. Our own JavaScript wrote it, with V8's serialiser.
fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.to_owned()).ok()
}

struct RunLifecycle(Arc<Stop>);

impl Lifecycle for RunLifecycle {
    fn exit(&self, code: i32) {
        self.0.stop(StopReason::Exit { code });
    }
}

struct RunTools {
    parts: Rc<PortParts>,
    calls: Cell<usize>,
    pending: RefCell<HashMap<u32, CancellationToken>>,
}

impl RunTools {
    fn visible(&self, ident: &str, server: &str) -> bool {
        self.parts.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == ident || name == server))
    }

    /// Whether the run may see what a call names.
    fn reachable(&self, call: &ToolCall) -> bool {
        match call.naming {
            ToolNaming::Identifier => {
                self.parts.upstreams.server_of(&call.server).is_none_or(|server| self.visible(&call.server, server))
            }
            ToolNaming::Wire => {
                let spaces = self.parts.upstreams.namespaces();
                let ident = spaces.iter().find(|space| space.server == call.server).map_or("", |space| &space.ident);
                self.visible(ident, &call.server)
            }
        }
    }

    /// Counts a call against the run's limit.
    fn admit(&self, call: &ToolCall) -> Result<(), ToolFailure> {
        let refuse = |kind: ErrorKind, message: String| {
            Err(ToolFailure { kind: kind.word(), server: call.server.clone(), tool: call.tool.clone(), message })
        };
        if !self.reachable(call) {
            let message = format!("{} is not among the namespaces of this run (options.ns)", call.server);
            return refuse(ErrorKind::NotFound, message);
        }
        let limit = self.parts.max_calls;
        if self.calls.get() >= limit {
            self.parts.stop.stop(StopReason::Calls { limit });
            return refuse(ErrorKind::CallLimit, format!("a run may make {limit} tool calls (exec.maxCalls)"));
        }
        self.calls.set(self.calls.get() + 1);
        Ok(())
    }
}

impl Tools for RunTools {
    fn namespaces(&self) -> String {
        let upstreams = &self.parts.upstreams;
        let bound = upstreams
            .namespaces()
            .iter()
            .filter(|space| self.visible(&space.ident, &space.server))
            .map(|space| json!({"ident": space.ident, "server": space.server}));
        let clashing = upstreams.namespace_collisions().iter().map(|collision| {
            let clash =
                format!("the servers {} share this name; use call(server, tool, args)", collision.names.join(", "));
            json!({"ident": collision.ident, "clash": clash})
        });
        serde_json::Value::Array(bound.chain(clashing).collect()).to_string()
    }

    fn tools(&self, namespace: &str) -> Option<String> {
        let server = self.parts.upstreams.server_of(namespace)?;
        if !self.visible(namespace, server) {
            return None;
        }
        Some(self.parts.upstreams.known_tools(server)?.to_json().to_owned())
    }

    fn search(&self, query: &str, limit: u32) -> String {
        // Filtering comes after ranking, so ask for all and cut then.
        let hits = self.parts.upstreams.search(query, usize::MAX);
        let seen = |name: &str| {
            let ident = name.split_once('.').map_or(name, |(ident, _)| ident);
            self.parts.upstreams.server_of(ident).is_some_and(|server| self.visible(ident, server))
        };
        let hits = hits.into_iter().filter(|hit| seen(&hit.name)).take(limit as usize);
        let hits = hits.map(|hit| json!({"name": hit.name, "description": hit.description, "score": hit.score}));
        serde_json::Value::Array(hits.collect()).to_string()
    }

    fn call(&self, call: ToolCall) -> LocalBoxFuture<Result<ToolReply, ToolFailure>> {
        if let Err(failure) = self.admit(&call) {
            return Box::pin(std::future::ready(Err(failure)));
        }
        let cancel = self.parts.stop.child_token();
        self.pending.borrow_mut().insert(call.call_id, cancel.clone());
        let guard = self.parts.clock.call();
        let upstreams = self.parts.upstreams.clone();
        Box::pin(async move {
            let _guard = guard;
            let request = CallRequest {
                server: call.server,
                tool: call.tool,
                naming: match call.naming {
                    ToolNaming::Identifier => Naming::Identifier,
                    ToolNaming::Wire => Naming::Wire,
                },
                args_json: call.args,
                timeout: call.timeout_ms.map(Duration::from_millis),
                cancel,
            };
            let (server, tool) = (request.server.clone(), request.tool.clone());
            match upstreams.call(request).await {
                Ok(reply) => Ok(ToolReply { server: reply.server, tool: reply.tool, result: reply.result_json }),
                Err(error) => Err(ToolFailure { kind: error.kind(), server, tool, message: error.to_string() }),
            }
        })
    }

    fn cancel(&self, call_id: u32) {
        if let Some(token) = self.pending.borrow_mut().remove(&call_id) {
            token.cancel();
        }
    }
}

struct RunArtifacts(Rc<PortParts>);

impl Artifacts for RunArtifacts {
    fn put(&self, new: NewArtifact) -> LocalBoxFuture<Result<String, ArtifactFailure>> {
        let parts = self.0.clone();
        Box::pin(async move {
            let described = store::NewArtifact {
                name: new.name,
                mime: new.mime,
                ttl: new.ttl_ms.map(Duration::from_millis).or(parts.artifact_ttl),
                run: Some(parts.run.clone()),
                session: parts.session.clone(),
            };
            let stored = match new.body {
                ArtifactBody::Bytes(bytes) => parts.store.put(described, Bytes::from(bytes)).await.map_err(failure)?,
                ArtifactBody::Path(path) => put_file(&parts.store, described, path).await?,
            };
            let artifact = wire_artifact(&stored);
            let json = serde_json::to_string(&artifact)
                .map_err(|error| ArtifactFailure { kind: ErrorKind::Internal.word(), message: error.to_string() })?;
            // The frame follows the commit, and the script's promise follows the frame.
            parts.sink.artifact(artifact);
            Ok(json)
        })
    }
}

/// Bytes read from a file at a time.
const FILE_CHUNK: usize = 256 << 10;

/// Stores a file, piece by piece.
async fn put_file(
    store: &Store,
    described: store::NewArtifact,
    path: PathBuf,
) -> Result<ArtifactMeta, ArtifactFailure> {
    let unreadable = |path: &Path, error: &std::io::Error| {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::ScriptError };
        ArtifactFailure { kind: kind.word(), message: format!("artifact(): cannot read {}: {error}", path.display()) }
    };
    let open = path.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::open(&open)?;
        if file.metadata()?.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
    });
    let lost =
        |_| ArtifactFailure { kind: ErrorKind::Internal.word(), message: "a file read was abandoned".to_owned() };
    let mut file = opened.await.map_err(lost)?.map_err(|error| unreadable(&path, &error))?;
    let mut upload = store.begin();
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; FILE_CHUNK];
            let length = std::io::Read::read(&mut file, &mut chunk)?;
            chunk.truncate(length);
            Ok((file, chunk))
        });
        let (again, chunk) = read.await.map_err(lost)?.map_err(|error: std::io::Error| unreadable(&path, &error))?;
        file = again;
        if chunk.is_empty() {
            return upload.finish(described).await.map_err(failure);
        }
        upload.write(chunk.into()).await.map_err(failure)?;
    }
}

fn failure(error: StoreError) -> ArtifactFailure {
    log_store_error(&error);
    ArtifactFailure { kind: store_error_kind(&error).word(), message: error.to_string() }
}

/// Writes a failure of the storage itself, with its causes, to the daemon's log. Callers see the message only.
pub fn log_store_error(error: &StoreError) {
    if store_error_kind(error) != ErrorKind::Storage {
        return;
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    tracing::error!("artifact store: {text}");
}

/// The kind of a store failure.
pub fn store_error_kind(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::TooLarge { .. } => ErrorKind::TooLarge,
        StoreError::LabelTooLong { .. } => ErrorKind::BadRequest,
        _ => ErrorKind::Storage,
    }
}

/// An artifact as callers see it.
pub fn wire_artifact(meta: &ArtifactMeta) -> Artifact {
    Artifact {
        id: meta.id.to_string(),
        name: meta.name.clone(),
        mime: meta.mime.clone(),
        size: meta.size,
        sha256: meta.sha256_hex(),
        uri: meta.uri(),
    }
}
