//! What `/v1/exec` refuses, and that a refusal names what is wrong.

use std::io::Write as _;

use serde_json::json;

use crate::support::{Client, Daemon, LOCAL_HEADER, Opened, failure_of, result_of};

/// The refusal of a body by `/v1/exec`: status, kind, message.
#[track_caller]
fn refused(client: &Client, body: &str) -> (u16, String, String) {
    let answer = client.post("/v1/exec", body);
    let (kind, message) = answer.refusal();
    (answer.status, kind, message)
}

#[test]
fn a_bad_request_names_what_is_wrong() {
    let mut daemon = Daemon::start();
    let client = daemon.client();
    for (body, parts) in [
        ("", &["not valid JSON"][..]),
        ("{\"source\": \"1\"", &["not valid JSON"]),
        ("{\"source\": \"1\"} x", &["not valid JSON"]),
        ("\u{FEFF}{}", &["not valid JSON"]),
        ("null", &["null"]),
        ("[]", &["source"]),
        ("{\"source\": \"1\", \"opttions\": {}}", &["`opttions`", "`source`", "`file`", "`modules`", "`options`"]),
        (
            "{\"source\": \"1\", \"options\": {\"timeot\": \"1s\"}}",
            &["options", "`timeot`", "`timeout`", "`permissions`"],
        ),
        ("{\"source\": \"1\", \"options\": {\"limits\": {\"heap\": 1}}}", &["options.limits", "`heap`", "`heapBytes`"]),
        ("{}", &["source is required"]),
        ("{\"source\": \"\"}", &["source is empty"]),
        ("{\"source\": \" \\n\\t\"}", &["source is empty"]),
        ("{\"source\": \"1\", \"file\": \"/x.ts\"}", &["source and file"]),
        ("{\"file\": \"x.ts\"}", &["file", "absolute"]),
        ("{\"source\": 5}", &["source: ", "string"]),
        ("{\"source\": [\"1\"]}", &["source: ", "string"]),
        ("{\"source\": \"1\", \"modules\": {\"./a.ts\": 1}}", &["modules../a.ts: "]),
        ("{\"source\": \"1\", \"options\": 7}", &["options: "]),
        ("{\"source\": \"1\", \"options\": {\"args\": [1]}}", &["options.args[0]: ", "string"]),
        ("{\"source\": \"1\", \"options\": {\"args\": \"a\"}}", &["options.args: "]),
        ("{\"source\": \"1\", \"options\": {\"env\": {\"A\": 1}}}", &["options.env.A: "]),
        ("{\"source\": \"1\", \"options\": {\"env\": {\"A=B\": \"\"}}}", &["options.env", "A=B"]),
        ("{\"source\": \"1\", \"options\": {\"limits\": {\"calls\": \"x\"}}}", &["options.limits.calls: "]),
        ("{\"source\": \"1\", \"options\": {\"limits\": {\"calls\": -1}}}", &["options.limits.calls: "]),
        ("{\"source\": \"1\", \"options\": {\"limits\": {\"heapBytes\": 0}}}", &["options.limits.heapBytes"]),
        (
            "{\"source\": \"1\", \"options\": {\"limits\": {\"heapBytes\": 99999999999}}}",
            &["heapBytes", "exec.maxHeapBytes"],
        ),
        ("{\"source\": \"1\", \"options\": {\"output\": \"xml\"}}", &["options.output", "structured", "xml"]),
        ("{\"source\": \"1\", \"options\": {\"runtime\": \"python\"}}", &["options.runtime", "embedded"]),
        ("{\"source\": \"1\", \"options\": {\"cwd\": \"relative\"}}", &["options.cwd", "absolute"]),
    ] {
        let (status, kind, message) = refused(&client, body);
        assert_eq!((status, kind.as_str()), (400, "bad_request"), "{body}: {message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?} in {message}");
    }
    assert_eq!(daemon.status()["runs"]["finished"], 0, "nothing was started");
    daemon.is_alive();
}

#[test]
fn durations_out_of_range_are_refused_or_clamped() {
    let daemon = Daemon::start();
    let source = "await new Promise((r) => setTimeout(r, 50)); return 1";
    for timeout in ["99999999999999h", "1e306s", "18446744073709551615s", "-1s", "NaN", "120", "2S", ""] {
        let answer = daemon.post(source, &json!({"timeout": timeout}));
        assert_eq!(answer.status, 400, "{timeout}: {}", answer.text());
        assert!(answer.refusal().1.contains("options.timeout"), "{}", answer.text());
    }
    for timeout in ["0s", "0", "1.5s", " 2s ", "5m30s", "100h", "600ms"] {
        assert_eq!(result_of(&daemon.run(source, &json!({"timeout": timeout}))), 1, "{timeout}");
    }
    assert_eq!(failure_of(&daemon.run(source, &json!({"timeout": "999us"}))).0, "timeout");
}

#[test]
fn what_does_not_exist_yet_is_refused_by_name() {
    let daemon = Daemon::start();
    for (options, part) in [
        (json!({"runtime": "bun"}), "runtime"),
        (json!({"isolation": "process"}), "isolation"),
        (json!({"typecheck": "strict"}), "typecheck"),
        (json!({"phases": {"before": ["1"]}}), "phases"),
        (json!({"placeholders": {}}), "placeholders"),
        (json!({"launcherName": "x"}), "launcherName"),
        (json!({"task": {"ttl": 1}}), "task"),
        (json!({"detach": true}), "detach"),
        (json!({"stdinStream": true}), "stdinStream"),
        (json!({"artifacts": {"delivery": "inline"}}), "delivery"),
    ] {
        let answer = daemon.post("return 1", &options);
        let (kind, message) = answer.refusal();
        assert_eq!((answer.status, kind.as_str()), (501, "unsupported"), "{options}: {message}");
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn a_body_over_the_limit_is_refused_with_the_limits_name() {
    let mut daemon = Daemon::start();
    let body = json!({"source": "x".repeat(65 << 20)}).to_string();
    let (status, kind, message) = refused(&daemon.client(), &body);
    assert_eq!((status, kind.as_str()), (413, "too_large"));
    assert!(message.contains("http.bodyLimit") && message.contains(&(64 << 20).to_string()), "{message}");
    drop(body);
    daemon.is_alive();
    let small = Daemon::with_flags(&["--http-body-limit=1KiB"]);
    let mut stream = small.client().connect();
    let chunk = format!("400\r\n{}\r\n", "x".repeat(0x400));
    write!(stream, "POST /v1/exec HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n")
        .unwrap();
    assert_eq!(Opened::read(stream, false).status, 413, "of a length that was not announced, too");
    assert_eq!(small.value("return 1"), 1);
}

#[test]
fn paths_are_for_callers_that_share_the_file_system() {
    let daemon = Daemon::start();
    let file = daemon.place().write("script.ts", "export default (a: string[]) => [a[0], Deno.cwd()]");
    let work = daemon.place().work();
    let by_file = json!({"file": file, "options": {"args": ["x"], "cwd": work}}).to_string();
    let by_cwd = json!({"source": "1", "options": {"cwd": work}}).to_string();
    let liar = daemon.remote().with_header(LOCAL_HEADER, "2020-01-01T00:00:00Z");
    for (client, body) in [(daemon.remote(), &by_file), (daemon.remote(), &by_cwd), (liar, &by_file)] {
        let (status, kind, _) = refused(&client, body);
        assert_eq!((status, kind.as_str()), (403, "permission_denied"), "{body}");
    }
    let document = daemon.client().post("/v1/exec", by_file).json();
    assert_eq!(result_of(&document), json!(["x", work]));
    let missing = json!({"file": work.join("none.ts")}).to_string();
    let (status, kind, message) = refused(&daemon.client(), &missing);
    assert_eq!((status, kind.as_str()), (404, "not_found"));
    assert!(message.contains("none.ts"), "{message}");
}

#[test]
fn web_pages_are_kept_out() {
    let daemon = Daemon::start();
    let body = json!({"source": "return 1"}).to_string();
    for origins in [
        &["http://evil.example"][..],
        &["null"],
        &["http://localhost.evil.example:80"],
        &["http://localhost", "http://evil.example"],
        &["http://127.0.0.1:8080@evil.example"],
        &["file://"],
        &[""],
    ] {
        for (method, target) in
            [("POST", "/v1/exec"), ("OPTIONS", "/v1/exec"), ("GET", "/v1/artifacts"), ("GET", "/none")]
        {
            let request = daemon.client().request(method, target).header("content-type", "text/plain").body(&body);
            let answer = origins.iter().fold(request, |request, origin| request.header("origin", origin)).send();
            assert_eq!(answer.status, 403, "{method} {target} {origins:?}");
            let allowing = answer.headers.iter().find(|(name, _)| name.starts_with("access-control-"));
            assert_eq!(allowing, None);
        }
    }
    assert_eq!(daemon.status()["runs"]["finished"], 0, "nothing was executed");
    for origin in ["http://localhost", "http://127.0.0.1:8080", "http://[::1]:1", "http://LOCALHOST.:1"] {
        let answer = daemon.client().request("POST", "/v1/exec").header("origin", origin).body(&body).send();
        assert_eq!(answer.status, 200, "{origin}");
    }
    // On a unix socket any Host will do.
    let answer = daemon.client().request("GET", "/v1/health").header("host", "evil.example").send();
    assert!(matches!(answer.status, 200 | 400), "two Hosts are not a request either: {}", answer.status);
}
