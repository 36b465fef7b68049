//! Tests of the upstreams against a real child: `tests/fixtures/fake.mjs`, run with node.
//!
//! Waiting is always for something (an answer, a line in a file, a dead process), never for an amount of time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{Config, LoadOptions};

/// Servers in a temporary folder.
struct Bench {
    folder: tempfile::TempDir,
    upstreams: Upstreams,
}

/// A config entry that runs the fake with a spec.
fn fake(spec: Value) -> Value {
    json!({ "fake": spec })
}

impl Bench {
    /// Every value of `servers` is a config entry, or a fake (see [`fake`]); `{dir}` in its text becomes the folder.
    fn new(servers: Value) -> Self {
        Self::with_limits(servers, UpstreamLimits::default())
    }

    fn with_limits(servers: Value, limits: UpstreamLimits) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder, because the tests need one");
        let dir = folder.path().canonicalize().expect("it exists");
        let text = servers.to_string().replace("{dir}", &dir.display().to_string());
        let mut servers: Value = serde_json::from_str(&text).expect("a path has no quotes");
        for (name, entry) in servers.as_object_mut().expect("an object of servers") {
            if let Some(spec) = entry.as_object_mut().and_then(|entry| entry.remove("fake")) {
                let file = dir.join(format!("{name}.spec.json"));
                std::fs::write(&file, spec.to_string()).expect("the spec can be written");
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fake.mjs");
                entry["command"] = json!("node");
                entry["args"] = json!([script, file]);
            }
        }
        let file = dir.join("config.json");
        std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).expect("the config can be written");
        let env: BTreeMap<String, String> = std::env::vars().collect();
        let options = LoadOptions { cwd: dir, home: None, xdg_config_home: None, explicit: Some(file), env: &env };
        let config = Config::load(&options).expect("the config is right");
        Self { folder, upstreams: Upstreams::new(&config, limits, env, Handle::current()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("it exists").join(name)
    }

    /// How often a fake with `"started":"{dir}/<name>"` was started.
    fn starts(&self, name: &str) -> usize {
        std::fs::read_to_string(self.path(name)).unwrap_or_default().lines().count()
    }

    async fn call(&self, server: &str, tool: &str, args: Value) -> Result<Value, UpstreamError> {
        let reply = self.upstreams.call(request(server, tool, args)).await?;
        Ok(serde_json::from_str(&reply.result_json).expect("a result is JSON"))
    }

    async fn text(&self, server: &str, tool: &str, args: Value) -> String {
        let result = self.call(server, tool, args).await.unwrap_or_else(|error| panic!("{error}"));
        result["content"][0]["text"].as_str().expect("a text block").to_owned()
    }

    async fn error(&self, server: &str, tool: &str) -> UpstreamError {
        self.call(server, tool, json!({})).await.expect_err("the call must fail")
    }
}

fn request(server: &str, tool: &str, args: Value) -> CallRequest {
    CallRequest {
        server: server.to_owned(),
        tool: tool.to_owned(),
        naming: Naming::Wire,
        args_json: args.to_string(),
        timeout: None,
        cancel: CancellationToken::new(),
    }
}

fn tools(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name, "inputSchema": { "type": "object" } })).collect()
}

/// Waits until `file` has a line that `wanted` accepts.
async fn line(file: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let found = async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Some(line) = text.lines().find(|line| wanted(line)) {
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("the line must come")
}

/// Waits until no process with this id runs; a zombie that somebody else has to reap does not run.
async fn gone(pid: &str) {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.trim().chars().next().filter(|state| *state != 'Z')
    };
    let ended = async {
        while state().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the process must end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lazy_start_is_shared_and_outlives_its_callers() {
    let bench = Bench::new(json!({ "one": fake(json!({ "tools": tools(&["echo"]), "started": "{dir}/starts" })) }));
    assert!(bench.upstreams.known_tools("one").is_none());
    assert!(matches!(bench.upstreams.servers()[0].state, ServerState::Idle));
    assert_eq!(bench.starts("starts"), 0, "nothing starts by itself");
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let upstreams = bench.upstreams.clone();
        callers.spawn(async move { upstreams.call(request("one", "echo", json!({ "n": n }))).await });
    }
    // The first caller goes away while the start is on its way.
    let upstreams = bench.upstreams.clone();
    let impatient = tokio::spawn(async move { upstreams.tools("one").await });
    impatient.abort();
    while let Some(answer) = callers.join_next().await {
        assert!(answer.expect("no panic").is_ok());
    }
    assert_eq!(bench.starts("starts"), 1);
    assert!(matches!(bench.upstreams.servers()[0].state, ServerState::Ready));
    assert_eq!(bench.upstreams.known_tools("one").expect("now they are known").tools().len(), 1);
}

#[tokio::test]
async fn results_pass_untouched() {
    let image =
        json!({ "content": [{ "type": "image", "data": "aGk=", "mimeType": "image/png", "odd": 1 }], "extra": [1.5] });
    let bench = Bench::new(json!({ "r": fake(json!({
        "tools": tools(&["echo", "bad", "structured", "image", "odd"]),
        "results": {
            "bad": { "result": { "content": [{ "type": "text", "text": "no" }], "isError": true } },
            "structured": { "result": { "content": [], "structuredContent": { "big": 9007199254740991_i64 } } },
            "image": { "result": image }, "odd": { "result": "just text" }
        }
    })) }));
    assert_eq!(bench.text("r", "echo", json!({ "b": null, "deep": {} })).await, r#"{"b":null,"deep":{}}"#);
    let reply = bench.upstreams.call(request("r", "bad", json!({}))).await.expect("isError is an answer");
    assert!(reply.is_error && reply.server == "r" && reply.tool == "bad");
    let structured = bench.call("r", "structured", json!({})).await.expect("an answer");
    assert_eq!(structured["structuredContent"]["big"], json!(9007199254740991_i64));
    assert_eq!(bench.call("r", "image", json!({})).await.expect("an answer"), image);
    assert_eq!(bench.error("r", "odd").await.kind(), "tool_error");
    let mut empty = request("r", "echo", json!({}));
    empty.args_json = String::new();
    let reply = bench.upstreams.call(empty).await.expect("no arguments are an empty object");
    assert!(reply.result_json.contains("{}"), "{}", reply.result_json);
    for (args, what) in [("[1]", "an array"), ("\"str\"", "a string"), ("5", "a number"), ("{", "no JSON")] {
        let mut wrong = request("r", "echo", json!({}));
        wrong.args_json = args.to_owned();
        let error = bench.upstreams.call(wrong).await.expect_err("that is no object");
        assert!(error.kind() == "bad_request" && error.to_string().contains(what), "{error}");
    }
}

#[tokio::test]
async fn an_isolates_own_runtime_can_call() {
    let bench = Bench::new(
        json!({ "a": fake(json!({ "tools": tools(&["echo", "never"]), "results": { "never": { "never": true } } })) }),
    );
    let upstreams = bench.upstreams.clone();
    let elsewhere = tokio::task::spawn_blocking(move || {
        // Neither driver is on: all clocks and pipes are those of the runtime the handle was made with.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
        runtime.block_on(async {
            let mut slow = request("a", "never", json!({}));
            slow.timeout = Some(Duration::from_millis(50));
            let error = upstreams.call(slow).await.expect_err("it never answers");
            (upstreams.call(request("a", "echo", json!({ "x": 1 }))).await, error.kind())
        })
    });
    let (reply, kind) = elsewhere.await.expect("no panic");
    assert!(reply.expect("an answer").result_json.contains("x"));
    assert_eq!(kind, "timeout");
}

#[tokio::test]
async fn pages_and_cursors_that_never_move() {
    let page = |name: &str| tools(&[name]);
    let bench = Bench::new(json!({
        "paged": fake(json!({ "pages": [page("p1"), page("p2"), page("p3")] })),
        "stuck": fake(json!({ "tools": tools(&["same"]), "cursor": "stuck", "log": "{dir}/log" })),
        "empty": fake(json!({ "tools": tools(&["empty"]), "cursor": "" })),
        "grow": fake(json!({ "tools": tools(&["grow"]), "results": { "grow": { "addTool": { "name": "fresh", "inputSchema": {} } } } })),
    }));
    let names = async |server: &str| {
        let table = bench.upstreams.tools(server).await.expect("it starts");
        table.tools().iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("paged").await, ["p1", "p2", "p3"]);
    assert_eq!(names("stuck").await, ["same"]);
    let log = std::fs::read_to_string(bench.path("log")).expect("the fake logs");
    assert_eq!(log.matches("tools/list").count(), 2);
    assert_eq!(names("empty").await, ["empty"]);
    assert_eq!(bench.text("grow", "grow", json!({})).await, "ok");
    // The server says that its list changed; nobody has to ask.
    while bench.upstreams.known_tools("grow").is_none_or(|table| table.by_name("fresh").is_none()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(bench.text("grow", "fresh", json!({ "new": 1 })).await, r#"{"new":1}"#);
    assert_eq!(names("grow").await, ["grow", "fresh"]);
}

#[tokio::test]
async fn noise_never_ends_a_session() {
    let long = "é😀".repeat(50_000);
    let bench = Bench::new(json!({ "noisy": fake(json!({
        "banner": "Fake server v0 ready\n{\"half\":\n", "echoNoise": true, "eol": "\r\n", "log": "{dir}/log",
        "tools": tools(&["big", "last"]),
        "results": { "big": { "stderr": 300_000, "result": { "content": [{ "type": "text", "text": long }] } },
                     "last": { "partial": { "content": [{ "type": "text", "text": "no line end" }] } } }
    })) }));
    assert_eq!(bench.text("noisy", "big", json!({})).await, long);
    let log = std::fs::read_to_string(bench.path("log")).expect("the fake logs");
    assert!(log.lines().all(|line| !line.contains("\"error\"")), "noise is not answered: {log}");
    assert_eq!(bench.text("noisy", "last", json!({})).await, "no line end");
    assert_eq!(bench.text("noisy", "big", json!({})).await.len(), long.len());
}

#[tokio::test]
async fn an_exit_is_named_and_not_repeated() {
    let bench = Bench::new(json!({ "x": fake(json!({
        "tools": tools(&["echo", "die"]), "results": { "die": { "stderr": 3, "exit": 7 } }, "started": "{dir}/starts", "log": "{dir}/log"
    })) }));
    let error = bench.error("x", "die").await;
    let message = error.to_string();
    assert_eq!(error.kind(), "upstream_unavailable");
    assert!(
        message.contains("\"x\"") && message.contains("\"die\"") && message.contains("exit status: 7"),
        "{message}"
    );
    assert!(message.contains("eee"), "the end of standard error is shown: {message}");
    assert_eq!(bench.text("x", "echo", json!({})).await, "{}", "the next call starts it again");
    assert_eq!(bench.starts("starts"), 2);
    let log = std::fs::read_to_string(bench.path("log")).expect("the fake logs");
    assert_eq!(log.matches("\"die\"").count(), 1);
}

#[tokio::test]
async fn a_late_answer_harms_nobody() {
    let limits = UpstreamLimits { call_timeout: Duration::from_millis(100), ..UpstreamLimits::default() };
    let bench = Bench::with_limits(
        json!({ "s": fake(json!({
            "tools": tools(&["slow", "quick"]), "results": { "slow": { "delay": 300 } }, "log": "{dir}/log", "started": "{dir}/starts"
        })) }),
        limits,
    );
    let error = bench.error("s", "slow").await;
    assert_eq!(error.kind(), "timeout");
    assert!(error.to_string().contains("pool.callTimeout") && error.to_string().contains("100ms"), "{error}");
    let cancel = CancellationToken::new();
    let two = request("s", "slow", json!({ "n": 2 }));
    let mut two = CallRequest { cancel: cancel.clone(), ..two };
    two.timeout = Some(Duration::from_secs(20));
    let upstreams = bench.upstreams.clone();
    let two = tokio::spawn(async move { upstreams.call(two).await });
    let sent = line(&bench.path("log"), |line| line.contains(r#""n":2"#)).await;
    cancel.cancel();
    assert_eq!(two.await.expect("no panic").expect_err("it was cancelled").kind(), "cancelled");
    let upstreams = bench.upstreams.clone();
    let three = tokio::spawn(async move { upstreams.call(request("s", "slow", json!({ "n": 3 }))).await });
    line(&bench.path("log"), |line| line.contains(r#""n":3"#)).await;
    three.abort();
    let id = serde_json::from_str::<Value>(&sent).expect("the fake logs JSON")["id"].clone();
    line(&bench.path("log"), |line| {
        line.contains("notifications/cancelled") && line.contains(&format!(r#""requestId":{id}"#))
    })
    .await;
    let mut quick = request("s", "quick", json!({ "n": 4 }));
    quick.timeout = Some(Duration::from_secs(20));
    let reply = bench.upstreams.call(quick).await.expect("the session goes on");
    assert!(reply.result_json.contains(r#"{\"n\":4}"#), "{}", reply.result_json);
    let count =
        || std::fs::read_to_string(bench.path("log")).unwrap_or_default().matches("notifications/cancelled").count();
    while count() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(), 3);
    assert_eq!(bench.starts("starts"), 1);
}

#[tokio::test]
async fn a_hung_server_is_replaced() {
    let bench = Bench::new(json!({ "h": fake(json!({
        "tools": tools(&["echo", "hang"]), "results": { "hang": { "hang": true } }, "started": "{dir}/starts"
    })) }));
    let mut hang = request("h", "hang", json!({}));
    hang.timeout = Some(Duration::from_millis(50));
    assert_eq!(bench.upstreams.call(hang).await.expect_err("it hangs").kind(), "timeout");
    // This one reaches the hung process, and fails with it.
    let error = bench.error("h", "echo").await;
    assert!(error.to_string().contains("hung"), "{error}");
    assert_eq!(bench.text("h", "echo", json!({})).await, "{}");
    assert_eq!(bench.starts("starts"), 2);
}

#[tokio::test]
async fn failed_starts_say_why_and_cost_nobody_else() {
    let limits = UpstreamLimits { start_timeout: Duration::from_secs(30), ..UpstreamLimits::default() };
    let bench = Bench::with_limits(
        json!({
            "crash": { "command": "sh", "args": ["-c", "echo s >> {dir}/crashes; echo broken pipe dream >&2; exit 3"] },
            "banner": { "command": "sh", "args": ["-c", "echo welcome to the wrong program"] },
            "silent": { "command": "sh", "args": ["-c", "sleep 602 & echo $! > {dir}/pid; exec sleep 603"], "mcpx": { "startTimeout": 300 } },
            "absent": { "command": "no-such-program-anywhere" },
            "novar": { "command": "sh", "args": ["${NOT_SET_ANYWHERE}"] },
            "web": { "url": "http://localhost:1/mcp" },
            "off": { "command": "sh", "mcpx": { "disabled": true } },
            "good": fake(json!({ "tools": tools(&["echo"]) })),
        }),
        limits,
    );
    let (silent, good) = tokio::join!(bench.error("silent", "t"), bench.text("good", "echo", json!({})));
    assert_eq!(good, "{}");
    for (error, words) in [
        (bench.error("crash", "t").await, vec!["\"crash\"", "exit status: 3", "broken pipe dream"]),
        (bench.error("banner", "t").await, vec!["\"banner\"", "not JSON-RPC", "welcome to the wrong program"]),
        (silent, vec!["\"silent\"", "initialize", "300ms", "startTimeout"]),
        (bench.error("absent", "t").await, vec!["\"absent\"", "no-such-program-anywhere", "PATH"]),
        (bench.error("novar", "t").await, vec!["\"novar\"", "NOT_SET_ANYWHERE", "args[0]"]),
        (bench.error("off", "t").await, vec!["\"off\"", "disabled"]),
    ] {
        assert_eq!(error.kind(), "upstream_unavailable", "{error}");
        assert_eq!(error.tool.as_deref(), Some("t"));
        for word in words {
            assert!(error.to_string().contains(word), "{word} is missing in: {error}");
        }
    }
    assert_eq!(bench.error("web", "t").await.kind(), "unsupported");
    gone(std::fs::read_to_string(bench.path("pid")).expect("the shell wrote it").trim()).await;
    bench.error("crash", "t").await;
    assert_eq!(bench.starts("crashes"), 1, "a failed start is not repeated at once");
}

#[tokio::test]
async fn names_identifiers_and_collisions() {
    let bench = Bench::new(json!({
        "my-box": fake(json!({ "tools": tools(&["echo"]) })),
        "my.box": fake(json!({ "tools": tools(&["echo"]) })),
        "console": fake(json!({ "tools": tools(&["read-only", "read.only", "delete", "2fa"]), "log": "{dir}/log" })),
    }));
    let namespaces: Vec<_> =
        bench.upstreams.namespaces().iter().map(|n| (n.ident.as_str(), n.server.as_str())).collect();
    assert_eq!(namespaces, [("console_", "console")]);
    assert_eq!(bench.upstreams.server_of("console_"), Some("console"));
    let by_ident = async |server: &str, tool: &str| {
        let call = CallRequest { naming: Naming::Identifier, ..request(server, tool, json!({})) };
        bench.upstreams.call(call).await
    };
    assert_eq!(by_ident("console_", "delete_").await.expect("an answer").tool, "delete");
    assert_eq!(by_ident("console_", "_2fa").await.expect("an answer").tool, "2fa");
    for (server, tool, kind, words) in [
        ("console_", "read_only", "bad_request", ["read-only", "read.only"]),
        ("my_box", "echo", "bad_request", ["my-box", "my.box"]),
        ("console_", "delet", "not_found", ["console", "\"delete_\""]),
        ("consol", "x", "not_found", ["consol", "\"console_\""]),
    ] {
        let error = by_ident(server, tool).await.expect_err("it must fail");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
    assert_eq!(bench.text("my-box", "echo", json!({})).await, "{}");
    assert_eq!(bench.text("my.box", "echo", json!({})).await, "{}");
    assert_eq!(bench.text("console", "read.only", json!({})).await, "{}");
    let log = std::fs::read_to_string(bench.path("log")).expect("the fake logs");
    assert!(log.contains(r#""name":"read.only""#));
    assert_eq!(bench.error("console", "raed.only").await.kind(), "not_found");
    let found: Vec<_> = bench.upstreams.search("delete", 5).into_iter().map(|hit| hit.name).collect();
    assert_eq!(found, ["console_.delete_"]);
}

#[tokio::test]
async fn a_server_without_a_handshake_is_asked_the_new_way() {
    let bench = Bench::new(json!({ "m": fake(json!({
        "tools": tools(&["echo"]), "modern": true, "log": "{dir}/log", "started": "{dir}/starts"
    })) }));
    assert_eq!(bench.text("m", "echo", json!({ "a": 1 })).await, r#"{"a":1}"#);
    assert_eq!(bench.starts("starts"), 2);
    let log = std::fs::read_to_string(bench.path("log")).expect("the fake logs");
    assert!(log.lines().last().expect("the call").contains("2026-07-28"), "each request says its revision: {log}");
}

#[tokio::test]
async fn requests_of_a_server_are_refused() {
    let ask = json!([{ "method": "roots/list" }, { "method": "elicitation/create", "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } } },
        { "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } }, { "method": "made/up" }, { "method": "ping" }]);
    let bench = Bench::new(json!({ "a": fake(json!({
        "tools": tools(&["asks"]), "results": { "asks": { "ask": ask } }, "log": "{dir}/log"
    })) }));
    assert_eq!(bench.text("a", "asks", json!({})).await, "ok");
    let log = std::fs::read_to_string(bench.path("log")).expect("the fake logs");
    for refused in ["roots", "elicitation", "sampling", "made/up"] {
        assert!(log.contains(&format!("mcpx does not offer {refused}")), "{refused}: {log}");
    }
    assert_eq!(log.matches("\"error\"").count(), 4, "ping is answered: {log}");
    let initialize = log.lines().next().expect("the first message");
    assert!(initialize.contains(r#""capabilities":{}"#) && initialize.contains(r#""name":"mcpx""#), "{initialize}");
    assert!(initialize.contains("2025-11-25"), "{initialize}");
}

#[tokio::test]
async fn shutdown_ends_the_whole_group() {
    let script = "trap '' TERM HUP; sleep 600 & echo $! > {dir}/grandchild; node \"$0\" \"$1\"; wait";
    let bench = Bench::new(json!({
        "wrapped": { "command": "sh", "args": ["-c", script, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fake.mjs"), "{dir}/plain.spec.json"] },
        "plain": fake(json!({ "tools": tools(&["echo", "never"]), "results": { "never": { "never": true } }, "started": "{dir}/starts", "log": "{dir}/log" })),
        "starting": { "command": "sleep", "args": ["604"] },
    }));
    assert_eq!(bench.text("plain", "echo", json!({})).await, "{}");
    assert_eq!(bench.text("wrapped", "echo", json!({})).await, "{}");
    let upstreams = bench.upstreams.clone();
    let pending = tokio::spawn(async move { upstreams.call(request("plain", "never", json!({}))).await });
    let upstreams = bench.upstreams.clone();
    let starting = tokio::spawn(async move { upstreams.tools("starting").await });
    line(&bench.path("log"), |line| line.contains("\"never\"")).await;
    bench.upstreams.shutdown().await;
    for error in [pending.await.expect("no panic").map(drop), starting.await.expect("no panic").map(drop)] {
        assert!(matches!(*error.expect_err("it was closed").fault, Fault::Closing));
    }
    assert!(matches!(*bench.error("plain", "echo").await.fault, Fault::Closing));
    gone(std::fs::read_to_string(bench.path("grandchild")).expect("the shell wrote it").trim()).await;
    for pid in std::fs::read_to_string(bench.path("starts")).expect("two fakes started").lines() {
        gone(pid).await;
    }
    bench.upstreams.shutdown().await;
}

#[tokio::test]
async fn dropping_the_last_handle_ends_everything() {
    let bench = Bench::new(json!({ "d": fake(json!({ "tools": tools(&["echo"]), "started": "{dir}/starts" })) }));
    assert_eq!(bench.text("d", "echo", json!({})).await, "{}");
    let pid = std::fs::read_to_string(bench.path("starts")).expect("the fake started");
    drop(bench);
    gone(pid.trim()).await;
}

#[test]
fn the_futures_can_go_anywhere() {
    fn is_send<T: Send>(_: &T) {}
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let upstreams =
        Upstreams::new(&Config::default(), UpstreamLimits::default(), BTreeMap::new(), runtime.handle().clone());
    let call = upstreams.call(request("nobody", "t", json!({})));
    is_send(&call);
    is_send(&upstreams.tools("nobody"));
    let error = runtime.block_on(call).expect_err("there is no server");
    assert_eq!(error.kind(), "not_found");
}
