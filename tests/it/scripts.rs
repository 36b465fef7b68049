//! The two forms of a script, its language, its imports, and what it finds around it.

use serde_json::{Value, json};

use crate::support::{Daemon, Place, Running, failure_of, result_of};

#[test]
fn a_snippet_prints_its_value() {
    let place = Place::new();
    for (source, printed) in [
        ("return 1+1", "2\n"),
        ("1+1", "2\n"),
        ("const x: number = 20; x * 2.1", "42\n"),
        ("const q = 1", ""),
        ("return undefined", ""),
        ("return 'two\\nlines'", "two\nlines\n"),
        ("return { a: { b: [1] } }", "{\n  \"a\": {\n    \"b\": [\n      1\n    ]\n  }\n}\n"),
    ] {
        let said = place.mcpx(&["exec", source]);
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, printed, ""), "{source}");
    }
}

#[test]
fn null_is_a_value_to_the_command_line() {
    let place = Place::new();
    for (source, printed) in [("return null", "null\n"), ("emit(null); return 1", "null\n1\n")] {
        let said = place.mcpx(&["exec", source]);
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, printed, ""), "{source}");
    }
    assert_eq!(place.mcpx(&["--json", "exec", "return null"]).json().get("result"), Some(&Value::Null));
}

#[test]
fn words_of_a_snippet_are_joined_and_a_dash_reads_it_from_standard_input() {
    let place = Place::new();
    assert_eq!(place.mcpx(&["exec", "return", "[1,", "2]", "--json"]).json()["result"], json!([1, 2]));
    let running = Running::start_with_input(place.command(&["exec", "-"]), "const a: number = 6\nreturn a * 7\n");
    assert_eq!(running.end().ok(), "42\n");
}

#[test]
fn a_module_gets_its_arguments() {
    let place = Place::new();
    place.write(
        "main.ts",
        "export default (args: string[]): string => args.join('+');
         export function named(a: string, b: string) { return [a, b, arguments.length] }
         export const other = 1;",
    );
    place.write("value.ts", "export default { answer: 42 as number };");
    place.write("empty.ts", "export const x = 1;");
    assert_eq!(place.mcpx(&["run", "main.ts", "a", "--json", "-x"]).ok(), "a+--json+-x\n");
    assert_eq!(
        place.mcpx(&["--json", "run", "--export", "named", "main.ts", "a", "b"]).json()["result"],
        json!(["a", "b", 2])
    );
    assert_eq!(place.mcpx(&["--json", "run", "value.ts"]).json()["result"], json!({"answer": 42}));
    assert_eq!(place.mcpx(&["run", "empty.ts"]).ok(), "");
    let said = place.mcpx(&["run", "--export", "none", "main.ts"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("no exported function \"none\": it exports"), "{}", said.stderr);
    assert!(said.stderr.contains("named"), "{}", said.stderr);
}

#[test]
fn the_value_of_a_snippet_is_its_last_expression() {
    let daemon = Daemon::start();
    for (source, expected) in [
        ("const dbl = (a) => { return a * 2 }\ndbl(4) // done", json!(8)),
        ("[1, 2].map((v) => {\n  return v + 1\n});;", json!([2, 3])),
        ("({\n  total: 3,\n})", json!({"total": 3})),
        ("\"plain\"", json!("plain")),
        ("const o = { return: 5 }\no.return", json!(5)),
        ("if (1) { return 7 }\n8", json!(7)),
        ("await Promise.resolve(9)", json!(9)),
        ("const q = 1\nq;\n/* tail */", json!(1)),
        ("`a\n// ${[1].map(x => { return x })}`", json!("a\n// 1")),
        ("const q = 1", Value::Null),
        ("'use strict'\n1", json!(1)),
        ("function f() { return 3 }", Value::Null),
        ("let x = 1; x += 1", json!(2)),
        ("for (const x of [1]) { x }", Value::Null),
        ("// nothing but a comment", Value::Null),
    ] {
        assert_eq!(daemon.value(source), expected, "{source}");
    }
}

#[test]
fn words_in_texts_and_properties_make_no_module() {
    let daemon = Daemon::start();
    let source = r#"const doc = `
export default 7;
import thing from "./thing.ts";
`;
// import a from "b"
const re = /^export (const|let)/m, o = { import: 1, export: 2 };
const { basename } = await import("node:path");
return [doc.length, re.test(doc), o.export, basename("/x/y")];"#;
    assert_eq!(daemon.value(source), json!([51, false, 2, "y"]));
    let document = daemon.exec("import { basename } from 'node:path';\nconst a = 1;\nreturn basename('/x/y');");
    assert_eq!(failure_of(&document).0, "syntax_error");
    assert!(failure_of(&document).1.contains("module has no top-level return"), "{document:#}");
    assert_eq!(document["error"]["line"], 3);
}

#[test]
fn types_are_stripped() {
    let daemon = Daemon::start();
    let source = "enum Mode { Fast = 1, Slow }
const pick = <T>(v: T): T => v;
const n = <number>pick<unknown>(Mode.Slow);
abstract class P { constructor(private readonly k = n) {} get twice() { return this.k * 2 } }
class Q extends P { declare note: string }
return ({ v: new Q().twice } satisfies { v: number }).v;";
    assert_eq!(daemon.value(source), 4);
    for (source, expected) in [
        ("const enum E { A = 'a' }\nE.A", json!("a")),
        ("namespace N { export const x = 3 }\nN.x", json!(3)),
        ("let v: string | undefined = 'x'; v!.length", json!(1)),
        ("const f = (a?: number, ...rest: number[]): a is number => true; f.length", json!(1)),
        ("type A = { a: 1 }; interface B extends A {}; const b = { a: 1 } as const as B; b.a", json!(1)),
        (
            "const seen: string[] = []; function dec(v: unknown, c: ClassMemberDecoratorContext) { seen.push(String(c.name)) }
             class C { @dec m() {} }
             seen",
            json!(["m"]),
        ),
    ] {
        assert_eq!(daemon.value(source), expected, "{source}");
    }
}

#[test]
fn modules_travel_with_a_request() {
    let daemon = Daemon::start();
    let run = |body: Value| daemon.remote().post("/v1/exec", body.to_string()).json();
    let document = run(json!({
        "source": "import { A } from './t.ts';\nimport { type A as B, seen } from './t.ts';\nexport { type A };\n\
                   export default (): number => { const v: A & B = { x: seen }; return v.x };",
        "modules": {"./t.ts": "export interface A { x: number }\nexport const seen = 1"},
    }));
    assert_eq!(result_of(&document), 1);
    let document = run(json!({
        "source": "import { one } from './lib/a.ts'; import data from './data.json' with { type: 'json' };\n\
                   export default async () => [one, data.two, (await import('./lib/b.ts')).three]",
        "modules": {
            "./lib/a.ts": "export { one } from './b.ts'",
            "./lib/b.ts": "export const one: number = 1, three = 3",
            "./data.json": "{\"two\": 2}",
        },
    }));
    assert_eq!(result_of(&document), json!([1, 2, 3]));
}

#[test]
fn a_tsx_file_takes_generics_with_a_comma() {
    let place = Place::new();
    place.write("pick.tsx", "const pick = <T,>(v: T) => v;\nreturn pick<number>(5)");
    assert_eq!(place.mcpx(&["run", "pick.tsx"]).ok(), "5\n");
}

#[test]
fn files_import_each_other() {
    let place = Place::new();
    place.write("lib/deep/b.ts", "export const b: string = 'b';");
    place.write("lib/a.ts", "import { b } from './deep/b.ts';\nexport const ab = 'a' + b;");
    place.write("data.json", "{\"n\": 7}");
    place.write("plain.js", "export default (v) => v * 2");
    place.write(
        "main.ts",
        "import { ab } from './lib/a.ts';\nimport data from './data.json' with { type: 'json' };\n\
         const { default: twice } = await import('./plain.js');\n\
         const { x } = await import('data:text/javascript,export const x = 9');\n\
         export default [ab, data.n, twice(4), x];",
    );
    assert_eq!(place.mcpx(&["--json", "run", "main.ts"]).json()["result"], json!(["ab", 7, 8, 9]));
    let said = place.mcpx(&["exec", "return (await import('./lib/a.ts')).ab"]);
    assert_eq!(said.ok(), "ab\n");
}

#[test]
fn imports_of_registries_and_urls_are_refused_by_name() {
    let daemon = Daemon::start();
    for specifier in ["npm:chalk", "jsr:@std/path", "https://example.org/x.ts", "http://example.org/x.ts", "chalk"] {
        let document = daemon.exec(&format!("import '{specifier}'; export default 1"));
        let (kind, message) = failure_of(&document);
        assert_eq!(kind, "unsupported", "{specifier}: {document:#}");
        for part in [specifier, "node:", "data:", "modules"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}

#[test]
fn a_script_finds_its_surroundings() {
    let place = Place::new();
    let work = place.work().canonicalize().unwrap();
    let script = place.write(
        "main.ts",
        "import process from 'node:process';
         export default (given: string[]) => ({
           meta: [import.meta.url, import.meta.main, import.meta.filename, import.meta.dirname],
           main: Deno.mainModule, cwd: [Deno.cwd(), process.cwd()], args: [given, args, Deno.args, process.argv.slice(2)],
           argv1: process.argv[1], env: [Deno.env.get('MARK'), process.env.MARK, Deno.env.has('HOME')],
           all: Deno.env.toObject().MARK, soon: performance.now() < 5000, exit: typeof Deno.exit,
         })",
    );
    let url = format!("file://{}", script.display());
    let said = place.mcpx(&["--json", "run", "--env", "MARK=set", "main.ts", "one", "two words"]);
    let given = json!(["one", "two words"]);
    assert_eq!(
        said.json()["result"],
        json!({
            "meta": [url, true, script, work], "main": url, "cwd": [work, work], "args": [given, given, given, given],
            "argv1": script, "env": ["set", "set", true], "all": "set", "soon": true, "exit": "function",
        })
    );
}

#[test]
fn the_callers_environment_is_the_scripts() {
    let place = Place::new();
    let mut command = place.command(&["exec", "--env", "B=flag=x", "[Deno.env.get('A'), Deno.env.get('B')].join()"]);
    command.env("A", "caller").env("B", "caller");
    assert_eq!(Running::start(command).end().ok(), "caller,flag=x\n");
    let said = place.mcpx(&["exec", "--env", "novalue", "1"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("expected K=V"), "{said:?}");
}

#[test]
fn standard_input_reaches_a_script_when_it_is_a_file() {
    let place = Place::new();
    let input = place.write("input.txt", "first\nsécond\n");
    let source = "const text = await new Response(Deno.stdin.readable).text(); return text.split('\\n').slice(0, 2)";
    let mut command = place.command(&["--json", "exec", source]);
    command.stdin(std::fs::File::open(input).unwrap());
    assert_eq!(Running::start(command).end().json()["result"], json!(["first", "sécond"]));
    let daemon = Daemon::start();
    let by_node = "const { readFileSync } = await import('node:fs'); return readFileSync(0, 'utf8')";
    assert_eq!(result_of(&daemon.run(by_node, &json!({"stdin": "given"}))), "given");
    assert_eq!(daemon.value(by_node), "", "without input there is the end of it");
}

#[test]
fn a_missing_script_is_not_found() {
    let place = Place::new();
    let said = place.mcpx(&["run", "nowhere.ts"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("nowhere.ts"), "{said:?}");
}
