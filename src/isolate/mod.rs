//! Everything that touches V8: the platform, the snapshot, isolates on their threads, and the pool that keeps some ready.
//!
//! The only place that names deno_runtime, deno_core or v8, and (with `ops`) the only unsafe code.

mod buffers;
mod failure;
mod guarded_fs;
mod heap;
mod job;
mod loader;
mod permissions;
mod platform;
mod pool;
mod program;
mod snapshot;
mod stdio;
mod thread;
mod warmup;
mod worker;

pub use deno_core::ModuleSpecifier;
pub use job::{Job, PortsMaker, Report};
pub use platform::{Platform, PlatformError};
pub use pool::{IsolateOptions, IsolatePool, PoolError, PoolNumbers};
pub use program::{PARSE_STACK, Program, Role, SCRIPT_NAME, Transpiler};
pub use thread::{Spare, ThreadError};
