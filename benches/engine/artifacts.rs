//! `await artifact()` by size, against sha256, write and fsync of the same bytes by a plain loop on the same file system.

use std::io::Write as _;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::Failure;
use crate::daemon::{Daemon, source};
use crate::stats::{millis, percentile, say};

const SIZES: [(&str, usize, usize); 3] = [("1 KiB", 1 << 10, 60), ("1 MiB", 1 << 20, 30), ("16 MiB", 16 << 20, 8)];

pub(crate) fn run() -> Result<(), Failure> {
    say("## `await artifact(name, bytes)`, durable\n");
    say("| size | artifact(), p50 | sha256 + write + fsync, p50 | ratio |\n|---|---|---|---|");
    let daemon = Daemon::start(&[])?;
    for (label, size, rounds) in SIZES {
        let ours = from_a_script(&daemon, size, rounds)?;
        let plain = plain(&daemon, size, rounds)?;
        let (ours, plain) = (percentile(&ours, 0.5), percentile(&plain, 0.5));
        let ratio = ours.as_secs_f64() / plain.as_secs_f64();
        say(&format!("| {label} | {} | {} | {ratio:.2} |", millis(ours), millis(plain)));
    }
    say("");
    Ok(())
}

/// Different bytes every time, so that nothing is stored already.
fn from_a_script(daemon: &Daemon, size: usize, rounds: usize) -> Result<Vec<Duration>, Failure> {
    let script = format!(
        "const times = []; const bytes = new Uint8Array({size}); \
         for (let i = 0; i < {rounds}; i++) {{ \
           crypto.getRandomValues(bytes.subarray(0, 1024)); const began = performance.now(); \
           await artifact('bench.bin', bytes); times.push(performance.now() - began); }} \
         return times;"
    );
    let document = daemon.client()?.exec(&source(&script))?;
    let times = document["result"].as_array().ok_or("no array")?;
    Ok(times.iter().filter_map(serde_json::Value::as_f64).map(|ms| Duration::from_secs_f64(ms / 1000.0)).collect())
}

fn plain(daemon: &Daemon, size: usize, rounds: usize) -> Result<Vec<Duration>, Failure> {
    let mut bytes = vec![0u8; size];
    let mut samples = Vec::new();
    for round in 0..rounds {
        bytes[..8].copy_from_slice(&round.to_le_bytes());
        let began = Instant::now();
        std::hint::black_box(Sha256::digest(&bytes));
        let mut file = std::fs::File::create_new(daemon.folder().join(format!("plain-{size}-{round}")))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}
