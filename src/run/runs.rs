//! Starts runs, supervises them, and stops them all when the daemon ends.
//!
//! A run owns its sink and its stop; whoever stops it says why first; the sink ends once. The permit to run comes back after the
//! isolate is gone, so that memory is bounded and not only concurrency. Lives on the daemon's runtime.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::engine::{Engine, PrepareError, Prepared, give};
use super::frame::{Frame, RunError, Timings};
use super::outcome::{Outcome, Stop, StopReason};
use super::permissions::Place;
use super::place::{Grounds, PrivateFolder};
use super::ports::PortParts;
use super::sink::{FrameSink, FrameStream, frames};
use super::spec::RunSpec;
use crate::error::{ErrorKind, PublicError};
use crate::id::RunId;
use crate::isolate::{IsolatePool, Job, PoolNumbers, Spare, Transpiler};
use crate::mcp::Upstreams;
use crate::settings::Settings;
use crate::store::Store;

/// Milliseconds between two requests to let go. Together they are how long after a stop the caller gets its `end` at the latest: a
/// little under the 100 ms of SPEC 6.2.
const INSIST: [u64; 4] = [10, 20, 30, 35];

/// Pause between two requests to a thread that did not answer in time.
const INSIST_LATER: Duration = Duration::from_secs(1);

/// What runs are made of.
#[derive(Debug)]
pub struct RunParts {
    pub settings: Arc<Settings>,
    pub pool: IsolatePool,
    pub transpiler: Transpiler,
    pub store: Store,
    pub upstreams: Upstreams,
    pub grounds: Grounds,
    /// `PATH` and `LANG` for runs whose caller sends no environment.
    pub base_env: BTreeMap<String, String>,
}

/// All runs of the daemon. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runs {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Arc<Settings>,
    engine: Engine,
    store: Store,
    upstreams: Upstreams,
    grounds: Grounds,
    base_env: BTreeMap<String, String>,
    places: Arc<Semaphore>,
    /// Runs that were accepted and have not ended: those that wait and those that run.
    accepted: AtomicUsize,
    /// Runs that have an isolate.
    running: AtomicUsize,
    finished: AtomicU64,
    stuck: AtomicUsize,
    active: Mutex<Active>,
}

#[derive(Debug, Default)]
struct Active {
    stops: HashMap<RunId, Arc<Stop>>,
    closed: bool,
}

/// A started run: its id and its frames. Dropping the frames stops it.
#[derive(Debug)]
pub struct Run {
    pub id: RunId,
    pub frames: FrameStream,
}

/// What the runs count, for `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunsNumbers {
    pub running: usize,
    pub queued: usize,
    /// Since the daemon's start.
    pub finished: u64,
    /// Threads that V8 has not given back.
    pub stuck: usize,
    pub pool: PoolNumbers,
}

impl Runs {
    pub fn new(parts: RunParts) -> Self {
        let inner = Inner {
            places: Arc::new(Semaphore::new(parts.settings.concurrency())),
            settings: parts.settings,
            engine: Engine { pool: parts.pool, transpiler: parts.transpiler },
            store: parts.store,
            upstreams: parts.upstreams,
            grounds: parts.grounds,
            base_env: parts.base_env,
            accepted: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
            stuck: AtomicUsize::new(0),
            active: Mutex::default(),
        };
        inner.grounds.restock();
        Self { inner: Arc::new(inner) }
    }

    /// Starts a run. It goes on until its outcome, a limit, [`Runs::close`], or until the frames are dropped.
    ///
    /// # Errors
    /// What keeps a run from starting: `queue_full`, `not_found` (its file), `bad_request`, `interrupted` (the daemon stops).
    /// Everything later is a frame.
    pub async fn start(&self, spec: RunSpec) -> Result<Run, PublicError> {
        let began = Instant::now();
        let accepted = self.inner.accept()?;
        let private = self.inner.grounds.private_folder().map_err(|error| {
            PublicError::new(ErrorKind::Storage, format!("cannot make the run's temp folder: {error}"))
        })?;
        let cwd = spec.cwd.clone().unwrap_or_else(|| private.path().to_owned());
        let prepared = match self.inner.engine.prepare(&spec, &cwd).await {
            Ok(prepared) => Ok(prepared),
            Err(PrepareError::Script(error)) => Err(error),
            Err(PrepareError::Request(error)) => return Err(error),
        };
        let (sink, frames) = frames(spec.limits.output);
        let stop = Arc::new(Stop::default());
        let id = spec.id.clone();
        self.inner.register(&id, &stop)?;
        let begun = Begun { spec, private, cwd, sink, stop, accepted, began };
        tokio::spawn(supervise(self.inner.clone(), begun, prepared));
        Ok(Run { id, frames })
    }

    /// Asks a run to stop; false when there is none of that id.
    pub fn cancel(&self, id: &RunId) -> bool {
        let stop = self.inner.lock().stops.get(id).cloned();
        stop.is_some_and(|stop| {
            stop.stop(StopReason::Cancelled);
            true
        })
    }

    /// What is going on.
    pub fn numbers(&self) -> RunsNumbers {
        let running = self.inner.running.load(Ordering::SeqCst);
        RunsNumbers {
            running,
            queued: self.inner.accepted.load(Ordering::SeqCst).saturating_sub(running),
            finished: self.inner.finished.load(Ordering::SeqCst),
            stuck: self.inner.stuck.load(Ordering::SeqCst),
            pool: self.inner.engine.pool.numbers(),
        }
    }

    /// Refuses new runs, stops those that run, and waits until all have ended or the grace is over.
    pub async fn close(&self, grace: Duration) {
        let stops: Vec<_> = {
            let mut active = self.inner.lock();
            active.closed = true;
            active.stops.values().cloned().collect()
        };
        for stop in stops {
            stop.stop(StopReason::Shutdown);
        }
        self.inner.engine.pool.close();
        let everything = u32::try_from(self.inner.settings.concurrency()).unwrap_or(u32::MAX);
        // Every run holds a place until its isolate is gone: with all places in hand, all are gone.
        if tokio::time::timeout(grace, self.inner.places.acquire_many(everything)).await.is_err() {
            tracing::warn!("some runs did not end within {grace:?} (daemon.shutdownGrace)");
        }
    }
}

/// Counts an accepted run until it is dropped.
#[derive(Debug)]
struct Accepted(Arc<Inner>);

impl Drop for Accepted {
    fn drop(&mut self) {
        self.0.accepted.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a run that has an isolate until it is dropped.
struct Running<'a>(&'a Inner);

impl<'a> Running<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner.running.fetch_add(1, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Active> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>) -> Result<Accepted, PublicError> {
        let stuck = self.stuck.load(Ordering::SeqCst);
        if stuck >= self.settings.exec_max_stuck.max(1) {
            let message = format!(
                "{stuck} threads are stuck in code that V8 cannot interrupt (exec.maxStuck); restart the daemon"
            );
            return Err(PublicError::new(ErrorKind::Interrupted, message));
        }
        let limit = self.settings.exec_queue + self.settings.concurrency();
        let before = self.accepted.fetch_add(1, Ordering::SeqCst);
        let accepted = Accepted(self.clone());
        if before >= limit {
            let message = format!("{before} runs are running or waiting, and no more may wait (exec.queue)");
            return Err(PublicError::new(ErrorKind::QueueFull, message));
        }
        Ok(accepted)
    }

    fn register(&self, id: &RunId, stop: &Arc<Stop>) -> Result<(), PublicError> {
        let mut active = self.lock();
        if active.closed {
            return Err(PublicError::new(ErrorKind::Interrupted, "the daemon is stopping"));
        }
        active.stops.insert(id.clone(), stop.clone());
        Ok(())
    }

    fn unregister(&self, id: &RunId) {
        self.grounds.restock();
        self.lock().stops.remove(id);
        self.finished.fetch_add(1, Ordering::SeqCst);
    }

    /// The environment of a run: the caller's, or the minimal one of SPEC 6.1.
    fn env_of(&self, spec: &RunSpec, private: &PrivateFolder) -> BTreeMap<String, String> {
        spec.env.clone().unwrap_or_else(|| {
            let own = private.path().to_string_lossy().into_owned();
            let mut env = self.base_env.clone();
            env.insert("HOME".to_owned(), own.clone());
            env.insert("TMPDIR".to_owned(), own);
            env
        })
    }
}

/// A run that has been accepted.
#[derive(Debug)]
struct Begun {
    spec: RunSpec,
    private: PrivateFolder,
    cwd: PathBuf,
    sink: FrameSink,
    stop: Arc<Stop>,
    accepted: Accepted,
    began: Instant,
}

/// How the isolate's thread reported.
type Reported = (Outcome, Timings);

/// Carries one run from the queue to its end.
async fn supervise(inner: Arc<Inner>, begun: Begun, prepared: Result<Prepared, RunError>) {
    let Begun { spec, private, cwd, sink, stop, accepted, began } = begun;
    let script_folder = match &spec.script {
        super::spec::Script::File(path) => path.parent(),
        super::spec::Script::Text(_) => None,
    };
    let place = Place { cwd: &cwd, temp: private.path(), script_folder, forbidden: &inner.grounds.forbidden };
    let placed = spec.permissions.placed(&place);
    let start = Frame::Start {
        run_id: spec.id.to_string(),
        runtime: "embedded".to_owned(),
        reason: None,
        isolation: "isolate".to_owned(),
        permissions: placed.effective.clone(),
        cwd: cwd.display().to_string(),
    };
    let wall = tokio::time::sleep(spec.limits.wall);
    tokio::pin!(wall);
    let admitted = async {
        let prepared = prepared?;
        let permit = inner.places.clone().acquire_owned().await;
        let permit = permit.map_err(|_| RunError::plain(ErrorKind::Interrupted, "the daemon is stopping"))?;
        Ok((prepared, permit, inner.engine.checkout().await?))
    };
    let admitted = tokio::select! {
        biased;
        () = stop.stopped() => Err(None),
        () = sink.closed() => Err(Some(StopReason::ClientGone)),
        () = &mut wall => Err(Some(StopReason::Wall { limit: spec.limits.wall })),
        admitted = admitted => Ok(admitted),
    };
    sink.start(start);
    let (prepared, permit, spare): (Prepared, OwnedSemaphorePermit, Spare) = match admitted {
        Ok(Ok(admitted)) => admitted,
        Ok(Err(error)) => {
            sink.end_unstarted(error);
            inner.unregister(&spec.id);
            return;
        }
        Err(reason) => {
            if let Some(reason) = reason {
                stop.stop(reason);
            }
            sink.end(&Outcome::Finished { exit_code: 0 }, stop.reason(), true, None);
            inner.unregister(&spec.id);
            return;
        }
    };
    let running = Running::new(&inner);
    let env = inner.env_of(&spec, &private);
    let clock = spare.clock();
    let parts = PortParts {
        sink: sink.clone(),
        stop: stop.clone(),
        clock: clock.clone(),
        upstreams: inner.upstreams.clone(),
        store: inner.store.clone(),
        run: spec.id.to_string(),
        session: spec.session.clone(),
        namespaces: spec.namespaces.clone(),
        max_calls: spec.limits.calls,
        artifact_ttl: (!inner.settings.artifacts_ttl.is_zero()).then_some(inner.settings.artifacts_ttl),
    };
    let job = Job {
        main: prepared.main,
        program: prepared.program,
        carried: prepared.carried,
        args: spec.args.clone(),
        export: spec.export.clone(),
        cwd: cwd.clone(),
        env,
        stdin: spec.stdin.clone(),
        permissions: placed,
        heap_limit: spec.limits.heap,
        buffer_limit: spec.limits.buffers,
        own_time_limited: spec.limits.own_time.is_some(),
        ports: Box::new(move || parts.into_ports()),
        sink: sink.clone(),
        stop: stop.clone(),
        clock: clock.clone(),
        queue_ms: Timings::millis(began.elapsed()),
    };
    let (reported, mut report) = oneshot::channel::<Reported>();
    let (gone, mut retired) = oneshot::channel::<()>();
    let ended = End { sink: sink.clone(), stop: stop.clone(), reported: Some(reported), gone: Some(gone) };
    if !give(spare, job, Box::new(move |outcome, timings| ended.report(outcome, timings))) {
        sink.end_unstarted(RunError::plain(ErrorKind::Internal, "the isolate died before it got the script"));
    }
    let own_time = own_time_over(spec.limits.own_time, &clock);
    tokio::pin!(own_time);
    tokio::select! {
        biased;
        _ = &mut report => {}
        () = stop.stopped() => {}
        () = sink.closed() => { stop.stop(StopReason::ClientGone); }
        () = &mut wall => { stop.stop(StopReason::Wall { limit: spec.limits.wall }); }
        limit = &mut own_time => { stop.stop(StopReason::Deadline { limit }); }
    }
    // The caller gets its end in time, even from a thread that does not answer.
    let in_time = if stop.reason().is_some() {
        let mut insisting = INSIST.iter();
        loop {
            let Some(pause) = insisting.next() else { break false };
            if tokio::time::timeout(Duration::from_millis(*pause), &mut retired).await.is_ok() {
                break true;
            }
            stop.insist();
        }
    } else {
        let _ = (&mut retired).await;
        true
    };
    if !in_time {
        sink.end(&Outcome::Finished { exit_code: 0 }, stop.reason(), false, None);
        inner.stuck.fetch_add(1, Ordering::SeqCst);
        tracing::warn!(run = %spec.id, "the thread of a stopped run does not answer");
        while tokio::time::timeout(INSIST_LATER, &mut retired).await.is_err() {
            stop.insist();
        }
        inner.stuck.fetch_sub(1, Ordering::SeqCst);
    }
    inner.unregister(&spec.id);
    drop(running);
    drop(permit);
    drop(accepted);
}

/// Resolves with the limit when the run's own time is over; never for a run without one.
async fn own_time_over(limit: Option<Duration>, clock: &super::clock::OwnTime) -> Duration {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        let left = limit.saturating_sub(clock.charged());
        if left.is_zero() {
            return limit;
        }
        tokio::time::sleep(left).await;
    }
}

/// Ends the stream when the isolate's thread reports, or is dropped without a report.
struct End {
    sink: FrameSink,
    stop: Arc<Stop>,
    reported: Option<oneshot::Sender<Reported>>,
    /// Dropped when the isolate is gone: tells the supervisor.
    gone: Option<oneshot::Sender<()>>,
}

impl End {
    /// Ends the stream; what it returns keeps the run's place until the isolate is gone.
    fn report(mut self, outcome: Outcome, timings: Timings) -> Box<dyn Send> {
        self.sink.end(&outcome, self.stop.reason(), true, Some(timings));
        if let Some(reported) = self.reported.take() {
            let _ = reported.send((outcome, timings));
        }
        Box::new(self.gone.take())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.reported.is_some() {
            let error = RunError::plain(
                ErrorKind::Internal,
                "the run ended without an outcome; the daemon's log has the details",
            );
            self.sink.end(&Outcome::Threw(error), self.stop.reason(), true, None);
        }
    }
}
