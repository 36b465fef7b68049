//! The daemon: start-up and shutdown order, the info record, and the lock that makes it the only one of its configuration.

mod record;
mod serve;
mod start;

pub use record::InfoRecord;
pub use serve::{DaemonError, DaemonOptions, run};
pub use start::{Connected, StartError, connect_or_start, connect_running, spawn_detached};
