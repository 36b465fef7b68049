//! The memory of ArrayBuffers: outside V8's heap, and so outside its heap limit, but inside a budget of the run.
//!
//! V8 asks this allocator for the bytes of every ArrayBuffer and SharedArrayBuffer of fixed length. Over the budget it gets none,
//! collects garbage, asks again, and in the end throws a RangeError that a script can catch. (Resizable buffers and wasm memory do
//! not come here; wasm memory has a limit of its own in `platform.rs`.)

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use deno_core::v8;

/// What one isolate's buffers may take. Shared with V8, which frees buffers on its own threads too.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    /// Bytes.
    limit: AtomicUsize,
    refused: AtomicBool,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        let limit = AtomicUsize::new(usize::try_from(limit).unwrap_or(usize::MAX));
        Arc::new(Self { used: AtomicUsize::new(0), limit, refused: AtomicBool::new(false) })
    }

    /// Sets the limit of the run, in bytes.
    pub(super) fn limit(&self, bytes: u64) {
        self.limit.store(usize::try_from(bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// The limit, when an allocation was refused over it.
    pub(super) fn refused_over(&self) -> Option<u64> {
        self.refused.load(Ordering::Relaxed).then(|| self.limit.load(Ordering::Relaxed) as u64)
    }

    fn take(&self, bytes: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= limit)
        });
        if taken.is_err() {
            self.refused.store(true, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// V8's allocator over a budget.
pub(super) fn allocator(budget: &Arc<Budget>) -> v8::UniqueRef<v8::Allocator> {
    static VTABLE: v8::RustAllocatorVtable<Budget> =
        v8::RustAllocatorVtable { allocate, allocate_uninitialized, free, drop: release };
    // SAFETY: the pointer is an Arc's, which `release` takes back when V8 lets go of the allocator, and the functions of the
    // table expect exactly this type.
    unsafe { v8::new_rust_allocator(Arc::into_raw(budget.clone()), &VTABLE) }
}

unsafe extern "C" fn allocate(budget: &Budget, length: usize) -> *mut c_void {
    if !budget.take(length) {
        return std::ptr::null_mut();
    }
    // SAFETY: calloc takes two numbers. (One byte at least: V8 reads null as failure.)
    let data = unsafe { libc::calloc(length.max(1), 1) };
    if data.is_null() {
        budget.give_back(length);
    }
    data
}

unsafe extern "C" fn allocate_uninitialized(budget: &Budget, length: usize) -> *mut c_void {
    if !budget.take(length) {
        return std::ptr::null_mut();
    }
    // SAFETY: malloc takes a number.
    let data = unsafe { libc::malloc(length.max(1)) };
    if data.is_null() {
        budget.give_back(length);
    }
    data
}

unsafe extern "C" fn free(budget: &Budget, data: *mut c_void, length: usize) {
    // SAFETY: V8 gives back what it got from the two functions above, once.
    unsafe { libc::free(data) };
    budget.give_back(length);
}

unsafe extern "C" fn release(budget: *const Budget) {
    // SAFETY: it is the pointer that `allocator` made out of an Arc, and V8 calls this once.
    drop(unsafe { Arc::from_raw(budget) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn_and_can_be_used_again() {
        let budget = Budget::new(100);
        assert!(budget.take(60) && budget.take(40));
        assert_eq!(budget.refused_over(), None);
        assert!(!budget.take(1));
        assert_eq!(budget.refused_over(), Some(100));
        budget.give_back(60);
        assert!(budget.take(60));
        assert!(!budget.take(usize::MAX));
    }
}
