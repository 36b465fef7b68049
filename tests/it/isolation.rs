//! What a run may reach, and that runs see nothing of each other nor change anything of the daemon's.

use serde_json::{Value, json};

use crate::support::{Daemon, Place, failure_of, result_of, wait_until};

/// A script that tries each expression and returns, by expression, `OPEN` or the name of what was thrown.
fn attempts(expressions: &[&str]) -> String {
    let tries = expressions.iter().map(|expression| {
        let name = json!(expression);
        format!("try {{ await ({expression}); out[{name}] = 'OPEN' }} catch (e) {{ out[{name}] = e.name }}\n")
    });
    format!("const out = {{}};\n{}return out", tries.collect::<String>())
}

/// Runs [`attempts`] and checks each outcome.
#[track_caller]
fn outcomes(daemon: &Daemon, options: &Value, rows: &[(&str, &str)]) {
    let expressions: Vec<&str> = rows.iter().map(|(expression, _)| *expression).collect();
    let found = result_of(&daemon.run(&attempts(&expressions), options));
    let expected: Value = rows.iter().map(|(name, outcome)| ((*name).to_owned(), json!(outcome))).collect();
    assert_eq!(found, expected, "{options}");
}

#[test]
fn runs_see_nothing_of_each_other() {
    let daemon = Daemon::start();
    let first = r#"Object.prototype.leaked = 1; globalThis.mark = 1; Array.prototype.map = () => "own"; JSON.parse = 0;
        Deno.env.set("MARK", "1"); process.env.MARK2 = "2"; console.log = () => {}; delete globalThis.fetch; Deno.chdir("/");
        setInterval(() => Deno.stdout.writeSync(new TextEncoder().encode("ghost")), 10); queueMicrotask(() => {}); return "first""#;
    let second = r#"await new Promise((r) => setTimeout(r, 100));
        return [typeof leaked, typeof mark, [1].map((x) => x), typeof JSON.parse, Deno.env.get("MARK"), process.env.MARK2,
                typeof fetch, Deno.cwd() === "/"]"#;
    for _ in 0..12 {
        let document = daemon.run(first, &json!({"timeout": "200ms", "permissions": "workspace,allow-read"}));
        assert_eq!(document["result"], "first", "{document:#}");
        let document = daemon.exec(second);
        let expected = json!(["undefined", "undefined", [1], "function", null, null, "function", false]);
        assert_eq!(result_of(&document), expected);
        assert_eq!(document["stdout"], "");
    }
}

#[test]
fn folder_umask_and_environment_belong_to_the_run() {
    let daemon = Daemon::start();
    let own = |what: &str| std::fs::read_link(format!("/proc/{}/{what}", daemon.pid())).unwrap();
    let before = (own("cwd"), own("root"));
    let mut other = daemon.stream(
        "const cwd = Deno.cwd(); const mask = process.umask(); emit(cwd);
         while (!(await Deno.stat('go').catch(() => null))) await new Promise((r) => setTimeout(r, 5));
         return [Deno.cwd() === cwd, process.umask() === mask, Deno.env.get('MARK')]",
        &json!({"permissions": "workspace,allow-sys"}),
    );
    let cwd = other.until("emit")["value"].as_str().unwrap().to_owned();
    let document = daemon.run(
        "process.umask(0); Deno.env.set('MARK', '1'); Deno.chdir('/'); return [Deno.cwd(), process.cwd(), process.umask()]",
        &json!({"permissions": "workspace,allow-read=/,allow-sys"}),
    );
    assert_eq!(result_of(&document), json!(["/", "/", 0]));
    assert_eq!((own("cwd"), own("root")), before);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    assert!(!status.contains("Umask:\t0000"), "{status}");
    std::fs::write(std::path::Path::new(&cwd).join("go"), "").unwrap();
    assert_eq!(other.until("result")["value"], json!([true, true, null]));
    let options = json!({"permissions": "workspace,allow-sys"});
    let next = daemon.run("return [process.umask() === 0, Deno.cwd() === '/']", &options);
    assert_eq!(result_of(&next), json!([false, false]));
}

#[test]
fn the_daemons_own_things_are_out_of_reach_even_with_all_permissions() {
    let daemon = Daemon::start();
    let (status, pid) = (daemon.status(), daemon.pid());
    let path = |name: &str| status[name].as_str().unwrap().to_owned();
    let denied = [path("store"), path("record"), format!("{}/x", path("state"))];
    let denied = denied.iter().map(String::as_str).chain([
        "/proc/self/environ",
        "/proc/self/mem",
        "/proc/self/maps",
        "/proc/self/fd/0",
        "/proc/thread-self/environ",
        "/dev/stdin",
        "/dev/fd/0",
    ]);
    let mut expressions: Vec<String> = denied.map(|path| format!("Deno.readFileSync({path:?})")).collect();
    expressions.push(format!("Deno.readFileSync('/proc/{pid}/environ')"));
    expressions.push(format!("Deno.readFileSync('/proc/{pid}/task/{pid}/environ')"));
    expressions.push(format!("Deno.writeTextFileSync({:?}, '')", path("store")));
    expressions.push(format!("Deno.removeSync({:?})", path("store")));
    expressions.push(format!("Deno.removeSync({:?}, {{ recursive: true }})", path("state")));
    expressions.push(format!("[...Deno.readDirSync({:?})]", path("state")));
    expressions.push(format!("Deno.connect({{ transport: 'unix', path: {:?} }})", path("socket")));
    expressions.push(format!("Deno.removeSync({:?})", path("socket")));
    expressions.push(format!("artifact('x', {{ path: {:?} }})", path("store")));
    for permissions in ["all", "readnet", "workspace"] {
        let source = attempts(&expressions.iter().map(String::as_str).collect::<Vec<_>>());
        let found = result_of(&daemon.run(&source, &json!({"permissions": permissions})));
        let open: Vec<&String> =
            found.as_object().unwrap().iter().filter(|(_, outcome)| *outcome == "OPEN").map(|(name, _)| name).collect();
        assert!(open.is_empty(), "{permissions}: {open:#?}");
    }
    assert_eq!(daemon.status()["pid"], pid);
}

#[test]
fn a_workspace_is_the_working_folder_and_a_private_one() {
    let daemon = Daemon::start();
    let options = json!({"cwd": daemon.place().work(), "env": {"HOME": "/nowhere"}});
    std::fs::write(daemon.place().root().join("home/secret"), "s").unwrap();
    daemon.place().write("given.txt", "given");
    outcomes(
        &daemon,
        &options,
        &[
            ("Deno.readTextFileSync('given.txt')", "OPEN"),
            ("Deno.writeTextFileSync('made.txt', 'made')", "OPEN"),
            ("Deno.mkdirSync('sub/deep', { recursive: true })", "OPEN"),
            ("Deno.readTextFileSync('/etc/hostname')", "NotCapable"),
            ("Deno.readTextFileSync('../home/secret')", "NotCapable"),
            ("Deno.writeTextFileSync('../home/made', '')", "NotCapable"),
            ("[...Deno.readDirSync('..')]", "NotCapable"),
            ("Deno.symlinkSync('/etc/hostname', 'l')", "NotCapable"),
            ("new Deno.Command('id').outputSync()", "NotCapable"),
            ("Deno.dlopen('libc.so.6', {})", "NotCapable"),
            ("Deno.hostname()", "NotCapable"),
        ],
    );
    assert_eq!(std::fs::read_to_string(daemon.place().work().join("made.txt")).unwrap(), "made");
    let temp = "const dir = Deno.env.get('TMPDIR'); Deno.writeTextFileSync(dir + '/t', 'x');
                return [Deno.readTextFileSync(dir + '/t'), Deno.cwd() === dir, dir]";
    let value = daemon.value(temp);
    assert_eq!(
        (&value[0], &value[1]),
        (&json!("x"), &json!(true)),
        "without a folder of the caller's the run has its own"
    );
    let folder = std::path::PathBuf::from(value[2].as_str().unwrap());
    wait_until("the run's private folder to be gone", || !folder.exists());
}

#[test]
fn a_script_cannot_link_its_way_out() {
    let daemon = Daemon::start();
    let work = daemon.place().work();
    outcomes(
        &daemon,
        &json!({"cwd": work}),
        &[
            ("(Deno.symlinkSync('/etc/hostname', 'l'), Deno.readTextFileSync('l'))", "NotCapable"),
            ("(Deno.mkdirSync('d'), Deno.symlinkSync('../..', 'd/up'), [...Deno.readDirSync('d/up')])", "NotCapable"),
            ("Deno.linkSync('/etc/hostname', 'h')", "NotCapable"),
            ("Deno.renameSync('/etc/hostname', 'h')", "NotCapable"),
            ("Deno.copyFileSync('/etc/hostname', 'h')", "NotCapable"),
            ("artifact('x', { path: '/etc/hostname' })", "NotCapable"),
        ],
    );
    // What no run may touch is out of reach by a link, too, for a run that may make one.
    let store = daemon.status()["store"].as_str().unwrap().to_owned();
    let by_link = format!("(Deno.symlinkSync({store:?}, 'store'), Deno.readFileSync('store'))");
    let by_folder =
        format!("(Deno.symlinkSync({:?}, 'root'), [...Deno.readDirSync('root/state/default')])", daemon.place().root());
    let options = json!({"cwd": work, "permissions": "none,allow-read,allow-write"});
    outcomes(&daemon, &options, &[(by_link.as_str(), "NotCapable"), (by_folder.as_str(), "NotCapable")]);
}

#[test]
fn profiles_grant_what_they_say() {
    let daemon = Daemon::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("Deno.connect({{ port: {} }})", silent.local_addr().unwrap().port());
    let (read, write, run, env) = (
        "Deno.readTextFileSync('/etc/hostname')",
        "Deno.writeTextFileSync('x', '')",
        "new Deno.Command('true').outputSync()",
        "Deno.env.get('PATH')",
    );
    for (permissions, [reads, writes, connects, runs]) in [
        ("none", ["NotCapable"; 4]),
        ("strict", ["NotCapable"; 4]),
        ("net", ["NotCapable", "NotCapable", "OPEN", "NotCapable"]),
        ("read", ["OPEN", "NotCapable", "NotCapable", "NotCapable"]),
        ("readnet", ["OPEN", "NotCapable", "OPEN", "NotCapable"]),
        ("workspace", ["NotCapable", "OPEN", "OPEN", "NotCapable"]),
        ("all", ["OPEN"; 4]),
        ("readnet,allow-run=true", ["OPEN", "NotCapable", "OPEN", "OPEN"]),
        ("none,allow-run=git", ["NotCapable"; 4]),
        ("all,deny-net,deny-read=/etc", ["NotCapable", "OPEN", "NotCapable", "OPEN"]),
        ("none,allow-net=127.0.0.1:1", ["NotCapable"; 4]),
    ] {
        let rows = [(read, reads), (write, writes), (connect.as_str(), connects), (run, runs), (env, "OPEN")];
        outcomes(&daemon, &json!({"permissions": permissions}), &rows);
    }
    // Without any permission there are still emits, artifacts and arithmetic.
    let document = daemon.run("emit(1); await artifact('a', 'b'); return 2", &json!({"permissions": "none"}));
    assert_eq!((result_of(&document), document["artifacts"].as_array().unwrap().len()), (json!(2), 1));
}

#[test]
fn a_denial_is_a_kind_of_its_own_and_says_what_would_allow_it() {
    let daemon = Daemon::start();
    let document = daemon.exec("return Deno.readTextFileSync('/etc/hostname')");
    let (kind, message) = failure_of(&document);
    assert_eq!(kind, "permission_denied", "{document:#}");
    assert_eq!(document["error"]["name"], "NotCapable");
    assert!(message.contains("/etc/hostname"), "{message}");
    assert!(message.contains("--permissions") || message.contains("options.permissions"), "{message}");
    assert!(message.contains("allow-read"), "{message}");
}

#[test]
fn words_that_are_no_permissions_are_refused() {
    let daemon = Daemon::start();
    for permissions in
        ["raednet", "none,allow-read=", "none,allow-net=", "none,allow-read=a,,b, ", "", "allow-everything"]
    {
        let answer = daemon.post("return 1", &json!({"permissions": permissions}));
        assert_eq!(answer.status, 400, "{permissions}: {}", answer.text());
        let (kind, message) = answer.refusal();
        assert_eq!(kind, "bad_request");
        assert!(message.contains("options.permissions"), "{message}");
    }
    let typo = daemon.post("return 1", &json!({"permissions": "raednet"})).refusal().1;
    for word in ["raednet", "readnet", "workspace", "none", "net", "all", "allow-", "ffi"] {
        assert!(typo.contains(word), "{word} in {typo}");
    }
}

#[test]
fn an_empty_list_of_namespaces_is_none_of_them() {
    let daemon = Daemon::with_fake(&json!({"tools": [{"name": "good", "inputSchema": {"type": "object"}}]}));
    let known = "await fake.good({}); return [typeof fake, typeof tools.fake, search('good').length]";
    assert_eq!(daemon.value(known), json!(["object", "object", 1]));
    let source = "return [typeof fake, typeof tools?.fake, await call('fake','good',{}).catch(e => e.message), search('good').length]";
    let value = result_of(&daemon.run(source, &json!({"ns": []})));
    assert_eq!((&value[0], &value[1], &value[3]), (&json!("undefined"), &json!("undefined"), &json!(0)));
    assert!(value[2].as_str().unwrap().contains("options.ns"), "{value}");
}

#[test]
fn a_run_without_an_environment_gets_a_minimal_one() {
    let place = Place::new();
    let daemon = Daemon::start_in(place, &[]);
    let value = daemon.value(
        "return [Object.keys(Deno.env.toObject()).sort(), Deno.env.get('HOME'), Object.keys(process.env).sort()]",
    );
    let names = json!(["HOME", "LANG", "PATH", "TMPDIR"]);
    assert_eq!((&value[0], &value[2]), (&names, &names));
    assert_ne!(value[1], json!(daemon.place().root().join("home")), "HOME is private");
    let document = daemon.run("return Deno.env.toObject()", &json!({"env": {"ONLY": "this"}}));
    assert_eq!(result_of(&document), json!({"ONLY": "this"}));
}

#[test]
fn a_child_process_sees_the_runs_environment_only() {
    let daemon = Daemon::start();
    let source =
        "const { stdout } = await new Deno.Command('/usr/bin/env').output(); return new TextDecoder().decode(stdout)";
    let document = daemon.run(source, &json!({"permissions": "workspace,allow-run", "env": {"ONLY": "this"}}));
    assert_eq!(result_of(&document), "ONLY=this\n");
    let preload = "new Deno.Command('/usr/bin/true', { env: { LD_PRELOAD: './x.so' } }).outputSync()";
    let options = json!({"permissions": "workspace,allow-run=/usr/bin/true"});
    outcomes(&daemon, &options, &[(preload, "NotCapable")]);
}

#[test]
fn what_would_reach_beyond_the_run_is_refused() {
    let mut daemon = Daemon::start();
    outcomes(
        &daemon,
        &json!({"permissions": "all"}),
        &[
            ("Deno.addSignalListener('SIGINT', () => {})", "NotSupported"),
            ("process.on('SIGTERM', () => {})", "NotSupported"),
            ("new Worker('data:text/javascript,1', { type: 'module' })", "NotSupported"),
            ("(await import('node:v8')).setFlagsFromString('--max-lazy')", "NotSupported"),
            ("(await import('node:inspector')).open(0)", "NotSupported"),
            ("process.setuid(0)", "NotSupported"),
            ("(await import('node:os')).setPriority(5)", "NotSupported"),
        ],
    );
    let document =
        daemon.run("await Deno.connect({ transport: 'vsock', cid: 1, port: 1 })", &json!({"permissions": "all"}));
    assert_eq!(failure_of(&document).0, "unsupported", "{document:#}");
    assert!(failure_of(&document).1.contains("unstable"), "{document:#}");
    assert_eq!(daemon.value("return [typeof Deno.openKv, typeof Deno.cron]"), json!(["undefined", "undefined"]));
    assert_eq!(daemon.value("return [confirm('?'), prompt('?'), alert('!')]"), json!([false, null, null]));
    daemon.is_alive();
}
