//! The heap limit of a run.
//!
//! V8 aborts the process when its heap limit is reached and nobody raises it. So near the limit the run is stopped and the limit
//! raised far enough for whatever allocation is under way: one V8 array can take 2^27 elements of 8 bytes at once.

use std::sync::Arc;

use deno_core::JsRuntime;

use super::buffers::Budget;
use crate::run::outcome::{Stop, StopReason};

/// What a single allocation can need beyond the limit, in bytes, with slack.
const HEADROOM: usize = (1 << 30) + (1 << 28);

/// How often headroom is given before V8's own limit stands.
const GRANTS: u32 = 2;

/// Sets the heap limit of the run, at most the one the isolate was made with, and stops the run when it is reached.
///
/// V8 also calls here when it finds no memory for an ArrayBuffer; then the budget of the buffers is what ran out.
pub(super) fn limit(runtime: &mut JsRuntime, stop: &Arc<Stop>, buffers: &Arc<Budget>, bytes: u64, made_with: u64) {
    let limit = usize::try_from(bytes.min(made_with)).unwrap_or(usize::MAX);
    if bytes < made_with {
        // V8 lowers a limit only when a callback is removed.
        runtime.add_near_heap_limit_callback(|current, _| current);
        runtime.remove_near_heap_limit_callback(limit);
    }
    let (stop, buffers) = (stop.clone(), buffers.clone());
    let mut granted = 0;
    // Runs inside a garbage collection: no JavaScript, no allocation on V8's heap, no locks that anybody holds for long.
    runtime.add_near_heap_limit_callback(move |current, _initial| {
        stop.stop(match buffers.refused_over() {
            Some(limit) => StopReason::Buffers { limit },
            None => StopReason::Heap { limit: limit as u64 },
        });
        granted += 1;
        if granted > GRANTS { current } else { current.saturating_add(HEADROOM) }
    });
}
