//! One thread, one tokio current-thread runtime, one isolate, one run.
//!
//! The thread makes and bootstraps its isolate, reports itself as a spare, waits for a job, runs it and ends. The isolate is made,
//! used and dropped here and nowhere else. Before any child thread exists it leaves the process's file-system context, so that
//! its working directory and umask are its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::job::{Job, Report};
use super::worker::{Worker, WorkerError, WorkerOptionsOfPool};
use crate::error::ErrorKind;
use crate::run::clock::OwnTime;
use crate::run::frame::{RunError, Timings};
use crate::run::outcome::Outcome;

/// Stack of an isolate's thread, in bytes: V8 takes 1 MiB of it, native code under it (parsers, serialisers) the rest.
const STACK: usize = 16 << 20;

/// How long a finished isolate waits before it is taken apart.
const ANSWER_FIRST: Duration = Duration::from_millis(1);

/// An isolate's thread could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    #[error("cannot start a thread for an isolate: {0}")]
    Spawn(#[source] std::io::Error),
    #[error("cannot give the isolate's thread a working directory of its own (unshare): {0}")]
    Unshare(#[source] std::io::Error),
    #[error("cannot make the isolate's event loop: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("cannot make an isolate: {0}")]
    Worker(String),
    #[error("the isolate's thread panicked while it was made")]
    Panicked,
}

impl From<WorkerError> for ThreadError {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error.to_string())
    }
}

/// A bootstrapped isolate that waits for its job. Dropping it ends its thread.
pub struct Spare {
    assignment: oneshot::Sender<(Job, Report)>,
    clock: Arc<OwnTime>,
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spare").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Spare {
    /// The own-time clock that this isolate's event loop reports to.
    pub fn clock(&self) -> Arc<OwnTime> {
        self.clock.clone()
    }

    /// Hands over a job. The report is called exactly once, on the isolate's thread.
    ///
    /// # Errors
    /// The job and the report back, when the thread has died meanwhile.
    pub fn give(self, job: Job, report: Report) -> Result<(), Box<(Job, Report)>> {
        self.assignment.send((job, report)).map_err(Box::new)
    }
}

/// Starts a thread. `ready` gets the spare, or why there is none; `gone` is called when the thread has ended, isolate and all.
pub(super) fn start(
    options: WorkerOptionsOfPool,
    ready: oneshot::Sender<Result<Spare, ThreadError>>,
    gone: impl FnOnce() + Send + 'static,
) -> Result<(), ThreadError> {
    let body = move || {
        // A panic must not take the run's answer with it: the sink ends by itself, the pool replaces the thread.
        if catch_unwind(AssertUnwindSafe(|| live(&options, ready))).is_err() {
            tracing::error!("the thread of an isolate panicked");
        }
        gone();
    };
    std::thread::Builder::new()
        .name("mcpx-isolate".to_owned())
        .stack_size(STACK)
        .spawn(body)
        .map(drop)
        .map_err(ThreadError::Spawn)
}

fn live(options: &WorkerOptionsOfPool, ready: oneshot::Sender<Result<Spare, ThreadError>>) {
    let clock = Arc::new(OwnTime::default());
    let made = leave_shared_context().and_then(|()| runtime(&clock));
    let runtime = match made {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let entered = runtime.enter();
    let mut worker = match Worker::boot(options) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = ready.send(Err(error.into()));
            return;
        }
    };
    if let Err(error) = runtime.block_on(worker.warm_up()) {
        let _ = ready.send(Err(error.into()));
        return;
    }
    let (assignment, assigned) = oneshot::channel();
    if ready.send(Ok(Spare { assignment, clock })).is_ok() {
        // An error means that the spare was dropped: the pool shrinks or the daemon stops.
        if let Ok((job, report)) = runtime.block_on(assigned) {
            run(&runtime, worker, job, report);
            drop(entered);
            runtime.shutdown_background();
            return;
        }
    }
    // An isolate that never ran has nothing pending; it still has to be dropped inside the runtime.
    worker.close_resources();
    drop(worker);
    drop(entered);
    runtime.shutdown_background();
}

fn run(runtime: &tokio::runtime::Runtime, mut worker: Worker, job: Job, report: Report) {
    let stop = job.stop.clone();
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(worker.run(job))));
    let (outcome, timings) = ran.unwrap_or_else(|_| {
        let error = RunError::plain(ErrorKind::Internal, "the engine failed; the daemon's log has the details");
        (Outcome::Threw(error), Timings::default())
    });
    let came_to_its_end = stop.reason().is_none() && matches!(outcome, Outcome::Finished { .. });
    if came_to_its_end {
        // The event loop is empty and no JavaScript will run again: with its files closed nothing of the run is alive, and the
        // caller need not wait for V8 to take the heap apart.
        worker.close_resources();
        let told = report(outcome, timings);
        // Taking the heap apart needs a core for half a millisecond, and the answer is on its way to the caller.
        std::thread::sleep(ANSWER_FIRST);
        drop(worker);
        drop(told);
    } else {
        drop(worker);
        drop(report(outcome, timings));
    }
}

fn runtime(clock: &Arc<OwnTime>) -> Result<tokio::runtime::Runtime, ThreadError> {
    let (parked, unparked) = (clock.clone(), clock.clone());
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // deno_runtime's own tuning of the loop (tokio_util.rs).
        .event_interval(61)
        .global_queue_interval(31)
        .max_io_events_per_tick(1024)
        .max_blocking_threads(32)
        .thread_name("mcpx-isolate-io")
        .on_thread_park(move || parked.parked())
        .on_thread_unpark(move || unparked.unparked())
        .build()
        .map_err(ThreadError::Runtime)
}

/// Gives this thread (and the threads it will make) a working directory, root and umask of its own.
#[cfg(target_os = "linux")]
fn leave_shared_context() -> Result<(), ThreadError> {
    // SAFETY: unshare takes an integer and touches no memory of ours; CLONE_FS needs no privilege.
    if unsafe { libc::unshare(libc::CLONE_FS) } == 0 {
        Ok(())
    } else {
        Err(ThreadError::Unshare(std::io::Error::last_os_error()))
    }
}

/// Elsewhere there is no such thing: enforcement that is unavailable is refused, never weakened.
#[cfg(not(target_os = "linux"))]
fn leave_shared_context() -> Result<(), ThreadError> {
    Err(ThreadError::Unshare(std::io::ErrorKind::Unsupported.into()))
}
