//! One configured server over its whole life: idle, starting, ready, failed, and again.
//!
//! Owns the state and the rules between states: one start at a time, shared by all who wait for it; no start before the
//! old process group is reaped; a short pause after a failed start. Does not own what a start or a session does. The
//! lock is held for a look and a change only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::error::{Fault, UpstreamError};
use super::listing::KnownTools;
use super::start::{StartOrder, start};
use super::upstream::UpstreamLimits;
use crate::config::{ServerSpec, StdioSpec, Transport};

/// For so long after a failed start, its error answers further calls without a new start.
const PAUSE: Duration = Duration::from_secs(1);

/// A server as a listing shows it.
#[derive(Debug, Clone)]
pub struct ServerSummary {
    /// Wire name.
    pub name: String,
    /// Its namespace, unless another server's name makes the same one or it is disabled.
    pub namespace: Option<String>,
    pub state: ServerState,
}

/// Where a server is in its life.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ServerState {
    /// Never started, or ended since.
    Idle,
    Starting,
    Ready,
    /// The last start failed.
    Failed(UpstreamError),
    /// Its config does not let it be started; the error says why.
    Unusable(UpstreamError),
    /// The daemon stops, or its config was replaced.
    Closed,
}

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    pub(super) known: Arc<KnownTools>,
    base_env: Arc<BTreeMap<String, String>>,
    limits: UpstreamLimits,
    runtime: Handle,
    stop: CancellationToken,
    slot: Mutex<Slot>,
}

type StartResult = Result<Arc<Connection>, UpstreamError>;

#[derive(Debug)]
enum Slot {
    Idle,
    Starting(watch::Receiver<Option<StartResult>>),
    Ready(Arc<Connection>),
    Failed { at: Instant, error: UpstreamError },
}

/// What a caller has to wait for.
enum Next {
    Ready(Arc<Connection>),
    Started(watch::Receiver<Option<StartResult>>),
    Ended(Arc<Connection>),
}

impl Server {
    pub(super) fn new(
        spec: ServerSpec,
        limits: UpstreamLimits,
        base_env: Arc<BTreeMap<String, String>>,
        runtime: Handle,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let (known, slot) = (Arc::default(), Mutex::new(Slot::Idle));
        Arc::new(Self { spec, known, base_env, limits, runtime, stop, slot })
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// The time limit of a call, and the setting that changes it.
    pub(super) fn call_limit(&self, asked: Option<Duration>) -> (Duration, &'static str) {
        match (asked, self.spec.call_timeout) {
            (Some(limit), _) => (limit, "the timeout of the call"),
            (None, Some(limit)) => (limit, "mcpx.callTimeout of the server"),
            (None, None) => (self.limits.call_timeout, "pool.callTimeout (or mcpx.callTimeout of the server)"),
        }
    }

    pub(super) fn state(&self) -> ServerState {
        if let Err(error) = self.stdio() {
            return ServerState::Unusable(error);
        }
        if self.stop.is_cancelled() {
            return ServerState::Closed;
        }
        match &*self.slot() {
            Slot::Idle => ServerState::Idle,
            Slot::Starting(_) => ServerState::Starting,
            Slot::Ready(connection) if connection.is_open() => ServerState::Ready,
            Slot::Ready(_) => ServerState::Idle,
            Slot::Failed { error, .. } => ServerState::Failed(error.clone()),
        }
    }

    /// The live session; starts the server if there is none. Callers at the same time share one start.
    ///
    /// # Errors
    /// The config entry cannot be used, the start failed (now or within the last second), or we are stopping.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the start to the others who wait for it.
    pub(super) async fn connection(self: &Arc<Self>) -> StartResult {
        let stdio = self.stdio()?;
        loop {
            match self.next(stdio)? {
                Next::Ready(connection) => return Ok(connection),
                Next::Ended(connection) => {
                    connection.ended().await;
                    self.forget(&connection);
                }
                Next::Started(mut started) => {
                    let result = started.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
                    return result.unwrap_or_else(|| {
                        // The task is gone without a result: it panicked, or its runtime shuts down.
                        let mut slot = self.slot();
                        if matches!(&*slot, Slot::Starting(latest) if latest.same_channel(&started)) {
                            *slot = Slot::Idle;
                        }
                        Err(UpstreamError::new(self.name(), Fault::Internal { what: "the task that starts it died" }))
                    });
                }
            }
        }
    }

    /// Waits until nothing of this server runs any more. Only after `stop` was cancelled.
    pub(super) async fn closed(&self) {
        loop {
            let next = match &*self.slot() {
                Slot::Idle | Slot::Failed { .. } => return,
                Slot::Starting(started) => Next::Started(started.clone()),
                Slot::Ready(connection) => Next::Ended(Arc::clone(connection)),
            };
            match next {
                Next::Started(mut started) => {
                    if started.wait_for(Option::is_some).await.is_err() {
                        return;
                    }
                }
                Next::Ready(connection) | Next::Ended(connection) => {
                    connection.ended().await;
                    self.forget(&connection);
                }
            }
        }
    }

    fn next(self: &Arc<Self>, stdio: &StdioSpec) -> Result<Next, UpstreamError> {
        let mut slot = self.slot();
        match &*slot {
            Slot::Ready(connection) if connection.is_open() => return Ok(Next::Ready(Arc::clone(connection))),
            Slot::Ready(connection) => return Ok(Next::Ended(Arc::clone(connection))),
            Slot::Starting(started) => return Ok(Next::Started(started.clone())),
            _ if self.stop.is_cancelled() => return Err(UpstreamError::new(self.name(), Fault::Closing)),
            Slot::Failed { at, error } if at.elapsed() < PAUSE => return Err(error.clone()),
            Slot::Failed { .. } | Slot::Idle => {}
        }
        let (result_tx, started) = watch::channel(None);
        *slot = Slot::Starting(started.clone());
        drop(slot);
        let order = StartOrder {
            server: self.spec.name.clone(),
            stdio: stdio.clone(),
            base_env: Arc::clone(&self.base_env),
            limit: self.spec.start_timeout.unwrap_or(self.limits.start_timeout),
            stderr_bytes: self.limits.stderr_tail_bytes,
            known: Arc::clone(&self.known),
            stop: self.stop.clone(),
        };
        let server = Arc::clone(self);
        self.runtime.spawn(async move {
            let result = start(order).await;
            *server.slot() = match &result {
                Ok(connection) => Slot::Ready(Arc::clone(connection)),
                Err(error) => Slot::Failed { at: Instant::now(), error: error.clone() },
            };
            result_tx.send_replace(Some(result));
        });
        Ok(Next::Started(started))
    }

    /// Leaves a session that has ended, unless another has taken its place.
    fn forget(&self, ended: &Arc<Connection>) {
        let mut slot = self.slot();
        if matches!(&*slot, Slot::Ready(connection) if Arc::ptr_eq(connection, ended)) {
            *slot = Slot::Idle;
        }
    }

    fn stdio(&self) -> Result<&StdioSpec, UpstreamError> {
        let fault = match &self.spec.transport {
            _ if self.spec.disabled => Fault::Disabled,
            Transport::Stdio(stdio) => return Ok(stdio),
            Transport::Unsupported { what } => Fault::Unsupported { what: (*what).to_owned() },
            Transport::Broken { reason } => Fault::BadEntry { reason: reason.clone() },
        };
        Err(UpstreamError::new(self.name(), fault))
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        // No code between lock and unlock can leave a half-made state, so a poisoned lock is as good as any.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
