//! Medians, percentiles, the machine's noise, and the only place that prints.

use std::io::Write as _;
use std::time::{Duration, Instant};

/// Prints a line.
pub(crate) fn say(line: &str) {
    // Nobody reads any more: nothing is left to say.
    let _ = writeln!(std::io::stdout(), "{line}");
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The value below which the given share of the samples lies.
pub(crate) fn percentile(samples: &[Duration], share: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted.get(((last as f64) * share).round() as usize).copied().unwrap_or_default()
}

pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

/// How evenly this machine does the same work: a fixed computation of about a millisecond, 200 times.
pub(crate) fn noise() -> String {
    let once = || {
        let began = Instant::now();
        let mut sum = 0u64;
        for i in 0..400_000u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
        }
        std::hint::black_box(sum);
        began.elapsed()
    };
    let samples: Vec<Duration> = (0..200).map(|_| once()).collect();
    let (p50, p99) = (percentile(&samples, 0.5), percentile(&samples, 0.99));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    format!("noise: a fixed computation takes p50 {}, p99 {}; load average {load}", millis(p50), millis(p99))
}
