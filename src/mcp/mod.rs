//! The MCP side of the daemon: the servers we call, and the names and tables of their tools.
//!
//! Owns everything that knows the protocol. Invariants: only this folder names `rmcp`; a call is sent to a server at
//! most once; one server that fails or hangs costs the others nothing. Everything runs on the daemon's runtime; what an
//! isolate's thread touches ([`Upstreams`], [`ToolTable`]) is safe to use from any thread and any tokio runtime.

mod catalog;
mod child;
mod connection;
mod error;
mod face;
mod listing;
pub mod names;
mod search;
mod server;
mod start;
mod transcript;
mod upstream;
mod wire;

#[cfg(test)]
mod tests;

pub use catalog::{Tool, ToolTable};
pub use error::{Ending, Evidence, Fault, UpstreamError};
pub use search::{SearchHit, search};
pub use server::{ServerState, ServerSummary};
pub use upstream::{CallReply, CallRequest, Namespace, Naming, UpstreamLimits, Upstreams};
