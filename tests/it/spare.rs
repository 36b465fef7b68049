//! A spare isolate that has waited gets everything of its job when the job arrives, and nothing from before.

use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::support::{Daemon, failure_of, result_of, wait_until};

/// How long a spare waits before it is used here.
const WAITED: Duration = Duration::from_secs(10);

/// A daemon whose spares have waited.
fn waited() -> Daemon {
    let daemon = Daemon::with_flags(&["--exec-warm=4"]);
    wait_until("four warm isolates", || daemon.status()["isolates"]["warm"] == 4);
    let since = SystemTime::now();
    wait_until("the spares have waited", || since.elapsed().is_ok_and(|waited| waited >= WAITED));
    daemon
}

#[test]
fn a_spare_that_waited_takes_everything_from_its_job() {
    let daemon = waited();
    let script = r#"
        const stdin = new TextDecoder().decode(new Uint8Array(await new Response(Deno.stdin.readable).arrayBuffer()));
        console.error("to stderr");
        Deno.stdout.writeSync(new TextEncoder().encode("to stdout"));
        process.stdout.write(", from node too");
        const outside = (() => { try { Deno.readTextFileSync("/etc/hostname"); return "OPEN" } catch (e) { return e.name } })();
        const { seen } = await import("./carried.ts");
        Deno.exitCode = 0;
        return {
          stdin, outside, seen,
          args: [args, Deno.args, process.argv.slice(2)],
          main: [import.meta.main, import.meta.url === Deno.mainModule, import.meta.url.endsWith("/script.ts")],
          cwd: [Deno.cwd() === process.cwd(), Deno.cwd() === Deno.env.get("TMPDIR")],
          env: [Deno.env.get("COLOUR"), process.env.COLOUR, Object.keys(Deno.env.toObject()).sort()],
          origin: performance.now() < 5000 && Date.now() - performance.timeOrigin < 5000,
        };"#;
    let request = json!({
        "source": script,
        "modules": {"./carried.ts": "export const seen: string = 'carried'"},
        "options": {
            "args": ["one", "two"],
            "stdin": "typed",
            "env": {"COLOUR": "blue", "TMPDIR": "/nowhere"},
            "timeout": "30s",
        },
    });
    let document = daemon.client().post("/v1/exec", request.to_string()).json();
    let result = result_of(&document);
    let both = json!(["one", "two"]);
    assert_eq!(result["stdin"], "typed");
    assert_eq!(result["outside"], "NotCapable");
    assert_eq!(result["seen"], "carried");
    assert_eq!(result["args"], json!([both, both, both]));
    assert_eq!(result["main"], json!([true, true, true]));
    assert_eq!(result["cwd"], json!([true, false]));
    assert_eq!(result["env"], json!(["blue", "blue", ["COLOUR", "TMPDIR"]]));
    assert_eq!(result["origin"], true);
    assert_eq!(document["stdout"], "to stdout, from node too");
    assert_eq!(document["stderr"], "to stderr\n");
}

#[test]
fn limits_and_exit_code_of_a_job_hold_for_a_spare_that_waited() {
    let daemon = waited();
    let greedy = "const kept = []; for (;;) kept.push(new Array(1000).fill(1.5))";
    let document = daemon.run(greedy, &json!({"limits": {"heapBytes": 64 << 20}}));
    assert_eq!(failure_of(&document).0, "heap_limit", "{document:#}");
    assert!(failure_of(&document).1.contains("64.0 MiB"), "{document:#}");
    let buffers = "const kept = []; for (;;) kept.push(new Uint8Array(1 << 20))";
    let document = daemon.run(buffers, &json!({"limits": {"bufferBytes": 16 << 20}}));
    assert_eq!(failure_of(&document).0, "buffer_limit", "{document:#}");
    let document = daemon.run("process.exitCode = 7", &json!({}));
    assert_eq!(document["exitCode"], 7, "{document:#}");
    let document = daemon.run("return Deno.exitCode", &json!({}));
    assert_eq!((result_of(&document), &document["exitCode"]), (json!(0), &json!(0)));
}
