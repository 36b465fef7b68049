//! How values are shown, the order of what a script says, and the bounds on it.

use serde_json::{Value, json};

use crate::support::{Daemon, Place, failure_of, result_of, words};

#[test]
fn what_json_has_no_word_for_has_a_defined_form() {
    let daemon = Daemon::start();
    for (value, shown) in [
        ("12345678901234567890n", json!("12345678901234567890")),
        ("[1n]", json!(["1"])),
        ("new Date(0)", json!("1970-01-01T00:00:00.000Z")),
        ("new Date(NaN)", Value::Null),
        ("new Map([['a', 1], [{ k: 1 }, new Set([1n])]])", json!([["a", 1], [{"k": 1}, ["1"]]])),
        ("new Set([1, 'x', undefined])", json!([1, "x", null])),
        ("new Map()", json!([])),
        ("[undefined, () => 1, Symbol('s')]", json!([null, null, null])),
        ("({ u: undefined, f() {}, [Symbol('s')]: 1, kept: 0 })", json!({"kept": 0})),
        ("[-0, NaN, Infinity, -Infinity, 1e21]", json!([0, null, null, null, 1e21])),
        ("/a+/gi", json!("/a+/gi")),
        ("new URL('https://example.org/a?b')", json!("https://example.org/a?b")),
        ("new Uint8Array([104, 105])", json!({"type": "Uint8Array", "byteLength": 2, "base64": "aGk="})),
        ("new Uint16Array([1]).buffer", json!({"type": "ArrayBuffer", "byteLength": 2, "base64": "AQA="})),
        ("new DataView(new ArrayBuffer(1))", json!({"type": "DataView", "byteLength": 1, "base64": "AA=="})),
        ("new Uint8Array(50_000_000)", json!({"type": "Uint8Array", "byteLength": 50_000_000})),
        (
            "(() => { const o = { a: [1] }; o.me = o; o.a.push(o.a); return o })()",
            json!({"a": [1, "[Circular]"], "me": "[Circular]"}),
        ),
        ("(() => { const s = { n: 1 }; return [s, s] })()", json!([{"n": 1}, {"n": 1}])),
        ("({ get boom() { throw new Error('getter') }, ok: 1 })", json!({"boom": "[Thrown: getter]", "ok": 1})),
        ("({ toJSON() { throw new Error('json') } })", json!("[Thrown: json]")),
        ("({ toJSON() { return { as: 1 } } })", json!({"as": 1})),
        ("Object.create(null, { own: { value: 1, enumerable: true } })", json!({"own": 1})),
        ("[Object(1), Object('s'), Object(true), Object(2n)]", json!([1, "s", true, "2"])),
        ("JSON.parse('{\"__proto__\": {\"p\": 1}}')", json!({"__proto__": {"p": 1}})),
    ] {
        let document = daemon.exec(&format!("const v = {value}; emit(v); log.info('l', {{ v }}); return v"));
        let result = result_of(&document);
        assert_eq!(result, shown, "{value}");
        assert_eq!(document["emits"], json!([result]), "emit and return show {value} alike");
        let logged = document["logs"][0]["attrs"]["v"].clone();
        assert_eq!(logged, result, "a log's attributes show {value} alike");
    }
}

#[test]
fn half_a_character_does_not_make_the_document_unreadable() {
    let daemon = Daemon::start();
    let document = daemon.exec("const v = { '\\ud800k': 'a\\udfffb' }; emit(v); log.info('\\ud800', v); return v");
    let shown = json!({"\u{FFFD}k": "a\u{FFFD}b"});
    assert_eq!((result_of(&document), &document["emits"][0]), (shown.clone(), &shown));
}

#[test]
fn proxies_cannot_break_a_run() {
    let daemon = Daemon::start();
    let revoked = "const p = Proxy.revocable([], {}); p.revoke(); ";
    for source in [
        format!("{revoked}return {{ kept: 1, p: p.proxy }}"),
        format!("{revoked}return {{ kept: 1, p: [p.proxy] }}"),
        format!("{revoked}emit(p.proxy); log.info('l', {{ p: p.proxy }}); return {{ kept: 1 }}"),
    ] {
        assert_eq!(daemon.value(&source)["kept"], 1, "{source}");
    }
    for trap in ["get", "has", "ownKeys", "getPrototypeOf", "getOwnPropertyDescriptor"] {
        let source =
            format!("return {{ kept: 1, p: new Proxy({{ a: 1 }}, {{ {trap}() {{ throw new Error('trap') }} }}) }}");
        assert_eq!(daemon.value(&source)["kept"], 1, "{trap}");
    }
}

#[test]
fn errors_are_values_too() {
    let daemon = Daemon::start();
    let shown = daemon.value("return Object.assign(new TypeError('t', { cause: new Error('c') }), { code: 7 })");
    assert_eq!((&shown["name"], &shown["message"], &shown["code"]), (&json!("TypeError"), &json!("t"), &json!(7)));
    assert_eq!(shown["cause"]["message"], "c");
    assert!(shown["stack"].as_str().unwrap().contains("script.ts:1:22"), "{shown:#}");
}

#[test]
fn values_that_are_too_large_or_too_deep_end_the_run_and_nothing_else() {
    let mut daemon = Daemon::start();
    for source in ["return new Array(4294967295)", "emit(new Array(2_000_001).fill(0))"] {
        let document = daemon.exec(source);
        assert_eq!(failure_of(&document).0, "too_large", "{source}: {document:#}");
        assert!(failure_of(&document).1.contains("artifact()"), "{document:#}");
    }
    let deep = daemon.post("let a = []; for (let i = 0; i < 200000; i++) a = [a]; return a", &json!({})).text();
    assert!(deep.contains("[[[[[") && deep.contains("[Deep]"), "{deep:.200}");
    let nested = "let o = {}; for (let i = 0; i < 200000; i++) o = { o }; emit(o); console.log(o); return 1";
    let document = daemon.post(nested, &json!({})).text();
    assert!(document.contains("\"exitCode\":0") && document.contains("[Deep]"), "{document:.200}");
    daemon.is_alive();
}

#[test]
fn the_command_line_prints_values_as_the_api_gives_them() {
    let place = Place::new();
    let source = "return { big: 10n, u: undefined, d: new Date(0), n: [NaN, -0], s: new Set([1]) }";
    let expected = json!({"big": "10", "d": "1970-01-01T00:00:00.000Z", "n": [null, 0], "s": [1]});
    assert_eq!(place.mcpx(&["--json", "exec", source]).json()["result"], expected);
    assert_eq!(place.mcpx(&["exec", source]).ok(), format!("{expected:#}\n"));
}

#[test]
fn frames_come_in_the_order_in_which_things_were_said() {
    let daemon = Daemon::start();
    let frames = daemon.frames(
        "console.log('one'); emit({ two: 2 }); log.warn('three', { n: 3 }); console.error('four');
         await artifact('five.txt', '5'); log('six'); emit(undefined); return 'last'",
    );
    assert_eq!(
        words(&frames),
        ["start", "stdout", "emit", "log", "stderr", "artifact", "log", "emit", "result", "end"]
    );
    assert_eq!(frames[1]["text"], "one\n");
    assert_eq!(frames[2], json!({"type": "emit", "value": {"two": 2}}));
    assert_eq!(frames[3], json!({"type": "log", "level": "warn", "message": "three", "attrs": {"n": 3}}));
    assert_eq!(frames[4]["text"], "four\n");
    assert_eq!(frames[5]["artifact"]["name"], "five.txt");
    assert_eq!(frames[6], json!({"type": "log", "level": "info", "message": "six"}));
    assert_eq!(frames[7]["value"], Value::Null);
    assert_eq!(frames[8], json!({"type": "result", "value": "last"}));
    assert_eq!((&frames[9]["exitCode"], &frames[9]["retired"]), (&json!(0), &json!(true)));
}

#[test]
fn the_command_line_keeps_the_answer_and_the_rest_apart() {
    let place = Place::new();
    let said = place
        .mcpx(&["exec", "console.log('out'); console.error('err'); log.info('note', { a: 1 }); emit([1]); return 'v'"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "out\n[1]\nv\n"));
    assert_eq!(said.stderr, "err\ninfo: note  {\"a\":1}\n");
}

#[test]
fn logs_have_levels_attributes_and_loggers_of_their_own() {
    let daemon = Daemon::start();
    let document = daemon.exec(
        "log.debug('d'); log.error('e', new Error('why'), { n: 1 }); const child = log.with({ job: 7 });
         child.warn('w', { x: 1 }, 'extra'); child.with({ step: 2 }).info({ not: 'text' }); return 1",
    );
    let logs = document["logs"].as_array().unwrap();
    assert_eq!(logs.iter().map(|log| &log["level"]).collect::<Vec<_>>(), ["debug", "error", "warn", "info"]);
    assert_eq!(logs[1]["attrs"]["error"]["message"], "why");
    assert_eq!(logs[2]["attrs"], json!({"job": 7, "x": 1, "args": ["extra"]}));
    assert_eq!(logs[3]["attrs"], json!({"job": 7, "step": 2}));
    assert_eq!(logs[3]["message"], "{\"not\":\"text\"}");
}

#[test]
fn a_flood_of_output_keeps_its_head_and_tail() {
    let mut daemon = Daemon::start();
    let document = daemon.exec("console.log('a' + 'é'.repeat(3_000_000) + 'z')");
    let stdout = document["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("aééé") && stdout.ends_with("ééz\n"), "{} bytes", stdout.len());
    assert!(stdout.contains("[mcpx: "), "the gap is marked");
    let dropped = document["truncated"]["stdout"].as_u64().unwrap();
    let notice = stdout.lines().find(|line| line.starts_with("[mcpx: ")).unwrap();
    assert!(notice.contains(&dropped.to_string()), "{dropped} in {notice}");
    let kept = stdout.chars().filter(|c| *c == 'é').count() as u64 * 2 + 3;
    assert_eq!(kept + dropped, 6_000_003, "every byte is either shown or counted");

    let options = json!({"timeout": "1s", "limits": {"outputBytes": 20_000}});
    let document = daemon.run("for (let i = 0; ; i++) console.log(i, 'x'.repeat(500))", &options);
    assert_eq!(failure_of(&document).0, "timeout");
    assert!(document["stdout"].as_str().unwrap().len() < 21_000);
    assert!(document["truncated"]["stdout"].as_u64().unwrap() > 100_000, "{:#}", document["truncated"]);

    let document = daemon.run(
        "for (let i = 0; i < 3e4; i++) { emit({ i }); log.info('l' + i) } return 1",
        &json!({"limits": {"outputBytes": 50_000}}),
    );
    assert_eq!(result_of(&document), 1);
    let emits = document["emits"].as_array().unwrap();
    assert_eq!((&emits[0], &emits[emits.len() - 1]), (&json!({"i": 0}), &json!({"i": 29_999})));
    for kind in ["emits", "logs"] {
        assert!(document["truncated"][kind].as_u64().unwrap() > 0, "{kind}");
    }
    daemon.is_alive();
}

#[test]
fn output_that_is_json_is_the_value_when_nothing_was_returned() {
    let daemon = Daemon::start();
    let document = daemon.exec("console.log(JSON.stringify({ a: 1 }))");
    assert_eq!((&document["result"], &document["stdout"]), (&json!({"a": 1}), &json!("{\"a\":1}\n")));
    assert_eq!(daemon.exec("console.log('no json')").get("result"), None);
    assert_eq!(daemon.exec("console.log('1'); return 2")["result"], 2);
}
