//! The wire types of the `/v1` API that both sides of it use: the daemon reads what the CLI writes.
//!
//! Inner types are separate (`run/spec.rs`, `store`); only what crosses a socket derives serde.

mod exec;

pub use exec::{ArtifactOptions, ExecDocument, ExecOptions, ExecRequest, LimitOptions, LogRecord, TaskOptions};

/// Header by which a caller shows that it has read this daemon's info record, and so shares its file system (SPEC 3). The value
/// is the record's `startedAt`.
pub const LOCAL_HEADER: &str = "x-mcpx-local";
