//! Starting one stdio server.
//!
//! Owns the way from a config entry to a usable session: spawn, `initialize`, `tools/list`, all under one time limit.
//! Invariant: a start that fails leaves no process behind and says what the server said. Runs as a task of the daemon's
//! runtime, so that no caller's cancellation reaches it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::connection::{Connection, Parts};
use super::error::{Ending, Fault, UpstreamError};
use super::face::Face;
use super::listing::{KnownTools, ListFault, keep_fresh, list_tools};
use super::transcript::Transcript;
use super::wire::StdioWire;
use crate::config::StdioSpec;

/// How long the last words of a dead child may take to arrive.
const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// How long a child that closed its streams may take to exit before it is killed.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Everything a start depends on.
#[derive(Debug)]
pub(super) struct StartOrder {
    pub(super) server: String,
    pub(super) stdio: StdioSpec,
    pub(super) base_env: Arc<BTreeMap<String, String>>,
    pub(super) limit: Duration,
    pub(super) stderr_bytes: usize,
    /// Where the tools go.
    pub(super) known: Arc<KnownTools>,
    /// Ends the start, and later the session.
    pub(super) stop: CancellationToken,
}

/// Starts the server and lists its tools. A server that knows no `initialize` is started once more and asked in the way
/// of revision 2026-07-28, which has no handshake; asking that way first would cost every older server a round trip or
/// a timeout.
///
/// # Errors
/// It could not be run, ended, did not answer in time, or answered as no MCP server does.
pub(super) async fn start(order: StartOrder) -> Result<Arc<Connection>, UpstreamError> {
    let deadline = Instant::now() + order.limit;
    match attempt(&order, deadline, ClientLifecycleMode::Initialize).await {
        Ok(connection) => Ok(connection),
        Err(Failed { error, no_handshake: true }) => {
            let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
            // What the server said first is what its author knows about.
            attempt(&order, deadline, modern).await.map_err(|_| error)
        }
        Err(Failed { error, no_handshake: false }) => Err(error),
    }
}

/// A start that failed; nothing of it runs any more.
struct Failed {
    error: UpstreamError,
    /// The server answered that it knows no `initialize`.
    no_handshake: bool,
}

async fn attempt(
    order: &StartOrder,
    deadline: Instant,
    lifecycle: ClientLifecycleMode,
) -> Result<Arc<Connection>, Failed> {
    let StartOrder { server, stdio, base_env, limit, stderr_bytes, known, stop } = order;
    let limit = *limit;
    let transcript = Arc::new(Transcript::new(*stderr_bytes));
    let (mut child, pipes) = Child::spawn(stdio, base_env, Arc::clone(&transcript)).map_err(|source| {
        let command = stdio.command.display().to_string();
        let error = UpstreamError::new(server, Fault::Spawn { command, source: Arc::new(source) });
        Failed { error, no_handshake: false }
    })?;
    let (wire, switch) = StdioWire::new(pipes, Arc::clone(&transcript));
    let (relist, requests) = mpsc::unbounded_channel();
    let face = Face { relist: relist.clone() };
    let failed = async |child: Child, step: &'static str, stopped: Stopped| {
        let grace = if matches!(stopped, Stopped::Gone) { EXIT_GRACE } else { Duration::ZERO };
        let (status, evidence) = child.finish(grace).await;
        let ending = if status.is_some() { Ending::Exited(status) } else { Ending::ClosedOutput };
        let no_handshake = matches!(stopped, Stopped::NoHandshake(_));
        let fault = match stopped {
            Stopped::Gone => Fault::EndedAtStart { ending, evidence },
            Stopped::TimedOut => Fault::StartTimeout { step, limit, evidence },
            Stopped::Closing => Fault::Closing,
            Stopped::Odd(message) | Stopped::NoHandshake(message) => Fault::Handshake { step, message, evidence },
        };
        Failed { error: UpstreamError::new(server, fault), no_handshake }
    };
    let service = match guarded(&mut child, deadline, stop, face.serve_with_lifecycle(wire, lifecycle)).await {
        Ok(Ok(service)) => service,
        Ok(Err(error)) => return Err(failed(child, "initialize", handshake_fault(error)).await),
        Err(stopped) => return Err(failed(child, "initialize", stopped).await),
    };
    match guarded(&mut child, deadline, stop, list_tools(service.peer(), server)).await {
        Ok(Ok(table)) => known.set(table),
        Ok(Err(fault)) => return Err(failed(child, "tools/list", list_fault(fault)).await),
        Err(stopped) => return Err(failed(child, "tools/list", stopped).await),
    }
    let closing = CancellationToken::new();
    let (peer, known) = (service.peer().clone(), Arc::clone(known));
    tokio::spawn(keep_fresh(peer, server.clone(), known, requests, limit, closing.clone()));
    Ok(Connection::new(Parts { service, child, switch, relist, closing, transcript, stop: stop.clone() }))
}

/// Why a step of the start was given up.
enum Stopped {
    /// The child ended or closed its streams.
    Gone,
    TimedOut,
    Closing,
    /// It answered, wrongly.
    Odd(String),
    /// It answered that it knows no `initialize`, or no revision that has one.
    NoHandshake(String),
}

/// Runs one step until it is done, the child is gone, time is up or we are stopping.
async fn guarded<T>(
    child: &mut Child,
    deadline: Instant,
    stop: &CancellationToken,
    step: impl Future<Output = T>,
) -> Result<T, Stopped> {
    tokio::pin!(step);
    tokio::select! {
        biased;
        done = &mut step => Ok(done),
        () = stop.cancelled() => Err(Stopped::Closing),
        _ = child.wait() => timeout(DRAIN_GRACE, &mut step).await.map_err(|_| Stopped::Gone),
        () = sleep_until(deadline) => Err(Stopped::TimedOut),
    }
}

fn handshake_fault(error: ClientInitializeError) -> Stopped {
    match error {
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. }
        | ClientInitializeError::Cancelled => Stopped::Gone,
        ClientInitializeError::JsonRpcError(error)
            if [ErrorCode::METHOD_NOT_FOUND, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION].contains(&error.code) =>
        {
            Stopped::NoHandshake(format!("{} (JSON-RPC error {})", error.message, error.code.0))
        }
        ClientInitializeError::JsonRpcError(error) => {
            Stopped::Odd(format!("{} (JSON-RPC error {})", error.message, error.code.0))
        }
        other => Stopped::Odd(other.to_string()),
    }
}

fn list_fault(fault: ListFault) -> Stopped {
    match fault {
        ListFault::Gone => Stopped::Gone,
        ListFault::Refused(error) => Stopped::Odd(format!("{} (JSON-RPC error {})", error.message, error.code.0)),
        ListFault::Malformed(message) => Stopped::Odd(message),
    }
}
