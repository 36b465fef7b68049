//! What comes back from the tools of MCP servers, into scripts and to the command line.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::{Daemon, Place, failure_of, result_of, spec};

/// A place whose one server is the reference server of the protocol.
fn with_everything() -> Place {
    let npm = std::env::vars().find(|(name, _)| name == "MCPX_DEV_NPM");
    let (_, npm) = npm.expect("MCPX_DEV_NPM names the folder of the npm packages: run the tests with ./mcpx-dev test");
    let main = format!("{npm}/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    assert!(std::path::Path::new(&main).is_file(), "there is no {main}: run ./mcpx-dev setup");
    let place = Place::new();
    place.servers(&json!({"everything": {"command": "node", "args": [main, "stdio"]}}));
    place
}

#[test]
fn the_reference_server_works() {
    let daemon = Daemon::start_in(with_everything(), &[]);
    let document = daemon.exec(
        "const shot = await everything.get_tiny_image();
         const image = shot.raw.content.find((block) => block.type === 'image');
         const file = await artifact('tiny.png', shot);
         return { echoed: String(await everything.echo({ message: 'hello' })), keys: Object.keys(everything).length > 5,
                  weather: await everything.get_structured_content({ location: 'Chicago' }), image, file,
                  found: search('echo')[0].name, described: describe('everything.get_tiny_image').tool }",
    );
    let value = result_of(&document);
    assert!(value["echoed"].as_str().unwrap().contains("hello"), "{value:#}");
    assert_eq!(value["keys"], true);
    assert!(value["weather"]["temperature"].is_number(), "{value:#}");
    assert_eq!((&value["found"], &value["described"]), (&json!("everything.echo"), &json!("get-tiny-image")));
    let bytes = base64::engine::general_purpose::STANDARD.decode(value["image"]["data"].as_str().unwrap()).unwrap();
    assert_eq!((&value["file"]["mime"], &value["file"]["size"]), (&json!("image/png"), &json!(bytes.len())));
    let stored = daemon.client().get(&format!("/v1/artifacts/{}", value["file"]["id"].as_str().unwrap()));
    assert_eq!((stored.status, stored.body), (200, bytes));
    assert_eq!(document["artifacts"][0], value["file"]);
}

#[test]
fn the_command_line_calls_and_lists() {
    let place = Place::new();
    let spec = spec(
        json!({"bad": {"result": {"isError": true, "content": [{"type": "text", "text": "no luck"}]}}}),
        &["echo-it"],
    );
    place.servers(&json!({"fake": place.fake("fake", &spec), "gone": {"command": "/nowhere/server"}}));
    let said = place.mcpx(&["call", "fake.echo_it", "a=1", "b:=[2]"]);
    assert_eq!(serde_json::from_str::<Value>(&said.ok()).unwrap(), json!({"a": "1", "b": [2]}));
    let said = place.mcpx(&["--json", "call", "fake.echo-it", "{\"n\": 1}"]).json();
    assert_eq!((&said["server"], &said["tool"]), (&json!("fake"), &json!("echo-it")));
    assert_eq!(said["result"]["content"][0]["text"], "{\"n\":1}");
    let said = place.mcpx(&["call", "fake.bad"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.contains("no luck"), "{said:?}");
    let said = place.mcpx(&["call", "fake.eho_it"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("did you mean \"echo_it\"?"), "{said:?}");
    assert_eq!(place.mcpx(&["call", "nodot"]).code, 2);
    assert_eq!(place.mcpx(&["call", "fake.echo_it", "novalue"]).code, 2);
    let said = place.mcpx(&["ls"]);
    let mut lines: Vec<&str> = said.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((said.code, lines), (0, vec!["fake.bad", "fake.echo_it", "gone: not available"]), "{}", said.stderr);
    assert!(said.stderr.contains("/nowhere/server"), "{}", said.stderr);
    assert_eq!(place.mcpx(&["ls", "fake", "--json"]).json()["servers"].as_array().unwrap().len(), 1);
    assert_eq!(place.mcpx(&["ls", "none"]).code, 1);
}

#[test]
fn results_are_unwrapped() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
    let results = json!({
        "a": {"result": {"content": [text("[1,"), text("2]")]}},
        "b": {"result": {"content": [text("00123")]}},
        "c": {"result": {"content": [text("null")]}},
        "d": {"result": {"content": []}},
        "e": {"result": {"content": [], "structuredContent": {"ok": 1}}},
        "f": {"result": {"content": [text("x")], "structuredContent": null}},
        "g": {"result": {"content": [text("x")], "structuredContent": {"result": "p\nq"}}},
        "h": {"result": {"content": [text("{\"id\":9007199254740993}")]}},
        "i": {"result": {"content": [text("cap"), image]}},
        "j": {"result": {"content": [text("{\"__proto__\":{\"pwn\":1}}")]}},
    });
    let daemon = Daemon::with_fake(&spec(results, &[]));
    let document = daemon.exec(
        r#"for (const t of "abcdefghij") { const r = await fake[t]({}); emit([t, typeof r, r, r?.raw?.content?.length]); }
           return [(await fake.h({})).raw.content[0].text, (await fake.i({})).raw.content[1].data, ({}).pwn,
                   (await fake.c.raw({})).content[0].text, (await fake.f.raw({})).content.length]"#,
    );
    let value = result_of(&document);
    assert_eq!(value, json!(["{\"id\":9007199254740993}", "aGk=", null, "null", 1]));
    assert_eq!(
        document["emits"],
        json!([
            ["a", "object", [1, 2], 2],
            ["b", "string", "00123", null],
            ["c", "object", null, null],
            ["d", "object", [], 0],
            ["e", "object", {"ok": 1}, 0],
            ["f", "string", "x", null],
            ["g", "object", {"result": "p\nq"}, 1],
            ["h", "object", {"id": 9_007_199_254_740_992_u64}, 1],
            ["i", "object", "cap", 2],
            ["j", "object", {"__proto__": {"pwn": 1}}, 1],
        ])
    );
}

#[test]
fn a_tools_error_is_thrown_with_all_it_said() {
    let daemon = Daemon::with_fake(&spec(
        json!({
            "e1": {"result": {"isError": true, "content": [], "structuredContent": {"code": "LOCKED", "retry_s": 30}}},
            "e2": {"result": {"isError": true, "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}},
            "e3": {"result": {"isError": true}},
            "e4": {"result": {"isError": true, "content": [{"type": "text", "text": "plain words"}]}},
        }),
        &[],
    ));
    let source = r#"const out = [];
        for (const t of ["e1", "e2", "e3", "e4"]) try { await fake[t]({}) } catch (e) {
          out.push([e instanceof ToolError, e instanceof Error, e.name, e.server, e.tool, e.message, e.raw?.structuredContent?.code, e.raw?.isError])
        }
        return [out, (await fake.e4.raw({})).isError]"#;
    let value = daemon.value(source);
    for (row, tool) in value[0].as_array().unwrap().iter().zip(["e1", "e2", "e3", "e4"]) {
        assert_eq!(
            row.as_array().unwrap()[..5],
            json!([true, true, "ToolError", "fake", tool]).as_array().unwrap()[..]
        );
        let message = row[5].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains("[object"), "{message}");
        assert_eq!(row[7], true);
    }
    assert!(value[0][0][5].as_str().unwrap().contains("LOCKED"), "{value:#}");
    assert_eq!((&value[0][0][6], &value[0][3][5], &value[1]), (&json!("LOCKED"), &json!("plain words"), &json!(true)));
    let document = daemon.exec("await fake.e4({})");
    assert_eq!(failure_of(&document), ("tool_error", "plain words"), "{document:#}");
    assert_eq!((&document["error"]["name"], &document["error"]["line"]), (&json!("ToolError"), &json!(1)));
}
