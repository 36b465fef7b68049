//! The extension `mcpx`: every native function that a script's globals stand on, and the built-in ops it replaces.
//!
//! Owns the table of contents of the ops and the JavaScript in `../js`. Knows V8 and the traits of [`interface`]; knows nothing of
//! the daemon. It is a crate of its own because build.rs makes the V8 snapshot with the very same `extension!` that the daemon
//! runs. No op may panic: an unwind out of an op's `extern "C"` entry point aborts the daemon (the lint table denies it).

mod artifact;
mod env;
mod error;
mod guard;
pub mod interface;
mod output;
mod tool;

pub use env::RunEnv;
pub use error::OpError;
pub use guard::ExitCodeCell;

deno_core::extension!(
    mcpx,
    ops = [
        output::op_mcpx_emit,
        output::op_mcpx_log,
        output::op_mcpx_result,
        output::op_mcpx_failing,
        tool::op_mcpx_namespaces,
        tool::op_mcpx_tools,
        tool::op_mcpx_search,
        tool::op_mcpx_tool_call,
        tool::op_mcpx_tool_cancel,
        artifact::op_mcpx_artifact_bytes,
        artifact::op_mcpx_artifact_text,
        artifact::op_mcpx_artifact_base64,
        artifact::op_mcpx_artifact_path,
    ],
    esm_entry_point = "ext:mcpx/99_main.js",
    esm = [dir "../js", "10_value.js", "20_output.js", "30_artifact.js", "40_tools.js", "99_main.js"],
    middleware = guard::replace,
);
