//! Runs are stopped in every state they can be in, and nothing but them.

use serde_json::{Value, json};

use crate::support::{Daemon, Place, Running, failure_of, result_of, spec, wait_until, words};

/// Runs a script with a second of own time, which it must overstay; the next run must succeed at once.
#[track_caller]
fn overstays(daemon: &Daemon, source: &str) -> Value {
    let document = daemon.run(source, &json!({"timeout": "1s"}));
    assert_eq!(failure_of(&document).0, "timeout", "{source}: {document:#}");
    assert!(failure_of(&document).1.contains("1s (exec.timeout"), "{document:#}");
    assert_eq!((&document["exitCode"], &document["timedOut"]), (&json!(124), &json!(true)), "{document:#}");
    assert_eq!(daemon.value("return 1"), 1, "after {source}");
    document
}

#[test]
fn busy_scripts_are_stopped() {
    let mut daemon = Daemon::start();
    for source in [
        "while (true) {}",
        "for (;;) await 0",
        "for (;;) { try { for (;;); } catch {} finally { for (;;); } }",
        "const again = () => queueMicrotask(again); again(); await new Promise(() => {})",
        "const again = () => process.nextTick(again); again(); await new Promise(() => {})",
        r#"/^(\w+\s?)*$/.test("word ".repeat(40) + "!")"#,
        "while (true) {}\nexport default 1",
        "new Proxy({}, { get() { for (;;); } }).x",
        "return { toJSON() { for (;;); } }",
    ] {
        let document = overstays(&daemon, source);
        assert_eq!(document["retired"], true, "{source}");
    }
    daemon.is_alive();
}

#[test]
fn a_stop_is_not_lost_inside_a_built_in() {
    let daemon = Daemon::start();
    for source in [
        "for (;;) new Array(1000).fill(1)",
        "for (;;) { new Array(1000).fill(1); Date.now() }",
        "for (;;) new Array(1000).concat([1])",
        "for (;;) structuredClone({ a: [1, 2, 3] })",
    ] {
        overstays(&daemon, source);
        wait_until("the thread to be given back", || daemon.status()["runs"]["stuck"] == 0);
    }
}

#[test]
fn waiting_scripts_are_stopped() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fetching = format!("await fetch('http://{}/')", silent.local_addr().unwrap());
    let mut daemon = Daemon::start();
    for source in [
        "await new Promise(() => {})",
        "await new Promise(() => {}); export default 1",
        "export default () => new Promise(() => {})",
        "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
        "await new Promise((done) => setTimeout(done, 3_600_000))",
        "setInterval(() => {}, 10); await new Promise(() => {})",
        fetching.as_str(),
    ] {
        overstays(&daemon, source);
    }
    daemon.is_alive();
}

#[test]
fn the_command_line_tells_a_timeout_by_its_exit_code() {
    let place = Place::new();
    for source in ["while(true){}", "await new Promise(()=>{})", "for(;;) await 0"] {
        let said = place.mcpx(&["exec", "--timeout", "1s", source]);
        assert_eq!((said.code, said.stdout.as_str()), (124, ""), "{source}: {said:?}");
        assert!(said.stderr.contains("exec.timeout"), "{said:?}");
        assert_eq!(place.mcpx(&["exec", "return 1"]).ok(), "1\n", "after {source}");
    }
}

#[test]
fn what_was_returned_before_the_deadline_arrives() {
    let daemon = Daemon::start();
    let document = daemon.run("setInterval(() => {}, 10); return 'first'", &json!({"timeout": "1s"}));
    assert_eq!((&document["result"], &document["timedOut"]), (&json!("first"), &json!(true)), "{document:#}");
    assert_eq!(document.get("error"), None);
}

#[test]
fn waiting_for_a_tool_is_not_the_scripts_own_time() {
    let daemon = Daemon::with_fake(&spec(json!({"slow": {"delay": 2000}}), &[]));
    let limited = json!({"timeout": "1s"});
    assert_eq!(result_of(&daemon.run("return await fake.slow({})", &limited)), "ok");
    let beside = "const call = fake.slow({}); setTimeout(() => {}, 10); return await call";
    assert_eq!(result_of(&daemon.run(beside, &limited)), "ok", "a timer beside a pending call does not count");
    let document = daemon.run("fake.slow({}); while (true) {}", &limited);
    assert_eq!(failure_of(&document).0, "timeout", "computing beside a call counts: {document:#}");
}

#[test]
fn the_wall_clock_stops_even_a_wait_for_a_tool() {
    let never = spec(json!({"never": {"never": true}}), &[]);
    let daemon = Daemon::with_fakes(&[("fake", &never)], &["--exec-max-wall=2s"]);
    let document = daemon.exec("await fake.never({})");
    assert_eq!(failure_of(&document).0, "timeout", "{document:#}");
    assert!(failure_of(&document).1.contains("2s of wall clock (exec.maxWall)"), "{document:#}");
    assert_eq!((&document["exitCode"], &document["timedOut"]), (&json!(124), &json!(true)));
    assert_eq!(daemon.value("return 1"), 1);
}

#[test]
fn threads_that_cannot_be_interrupted_are_answered_for_and_bounded() {
    let mut daemon = Daemon::start();
    let endless = "Array.prototype.includes.call({ length: 2 ** 52 }, 'x')";
    for stuck in 1..=2 {
        let document = daemon.run(endless, &json!({"timeout": "1s"}));
        assert_eq!((&document["error"]["kind"], &document["exitCode"]), (&json!("timeout"), &json!(124)));
        assert_eq!(document["retired"], false, "{document:#}");
        assert_eq!(daemon.status()["runs"]["stuck"], stuck);
        if stuck == 1 {
            daemon.is_alive();
        }
    }
    let answer = daemon.post("return 1", &json!({}));
    assert_eq!(answer.status, 503);
    assert!(answer.refusal().1.contains("exec.maxStuck"), "{}", answer.text());
}

#[test]
fn an_exit_ends_the_run_and_not_the_daemon() {
    let mut daemon = Daemon::start();
    for (source, code, stdout) in [
        (
            "console.log('before'); try { Deno.exit(3) } finally { console.log('finally') } console.log('after')",
            3,
            "before\n",
        ),
        ("setTimeout(() => Deno.exit(7), 1); await new Promise(() => {})", 7, ""),
        ("process.on('exit', () => console.log('hook')); process.exitCode = 4; return", 4, "hook\n"),
        ("Deno.exitCode = 6; return", 6, ""),
        ("process.exit(5); console.log('after')", 5, ""),
        ("process.abort()", 134, ""),
        ("process.kill(process.pid, 'SIGKILL'); console.log('after')", 137, ""),
        ("Deno.kill(Deno.pid, 'SIGTERM'); console.log('after')", 143, ""),
        ("import 'node:fs'; Deno.exit(9); export default 1", 9, ""),
    ] {
        let document = daemon.exec(source);
        assert_eq!(document["exitCode"], code, "{source}: {document:#}");
        assert_eq!(document["stdout"], stdout, "{source}");
        assert_eq!(failure_of(&document).0, "exited", "{source}");
    }
    assert_eq!(result_of(&daemon.exec("emit(1); Deno.exit(0)")), Value::Null);
    for source in ["process.kill(process.ppid, 9)", "process.kill(0, 'SIGKILL')", "Deno.kill(1, 'SIGTERM')"] {
        let document = daemon.exec(source);
        assert_eq!(document["exitCode"], 1, "{source} is refused: {document:#}");
    }
    daemon.is_alive();
}

#[test]
fn the_command_line_ends_with_the_scripts_exit_code() {
    let place = Place::new();
    let said = place.mcpx(&["exec", "console.log('x'); Deno.exit(3)"]);
    assert_eq!((said.code, said.stdout.as_str()), (3, "x\n"), "{said:?}");
}

#[test]
fn a_runaway_heap_ends_its_run_and_not_the_daemon() {
    let mut daemon = Daemon::start();
    let small = json!({"limits": {"heapBytes": 64 << 20}});
    for source in [
        "const keep = []; for (;;) keep.push({ a: 1, b: [1, 2, 3] })",
        "const keep = {}; for (let i = 0; ; i++) keep['k' + i] = { i }",
        "return new Array(1.2e8).fill(0)",
        "const keep = []; for (;;) { keep.push('x'.repeat(1000) + keep.length); await 0 }",
    ] {
        let document = daemon.run(source, &small);
        assert_eq!(failure_of(&document).0, "heap_limit", "{source}: {document:#}");
        assert!(failure_of(&document).1.contains("64.0 MiB (exec.maxHeapBytes)"), "{document:#}");
        assert_eq!(document["exitCode"], 1);
        daemon.is_alive();
        wait_until("its thread to be given back", || daemon.status()["runs"]["stuck"] == 0);
    }
    let document = daemon.run("let s = 'x'; for (;;) { s += s; s.charCodeAt(0) }", &small);
    let by_limit = failure_of(&document).0 == "heap_limit";
    assert!(by_limit || document["error"]["name"] == "RangeError", "{document:#}");
    let document = daemon.run("try { 'x'.repeat(2 ** 30) } catch (e) { return e.name }", &small);
    assert_eq!(result_of(&document), "RangeError");
    daemon.is_alive();
}

#[test]
fn a_heap_that_grows_inside_a_built_in_ends_its_run_and_not_the_daemon() {
    let mut daemon = Daemon::start();
    let small = json!({"limits": {"heapBytes": 64 << 20}});
    for source in [
        "const keep = []; for (;;) keep.push(new Array(1000).fill(1))",
        "const keep = []; for (;;) keep.push(Array.from({ length: 1000 }, () => 1))",
    ] {
        let document = daemon.run(source, &small);
        assert_eq!(failure_of(&document).0, "heap_limit", "{source}: {document:#}");
        wait_until("its thread to be given back", || daemon.status()["runs"]["stuck"] == 0);
        daemon.is_alive();
    }
}

#[test]
fn a_client_that_goes_away_stops_its_run() {
    let place = Place::new();
    let mut never = spec(json!({"never": {"never": true}}), &[]);
    never["log"] = json!(place.work().join("fake.log"));
    place.servers(&json!({"fake": place.fake("fake", &never)}));
    let daemon = Daemon::start_in(place, &[]);
    let running = || daemon.status()["runs"]["running"].as_u64().unwrap();
    for source in ["while (true) {}", "await new Promise(() => {})", "for (;;) emit('x'.repeat(1000))"] {
        let mut stream = daemon.stream(source, &json!({}));
        stream.until("start");
        assert_eq!(running(), 1);
        drop(stream);
        wait_until("the run of a stream's reader to end", || running() == 0);

        let body = json!({"source": source}).to_string();
        let mut connection = daemon.client().connect();
        let head = format!("POST /v1/exec HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        std::io::Write::write_all(&mut connection, head.as_bytes()).unwrap();
        wait_until("the run to start", || running() == 1);
        drop(connection);
        wait_until("the run of a document's reader to end", || running() == 0);
    }
    let mut stream = daemon.stream("emit(1); await fake.never({ n: 1 })", &json!({}));
    let log = || std::fs::read_to_string(daemon.place().work().join("fake.log")).unwrap_or_default();
    stream.until("emit");
    wait_until("the call to reach the server", || log().contains("tools/call"));
    drop(stream);
    wait_until("the server to learn of it", || log().contains("notifications/cancelled"));
    wait_until("the run to end", || running() == 0);
}

#[test]
fn a_run_can_be_cancelled_by_its_id() {
    let daemon = Daemon::start();
    for source in ["emit(0); while (true) {}", "emit(0); await new Promise(() => {})"] {
        let mut stream = daemon.stream(source, &json!({}));
        let id = stream.until("start")["runId"].as_str().unwrap().to_owned();
        stream.until("emit");
        let answer = daemon.remote().post(&format!("/v1/exec/{id}/cancel"), "");
        assert_eq!((answer.status, answer.json()), (200, json!({"runId": id, "cancelled": true})));
        let rest: Vec<Value> = stream.collect();
        assert_eq!(words(&rest), ["error", "end"]);
        assert_eq!((&rest[0]["error"]["kind"], &rest[1]["exitCode"]), (&json!("cancelled"), &json!(130)));
        wait_until("the run to be forgotten", || daemon.status()["runs"]["running"] == 0);
        let again = daemon.remote().post(&format!("/v1/exec/{id}/cancel"), "");
        assert_eq!((again.status, again.refusal().0.as_str()), (404, "not_found"));
    }
    assert_eq!(daemon.remote().post("/v1/exec/nonsense/cancel", "").status, 404);
}

#[test]
fn the_signal_of_a_run_fires_when_it_is_stopped() {
    let daemon = Daemon::start();
    let source = "signal.addEventListener('abort', () => console.log('stopping', signal.aborted));
                  emit(signal.aborted); await new Promise(() => {})";
    let mut stream = daemon.stream(source, &json!({}));
    let id = stream.until("start")["runId"].as_str().unwrap().to_owned();
    assert_eq!(stream.until("emit")["value"], false);
    daemon.client().post(&format!("/v1/exec/{id}/cancel"), "");
    let rest: Vec<Value> = stream.collect();
    assert_eq!(words(&rest), ["stdout", "error", "end"], "{rest:#?}");
    assert_eq!(rest[0]["text"], "stopping true\n");
}

#[test]
fn control_c_stops_the_run() {
    let daemon = Daemon::start();
    let running = || daemon.status()["runs"]["running"].as_u64().unwrap();
    let waiting = "await new Promise((done) => setTimeout(done, 3_600_000))";
    for source in ["while (true) {}", waiting, "for (;;) await 0", "setInterval(() => {}, 1)", "emit(1); for (;;);"] {
        let command = Running::start(daemon.place().command(&["exec", source]));
        wait_until("the run to start", || running() == 1);
        command.signal(libc::SIGINT);
        let said = command.end();
        assert_eq!(said.code, 130, "{said:?}");
        wait_until("the run to end", || running() == 0);
    }
    assert_eq!(daemon.value("return 1"), 1);
}
