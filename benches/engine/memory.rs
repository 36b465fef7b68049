//! Resident memory of the daemon with 0, 1 and 8 warm isolates, and after 2,000 runs.

use crate::Failure;
use crate::daemon::{Daemon, source};
use crate::stats::say;

const RUNS: usize = 2_000;

pub(crate) fn run() -> Result<(), Failure> {
    say("## Resident memory\n\n| daemon | MB |\n|---|---|");
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let mut by_count = Vec::new();
    for isolates in [0, 1, 8] {
        let daemon = Daemon::start(&[&format!("--exec-warm={isolates}")])?;
        let resident = daemon.resident(isolates)?;
        say(&format!("| {isolates} warm isolates, no run yet | {} |", megabytes(resident)));
        by_count.push(resident);
    }
    let per_isolate = by_count[2].saturating_sub(by_count[1]) / 7;
    say(&format!("| each further warm isolate | {} |", megabytes(per_isolate)));
    let daemon = Daemon::start(&[])?;
    let mut client = daemon.client()?;
    let request = source("return 1+1");
    for done in 1..=RUNS {
        client.exec(&request)?;
        if [200, 1_000, RUNS].contains(&done) {
            say(&format!("| 2 warm isolates, after {done} runs | {} |", megabytes(daemon.resident(2)?)));
        }
    }
    say("");
    Ok(())
}
