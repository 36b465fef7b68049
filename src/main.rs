//! The executable: everything is in the library.
//!
//! Not `#[tokio::main]`: `mcpx daemon` starts V8 on this thread before any other thread exists.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcpx::cli::main()
}
