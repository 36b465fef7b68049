//! What a failing script tells: kind, name, message, and the place in the author's source.

use serde_json::{Value, json};

use crate::support::{Daemon, Place, failure_of};

/// Kind, name, message, line and column of a failure.
fn place_of(document: &Value) -> (String, String, String, u64, u64) {
    let error = &document["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_else(|| panic!("{document:#}")).to_owned();
    let number = |name: &str| error[name].as_u64().unwrap_or_else(|| panic!("no {name}: {document:#}"));
    (text("kind"), text("name"), text("message"), number("line"), number("column"))
}

#[test]
fn the_command_line_shows_where_a_script_failed() {
    let place = Place::new();
    let said = place.mcpx(&["exec", "throw new TypeError(\"no\")"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    for part in ["TypeError: no", "line 1, column 7"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
    place.write(
        "typed.ts",
        "interface A { a: number }\ntype B = A | undefined;\nconst b: B = undefined as B; throw new RangeError(`no ${b}`);\n",
    );
    let said = place.mcpx(&["run", "typed.ts"]);
    assert_eq!(said.code, 1);
    for part in ["RangeError: no undefined", "line 3, column 36", "typed.ts:3:36"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
}

#[test]
fn positions_are_the_authors() {
    let daemon = Daemon::start();
    for (source, name, message, line, column) in [
        ("throw new TypeError('no')", "TypeError", "no", 1, 7),
        ("interface A { a: number }\nconst a: A = { a: 1 };\nthrow new Error('x' + a.a)", "Error", "x1", 3, 7),
        ("\n\n  null.x", "TypeError", "Cannot read properties of null (reading 'x')", 3, 8),
        ("enum E { A }\n\nfunction f(a: E): never { throw new Error(E[a]) }\nf(E.A)", "Error", "A", 3, 33),
        (
            "import 'node:fs';\nexport default (): void => {\n\tmissing()\n}",
            "ReferenceError",
            "missing is not defined",
            3,
            2,
        ),
        ("await 0;\nawait Promise.reject(new SyntaxError('s'))", "SyntaxError", "s", 2, 22),
        ("setTimeout(() => {\n  throw new Error('later') }); await new Promise(() => {})", "Error", "later", 2, 9),
        ("Promise.reject(new Error('nobody'));\nawait new Promise(r => setTimeout(r, 1000))", "Error", "nobody", 1, 16),
        ("class Own extends Error { name = 'Own' }\nthrow new Own('mine')", "Own", "mine", 2, 7),
    ] {
        let document = daemon.exec(source);
        let expected = ("script_error".to_owned(), name.to_owned(), message.to_owned(), line, column);
        assert_eq!(place_of(&document), expected, "{source}: {document:#}");
        assert_eq!(document["exitCode"], 1, "{source}");
        assert_eq!(document.get("result"), None, "{source}");
        let stack = document["error"]["stack"].as_str().unwrap();
        assert!(stack.contains(&format!("script.ts:{line}:{column}")), "{stack}");
        assert!(!stack.contains("ext:mcpx/") && !stack.contains("ext:core/"), "{stack}");
    }
}

#[test]
fn positions_in_an_imported_file_are_its_own() {
    let place = Place::new();
    place.write(
        "lib.ts",
        "type T = number;\n\nexport function fail(a: T): never {\n  throw new Error(`lib ${a}`);\n}\n",
    );
    place.write("main.ts", "import { fail } from './lib.ts';\nexport default () => fail(1);\n");
    let said = place.mcpx(&["run", "main.ts"]);
    assert_eq!(said.code, 1);
    for part in ["Error: lib 1", "line 4, column 9", "lib.ts:4:9", "main.ts:2:22"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
}

#[test]
fn what_does_not_parse_is_a_syntax_error_with_its_place() {
    let daemon = Daemon::start();
    for (source, line) in [
        ("const a = 1\nconst b = (", 2),
        ("let x: = 3", 1),
        ("return 1\n}", 2),
        ("import x from;", 1),
        ("const a = 1;\nconst a = 2;", 2),
        ("\n`${", 2),
    ] {
        let document = daemon.exec(source);
        assert_eq!(failure_of(&document).0, "syntax_error", "{source}: {document:#}");
        assert_eq!(document["error"]["name"], "SyntaxError", "{source}");
        assert_eq!(document["error"]["line"], line, "{source}: {document:#}");
        assert_eq!(document["exitCode"], 1);
    }
    let imported = json!({
        "source": "import './broken.ts'; export default 1",
        "modules": {"./broken.ts": "export const a = 1;\nexport const b = ;"},
    });
    let document = daemon.remote().post("/v1/exec", imported.to_string()).json();
    assert_eq!(failure_of(&document).0, "syntax_error", "{document:#}");
    assert!(failure_of(&document).1.contains("broken.ts"), "{document:#}");
    assert_eq!(document["error"]["line"], 2);
}

#[test]
fn imports_that_fail_say_which() {
    let daemon = Daemon::start();
    for (source, kind, part) in [
        ("import './none.ts'; export default 1", "not_found", "none.ts"),
        ("import { nope } from 'node:path'; export default nope", "syntax_error", "nope"),
        ("import './x.json'; export default 1", "not_found", "x.json"),
        ("import 'data:text/javascript;base64,*'; export default 1", "bad_request", "data:"),
        ("import '/etc/hostname'; export default 1", "permission_denied", "/etc/hostname"),
    ] {
        let document = daemon.exec(source);
        assert_eq!(failure_of(&document).0, kind, "{source}: {document:#}");
        assert!(failure_of(&document).1.contains(part), "{source}: {document:#}");
    }
}

#[test]
fn dynamic_imports_that_fail_keep_their_kind() {
    let daemon = Daemon::start();
    for (source, kind) in [
        ("await import('./none.ts')", "not_found"),
        ("await import('npm:chalk')", "unsupported"),
        ("await import('/etc/hostname')", "permission_denied"),
        ("await import('data:text/javascript,export const a = ;')", "syntax_error"),
    ] {
        let document = daemon.exec(source);
        assert_eq!(failure_of(&document).0, kind, "{source}: {document:#}");
    }
    assert_eq!(
        daemon.value("return await import('npm:chalk').catch((e) => e.message.includes('not supported yet'))"),
        true
    );
}

#[test]
fn anything_can_be_thrown() {
    let daemon = Daemon::start();
    for (source, message) in [
        ("throw 'text'", "text"),
        ("throw 7", "7"),
        ("throw null", "null"),
        ("throw undefined", "undefined"),
        ("throw Symbol('s')", "Symbol(s)"),
        ("throw { toString() { throw 1 } }", ""),
        ("throw new Proxy({}, { get() { throw 1 } })", ""),
        ("const e = new Error('x'); Object.defineProperty(e, 'message', { get() { throw 1 } }); throw e", ""),
    ] {
        let document = daemon.exec(source);
        assert_eq!(failure_of(&document).0, "script_error", "{source}: {document:#}");
        assert!(failure_of(&document).1.contains(message), "{source}: {document:#}");
        assert_eq!(document["exitCode"], 1, "{source}");
    }
}

#[test]
fn a_wait_that_nothing_can_end_is_reported_when_there_is_no_time_limit() {
    let daemon = Daemon::start();
    for source in ["await new Promise(() => {})", "await new Promise(() => {}); export default 1"] {
        let document = daemon.run(source, &json!({"timeout": "0s"}));
        assert_eq!(failure_of(&document).0, "script_error", "{document:#}");
        assert!(failure_of(&document).1.contains("nothing can settle"), "{document:#}");
    }
}
