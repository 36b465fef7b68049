//! Runs the daemon in this process: claims its configuration, wires the parts, serves, and takes everything down in order.
//!
//! Order of start: lock, store, socket, upstreams, pool, runs, HTTP, record. Order of stop: no new connections, runs stopped (each
//! sends its `end`), upstreams closed, store committed and closed, record and socket removed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::record::InfoRecord;
use crate::config::Config;
use crate::http::{self, Activity, AppState};
use crate::isolate::{IsolateOptions, IsolatePool, Platform, Transpiler};
use crate::mcp::{UpstreamLimits, Upstreams};
use crate::paths::{Environment, Paths, private_folder};
use crate::run::place::Grounds;
use crate::run::{RunParts, Runs};
use crate::settings::Settings;
use crate::store::{Store, StoreError, StoreOptions};

/// The daemon cannot start, or could not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("cannot make {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("another daemon serves this configuration; see mcpx status")]
    AlreadyRunning,
    #[error("cannot lock {}: {source}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("{} exists and is not a socket of ours; it was left alone: remove it, or choose another --socket", path.display())]
    SocketTaken { path: PathBuf },
    #[error("cannot listen on {}: {source}", path.display())]
    Listen { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write the info record {}: {source}", path.display())]
    Record { path: PathBuf, source: io::Error },
    #[error("cannot serve: {0}")]
    Serve(#[source] io::Error),
}

/// Everything a daemon is told.
#[derive(Debug)]
pub struct DaemonOptions {
    pub platform: Platform,
    pub env: Environment,
    pub config: Config,
    pub settings: Arc<Settings>,
    pub paths: Paths,
}

/// Serves until a signal, `POST /v1/shutdown` or the idle time ends it.
///
/// # Errors
/// What kept it from starting, or from closing the store.
pub async fn run(options: DaemonOptions) -> Result<(), DaemonError> {
    let DaemonOptions { platform, env, config, settings, paths } = options;
    for path in [&paths.runtime, &paths.state, &paths.temp] {
        private_folder(path).map_err(|source| DaemonError::Folder { path: path.clone(), source })?;
    }
    let lock = claim(&paths.lock)?;
    // The record of a daemon that was killed would be taken for ours by whoever connects before ours is written.
    remove(&paths.record);
    // Before the socket: who connects to a daemon must not find that it cannot start.
    let store = open_store(&paths, &settings).await?;
    // Only now: the store proves that no other daemon has runs in these folders, whatever socket it listens on.
    sweep(&paths.temp);
    let listener = listen(&paths.socket)?;
    let limits = UpstreamLimits {
        start_timeout: settings.pool_start_timeout,
        call_timeout: settings.pool_call_timeout,
        ..UpstreamLimits::default()
    };
    let upstreams = Upstreams::new(&config, limits, env.0.clone(), tokio::runtime::Handle::current());
    let transpiler = Transpiler::default();
    let forbidden = forbidden(&paths);
    let isolates = IsolateOptions {
        heap: settings.exec_max_heap_bytes,
        buffers: settings.exec_max_buffer_bytes,
        forbidden: forbidden.clone(),
    };
    let pool = IsolatePool::new(platform, settings.exec_warm, isolates, transpiler.clone());
    let runs = Runs::new(RunParts {
        settings: settings.clone(),
        pool,
        transpiler,
        store: store.clone(),
        upstreams: upstreams.clone(),
        grounds: Grounds::new(paths.temp.clone(), forbidden),
        base_env: base_env(&env),
    });
    let record = InfoRecord {
        pid: std::process::id(),
        socket: paths.socket.clone(),
        endpoint: format!("unix://{}", paths.socket.display()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config_hash: config_hash(&config),
        started_at: humantime::format_rfc3339_nanos(SystemTime::now()).to_string(),
    };
    let shutdown = CancellationToken::new();
    let activity = Activity::default();
    let app = http::router(AppState {
        runs: runs.clone(),
        store: store.clone(),
        upstreams: upstreams.clone(),
        settings: settings.clone(),
        record: Arc::new(record.clone()),
        sources: config.sources().to_vec(),
        paths: Arc::new(paths.clone()),
        shutdown: shutdown.clone(),
        activity: activity.clone(),
    });
    record.write(&paths.record).map_err(|source| DaemonError::Record { path: paths.record.clone(), source })?;
    tracing::info!(socket = %paths.socket.display(), "ready");
    // The folder the daemon was started in must not be kept busy by it.
    if let Err(error) = std::env::set_current_dir("/") {
        tracing::warn!("cannot leave the starting folder: {error}");
    }
    spawn_signals(shutdown.clone());
    spawn_idle_exit(settings.daemon_idle_exit, activity, runs.clone(), shutdown.clone());

    let (stopping, grace) = (shutdown.clone(), settings.daemon_shutdown_grace);
    let server = axum::serve(listener, app).with_graceful_shutdown(async move { stopping.cancelled().await });
    let mut serving = tokio::spawn(server.into_future());
    let early = tokio::select! {
        () = shutdown.cancelled() => None,
        ended = &mut serving => Some(ended),
    };
    // The record goes first: a client that looks now starts a successor, which waits for our lock no longer than it must.
    remove(&paths.record);
    runs.close(grace).await;
    if early.is_none() {
        // Connections that are kept alive without a request would hold this for ever.
        let _ = tokio::time::timeout(Duration::from_millis(500), &mut serving).await;
        serving.abort();
    }
    upstreams.shutdown().await;
    let closed = tokio::task::spawn_blocking(move || store.close()).await;
    // Folders that were ready for runs that never came.
    sweep(&paths.temp);
    remove(&paths.socket);
    drop(lock);
    match closed {
        Ok(result) => result?,
        Err(error) => tracing::error!("the store's closing was abandoned: {error}"),
    }
    match early {
        Some(Ok(Err(error))) => Err(DaemonError::Serve(error)),
        _ => Ok(()),
    }
}

/// Takes the lock that only one daemon of a configuration can hold. The system gives it back when the process dies, however.
fn claim(path: &Path) -> Result<File, DaemonError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |source| DaemonError::Lock { path: path.to_owned(), source };
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(DaemonError::AlreadyRunning),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Binds the socket. A stale one, which refuses connections, is replaced; a live one and anything that is no socket never are.
fn listen(path: &Path) -> Result<UnixListener, DaemonError> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    let failed = |source| DaemonError::Listen { path: path.to_owned(), source };
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(DaemonError::SocketTaken { path: path.to_owned() });
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            _ => return Err(DaemonError::AlreadyRunning),
        }
    }
    // The folder is 0700, so nobody else gets at the socket between the two calls.
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

async fn open_store(paths: &Paths, settings: &Settings) -> Result<Store, DaemonError> {
    let options = StoreOptions {
        max_artifact_bytes: settings.artifacts_max_bytes,
        max_name_bytes: settings.artifacts_name_max_length,
        ..StoreOptions::default()
    };
    let path = paths.store.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(&path, options)).await;
    Ok(opened.map_err(|_| StoreError::Closed)??)
}

/// Removes what runs of a daemon that died have left. Only our own folder names are touched.
fn sweep(temp: &Path) {
    for entry in std::fs::read_dir(temp).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("run-")
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!("cannot remove {}: {error}", entry.path().display());
        }
    }
}

/// What no run may read or write.
fn forbidden(paths: &Paths) -> Vec<PathBuf> {
    let mut forbidden = vec![
        paths.state.clone(),
        paths.socket.clone(),
        paths.record.clone(),
        paths.lock.clone(),
        format!("/proc/{}", std::process::id()).into(),
    ];
    forbidden.extend(["/proc/self", "/proc/thread-self"].map(PathBuf::from));
    forbidden
}

/// Variables that every run gets when its caller sends none.
fn base_env(env: &Environment) -> BTreeMap<String, String> {
    let path = env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let lang = env.get("LANG").unwrap_or("C.UTF-8");
    [("PATH", path), ("LANG", lang)].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn config_hash(config: &Config) -> String {
    let mut hash = Sha256::new();
    for source in config.sources() {
        hash.update(std::fs::read(source).unwrap_or_default());
        hash.update([0]);
    }
    let digest = hash.finalize();
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("cannot remove {}: {error}", path.display());
    }
}

/// SIGTERM and SIGINT stop the daemon; the second one ends the process at once. SIGHUP must not end it.
fn spawn_signals(shutdown: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let streams = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = streams else {
        tracing::warn!("signals cannot be watched; only mcpx stop ends this daemon cleanly");
        return;
    };
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => continue,
            }
            if shutdown.is_cancelled() {
                tracing::warn!("second signal: ending at once");
                // SAFETY: _exit ends the process without running anything; that is what a second signal asks for.
                unsafe { libc::_exit(130) };
            }
            shutdown.cancel();
        }
    });
}

/// Ends a daemon that nobody has used for the given time.
fn spawn_idle_exit(limit: Duration, activity: Activity, runs: Runs, shutdown: CancellationToken) {
    if limit.is_zero() {
        return;
    }
    tokio::spawn(async move {
        loop {
            let idle = activity.idle_for();
            let numbers = runs.numbers();
            let busy = numbers.running + numbers.queued > 0;
            if idle >= limit && !busy {
                tracing::info!("idle for {limit:?} (daemon.idleExit)");
                shutdown.cancel();
                return;
            }
            let wait = if busy { limit } else { limit.saturating_sub(idle) };
            tokio::select! {
                () = tokio::time::sleep(wait.max(Duration::from_millis(10))) => {}
                () = shutdown.cancelled() => return,
            }
        }
    });
}
