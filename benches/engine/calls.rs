//! One tool call from a script to a no-op stdio server, minus the same call made by a bare rmcp client: what we add per call.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;

use crate::Failure;
use crate::daemon::{Daemon, source};
use crate::stats::{percentile, say};

const CALLS: usize = 10_000;
const ROUNDS: usize = 5;

pub(crate) fn run() -> Result<(), Failure> {
    let daemon = Daemon::start(&["--exec-max-calls=20000", "--exec-timeout=0s"])?;
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(bare_rmcp()?);
        ours.push(from_a_script(&daemon)?);
    }
    let (bare, ours) = (percentile(&bare, 0.5), percentile(&ours, 0.5));
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    say(&format!(
        "## One tool call, {CALLS} in one run, median of {ROUNDS} runs\n\n| what | per call |\n|---|---|\n\
         | bare rmcp client (call, result serialised) | {:.1} us |\n| `await noop.noop({{}})` in a script | {:.1} us |\n\
         | difference | {:.1} us |\n",
        micros(bare),
        micros(ours),
        micros(ours) - micros(bare)
    ));
    Ok(())
}

/// Time of one call, from inside the script, so that start and end of the run are not part of it.
fn from_a_script(daemon: &Daemon) -> Result<Duration, Failure> {
    let script = format!(
        "await noop.noop({{}}); const began = performance.now(); \
         for (let i = 0; i < {CALLS}; i++) await noop.noop({{ n: i }}); \
         return (performance.now() - began) / {CALLS};"
    );
    let document = daemon.client()?.exec(&source(&script))?;
    let millis = document["result"].as_f64().ok_or("no number")?;
    Ok(Duration::from_secs_f64(millis / 1000.0))
}

fn bare_rmcp() -> Result<Duration, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut child = tokio::process::Command::new(std::env::current_exe()?)
            .arg(crate::noop::FLAG)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pipes = child.stdout.take().zip(child.stdin.take()).ok_or("no pipes")?;
        let service = ().serve(pipes).await?;
        let call = async |n: usize| -> Result<usize, Failure> {
            let mut arguments = serde_json::Map::new();
            arguments.insert("n".to_owned(), n.into());
            let result = service.call_tool(CallToolRequestParams::new("noop").with_arguments(arguments)).await?;
            Ok(serde_json::to_string(&result)?.len())
        };
        call(0).await?;
        let began = Instant::now();
        for n in 0..CALLS {
            std::hint::black_box(call(n).await?);
        }
        Ok(began.elapsed() / u32::try_from(CALLS)?)
    })
}
