//! Waiting for something to become true. The only place of the tests that sleeps.

use std::time::{Duration, Instant};

/// Far beyond what any step of a test takes: only a hang gets here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(10);

/// Looks until there is something to see, and fails with `what` when there is nothing for a minute.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(POLL);
    }
}

/// [`wait_for`] with a condition.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}
