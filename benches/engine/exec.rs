//! `POST /v1/exec` of `return 1+1` on a kept-alive unix socket, and the same work done by starting another runtime.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::daemon::{Daemon, source};
use crate::stats::{millis, percentile, say};

const REQUESTS: usize = 300;
const PAUSE: Duration = Duration::from_millis(20);
const SPAWNS: usize = 30;

pub(crate) fn run() -> Result<(), Failure> {
    say("## `return 1+1`\n\n| what | p50 | p99 |\n|---|---|---|");
    let daemon = Daemon::start(&[])?;
    let paced = paced(&daemon)?;
    row("`POST /v1/exec`, one connection, a request every 20 ms", &paced.latencies);
    row("`POST /v1/exec`, one connection, back to back", &closed_loop(&daemon, 1)?);
    row("`POST /v1/exec`, 8 connections, back to back", &closed_loop(&daemon, 8)?);
    let base = percentile(&paced.latencies, 0.5);
    let mut ratios = Vec::new();
    for (name, program, args) in
        [("deno run", "deno", &["run", "-A"][..]), ("bun", "bun", &["run"]), ("node", "node", &[])]
    {
        match spawned(&daemon, program, args)? {
            None => say(&format!("| `{name}` | not installed | |")),
            Some((version, samples)) => {
                row(&format!("spawning `{name}` ({version})"), &samples);
                let ratio = percentile(&samples, 0.5).as_secs_f64() / base.as_secs_f64();
                ratios.push(format!("{ratio:.0} times faster than `{name}`"));
            }
        }
    }
    say(&format!("\nPaced p50 is {}.\n", ratios.join(", ")));
    say("Where the time of a paced request goes (medians of what the daemon reports):\n\n| stage | p50 |\n|---|---|");
    let stages = [
        ("queue: body, parse, permit, spare", paced.stage("queueMs")),
        ("start: permissions, folder, environment, stdio, heap limit", paced.stage("startMs")),
        ("run: globals, load, evaluate, settle, drain, exit events", paced.stage("runMs")),
    ];
    let known: Duration = stages.iter().map(|(_, time)| *time).sum();
    for (stage, time) in stages {
        say(&format!("| {stage} | {} |", millis(time)));
    }
    say(&format!("| the rest: HTTP both ways, wake-ups of three threads | {} |\n", millis(base.saturating_sub(known))));
    Ok(())
}

fn row(what: &str, samples: &[Duration]) {
    say(&format!("| {what} | {} | {} |", millis(percentile(samples, 0.5)), millis(percentile(samples, 0.99))));
}

struct Paced {
    latencies: Vec<Duration>,
    timings: Vec<serde_json::Value>,
}

impl Paced {
    fn stage(&self, name: &str) -> Duration {
        let times = self.timings.iter().filter_map(|timings| timings[name].as_f64());
        let times: Vec<Duration> = times.map(|ms| Duration::from_secs_f64(ms / 1000.0)).collect();
        percentile(&times, 0.5)
    }
}

/// One request at a time with a pause between: every one finds a warm isolate, as an agent's does.
fn paced(daemon: &Daemon) -> Result<Paced, Failure> {
    let mut client = daemon.client()?;
    let request = source("return 1+1");
    let mut paced = Paced { latencies: Vec::new(), timings: Vec::new() };
    for _ in 0..REQUESTS {
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        let document = client.exec(&request)?;
        paced.latencies.push(began.elapsed());
        paced.timings.push(document["timings"].clone());
    }
    Ok(paced)
}

/// Requests without a pause: bounded by how fast isolates can be made.
fn closed_loop(daemon: &Daemon, connections: usize) -> Result<Vec<Duration>, Failure> {
    let request = source("return 1+1");
    std::thread::scope(|scope| {
        let one = || -> Result<Vec<Duration>, Failure> {
            let mut client = daemon.client()?;
            let mut latencies = Vec::new();
            for _ in 0..REQUESTS / connections {
                let began = Instant::now();
                client.exec(&request)?;
                latencies.push(began.elapsed());
            }
            Ok(latencies)
        };
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a client panicked")??);
        }
        Ok(all)
    })
}

/// Starts a runtime on a file that prints 1+1 and waits for its end.
fn spawned(daemon: &Daemon, program: &str, args: &[&str]) -> Result<Option<(String, Vec<Duration>)>, Failure> {
    let Ok(version) = Command::new(program).arg("--version").output() else { return Ok(None) };
    let version = String::from_utf8_lossy(&version.stdout);
    let version = version.split_whitespace().find(|word| word.contains('.')).unwrap_or("?").to_owned();
    let file = daemon.folder().join("sum.mjs");
    std::fs::write(&file, "console.log(1+1)\n")?;
    let mut samples = Vec::new();
    for _ in 0..SPAWNS {
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        let status = Command::new(program).args(args).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        samples.push(began.elapsed());
        if !status.success() {
            return Err(format!("{program} failed: {status}").into());
        }
    }
    Ok(Some((version, samples)))
}
