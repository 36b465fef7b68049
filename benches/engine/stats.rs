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
    let wake = wake();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    format!(
        "noise: a fixed computation takes p50 {}, p99 {}; waking another thread and being woken p50 {}, p99 {}; load average {load}",
        millis(p50),
        millis(p99),
        millis(percentile(&wake, 0.5)),
        millis(percentile(&wake, 0.99))
    )
}

/// Round trips of a byte between two threads over a socket pair: two wake-ups each, the unit of everything between threads.
fn wake() -> Vec<Duration> {
    use std::io::Read as _;
    let Ok((mut here, mut there)) = std::os::unix::net::UnixStream::pair() else { return Vec::new() };
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let mut byte = [0];
    let mut samples = Vec::new();
    for _ in 0..300 {
        let began = Instant::now();
        if here.write_all(&byte).and_then(|()| here.read_exact(&mut byte)).is_err() {
            break;
        }
        samples.push(began.elapsed());
    }
    drop(here);
    // It ends with the socket.
    let _ = echo.join();
    samples
}
