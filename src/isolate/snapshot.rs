//! The V8 start-up snapshot and the sources outside it, as build.rs made them.

/// Heap of a runtime with every eager extension evaluated.
pub(crate) static SNAPSHOT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/MCPX_SNAPSHOT.bin"));

include!(concat!(env!("OUT_DIR"), "/residual.rs"));
