//! How a run ended: a value, a throw, or a stop from outside, and who stopped it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::frame::RunError;
use crate::error::ErrorKind;

/// Who ended a run early, and by which limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The own-time clock ran out.
    Deadline {
        limit: Duration,
    },
    /// The wall clock ran out.
    Wall {
        limit: Duration,
    },
    Heap {
        limit: u64,
    },
    /// ArrayBuffers.
    Buffers {
        limit: u64,
    },
    Calls {
        limit: usize,
    },
    /// The script used an API that is not stable, and so not available.
    Unstable {
        feature: String,
        api: String,
    },
    /// A caller asked.
    Cancelled,
    /// Nobody reads the frames any more.
    ClientGone,
    /// The script called `Deno.exit` or the like.
    Exit {
        code: i32,
    },
    /// The daemon stops.
    Shutdown,
}

impl StopReason {
    /// The error a caller sees; `None` for an exit with code 0, which is a success.
    pub fn error(&self) -> Option<RunError> {
        let (kind, message) = match self {
            Self::Deadline { limit } => (
                ErrorKind::Timeout,
                format!("the script ran longer than {} (exec.timeout, or options.timeout)", human(*limit)),
            ),
            Self::Wall { limit } => {
                (ErrorKind::Timeout, format!("the run took longer than {} of wall clock (exec.maxWall)", human(*limit)))
            }
            Self::Heap { limit } => (
                ErrorKind::HeapLimit,
                format!(
                    "the script's heap grew over {} (exec.maxHeapBytes)",
                    bytesize::ByteSize(*limit).display().iec()
                ),
            ),
            Self::Buffers { limit } => (
                ErrorKind::BufferLimit,
                format!(
                    "the script's ArrayBuffers would take more than {} (exec.maxBufferBytes)",
                    bytesize::ByteSize(*limit).display().iec()
                ),
            ),
            Self::Calls { limit } => {
                (ErrorKind::CallLimit, format!("the script made more than {limit} tool calls (exec.maxCalls)"))
            }
            Self::Unstable { feature, api } => (
                ErrorKind::Unsupported,
                format!("{api} is an unstable API ({feature}) and not available in mcpx scripts"),
            ),
            Self::Cancelled => (ErrorKind::Cancelled, "the run was cancelled".to_owned()),
            Self::ClientGone => (ErrorKind::ClientGone, "the client went away and the run was stopped".to_owned()),
            Self::Exit { code: 0 } => return None,
            Self::Exit { code } => (ErrorKind::Exited, format!("the script exited with code {code}")),
            Self::Shutdown => (ErrorKind::Interrupted, "the daemon is stopping and the run was stopped".to_owned()),
        };
        Some(RunError::plain(kind, message))
    }

    /// What a script's `signal` says, for stops that leave its isolate in order; `None` for the others.
    pub fn notice(&self) -> Option<String> {
        match self {
            Self::Deadline { .. } | Self::Wall { .. } | Self::Cancelled | Self::ClientGone | Self::Shutdown => {
                self.error().map(|error| error.message)
            }
            _ => None,
        }
    }

    /// Exit code of the run.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Exit { code } => *code,
            other => other.error().map_or(0, |error| i32::from(error.kind.row().exit)),
        }
    }

    /// Whether a clock did it.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Deadline { .. } | Self::Wall { .. })
    }
}

fn human(limit: Duration) -> String {
    humantime::format_duration(limit).to_string()
}

/// How the script itself ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It came to its end; the exit code is what it set, 0 by default. (Its value was reported to the sink before.)
    Finished { exit_code: i32 },
    /// It threw, or could not be compiled or loaded.
    Threw(RunError),
}

/// Stops one run, once: the first reason wins, repeats observe it.
///
/// Order matters (V8 reports a termination in several disguises, so the reason must stand before it): reason, token, terminate.
pub struct Stop {
    /// Whether the termination that follows the token has been requested.
    requested: AtomicBool,
    reason: OnceLock<StopReason>,
    token: CancellationToken,
    terminate: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stop").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            requested: AtomicBool::new(false),
            reason: OnceLock::new(),
            token: CancellationToken::new(),
            terminate: OnceLock::new(),
        }
    }
}

impl Stop {
    /// Stops the run for this reason; false when it was being stopped already. From any thread, V8's heap callback included.
    pub fn stop(&self, reason: StopReason) -> bool {
        let first = self.reason.set(reason).is_ok();
        if first {
            self.token.cancel();
            if let Some(terminate) = self.terminate.get() {
                terminate();
            }
            self.requested.store(true, Ordering::Release);
        }
        first
    }

    /// Waits until the stop that has woken somebody has done its last step, which is a matter of microseconds.
    pub fn settled(&self) {
        while self.reason.get().is_some() && !self.requested.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Asks the engine to let go once more. V8 can lose a termination: one that is requested inside a garbage collection, or while
    /// deno_core formats an error.
    pub fn insist(&self) {
        if self.reason.get().is_some()
            && let Some(terminate) = self.terminate.get()
        {
            terminate();
        }
    }

    /// Why the run is being stopped, if it is.
    pub fn reason(&self) -> Option<&StopReason> {
        self.reason.get()
    }

    /// Resolves when the run is being stopped.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.token.clone().cancelled_owned()
    }

    /// A token that is cancelled with the run, for work done on its behalf.
    pub fn child_token(&self) -> CancellationToken {
        self.token.child_token()
    }

    /// What makes a busy engine let go. Called by the engine when it takes the run; acts at once if a stop came first.
    pub fn attach(&self, terminate: Box<dyn Fn() + Send + Sync>) {
        if self.terminate.set(terminate).is_ok()
            && self.reason.get().is_some()
            && let Some(terminate) = self.terminate.get()
        {
            terminate();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn the_first_reason_wins_and_terminates_once() {
        let stop = Stop::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        stop.attach(Box::new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }));
        assert!(stop.stop(StopReason::Cancelled));
        assert!(!stop.stop(StopReason::ClientGone));
        assert_eq!(stop.reason(), Some(&StopReason::Cancelled));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_engine_that_attaches_late_is_stopped_at_once() {
        let stop = Stop::default();
        assert!(stop.stop(StopReason::Exit { code: 3 }));
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        stop.attach(Box::new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(stop.reason().map(StopReason::exit_code), Some(3));
    }

    #[test]
    fn exit_codes() {
        let limit = Duration::from_secs(1);
        assert_eq!(StopReason::Deadline { limit }.exit_code(), 124);
        assert_eq!(StopReason::Cancelled.exit_code(), 130);
        assert_eq!(StopReason::Exit { code: 0 }.exit_code(), 0);
        assert!(StopReason::Exit { code: 0 }.error().is_none());
        assert_eq!(StopReason::Heap { limit: 1 << 29 }.exit_code(), 1);
    }
}
