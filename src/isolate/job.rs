//! What a waiting isolate receives: everything that only the run knows.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use deno_core::ModuleSpecifier;
use mcpx_ops::interface::RunPorts;

use super::program::Program;
use crate::run::clock::OwnTime;
use crate::run::frame::Timings;
use crate::run::outcome::{Outcome, Stop};
use crate::run::permissions::PlacedPermissions;
use crate::run::sink::FrameSink;

/// Makes the ports on the isolate's thread, where they live.
pub type PortsMaker = Box<dyn FnOnce() -> RunPorts + Send>;

/// Learns how the script ended, on the isolate's thread, once nothing of the run is alive any more. What it returns is dropped
/// when the isolate is gone.
pub type Report = Box<dyn FnOnce(Outcome, Timings) -> Box<dyn Send> + Send>;

/// One run as an isolate needs it.
pub struct Job {
    /// URL of the script.
    pub main: ModuleSpecifier,
    pub program: Arc<Program>,
    /// Modules of the request by URL.
    pub carried: HashMap<ModuleSpecifier, String>,
    pub args: Vec<String>,
    /// Exported function to call instead of the default export.
    pub export: Option<String>,
    /// Existing folder that becomes the working directory of the isolate's thread, and of it alone.
    pub cwd: PathBuf,
    pub env: BTreeMap<String, String>,
    pub stdin: Option<String>,
    pub permissions: PlacedPermissions,
    /// Bytes.
    pub heap_limit: u64,
    /// Bytes of ArrayBuffers.
    pub buffer_limit: u64,
    /// Whether anything would end a wait that nothing can wake: false for a run without a time limit.
    pub own_time_limited: bool,
    pub ports: PortsMaker,
    pub sink: FrameSink,
    pub stop: Arc<Stop>,
    pub clock: Arc<OwnTime>,
    /// Milliseconds from the request to the hand-over.
    pub queue_ms: f64,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("main", &self.main).field("cwd", &self.cwd).finish_non_exhaustive()
    }
}
