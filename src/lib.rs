//! mcpx: runs agents' scripts next to the MCP servers they call.
//!
//! The map of the crate; `ARCHITECTURE.md` says which arrow may point where, and the tidy test checks it.
//!
//! * [`cli`]: the commands; all but `daemon` are clients of the HTTP API and start no V8
//! * [`daemon`]: wires everything; start-up and shutdown order
//! * [`http`]: `/v1` over the unix socket
//! * [`run`]: one execution: spec, frames, outcome, stop
//! * [`isolate`]: everything that touches V8
//! * [`mcp`]: the servers we call
//! * [`store`]: artifacts on disk
//! * [`api`], [`config`], [`settings`], [`error`], [`id`], [`paths`]: leaves

pub mod api;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod error;
pub mod http;
pub mod id;
pub mod isolate;
pub mod mcp;
pub mod paths;
pub mod run;
pub mod settings;
pub mod store;
