//! What scripts hand back with `artifact()`.

use serde_json::{Value, json};

use crate::support::{Daemon, failure_of, result_of, sha256, words};

/// The bytes of an artifact.
fn bytes_of(daemon: &Daemon, artifact: &Value) -> Vec<u8> {
    let answer = daemon.remote().get(&format!("/v1/artifacts/{}", artifact["id"].as_str().unwrap()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.body
}

#[test]
fn every_form_of_data_is_stored_as_it_is() {
    let daemon = Daemon::start();
    daemon.place().write("file.bin", [0, 159, 146, 150]);
    let image = "{ type: 'image', data: 'aGk=', mimeType: 'image/png' }";
    for (data, bytes, mime) in [
        ("'téxt'", "téxt".as_bytes(), "application/octet-stream"),
        ("''", b"", "application/octet-stream"),
        ("new String('boxed')", b"boxed", "application/octet-stream"),
        ("new Uint8Array([1, 2, 255])", &[1, 2, 255], "application/octet-stream"),
        ("new Uint8Array([0, 1, 2, 3]).subarray(1, 3)", &[1, 2], "application/octet-stream"),
        ("new Uint16Array([258])", &[2, 1], "application/octet-stream"),
        ("new DataView(new Uint8Array([9, 8]).buffer, 1)", &[8], "application/octet-stream"),
        ("new Uint8Array([7]).buffer", &[7], "application/octet-stream"),
        ("new Blob(['bl', 'ob'], { type: 'text/x-blob' })", b"blob", "text/x-blob"),
        ("new Blob(['s', 'tream']).stream()", b"stream", "application/octet-stream"),
        ("ReadableStream.from(['a', 'é'])", "aé".as_bytes(), "application/octet-stream"),
        ("{ path: 'file.bin' }", &[0, 159, 146, 150], "application/octet-stream"),
        (image, b"hi", "image/png"),
        ("{ type: 'audio', data: 'aGk', mimeType: 'audio/wav' }", b"hi", "audio/wav"),
        ("{ type: 'resource', resource: { uri: 'x:y', blob: 'aGk=', mimeType: 'image/gif' } }", b"hi", "image/gif"),
        ("{ type: 'resource', resource: { uri: 'x:y', text: 'words', mimeType: 'text/css' } }", b"words", "text/css"),
        (&format!("{{ content: [{{ type: 'text', text: 'cap' }}, {image}] }}"), b"hi", "image/png"),
        (&format!("[{image}]"), b"hi", "image/png"),
        (&format!("Object.assign(new String('cap'), {{ raw: {{ content: [{image}] }} }})"), b"hi", "image/png"),
    ] {
        let source = format!("return await artifact('thing', {data})");
        let document = daemon.run(&source, &json!({"cwd": daemon.place().work()}));
        let artifact = result_of(&document);
        assert_eq!(bytes_of(&daemon, &artifact), bytes, "{data}");
        assert_eq!((&artifact["size"], &artifact["sha256"]), (&json!(bytes.len()), &json!(sha256(bytes))), "{data}");
        assert_eq!((&artifact["mime"], &artifact["name"]), (&json!(mime), &json!("thing")), "{data}");
        let id = artifact["id"].as_str().unwrap();
        assert!(id.len() == 36 && id.starts_with("art-") && id[4..].bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert!(artifact["uri"].as_str().unwrap().ends_with(id), "{artifact}");
        assert_eq!(document["artifacts"], json!([artifact]), "{data}");
    }
}

#[test]
fn what_cannot_be_stored_is_a_type_error_that_says_what_it_was() {
    let daemon = Daemon::start();
    for (call, part) in [
        ("artifact('x')", "undefined"),
        ("artifact('x', null)", "null"),
        ("artifact('x', 7)", "number"),
        ("artifact('x', {})", "object"),
        ("artifact('x', { a: 1, b: 2 })", "a, b"),
        ("artifact('x', [])", "array"),
        ("artifact('x', () => 1)", "function"),
        ("artifact('x', { type: 'text', text: 't' })", "type, text"),
        ("artifact(7, 'x')", "name"),
        ("artifact('x', 'y', 7)", "options"),
        ("artifact('x', 'y', { ttl: 0 })", "ttl"),
        ("artifact('x', 'y', { ttl: '1h' })", "ttl"),
        ("artifact('x', 'y', { mime: '' })", "mime"),
    ] {
        // Synchronously: without await.
        let value =
            daemon.value(&format!("try {{ {call}; return 'OPEN' }} catch (e) {{ return [e.name, e.message] }}"));
        assert_eq!(value[0], "TypeError", "{call}: {value}");
        assert!(value[1].as_str().unwrap().contains(part), "{part} in {value}");
    }
    for call in ["artifact('x', { type: 'image', data: '*' })", "artifact('x', ReadableStream.from([7]))"] {
        let value = daemon.value(&format!("return await ({call}).catch((e) => e.name)"));
        assert_eq!(value, "TypeError", "{call}");
    }
    for call in
        ["artifact('k', 'text/plain', 'v')", "artifact('x', 'y', { key: 'k' })", "artifact.get('k')", "input('k')"]
    {
        let document = daemon.exec(&format!("return await {call}"));
        assert_eq!(failure_of(&document).0, "unsupported", "{call}: {document:#}");
    }
    assert_eq!(daemon.status()["artifacts"]["count"], 0);
}

#[test]
fn files_are_read_with_the_permissions_of_the_run() {
    let daemon = Daemon::start();
    let work = daemon.place().work();
    daemon.place().write("in.txt", "inside");
    let run = |path: &str, permissions: &str| {
        let source = format!("return await artifact('x', {{ path: {path:?} }})");
        daemon.run(&source, &json!({"cwd": work, "permissions": permissions}))
    };
    assert_eq!(bytes_of(&daemon, &result_of(&run("in.txt", "workspace"))), b"inside");
    assert_eq!(failure_of(&run("/etc/hostname", "workspace")).0, "permission_denied");
    assert_eq!(failure_of(&run("in.txt", "none")).0, "permission_denied");
    assert_eq!(failure_of(&run("none.txt", "workspace")).0, "not_found");
    assert_eq!(run(".", "workspace")["exitCode"], 1, "a folder is no file");
    let hostname = std::fs::read("/etc/hostname").unwrap();
    assert_eq!(bytes_of(&daemon, &result_of(&run("/etc/hostname", "read"))), hostname);
}

#[test]
fn what_is_too_large_is_refused_whole() {
    let mut daemon = Daemon::with_flags(&["--artifacts-max-bytes=1MiB"]);
    let limit = 1 << 20;
    for (data, fits) in [
        (format!("new Uint8Array({limit})"), true),
        (format!("new Uint8Array({})", limit + 1), false),
        (format!("'x'.repeat({})", limit + 1), false),
        ("{ path: 'big' }".to_owned(), false),
    ] {
        daemon.place().write("big", vec![0; limit + 1]);
        let document =
            daemon.run(&format!("return await artifact('x', {data})"), &json!({"cwd": daemon.place().work()}));
        if fits {
            assert_eq!(result_of(&document)["size"], limit);
        } else {
            assert_eq!(failure_of(&document).0, "too_large", "{data}: {document:#}");
            assert!(failure_of(&document).1.contains("artifacts.maxBytes"), "{document:#}");
        }
    }
    let answer = daemon.client().post("/v1/artifacts?name=x", vec![0; limit + 1]);
    assert_eq!((answer.status, answer.refusal().0.as_str()), (413, "too_large"));
    assert_eq!(daemon.status()["artifacts"]["count"], 1);
    daemon.is_alive();
}

#[test]
fn names_become_safe() {
    let daemon = Daemon::start();
    let long = |part: &str, end: &str| format!("{}{end}", part.repeat(300));
    for (given, stored) in [
        ("shot.png", "shot.png".to_owned()),
        ("../../etc/passwd", "passwd".to_owned()),
        ("a\\b\\c.txt", "c.txt".to_owned()),
        ("my shot.png", "my-shot.png".to_owned()),
        ("a\"b\r\nX-Evil: 1", "a_b__X-Evil_-1".to_owned()),
        ("..", "artifact".to_owned()),
        ("", "artifact".to_owned()),
        ("日本.png", "__.png".to_owned()),
        (&long("я", ".png"), format!("{}.png", "_".repeat(124))),
        (&long("y", ""), "y".repeat(128)),
    ] {
        let artifact = daemon.value(&format!("return await artifact({}, 'x')", json!(given)));
        assert_eq!(artifact["name"], stored, "{given:?}");
        let answer = daemon.client().get(&format!("/v1/artifacts/{}", artifact["id"].as_str().unwrap()));
        assert_eq!(answer.header("content-disposition"), Some(format!("attachment; filename=\"{stored}\"").as_str()));
        assert_eq!(answer.header("x-evil"), None);
    }
}

#[test]
fn writes_that_nobody_awaits_are_waited_for() {
    let daemon = Daemon::start();
    let frames = daemon.frames("for (let i = 0; i < 5; i++) artifact('n' + i, 'body ' + i); return 1");
    assert_eq!(words(&frames)[6..], ["result", "end"]);
    for (n, frame) in frames[1..6].iter().enumerate() {
        assert_eq!((&frame["type"], &frame["artifact"]["name"]), (&json!("artifact"), &json!(format!("n{n}"))));
        assert_eq!(bytes_of(&daemon, &frame["artifact"]), format!("body {n}").as_bytes());
    }
    let value = daemon.value(
        "const all = await Promise.all([1, 2, 3].map((n) => artifact('p' + n, 'same'))); return all.map((a) => a.id)",
    );
    assert_eq!(value.as_array().unwrap().len(), 3);
    assert_ne!(value[0], value[1], "equal bytes have handles of their own");
    let frames = daemon.frames("await artifact('mine', 'x')");
    let listed = daemon.client().get(&format!("/v1/artifacts?run={}", frames[0]["runId"].as_str().unwrap())).json();
    let names: Vec<&Value> = listed["artifacts"].as_array().unwrap().iter().map(|artifact| &artifact["name"]).collect();
    assert_eq!(names, ["mine"], "a run's artifacts carry its label");
}
