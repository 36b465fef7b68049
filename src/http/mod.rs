//! `/v1` over HTTP: the router, what handlers share, and the guard before all of them.
//!
//! Only this folder names axum. Handlers translate; what they do is in `run`, `store` and `mcp`.

mod artifacts;
mod body;
mod error;
mod exec;
mod guard;
mod render;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::middleware;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::daemon::InfoRecord;
use crate::mcp::Upstreams;
use crate::paths::Paths;
use crate::run::Runs;
use crate::settings::Settings;
use crate::store::Store;

pub use render::rendered;

/// What handlers share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AppState {
    pub runs: Runs,
    pub store: Store,
    pub upstreams: Upstreams,
    pub settings: Arc<Settings>,
    pub record: Arc<InfoRecord>,
    /// Configuration files in use.
    pub sources: Vec<PathBuf>,
    pub paths: Arc<Paths>,
    /// Cancelling it stops the daemon.
    pub shutdown: CancellationToken,
    pub activity: Activity,
}

/// When the daemon was last asked for anything. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Activity(Arc<(Instant, AtomicU64)>);

impl Default for Activity {
    fn default() -> Self {
        Self(Arc::new((Instant::now(), AtomicU64::new(0))))
    }
}

impl Activity {
    fn touch(&self) {
        let now = u64::try_from(self.0.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.1.store(now, Ordering::Relaxed);
    }

    /// Time since the last request, or since the start.
    pub fn idle_for(&self) -> Duration {
        self.0.0.elapsed().saturating_sub(Duration::from_millis(self.0.1.load(Ordering::Relaxed)))
    }
}

/// The whole API.
pub fn router(state: AppState) -> axum::Router {
    axum::Router::new()
        .route("/v1/health", get(health))
        .route("/v1/status", get(status))
        .route("/v1/shutdown", post(shutdown))
        .route("/v1/exec", post(exec::exec))
        .route("/v1/exec/{id}/cancel", post(exec::cancel))
        .route("/v1/tools", get(tools::list))
        .route("/v1/call", post(tools::call))
        .route("/v1/artifacts", get(artifacts::list).post(artifacts::upload))
        .route("/v1/artifacts/{id}", get(artifacts::get).delete(artifacts::delete))
        .fallback(error::no_such_route)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(middleware::from_fn_with_state(state.clone(), guard::guard))
        .with_state(state)
}

async fn health(State(state): State<AppState>) -> Json<Value> {
    Json(json!({
        "status": "ok",
        "version": state.record.version,
        "pid": state.record.pid,
        "endpoint": state.record.endpoint,
    }))
}

async fn status(State(state): State<AppState>) -> Json<Value> {
    let numbers = state.runs.numbers();
    let store = state.store.clone();
    // A store that cannot be read is part of the answer, not a reason to give none.
    let stats = tokio::task::spawn_blocking(move || store.stats()).await;
    let artifacts = match stats {
        Ok(Ok(stats)) => json!({"count": stats.artifacts, "bytes": stats.distinct_bytes}),
        Ok(Err(error)) => json!({"error": error.to_string()}),
        Err(error) => json!({"error": error.to_string()}),
    };
    Json(json!({
        "version": state.record.version,
        "pid": state.record.pid,
        "startedAt": state.record.started_at,
        "endpoint": state.record.endpoint,
        "socket": state.paths.socket,
        "record": state.paths.record,
        "state": state.paths.state,
        "store": state.paths.store,
        "log": state.paths.log,
        "config": state.sources,
        "configHash": state.record.config_hash,
        "runs": {"running": numbers.running, "queued": numbers.queued, "finished": numbers.finished, "stuck": numbers.stuck},
        "isolates": {"warm": numbers.pool.warm, "live": numbers.pool.live},
        "artifacts": artifacts,
        "servers": tools::summaries(&state.upstreams),
        "memoryBytes": resident_bytes(),
    }))
}

async fn shutdown(State(state): State<AppState>) -> Json<Value> {
    state.shutdown.cancel();
    Json(json!({"status": "stopping", "pid": state.record.pid}))
}

/// Resident memory of this process in bytes, where the system tells.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf takes an integer and touches no memory of ours.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}
