//! `/v1` over HTTP: the three forms of an answer, routes, the queue, and what the daemon tells about itself.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use crate::support::{Daemon, result_of, words};

#[test]
fn a_document_has_the_published_shape() {
    let daemon = Daemon::start();
    let mut document = daemon.exec("return 1");
    let timings = document["timings"].take();
    for name in ["queueMs", "startMs", "runMs"] {
        assert!(timings[name].is_number(), "{name} in {timings}");
    }
    assert!(document["runId"].as_str().unwrap().len() >= 16 && document["durationMs"].is_u64(), "{document:#}");
    for varying in ["runId", "durationMs", "timings"] {
        document.as_object_mut().unwrap().remove(varying);
    }
    let expected = json!({
        "result": 1, "emits": [], "logs": [], "stdout": "", "artifacts": [], "exitCode": 0, "runtime": "embedded", "retired": true,
    });
    assert_eq!(document, expected);
    assert_eq!(daemon.exec("return undefined").get("result"), None);
    assert_eq!(daemon.exec("return null").get("result"), Some(&Value::Null));
    let failed = daemon.exec("emit(1); console.error('e'); throw new TypeError('no')");
    assert_eq!((&failed["emits"], &failed["stderr"], &failed["exitCode"]), (&json!([1]), &json!("e\n"), &json!(1)));
    assert_eq!((&failed["error"]["kind"], &failed["error"]["name"]), (&json!("script_error"), &json!("TypeError")));
}

#[test]
fn text_comes_with_trailers() {
    let daemon = Daemon::start();
    let text = |source: &str| {
        let body = json!({"source": source, "options": {"output": "text"}}).to_string();
        daemon.client().request("POST", "/v1/exec").header("te", "trailers").body(body).send()
    };
    let answer = text("console.log('a'); console.error('aside'); emit(1); return { b: 1 }");
    assert_eq!((answer.status, answer.text().as_str()), (200, "a\n{\n  \"b\": 1\n}\n"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!((answer.trailer("x-mcpx-exit-code"), answer.trailer("x-mcpx-error")), (Some("0"), None));
    let answer = text("console.log('a'); throw new Error('two\\nlines\\r\\nX-Evil: 1')");
    assert_eq!((answer.status, answer.text().as_str()), (200, "a\n"));
    assert_eq!(answer.trailer("x-mcpx-exit-code"), Some("1"));
    assert_eq!(answer.trailer("x-mcpx-error"), Some("script_error: Error: two lines  X-Evil: 1"));
    assert_eq!(answer.trailers.len(), 2, "{:?}", answer.trailers);
    assert_eq!(text("Deno.exit(3)").trailer("x-mcpx-exit-code"), Some("3"));
}

/// What a script says that tries to break out of its frames.
const FORGER: &str =
    "console.log('\\n\\nevent: end\\ndata: {\"exitCode\":0}\\n\\n'); emit('a\\r\\nb\\rc\\u2028d\\u0085e\\0');
                      log.info('id: 99\\n: x'); return 'z'";

#[test]
fn a_stream_is_one_json_text_a_line_and_ends_once() {
    let daemon = Daemon::start();
    let frames = daemon.frames(FORGER);
    assert_eq!(words(&frames), ["start", "stdout", "emit", "log", "result", "end"]);
    assert_eq!(frames[2]["value"], "a\r\nb\rc\u{2028}d\u{85}e\0");
    for name in ["runId", "runtime", "isolation", "permissions", "cwd"] {
        assert!(frames[0][name].is_string(), "{name} in {}", frames[0]);
    }
    assert_eq!((&frames[0]["runtime"], &frames[0]["isolation"]), (&json!("embedded"), &json!("isolate")));
    for source in ["throw 1", "syntax error", "Deno.exit(2)", "await import('npm:x')"] {
        let frames = daemon.frames(source);
        assert_eq!(words(&frames), ["start", "error", "end"], "{source}");
    }
}

#[test]
fn server_sent_events_are_numbered() {
    let daemon = Daemon::start();
    let body = json!({"source": FORGER, "options": {"output": "stream"}}).to_string();
    let answer = daemon.client().post("/v1/exec", &body);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let text = answer.text();
    let events: Vec<&str> = text.split_terminator("\n\n").collect();
    let names = ["start", "stdout", "emit", "log", "result", "end"];
    assert_eq!(events.len(), names.len(), "{text}");
    for (number, (event, name)) in events.iter().zip(names).enumerate() {
        let lines: Vec<&str> = event.split(['\n', '\r']).collect();
        let [id, kind, data] = lines[..] else { panic!("{event:?}") };
        assert_eq!((id, kind), (format!("id: {number}").as_str(), format!("event: {name}").as_str()));
        let frame: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(frame["type"], name);
    }
    let request = daemon.client().request("POST", "/v1/exec").header("accept", "multipart/mixed");
    let answer = request.body(body).send();
    assert_eq!((answer.status, answer.refusal().0.as_str()), (501, "unsupported"));
}

#[test]
fn unknown_routes_and_methods_are_said_to_be() {
    let daemon = Daemon::start();
    for (method, target, status) in [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/exec/x/y/z", 404),
        ("POST", "/v2/exec", 404),
        ("GET", "/v1/exec", 405),
        ("PUT", "/v1/artifacts", 405),
        ("DELETE", "/v1/health", 405),
    ] {
        let answer = daemon.client().request(method, target).send();
        assert_eq!(answer.status, status, "{method} {target}");
        assert!(answer.refusal().1.contains(target), "{}", answer.text());
    }
}

#[test]
fn a_full_queue_asks_to_come_back() {
    let daemon = Daemon::with_flags(&["--exec-concurrency=1", "--exec-queue=1"]);
    let endless = "await new Promise((done) => setTimeout(done, 3_600_000))";
    let mut first = daemon.stream(endless, &json!({}));
    first.until("start");
    let mut second = daemon.stream("return 2", &json!({}));
    let answer = daemon.post("return 3", &json!({}));
    assert_eq!((answer.status, answer.refusal().0.as_str()), (429, "queue_full"));
    assert!(answer.refusal().1.contains("exec.queue"), "{}", answer.text());
    assert!(answer.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{answer:?}");
    let runs = &daemon.status()["runs"];
    assert_eq!((&runs["running"], &runs["queued"]), (&json!(1), &json!(1)), "one runs and one waits");
    drop(first);
    assert_eq!(second.until("result")["value"], 2);
    assert_eq!(daemon.value("return 3"), 3);
}

#[test]
fn health_and_status_tell_what_they_should() {
    let daemon = Daemon::start();
    let health = daemon.remote().get("/v1/health");
    assert_eq!(health.status, 200);
    let expected = json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "pid": daemon.pid(), "endpoint": daemon.record()["endpoint"]});
    assert_eq!(health.json(), expected);
    let head = daemon.remote().request("HEAD", "/v1/health").send();
    assert_eq!((head.status, head.body.len()), (200, 0));
    let status = daemon.status();
    for name in ["version", "startedAt", "endpoint", "socket", "record", "state", "store", "log", "configHash"] {
        assert!(status[name].is_string(), "{name} in {status:#}");
    }
    assert_eq!((&status["pid"], &status["config"], &status["servers"]), (&json!(daemon.pid()), &json!([]), &json!([])));
    assert_eq!(status["artifacts"], json!({"count": 0, "bytes": 0}));
    assert!(status["memoryBytes"].as_u64().unwrap() > 1 << 20, "{status:#}");
    for (group, names) in [("runs", &["running", "queued", "finished", "stuck"][..]), ("isolates", &["warm", "live"])] {
        assert!(names.iter().all(|name| status[group][name].is_u64()), "{status:#}");
    }
}

#[test]
fn sixteen_runs_at_once_are_all_right() {
    let mut daemon = Daemon::start();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..16)
            .map(|n| {
                let daemon = &daemon;
                let source = format!(
                    "globalThis.mine = {n}; emit(mine); await new Promise((r) => setTimeout(r, 20)); console.log(mine); return mine * mine"
                );
                scope.spawn(move || (n, daemon.exec(&source)))
            })
            .collect();
        for run in runs {
            let (n, document) = run.join().unwrap();
            assert_eq!(result_of(&document), n * n);
            assert_eq!((&document["emits"], &document["stdout"]), (&json!([n]), &json!(format!("{n}\n"))));
        }
    });
    daemon.is_alive();
}

#[test]
fn what_is_no_http_is_no_trouble() {
    let mut daemon = Daemon::start();
    for nonsense in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "POST /v1/exec HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\n",
    ] {
        let mut stream = daemon.client().connect();
        stream.write_all(nonsense.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // It may answer 400 or hang up; it must do either.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    let mut stream = daemon.client().connect();
    write!(stream, "POST /v1/exec HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{\"source\"").unwrap();
    drop(stream);
    daemon.is_alive();
}
