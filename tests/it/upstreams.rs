//! MCP servers seen from scripts: their names, their failures, how calls are given up, found and limited.

use serde_json::{Value, json};

use crate::support::{Daemon, Place, echoing as tool, failure_of, result_of, spec, wait_until};

#[test]
fn names_become_identifiers_and_shared_ones_are_nobodys() {
    let names = ["read-only", "read.only", "delete", "2fa", "获取", "日本"];
    let place = Place::new();
    let mut spec = spec(json!({}), &names);
    spec["log"] = json!(place.work().join("fake.log"));
    place.servers(&json!({"fake": place.fake("fake", &spec)}));
    let daemon = Daemon::start_in(place, &[]);
    // Nothing is known of a server before it is first asked; the call itself says it then.
    let cold = daemon.value("return await fake.read_only({}).catch((e) => [e instanceof ToolError, e.message])");
    let source = r#"const grab = (f) => { try { f(); return "bound" } catch (e) { return e.message } };
        console.log(fake);
        return [grab(() => fake.read_only), grab(() => fake.__), await fake.delete_({}), await fake._2fa({}),
                await call("fake", "read.only", {}), Object.keys(fake), typeof fake.then]"#;
    let value = daemon.value(source);
    for (message, wire) in
        [(&cold[1], ["read-only", "read.only"]), (&value[0], ["read-only", "read.only"]), (&value[1], ["获取", "日本"])]
    {
        let message = message.as_str().unwrap();
        assert!(wire.iter().all(|name| message.contains(name)), "{wire:?} in {message}");
    }
    assert_eq!(cold[0], true);
    assert_eq!((&value[2], &value[3], &value[4]), (&json!({}), &json!({}), &json!({})));
    assert_eq!((&value[5], &value[6]), (&json!(["delete_", "_2fa"]), &json!("undefined")));
    let log = std::fs::read_to_string(daemon.place().work().join("fake.log")).unwrap();
    let requests = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let called: Vec<Value> =
        requests.filter(|m| m["method"] == "tools/call").map(|mut m| m["params"]["name"].take()).collect();
    assert_eq!(called, ["delete", "2fa", "read.only"]);
}

#[test]
fn servers_that_share_a_namespace_are_reached_by_their_names() {
    let echo = spec(json!({}), &["echo"]);
    let names = ["my-box", "my.box", "console", "Deno", "args", "undefined", "eval"];
    let daemon = Daemon::with_fakes(&names.map(|name| (name, &echo)), &[]);
    let source = "const shared = (() => { try { my_box; return 'bound' } catch (e) { return e.message } })();
                  return [shared, await call('my-box', 'echo', { n: 1 }), await call('my.box', 'echo', { n: 2 }),
                          typeof console.log, typeof Deno.cwd, Array.isArray(args), undefined === void 0, eval('1 + 1'),
                          await call('Deno', 'echo', { n: 3 }), await console_.echo({ n: 4 })]";
    let value = daemon.value(source);
    let shared = value[0].as_str().unwrap();
    assert!(shared.contains("my-box") && shared.contains("my.box"), "{shared}");
    let rest = json!([{"n": 1}, {"n": 2}, "function", "function", true, true, 2, {"n": 3}, {"n": 4}]);
    assert_eq!(value.as_array().unwrap()[1..], rest.as_array().unwrap()[..]);
}

#[test]
fn servers_that_fail_are_named_and_cost_the_others_nothing() {
    let place = Place::new();
    let good = spec(json!({}), &["echo"]);
    let noisy = json!({"tools": [tool("echo")], "banner": "Fake server v0 ready\n{\"half\":\n", "echoNoise": true, "eol": "\r\n"});
    let quits = spec(json!({"quit": {"exit": 7}}), &["echo"]);
    let shell = |script: &str| json!({"command": "sh", "args": ["-c", script], "mcpx": {"startTimeout": "2s"}});
    place.servers(&json!({
        "good": place.fake("good", &good), "noisy": place.fake("noisy", &noisy), "quits": place.fake("quits", &quits),
        "missing": {"command": "mcpx-no-such-program"}, "dies": shell("echo 'no licence' >&2; exit 3"),
        "garbage": shell("while read line; do echo \"what is $line\"; done"), "mute": shell("exec sleep 100"),
        "remote": {"url": "http://127.0.0.1:1/mcp"}, "off": {"command": "x", "disabled": true},
    }));
    let daemon = Daemon::start_in(place, &[]);
    let source = "const attempt = async (f) => { try { return ['ok', await f()] } catch (e) { return [e instanceof ToolError, e.code, e.server, e.tool, e.message] } };
        const all = ['good', 'noisy', 'missing', 'dies', 'garbage', 'mute', 'remote', 'off'].map((s) => attempt(() => call(s, 'echo', { s })));
        const quit = await attempt(() => quits.quit({}));
        return { all: await Promise.all(all), quit, again: await quits.echo({ n: 1 }), good: await good.echo({ n: 2 }) }";
    let value = daemon.value(source);
    assert_eq!((&value["all"][0], &value["all"][1]), (&json!(["ok", {"s": "good"}]), &json!(["ok", {"s": "noisy"}])));
    for (row, server, code, parts) in [
        (&value["all"][2], "missing", "upstream_unavailable", &["mcpx-no-such-program", "PATH"][..]),
        (&value["all"][3], "dies", "upstream_unavailable", &["exit status: 3", "no licence"]),
        (&value["all"][4], "garbage", "upstream_unavailable", &["what is", "initialize"]),
        (&value["all"][5], "mute", "upstream_unavailable", &["2s", "startTimeout"]),
        (&value["all"][6], "remote", "unsupported", &[]),
        (&value["all"][7], "off", "upstream_unavailable", &["disabled"]),
    ] {
        assert_eq!(row.as_array().unwrap()[..4], json!([true, code, server, "echo"]).as_array().unwrap()[..], "{row}");
        let message = row[4].as_str().unwrap();
        assert!(message.contains(&format!("{server:?}")), "{server} in {message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?} in {message}");
    }
    let quit = value["quit"][4].as_str().unwrap();
    assert_eq!((&value["quit"][1], &value["quit"][2]), (&json!("upstream_unavailable"), &json!("quits")));
    assert!(quit.contains("exit status: 7") && quit.contains("\"quit\""), "{quit}");
    assert_eq!(
        (&value["again"], &value["good"]),
        (&json!({"n": 1}), &json!({"n": 2})),
        "a server that ended is started again"
    );
    let document = daemon.exec("await missing.echo({})");
    assert_eq!((failure_of(&document).0, &document["exitCode"]), ("upstream_unavailable", &json!(1)));
    assert!(failure_of(&document).1.contains("\"missing\""), "{document:#}");
}

#[test]
fn a_call_can_be_given_up() {
    let place = Place::new();
    let mut spec = spec(json!({"never": {"never": true}, "slow": {"delay": 900}}), &["echo"]);
    spec["log"] = json!(place.work().join("fake.log"));
    place.servers(&json!({"fake": place.fake("fake", &spec)}));
    let daemon = Daemon::start_in(place, &["--pool-call-timeout=30s"]);
    let source = "const one = await fake.never({ n: 1 }, { timeout: 500 }).catch((e) => [e instanceof ToolError, e.code, e.server, e.tool, e.message]);
        const controller = new AbortController(); setTimeout(() => controller.abort(new TypeError('mine')), 50);
        const two = await fake.slow({ n: 2 }, { signal: controller.signal }).catch((e) => [e.name, e.message]);
        const three = await fake.echo({}, { signal: AbortSignal.abort() }).catch((e) => e.name);
        const wrong = [{ timeout: -1 }, { timeout: 'x' }, { signal: 1 }, 7].map((o) => fake.echo({}, o).catch((e) => e.name));
        return [one, two, three, await Promise.all(wrong), await fake.echo({ n: 3 })]";
    let value = daemon.value(source);
    assert_eq!(value[0].as_array().unwrap()[..4], json!([true, "timeout", "fake", "never"]).as_array().unwrap()[..]);
    let message = value[0][4].as_str().unwrap();
    assert!(message.contains("500ms") && message.contains("\"fake\"") && message.contains("\"never\""), "{message}");
    assert_eq!((&value[1], &value[2]), (&json!(["TypeError", "mine"]), &json!("AbortError")));
    assert_eq!(
        (&value[3], &value[4]),
        (&json!(["TypeError", "TypeError", "TypeError", "TypeError"]), &json!({"n": 3}))
    );
    let log = || std::fs::read_to_string(daemon.place().work().join("fake.log")).unwrap();
    wait_until("both cancellations", || log().matches("notifications/cancelled").count() == 2);
    assert_eq!(log().matches("\"tools/call\"").count(), 3, "no call is sent again");
    let document = daemon.exec("await fake.never({}, { timeout: 100 })");
    assert_eq!((failure_of(&document).0, &document["exitCode"]), ("timeout", &json!(124)), "{document:#}");
}

#[test]
fn a_run_sees_the_namespaces_it_was_given() {
    let echo = spec(json!({}), &["echo"]);
    let daemon = Daemon::with_fakes(&[("one", &echo), ("two-b", &echo)], &[]);
    let source = "return [typeof one, typeof two_b, Object.keys(tools).sort(), await call('one', 'echo', {}).then(() => 'ok', (e) => e.code)]";
    for (ns, expected) in [
        (json!(["two_b"]), json!(["undefined", "object", ["two_b"], "not_found"])),
        (json!(["two-b"]), json!(["undefined", "object", ["two_b"], "not_found"])),
        (json!(["one", "two-b"]), json!(["object", "object", ["one", "two_b"], "ok"])),
    ] {
        assert_eq!(result_of(&daemon.run(source, &json!({"ns": ns}))), expected, "{ns}");
    }
    let said = daemon.place().mcpx(&["--json", "exec", "--ns", "one", "return Object.keys(tools)"]);
    assert_eq!(said.json()["result"], json!(["one"]));
}

#[test]
fn unknown_tools_suggest_the_nearest() {
    let daemon = Daemon::with_fake(&spec(json!({}), &["echo", "read-file"]));
    let source = "const at = (f) => f().catch((e) => [e instanceof ToolError, e.code, e.message]);
        return [await at(() => fake.ehco({})), await at(() => call('fake', 'readfile', {})), await at(() => call('fike', 'echo', {}))]";
    let value = daemon.value(source);
    for (row, near) in value.as_array().unwrap().iter().zip(["\"echo\"", "\"read-file\"", "\"fake\""]) {
        assert_eq!((&row[0], &row[1]), (&json!(true), &json!("not_found")));
        assert!(row[2].as_str().unwrap().contains(&format!("did you mean {near}?")), "{row}");
    }
    for source in ["fake.echo([])", "fake.echo('text')", "fake.echo(5)", "call(1, 2)"] {
        let name = daemon.value(&format!("try {{ await {source}; return 'OPEN' }} catch (e) {{ return e.name }}"));
        assert_eq!(name, "TypeError", "{source}");
    }
}

#[test]
fn tools_are_found_by_words_and_described() {
    let pay = json!({"name": "pay-invoice", "description": "Settles a bill", "inputSchema": {"type": "object", "properties": {"amount": {"type": "number"}}}});
    let daemon = Daemon::with_fake(&json!({"tools": [tool("echo"), pay]}));
    let cold = "try { describe('fake.echo'); return 'known' } catch (e) { return [e.code, search('echo')] }";
    assert_eq!(daemon.value(cold), json!(["not_found", []]), "nothing is known before a server was asked");
    let source = "await fake.echo({}); const found = search('invoice bill');
        return [found[0].name, found[0].description, search('amount', 1).length, describe('fake.pay_invoice'),
                Object.keys(fake), 'echo' in fake, 'none' in fake, JSON.stringify(fake), search('').length]";
    let value = daemon.value(source);
    assert_eq!((&value[0], &value[1], &value[2]), (&json!("fake.pay_invoice"), &json!("Settles a bill"), &json!(1)));
    assert_eq!((&value[3]["name"], &value[3]["tool"]), (&json!("fake.pay_invoice"), &json!("pay-invoice")));
    assert_eq!(value[3]["inputSchema"]["properties"]["amount"]["type"], "number");
    assert_eq!((&value[4], &value[5], &value[6]), (&json!(["echo", "pay_invoice"]), &json!(true), &json!(false)));
    assert!(value[7].is_string(), "a namespace can be printed: {value:#}");
    assert_eq!(value[8], 2);
}

#[test]
fn a_run_makes_a_limited_number_of_calls() {
    let echo = spec(json!({}), &["echo"]);
    let daemon = Daemon::with_fakes(&[("fake", &echo)], &["--exec-max-calls=3"]);
    let calls = |n: u32| format!("let i = 0; for (; i < {n}; i++) await fake.echo({{}}); return i");
    assert_eq!(daemon.value(&calls(3)), 3);
    let document = daemon.exec(&calls(4));
    assert_eq!((failure_of(&document).0, &document["exitCode"]), ("call_limit", &json!(1)), "{document:#}");
    assert!(failure_of(&document).1.contains("3 tool calls (exec.maxCalls)"), "{document:#}");
    let document = daemon.run(&calls(3), &json!({"limits": {"calls": 2}}));
    assert_eq!(failure_of(&document).0, "call_limit", "{document:#}");
    assert_eq!(daemon.post("return 1", &json!({"limits": {"calls": 4}})).status, 400, "a limit can only be lowered");
}

#[test]
fn two_thousand_tools_do_not_disturb_a_run() {
    let pages: Vec<Value> =
        (0..20).map(|page| (0..100).map(|n| tool(&format!("tool-{}", page * 100 + n))).collect()).collect();
    let daemon = Daemon::with_fake(&json!({"pages": pages}));
    let value =
        daemon.value("return [await fake.tool_1999({ n: 1 }), Object.keys(fake).length, search('1234')[0].name]");
    assert_eq!(value, json!([{"n": 1}, 2000, "fake.tool_1234"]));
    for n in 0..20 {
        assert_eq!(daemon.value(&format!("return await fake.tool_{n}({{}})")), json!({}));
    }
}
