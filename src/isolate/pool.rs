//! Keeps isolates ready: `exec.warm` of them wait, fully bootstrapped, and one that is taken is replaced at once.
//!
//! Owns the spares and the count of live isolate threads. Any thread may call it; making isolates happens on their own threads.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::Platform;
use super::guarded_fs::ForbiddenPaths;
use super::program::Transpiler;
use super::thread::{self, Spare, ThreadError};
use super::worker::WorkerOptionsOfPool;

/// How long a refill waits while there is still a spare.
const REFILL_AFTER: Duration = Duration::from_millis(3);

/// No isolate can be had.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("no isolate can be made: {0}")]
    Thread(#[from] ThreadError),
    #[error("the pool is closed: the daemon is stopping")]
    Closed,
}

/// What the pool counts, for `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolNumbers {
    /// Isolates that wait for a job.
    pub warm: usize,
    /// Isolate threads alive: waiting, being made, running or being taken down.
    pub live: usize,
}

/// What every isolate of a pool is made with.
#[derive(Debug, Clone)]
pub struct IsolateOptions {
    /// The most V8 heap that a run can have, in bytes.
    pub heap: u64,
    /// The most ArrayBuffer memory that a run can have, in bytes.
    pub buffers: u64,
    /// Files and folders that no script reaches, whatever it was granted and whichever way a path leads there.
    pub forbidden: Vec<PathBuf>,
}

/// The pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct IsolatePool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: WorkerOptionsOfPool,
    /// How many spares to keep.
    target: usize,
    runtime: tokio::runtime::Handle,
    spares: Mutex<Spares>,
    /// Wakes those who wait for a spare.
    arrived: Notify,
    live: AtomicUsize,
}

#[derive(Debug, Default)]
struct Spares {
    ready: VecDeque<Spare>,
    /// Isolates being made.
    coming: usize,
    /// Runs that wait for one of them.
    waiting: usize,
    closed: bool,
    /// Why the last attempt failed, until one succeeds.
    failure: Option<String>,
}

impl IsolatePool {
    /// Makes the pool and starts its first spares. The platform proves that V8 runs.
    pub fn new(_platform: Platform, warm: usize, options: IsolateOptions, transpiler: Transpiler) -> Self {
        let shared = Shared {
            options: WorkerOptionsOfPool {
                heap_limit: options.heap,
                buffer_limit: options.buffers,
                forbidden: ForbiddenPaths::new(options.forbidden),
                transpiler,
            },
            target: warm,
            runtime: tokio::runtime::Handle::current(),
            spares: Mutex::default(),
            arrived: Notify::new(),
            live: AtomicUsize::new(0),
        };
        let pool = Self { shared: Arc::new(shared) };
        pool.refill();
        pool
    }

    /// A bootstrapped isolate: a spare if one waits, else the next one that is made.
    ///
    /// # Cancel safety
    /// Cancel safe: a spare that arrives for a caller who left goes to the next.
    pub async fn checkout(&self) -> Result<Spare, PoolError> {
        let waiting = Waiting::new(&self.shared);
        loop {
            let arrived = self.shared.arrived.notified();
            {
                let mut spares = self.shared.lock();
                if spares.closed {
                    return Err(PoolError::Closed);
                }
                if let Some(spare) = spares.ready.pop_front() {
                    let last = spares.ready.is_empty();
                    drop(spares);
                    drop(waiting);
                    if last {
                        self.refill()
                    } else {
                        self.refill_soon()
                    }
                    return Ok(spare);
                }
                if let Some(failure) = spares.failure.take() {
                    return Err(ThreadError::Worker(failure).into());
                }
            }
            self.refill();
            arrived.await;
        }
    }

    /// What the pool counts now.
    pub fn numbers(&self) -> PoolNumbers {
        PoolNumbers { warm: self.shared.lock().ready.len(), live: self.shared.live.load(Ordering::SeqCst) }
    }

    /// Drops the spares and refuses further checkouts. Isolates that run go on.
    pub fn close(&self) {
        let mut spares = self.shared.lock();
        spares.closed = true;
        let ready = std::mem::take(&mut spares.ready);
        drop(spares);
        drop(ready);
        self.shared.arrived.notify_waiters();
    }

    /// Refills a little later: making an isolate takes a core for longer than most runs last, and the run that has just taken
    /// its spare wants that core to answer its caller.
    fn refill_soon(&self) {
        let pool = self.clone();
        self.shared.runtime.spawn(async move {
            tokio::time::sleep(REFILL_AFTER).await;
            pool.refill();
        });
    }

    /// Starts as many isolates as are missing: one for each waiting run, and the spares.
    fn refill(&self) {
        let missing = {
            let mut spares = self.shared.lock();
            if spares.closed {
                return;
            }
            let missing = (self.shared.target + spares.waiting).saturating_sub(spares.ready.len() + spares.coming);
            spares.coming += missing;
            missing
        };
        for _ in 0..missing {
            self.start_one();
        }
    }

    fn start_one(&self) {
        let (ready, made) = oneshot::channel();
        self.shared.live.fetch_add(1, Ordering::SeqCst);
        let gone = {
            let shared = self.shared.clone();
            move || {
                shared.live.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let started = thread::start(self.shared.options.clone(), ready, gone);
        if started.is_err() {
            self.shared.live.fetch_sub(1, Ordering::SeqCst);
        }
        let shared = self.shared.clone();
        self.shared.runtime.spawn(async move {
            let made = match started {
                Ok(()) => made.await.unwrap_or(Err(ThreadError::Panicked)),
                Err(error) => Err(error),
            };
            let mut spares = shared.lock();
            spares.coming -= 1;
            match made {
                Ok(spare) if !spares.closed => {
                    spares.failure = None;
                    spares.ready.push_back(spare);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!("{error}");
                    spares.failure = Some(error.to_string());
                }
            }
            drop(spares);
            shared.arrived.notify_waiters();
        });
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Spares> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one waiting run until it is dropped.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.lock().waiting += 1;
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}
