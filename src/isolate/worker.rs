//! One isolate's `MainWorker`: made and bootstrapped before any job is known, given to one run, dropped after it.
//!
//! Lives on its isolate's thread. What only the job knows is set by [`Worker::assign`]; the rest of this file runs the script.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use deno_core::error::{CoreError, CoreErrorKind};
use deno_core::{JsRuntime, ModuleId, ModuleSpecifier, PollEventLoopOptions, v8};
use deno_resolver::npm::{DenoInNpmPackageChecker, NpmResolver};
use deno_runtime::deno_io::{Stdio, StdioPipe};
use deno_runtime::deno_permissions::PermissionsContainer;
use deno_runtime::deno_web::{BlobStore, InMemoryBroadcastChannel, StartTime};
use deno_runtime::worker::{MainWorker, WorkerOptions, WorkerServiceOptions};
use deno_runtime::{BootstrapOptions, FeatureChecker, UnconfiguredRuntime, UnconfiguredRuntimeOptions};
use mcpx_ops::{ExitCodeCell, RunEnv};
use sys_traits::impls::RealSys;

use super::buffers::{self, Budget};
use super::guarded_fs::{ForbiddenPaths, GuardedFs};
use super::job::Job;
use super::loader::{Loader, Modules};
use super::program::Transpiler;
use super::{failure, heap, permissions, snapshot, stdio, warmup};
use crate::error::ErrorKind;
use crate::run::frame::{RunError, Timings};
use crate::run::outcome::{Outcome, Stop, StopReason};
use crate::run::sink::FrameSink;

/// An isolate that could not be made or given its job.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error("V8 refused our own JavaScript: {0}")]
    Controls(String),
    #[error("cannot open the null device: {0}")]
    NullDevice(#[source] std::io::Error),
    #[error("cannot enter the working directory {path}: {source}")]
    Cwd { path: String, source: std::io::Error },
    #[error("the permissions do not make sense: {0}")]
    Permissions(String),
}

/// How the engine of every isolate is set up.
#[derive(Debug, Clone)]
pub(super) struct WorkerOptionsOfPool {
    /// Bytes; a run can ask for less.
    pub(super) heap_limit: u64,
    /// Bytes; a run can ask for less.
    pub(super) buffer_limit: u64,
    /// Out of reach for every script.
    pub(super) forbidden: ForbiddenPaths,
    pub(super) transpiler: Transpiler,
}

/// The functions that `js/99_main.js` leaves for the host.
struct Controls {
    abort: v8::Global<v8::Function>,
    prepare: v8::Global<v8::Function>,
    begin: v8::Global<v8::Function>,
    settle: v8::Global<v8::Function>,
}

/// Who is to be stopped when the script touches an unstable API: known only once there is a run.
type CurrentStop = Arc<Mutex<Option<Arc<Stop>>>>;

pub(super) struct Worker {
    main: MainWorker,
    controls: Controls,
    loader: Rc<Loader>,
    exit_code: ExitCodeCell,
    current: CurrentStop,
    /// Of the run, once there is one.
    sink: Option<FrameSink>,
    buffers: Arc<Budget>,
    heap_limit: u64,
}

impl Worker {
    /// Makes an isolate and bootstraps it completely. Call it inside an entered current-thread tokio runtime, on the thread on
    /// which the worker will be used and dropped.
    pub(super) fn boot(options: &WorkerOptionsOfPool) -> Result<Self, WorkerError> {
        let heap = usize::try_from(options.heap_limit).unwrap_or(usize::MAX);
        let buffers = Budget::new(options.buffer_limit);
        let params =
            v8::CreateParams::default().heap_limits(0, heap).array_buffer_allocator(buffers::allocator(&buffers));
        let unconfigured = UnconfiguredRuntime::new::<DenoInNpmPackageChecker, NpmResolver<RealSys>, RealSys>(
            UnconfiguredRuntimeOptions {
                startup_snapshot: snapshot::SNAPSHOT,
                residual_lazy_js_sources: snapshot::RESIDUAL_LAZY_JS,
                residual_lazy_esm_sources: snapshot::RESIDUAL_LAZY_ESM,
                create_params: Some(params),
                shared_array_buffer_store: None,
                compiled_wasm_module_store: None,
                additional_extensions: vec![mcpx_ops::mcpx::init()],
            },
        );
        let current = CurrentStop::default();
        let loader = Rc::new(Loader::new(options.transpiler.clone(), options.forbidden.clone()));
        let null = || {
            let file = std::fs::File::options().read(true).write(true).open("/dev/null");
            file.map(StdioPipe::file).map_err(WorkerError::NullDevice)
        };
        let services = WorkerServiceOptions::<DenoInNpmPackageChecker, NpmResolver<RealSys>, RealSys> {
            blob_store: BlobStore::default_arc(),
            broadcast_channel: InMemoryBroadcastChannel::default(),
            deno_rt_native_addon_loader: None,
            feature_checker: Arc::new(features(&current)),
            fs: Arc::new(GuardedFs::new(options.forbidden.clone())),
            module_loader: loader.clone(),
            node_services: None,
            npm_process_state_provider: None,
            permissions: permissions::nothing(),
            root_cert_store_provider: None,
            fetch_dns_resolver: Default::default(),
            shared_array_buffer_store: None,
            compiled_wasm_module_store: None,
            v8_code_cache: None,
            bundle_provider: None,
        };
        let placeholder = waiting_module();
        let mut main = MainWorker::bootstrap_from_options(
            &placeholder,
            services,
            WorkerOptions {
                bootstrap: bootstrap_options(Vec::new()),
                startup_snapshot: Some(snapshot::SNAPSHOT),
                skip_op_registration: true,
                stdio: Stdio { stdin: null()?, stdout: null()?, stderr: null()? },
                unconfigured_runtime: Some(unconfigured),
                ..WorkerOptions::default()
            },
        );
        let controls = Controls::take(&mut main.js_runtime)?;
        Ok(Self {
            main,
            controls,
            loader,
            exit_code: ExitCodeCell::default(),
            current,
            sink: None,
            buffers,
            heap_limit: options.heap_limit,
        })
    }

    /// Walks the whole path of a run once with an empty script, so that V8 has compiled what every run needs before there is one.
    /// Leaves nothing behind that a script could see.
    pub(super) async fn warm_up(&mut self) -> Result<(), WorkerError> {
        let broken = |failure: Failure| match failure {
            Failure::Stalled => WorkerError::Controls("the warm-up stalled".to_owned()),
            Failure::Error(error) => WorkerError::Controls(error.message),
        };
        self.call(self.controls.prepare.clone()).map_err(broken)?;
        let state = self.main.js_runtime.op_state();
        state.borrow_mut().put(warmup::ports());
        self.loader.assign(Modules {
            main: warmup::module(),
            program: warmup::program(),
            carried: HashMap::new(),
            permissions: permissions::nothing(),
        });
        let walked = self.walk_once().await.map_err(broken);
        state.borrow_mut().try_take::<mcpx_ops::interface::RunPorts>();
        self.loader.forget();
        walked
    }

    async fn walk_once(&mut self) -> Result<(), Failure> {
        self.call(self.controls.begin.clone())?;
        // Not as the main module: an isolate has one, and that is the script.
        let module = self.main.js_runtime.load_side_es_module(&warmup::module()).await;
        let module = module.map_err(|error| self.failure(error))?;
        self.evaluate(module).await?;
        let settled = Box::pin(self.call_settle(module, None)?);
        let settled = self.main.js_runtime.with_event_loop_promise(settled, PollEventLoopOptions::default()).await;
        settled.map_err(|error| self.failure(error))?;
        self.finish().await
    }

    /// A handle by which other threads can interrupt this isolate's JavaScript.
    pub(super) fn isolate_handle(&mut self) -> v8::IsolateHandle {
        self.main.js_runtime.v8_isolate().thread_safe_handle()
    }

    /// Sets everything that only the job knows. What is left over is what the run itself needs.
    fn assign(&mut self, job: Job) -> Result<Assigned, WorkerError> {
        std::env::set_current_dir(&job.cwd)
            .map_err(|source| WorkerError::Cwd { path: job.cwd.display().to_string(), source })?;
        let permissions =
            permissions::container(&job.permissions).map_err(|error| WorkerError::Permissions(error.to_string()))?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(job.stop.clone());
        self.loader.assign(Modules {
            main: job.main.clone(),
            program: job.program,
            carried: job.carried,
            permissions: permissions.clone(),
        });
        self.buffers.limit(job.buffer_limit);
        heap::limit(&mut self.main.js_runtime, &job.stop, &self.buffers, job.heap_limit, self.heap_limit);
        let state = self.main.js_runtime.op_state();
        let mut state = state.borrow_mut();
        state.put::<PermissionsContainer>(permissions);
        state.put::<ModuleSpecifier>(job.main.clone());
        state.put(bootstrap_options(job.args));
        state.put(RunEnv(job.env));
        // `performance.now()` counts from here.
        state.put(StartTime::default());
        state.put(self.exit_code.clone());
        state.put((job.ports)());
        stdio::install(&mut state, &job.sink, job.stdin);
        self.sink = Some(job.sink);
        Ok(Assigned { main: job.main, export: job.export, stop: job.stop, own_time_limited: job.own_time_limited })
    }

    /// Runs a job to its outcome. The isolate must be dropped afterwards.
    pub(super) async fn run(&mut self, job: Job) -> (Outcome, Timings) {
        let began = Instant::now();
        let mut timings = Timings { queue_ms: job.queue_ms, ..Timings::default() };
        let handle = self.isolate_handle();
        let stop = job.stop.clone();
        stop.attach(Box::new(move || {
            handle.terminate_execution();
        }));
        let clock = job.clock.clone();
        let assigned = match self.assign(job) {
            Ok(assigned) => assigned,
            Err(error) => {
                return (Outcome::Threw(RunError::plain(ErrorKind::BadRequest, error.to_string())), timings);
            }
        };
        timings.start_ms = Timings::millis(began.elapsed());
        let running = Instant::now();
        clock.start();
        let exit_code = self.exit_code.clone();
        let outcome = tokio::select! {
            biased;
            () = stop.stopped() => None,
            outcome = self.execute(&assigned) => Some(outcome),
        };
        let outcome = outcome.unwrap_or_else(|| {
            self.fire_signal(&stop);
            Outcome::Finished { exit_code: exit_code.0.get() }
        });
        timings.run_ms = Timings::millis(running.elapsed());
        (outcome, timings)
    }

    /// Lets the script's listeners of `signal` know. Its loop was idle, so the termination that came with the stop has hit nothing
    /// yet; it is taken back for them, and comes again after a few milliseconds ([`Stop::insist`]).
    fn fire_signal(&mut self, stop: &Stop) {
        let Some(message) = stop.reason().and_then(StopReason::notice) else { return };
        // The token, which woke us, comes before the termination; it must not hit the listeners.
        stop.settled();
        self.main.js_runtime.v8_isolate().cancel_terminate_execution();
        let abort = self.controls.abort.clone();
        deno_core::scope!(scope, &mut self.main.js_runtime);
        v8::tc_scope!(let scope, scope);
        let abort = v8::Local::new(scope, abort);
        let receiver = v8::undefined(scope).into();
        if let Some(message) = v8::String::new(scope, &message) {
            // What a listener throws is nobody's outcome any more.
            abort.call(scope, receiver, &[message.into()]);
        }
    }

    async fn execute(&mut self, run: &Assigned) -> Outcome {
        match self.drive(&run.main, run.export.as_deref()).await {
            Ok(()) => Outcome::Finished { exit_code: self.exit_code.0.get() },
            Err(Failure::Stalled) if run.own_time_limited => {
                // Nothing can wake this run any more, but its author gave it a time: it waits that long, like any other wait.
                run.stop.stopped().await;
                Outcome::Finished { exit_code: 0 }
            }
            Err(Failure::Stalled) => Outcome::Threw(RunError::plain(
                ErrorKind::ScriptError,
                "the script waits for a promise that nothing can settle any more",
            )),
            Err(Failure::Error(error)) => Outcome::Threw(error),
        }
    }

    async fn drive(&mut self, main: &ModuleSpecifier, export: Option<&str>) -> Result<(), Failure> {
        self.call(self.controls.begin.clone())?;
        let module = match self.main.js_runtime.load_main_es_module(main).await {
            Ok(module) => module,
            Err(error) => return Err(self.load_failure(error)),
        };
        self.evaluate(module).await?;
        let settled = self.call_settle(module, export)?;
        let settled =
            self.main.js_runtime.with_event_loop_promise(Box::pin(settled), PollEventLoopOptions::default()).await;
        settled.map_err(|error| self.failure(error))?;
        self.finish().await
    }

    /// Evaluates the script's module, with the event loop beside it.
    async fn evaluate(&mut self, module: ModuleId) -> Result<(), Failure> {
        let evaluated = Box::pin(self.main.js_runtime.mod_evaluate(module));
        let result = self.main.js_runtime.with_event_loop_promise(evaluated, PollEventLoopOptions::default()).await;
        result.map_err(|error| match &*error.0 {
            // deno_core reports a top-level await that can never settle as a bare message: no name, no stack, no value thrown.
            CoreErrorKind::Js(js) if js.name.is_none() && js.stack.is_none() && js.message.is_none() => {
                Failure::Stalled
            }
            _ => self.failure(error),
        })
    }

    /// Runs what is left, then the events of a page and of node that mark the end.
    async fn finish(&mut self) -> Result<(), Failure> {
        let js = |error: Box<deno_core::error::JsError>| Failure::Error(failure::from_js(&error, None));
        loop {
            let result = self.main.run_event_loop(false).await;
            result.map_err(|error| self.failure(error))?;
            let prevented = self.main.dispatch_beforeunload_event().map_err(js)?;
            let more = self.main.dispatch_process_beforeexit_event().map_err(js)?;
            if !prevented && !more {
                break;
            }
        }
        self.main.dispatch_unload_event().map_err(js)?;
        self.main.dispatch_process_exit_event().map_err(js)
    }

    /// Calls one of the controls that take nothing and return nothing.
    fn call(&mut self, control: v8::Global<v8::Function>) -> Result<(), Failure> {
        deno_core::scope!(scope, &mut self.main.js_runtime);
        v8::tc_scope!(let scope, scope);
        let control = v8::Local::new(scope, control);
        let receiver = v8::undefined(scope).into();
        if control.call(scope, receiver, &[]).is_some() {
            return Ok(());
        }
        match scope.exception() {
            Some(exception) => {
                let error = deno_core::error::JsError::from_v8_exception(scope, exception);
                Err(Failure::Error(failure::from_js(&error, Some(ErrorKind::Internal))))
            }
            // Terminated: the stop reason tells the rest.
            None => Err(Failure::Stalled),
        }
    }

    fn call_settle(
        &mut self,
        module: ModuleId,
        export: Option<&str>,
    ) -> Result<impl Future<Output = Result<v8::Global<v8::Value>, Box<deno_core::error::JsError>>> + use<>, Failure>
    {
        let namespace = self.main.js_runtime.get_module_namespace(module).map_err(|error| self.failure(error))?;
        let args = {
            deno_core::scope!(scope, &mut self.main.js_runtime);
            let namespace: v8::Local<'_, v8::Value> = v8::Local::new(scope, namespace).into();
            let export: v8::Local<'_, v8::Value> = match export.and_then(|name| v8::String::new(scope, name)) {
                Some(name) => name.into(),
                None => v8::null(scope).into(),
            };
            [v8::Global::new(scope, namespace), v8::Global::new(scope, export)]
        };
        let settle = self.controls.settle.clone();
        Ok(self.main.js_runtime.call_with_args(&settle, &args))
    }

    fn failure(&mut self, error: CoreError) -> Failure {
        if matches!(*error.0, CoreErrorKind::PendingPromiseResolution) {
            return Failure::Stalled;
        }
        let known = self.sink.as_ref().and_then(FrameSink::take_failing);
        let mut error = failure::run_error(error, known);
        if error.kind == ErrorKind::ScriptError
            && let Some(kind) = self.loader.kind_of(&error.message)
        {
            error.kind = kind;
        }
        // V8's own words for it say neither the limit nor the setting.
        if error.kind == ErrorKind::ScriptError
            && error.name == "RangeError"
            && let Some(limit) = self.buffers.refused_over()
            && let Some(told) = (StopReason::Buffers { limit }).error()
        {
            error.kind = told.kind;
            error.message = format!("{}: {}", error.message, told.message);
        }
        Failure::Error(error)
    }

    /// A script that could not be loaded: the loader knows the kind and the position, V8 only the text.
    fn load_failure(&mut self, error: CoreError) -> Failure {
        if let Some(known) = self.loader.take_failure() {
            return Failure::Error(known);
        }
        let mut error = match *error.0 {
            CoreErrorKind::Js(js) => {
                failure::from_js(&js, (js.name.as_deref() == Some("SyntaxError")).then_some(ErrorKind::SyntaxError))
            }
            other => {
                use deno_error::JsErrorClass as _;
                let code = other
                    .get_additional_properties()
                    .find(|(name, _)| name == "code")
                    .and_then(|(_, value)| ErrorKind::from_word(&Cow::from(value.to_string())));
                failure::run_error(CoreError(Box::new(other)), code)
            }
        };
        if error.name == "McpxFailure" {
            "Error".clone_into(&mut error.name);
        }
        Failure::Error(error)
    }

    /// Closes what the run left open, so that nothing of it is alive although the isolate still is. Only for a run that came to
    /// its own end: its event loop is empty.
    pub(super) fn close_resources(&mut self) {
        let state = self.main.js_runtime.op_state();
        let open: Vec<u32> = state.borrow().resource_table.names().map(|(rid, _)| rid).collect();
        for rid in open {
            // Closing may call back into the state, so it is not borrowed then; and it may take another resource with it.
            let taken = state.borrow_mut().resource_table.take_any(rid);
            if let Ok(resource) = taken {
                resource.close();
            }
        }
    }
}

enum Failure {
    /// The loop is empty and the script still waits.
    Stalled,
    Error(RunError),
}

/// What is left of a job once the isolate has the rest.
struct Assigned {
    main: ModuleSpecifier,
    export: Option<String>,
    stop: Arc<Stop>,
    own_time_limited: bool,
}

impl Controls {
    /// Takes the controls off the global object, where the snapshot left them.
    fn take(runtime: &mut JsRuntime) -> Result<Self, WorkerError> {
        let refused = |error: Box<deno_core::error::JsError>| WorkerError::Controls(error.to_string());
        let source = "(() => { const controls = globalThis.__mcpx; delete globalThis.__mcpx; return controls; })()";
        let controls = runtime.execute_script("ext:mcpx/controls", source).map_err(refused)?;
        deno_core::scope!(scope, runtime);
        let controls = v8::Local::new(scope, controls);
        let function = |name: &str| {
            let missing = || WorkerError::Controls(format!("no function {name}"));
            let object = v8::Local::<v8::Object>::try_from(controls).map_err(|_| missing())?;
            let key = v8::String::new(scope, name).ok_or_else(missing)?;
            let value = object.get(scope, key.into()).ok_or_else(missing)?;
            let function = v8::Local::<v8::Function>::try_from(value).map_err(|_| missing())?;
            Ok(v8::Global::new(scope, function))
        };
        Ok(Self {
            abort: function("abort")?,
            prepare: function("prepare")?,
            begin: function("begin")?,
            settle: function("settle")?,
        })
    }
}

/// An unstable API ends the run instead of the process.
fn features(current: &CurrentStop) -> FeatureChecker {
    let mut checker = FeatureChecker::default();
    let current = current.clone();
    checker.set_exit_cb(Box::new(move |feature, api| {
        let stop = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(stop) = stop {
            stop.stop(StopReason::Unstable { feature: feature.to_owned(), api: api.to_owned() });
        }
    }));
    checker
}

fn bootstrap_options(args: Vec<String>) -> BootstrapOptions {
    BootstrapOptions {
        args,
        user_agent: concat!("mcpx/", env!("CARGO_PKG_VERSION")).to_owned(),
        color_level: deno_runtime::colors::ColorLevel::None,
        ..BootstrapOptions::default()
    }
}

/// Main module of an isolate that waits.
fn waiting_module() -> ModuleSpecifier {
    ModuleSpecifier::parse("mcpx:waiting").expect("it is a URL because it has a scheme and a path")
}
