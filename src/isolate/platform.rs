//! V8's process-wide start: flags and platform, once, on the main thread, before any other thread exists.
//!
//! On CPUs with memory protection keys V8 guards its tables with a per-thread register that threads inherit when they are made.
//! A thread made before V8 runs JavaScript into a segmentation fault (denoland/rusty_v8#2054). Hence the check below, and hence
//! `fn main` is not `#[tokio::main]`.

use deno_core::JsRuntime;

/// V8 could not be started safely.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    #[error("V8 must be started before any other thread exists, but this process has {0} threads")]
    ThreadsExist(usize),
    #[error("V8 does not know these flags: {0:?}")]
    UnknownFlags(Vec<String>),
}

/// Proof that V8 has been started; whatever makes isolates asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Platform(());

impl Platform {
    /// Starts V8. Call it first thing in `main`.
    ///
    /// # Errors
    /// When other threads exist already.
    pub fn init() -> Result<Self, PlatformError> {
        let threads = thread_count();
        if threads > 1 {
            return Err(PlatformError::ThreadsExist(threads));
        }
        let flags = [
            // argv[0], which V8 skips.
            "mcpx",
            // Kilobytes of native stack for JavaScript; the isolate threads have eight times as much.
            "--stack-size=1024",
            // Turboshaft's loop unrolling drops the interrupt check of an endless loop whose body allocates an array of constant
            // length (`for (;;) a.push(new Array(1000))`): nothing can stop such a loop then. Seen in V8 14 and 15; a `--timeout`
            // of node:vm in Deno 2.9 hangs on it the same way, and does not with this flag.
            "--no-turboshaft-loop-unrolling",
            // A wasm memory is outside the heap limit and the buffer allocator: at most 8192 pages of 64 KiB, 512 MiB.
            "--wasm-max-mem-pages=8192",
        ];
        let unknown = deno_core::v8_set_flags(flags.map(str::to_owned).to_vec());
        if unknown.len() > 1 {
            return Err(PlatformError::UnknownFlags(unknown));
        }
        // `None`: deno_core's own platform, whose foreground tasks its event loop drains.
        JsRuntime::init_platform(None);
        Ok(Self(()))
    }
}

#[cfg(target_os = "linux")]
fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

#[cfg(not(target_os = "linux"))]
fn thread_count() -> usize {
    1
}
