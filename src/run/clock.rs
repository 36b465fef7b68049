//! The own-time clock of a run: it charges what JavaScript computes and waits, and stops while the loop is parked with a tool call
//! pending (SPEC 6.2).
//!
//! The isolate's runtime reports parking and unparking; the supervisor asks how much was charged when its timer fires, and
//! re-arms for the rest. A tool call costs one atomic increment.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shared by the isolate's thread (which parks), the tool port (which counts calls) and the supervisor (which reads).
#[derive(Debug)]
pub struct OwnTime {
    born: Instant,
    /// Nanoseconds after `born` at which charging began; `u64::MAX` before that.
    started: AtomicU64,
    /// Tool calls in flight.
    pending: AtomicU32,
    /// Nanoseconds paused so far, without the pause that is going on.
    paused: AtomicU64,
    /// Nanoseconds after `born` at which the current pause began, plus one; 0 while not paused.
    since: AtomicU64,
}

impl Default for OwnTime {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            started: AtomicU64::new(u64::MAX),
            pending: AtomicU32::new(0),
            paused: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }
}

impl OwnTime {
    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins to charge.
    pub fn start(&self) {
        self.started.store(self.now(), Ordering::SeqCst);
    }

    /// The loop goes to sleep.
    pub fn parked(&self) {
        if self.pending.load(Ordering::SeqCst) > 0 {
            self.since.store(self.now() + 1, Ordering::SeqCst);
        }
    }

    /// The loop woke up.
    pub fn unparked(&self) {
        let since = self.since.swap(0, Ordering::SeqCst);
        if since > 0 {
            self.paused.fetch_add(self.now().saturating_sub(since - 1), Ordering::SeqCst);
        }
    }

    /// Counts a tool call until the guard is dropped.
    pub fn call(self: &std::sync::Arc<Self>) -> PendingCall {
        self.pending.fetch_add(1, Ordering::SeqCst);
        PendingCall(self.clone())
    }

    /// What has been charged so far.
    pub fn charged(&self) -> Duration {
        let started = self.started.load(Ordering::SeqCst);
        if started == u64::MAX {
            return Duration::ZERO;
        }
        // A pause that ends between these reads is counted twice or not at all for an instant; the supervisor asks again.
        let since = self.since.load(Ordering::SeqCst);
        let now = self.now();
        let current = if since > 0 { now.saturating_sub(since - 1) } else { 0 };
        let paused = self.paused.load(Ordering::SeqCst) + current;
        Duration::from_nanos(now.saturating_sub(started).saturating_sub(paused))
    }
}

/// A tool call in flight.
#[derive(Debug)]
pub struct PendingCall(std::sync::Arc<OwnTime>);

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_parking_beside_a_call_pauses() {
        let clock = Arc::new(OwnTime::default());
        assert_eq!(clock.charged(), Duration::ZERO);
        clock.start();
        clock.parked();
        assert_eq!(clock.since.load(Ordering::SeqCst), 0, "nothing is pending");
        clock.unparked();
        let call = clock.call();
        clock.parked();
        let frozen = clock.charged();
        // However long this takes, nothing is charged.
        for _ in 0..1000 {
            assert!(clock.charged() <= frozen + Duration::from_micros(1));
        }
        clock.unparked();
        drop(call);
        let before = clock.charged();
        while clock.charged() == before {
            std::hint::spin_loop();
        }
    }
}
