//! One live session with one child.
//!
//! Owns the session from a finished handshake to the reaped process group: sending calls, noticing that a server hangs
//! or ends, and the one task that supervises it. Invariants: a request is handed to the server at most once;
//! [`Connection::ended`] resolves only after the process group is dead and reaped; every way to end goes through
//! [`supervise`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientNotification,
    ClientRequest, JsonObject, PingRequest, RequestId,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::error::{Ending, Evidence};
use super::face::Face;
use super::listing::Relist;
use super::transcript::Transcript;
use super::wire::{WireSwitch, raw_result};

/// A server that does not answer a ping for so long, after a call has timed out, hangs (SPEC 7).
const PING_LIMIT: Duration = Duration::from_secs(2);

/// How long a child may take to exit after it has closed its standard output, before it is killed.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// How long the last answers of a dead child may take to arrive.
const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// How long a child may take to exit after its standard input was closed.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// How long a child may take to exit after SIGTERM.
const TERMINATE_GRACE: Duration = Duration::from_secs(1);

/// One session. Shared by everybody who calls the server.
#[derive(Debug)]
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    relist: mpsc::UnboundedSender<Relist>,
    /// Cancelled as soon as the end has begun: no new calls from then on.
    closing: CancellationToken,
    /// Cancelling it ends the session as hung.
    hung: CancellationToken,
    ended: watch::Receiver<Option<Ended>>,
    /// Whether a ping is out that decides if the server hangs.
    probing: Arc<AtomicBool>,
    transcript: Arc<Transcript>,
    runtime: Handle,
}

/// How a session ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) evidence: Evidence,
}

/// Everything a session is made of, right after the handshake.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) service: RunningService<RoleClient, Face>,
    pub(super) child: Child,
    pub(super) switch: WireSwitch,
    pub(super) relist: mpsc::UnboundedSender<Relist>,
    pub(super) closing: CancellationToken,
    pub(super) transcript: Arc<Transcript>,
    /// Cancelling it closes the session in good order.
    pub(super) stop: CancellationToken,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The session was over before the call was handed to it: it may go to another one.
    NotSent,
    /// The session ended with the call pending.
    Ended(Ended),
    /// A JSON-RPC error: code and message.
    Refused(i64, String),
    TimedOut,
    Cancelled,
    /// An answer of an impossible kind.
    Odd,
}

impl Connection {
    /// Takes charge of a session. Must be called on the daemon's runtime.
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let (ended_tx, ended) = watch::channel(None);
        let connection = Arc::new(Self {
            peer: parts.service.peer().clone(),
            relist: parts.relist,
            closing: parts.closing.clone(),
            hung: CancellationToken::new(),
            ended,
            probing: Arc::default(),
            transcript: parts.transcript,
            runtime: Handle::current(),
        });
        let hung = connection.hung.clone();
        tokio::spawn(async move {
            let end = supervise(parts.service, parts.child, parts.switch, parts.closing, hung, parts.stop).await;
            ended_tx.send_replace(Some(end));
        });
        connection
    }

    /// Whether new calls are welcome.
    pub(super) fn is_open(&self) -> bool {
        !self.closing.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Waits until the process group is dead and reaped.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        // The sender is dropped without a word only when the daemon's runtime shuts down.
        end.unwrap_or(Ended { ending: Ending::Closed, evidence: Evidence::default() })
    }

    /// Lists the tools again and waits until that is done.
    pub(super) async fn relist(&self) {
        let (done, wait) = oneshot::channel();
        if self.relist.send(Relist { done: Some(done) }).is_ok() {
            // An error means that the connection ended meanwhile; the caller finds out by itself.
            let _ = wait.await;
        }
    }

    pub(super) fn oversized_lines(&self) -> u64 {
        self.transcript.oversized_lines()
    }

    /// Sends one `tools/call` and waits for the `result`, as the server wrote it. `arguments` is left empty when they
    /// were sent.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call and tells the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &mut JsonObject,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<String, NoAnswer> {
        if !self.is_open() {
            return Err(NoAnswer::NotSent);
        }
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(std::mem::take(arguments));
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let RequestHandle { mut rx, id, .. } = match sent {
            Ok(handle) => handle,
            // The session took nothing, and is over.
            Err(_) => return Err(NoAnswer::Ended(self.ended().await)),
        };
        let mut pending = Pending { connection: self, id: Some(id), reason: "the caller is gone" };
        // The caller's runtime need not have a clock, or may have a stopped one; ours has one.
        let clock = {
            let _here = self.runtime.enter();
            tokio::time::sleep(limit)
        };
        let answer = tokio::select! {
            biased;
            answer = &mut rx => answer,
            () = cancel.cancelled() => {
                pending.reason = "the call was cancelled";
                return Err(NoAnswer::Cancelled);
            }
            () = clock => {
                pending.reason = "the call timed out";
                drop(pending);
                self.probe();
                return Err(NoAnswer::TimedOut);
            }
        };
        pending.id = None;
        match answer {
            Ok(Ok(result)) => raw_result(result).ok_or(NoAnswer::Odd),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(NoAnswer::Refused(error.code.0.into(), error.message.into_owned()))
            }
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Ended(self.ended().await)),
        }
    }

    /// Finds out whether the server still answers anything, and ends the session if not. One ping at a time decides for
    /// all.
    fn probe(&self) {
        if self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (peer, hung, probing) = (self.peer.clone(), self.hung.clone(), Arc::clone(&self.probing));
        self.runtime.spawn(async move {
            let ping = peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
            // An error is an answer, too: some servers do not know ping.
            if timeout(PING_LIMIT, ping).await.is_err() {
                hung.cancel();
            }
            probing.store(false, Ordering::Release);
        });
    }
}

/// A call that the server has and that nobody may wait for any more; dropping it tells the server.
struct Pending<'a> {
    connection: &'a Connection,
    /// `None` once it is answered.
    id: Option<RequestId>,
    reason: &'static str,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let params = CancelledNotificationParam::new(Some(id), Some(self.reason.to_owned()));
        let notification = ClientNotification::CancelledNotification(CancelledNotification::new(params));
        let peer = self.connection.peer.clone();
        self.connection.runtime.spawn(async move {
            // Fails only if the session is over, and then there is nobody to tell.
            let _ = peer.send_notification(notification).await;
        });
    }
}

/// Watches one session until it is over, whoever ends it, and cleans up after it.
async fn supervise(
    service: RunningService<RoleClient, Face>,
    mut child: Child,
    switch: WireSwitch,
    closing: CancellationToken,
    hung: CancellationToken,
    stop: CancellationToken,
) -> Ended {
    let session_stop = service.cancellation_token();
    let session = service.waiting();
    tokio::pin!(session);
    let (ending, grace) = tokio::select! {
        _ = &mut session => {
            closing.cancel();
            (Ending::ClosedOutput, EXIT_GRACE)
        }
        status = child.wait() => {
            closing.cancel();
            // Its last answers may still be in the pipe. A child of its own may hold the pipe open, so the wait is
            // bounded.
            let _ = timeout(DRAIN_GRACE, &mut session).await;
            (Ending::Exited(status), Duration::ZERO)
        }
        () = switch.broken.cancelled() => {
            closing.cancel();
            let _ = timeout(EXIT_GRACE, &mut session).await;
            (Ending::ClosedInput, EXIT_GRACE)
        }
        () = hung.cancelled() => {
            closing.cancel();
            (Ending::Hung, Duration::ZERO)
        }
        () = stop.cancelled() => {
            closing.cancel();
            switch.close.cancel();
            if timeout(CLOSE_GRACE, child.wait()).await.is_err() {
                child.terminate();
                let _ = timeout(TERMINATE_GRACE, child.wait()).await;
            }
            (Ending::Closed, Duration::ZERO)
        }
    };
    let (status, evidence) = child.finish(grace).await;
    switch.close.cancel();
    session_stop.cancel();
    let ending = match (ending, status) {
        (Ending::ClosedOutput | Ending::ClosedInput, Some(status)) => Ending::Exited(Some(status)),
        (ending, _) => ending,
    };
    Ended { ending, evidence }
}
