//! The life of a daemon: one a configuration, found and started by whoever needs it, stopped without losing anything.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::support::{Client, Daemon, Place, Running, Said, failure_of, result_of, signal, wait_until, words};

/// A process that has nothing to do with mcpx. Killed when dropped.
struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where something of this place's daemon is, running or not.
fn path_of(place: &Place, what: &str) -> PathBuf {
    place.mcpx(&["status", "--json"]).json()[what].as_str().unwrap().into()
}

/// The process of the daemon that answers here, which a command starts if there is none.
#[track_caller]
fn pid_of(place: &Place) -> libc::pid_t {
    place.mcpx(&["exec", "return Deno.pid"]).ok().trim().parse().unwrap()
}

/// SIGKILL for a daemon that a command has started here.
#[track_caller]
fn kill(place: &Place, pid: libc::pid_t) {
    assert!(place.is_our_daemon(pid));
    signal(pid, libc::SIGKILL);
    wait_until("a killed daemon to be gone", || !place.is_our_daemon(pid));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o7777
}

#[track_caller]
fn fails(said: &Said, code: i32, parts: &[&str]) {
    assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{said:?}");
    for part in parts {
        assert!(said.stderr.contains(part), "{part} in {said:?}");
    }
}

#[test]
fn twelve_commands_at_once_start_one_daemon() {
    let place = Place::new();
    let commands: Vec<_> = (0..12).map(|_| Running::start(place.command(&["exec", "return Deno.pid"]))).collect();
    let answers: Vec<String> = commands.into_iter().map(|command| command.end().ok()).collect();
    let pid: libc::pid_t = answers[0].trim().parse().unwrap();
    assert_eq!(answers, vec![format!("{pid}\n"); 12]);
    wait_until("the daemons that lost to be gone", || place.daemons() == [pid]);
}

#[test]
fn a_record_of_a_dead_daemon_is_not_believed_and_a_stranger_is_not_harmed() {
    let place = Place::new();
    let mut stranger = Stranger(Command::new("sleep").arg("300").spawn().unwrap());
    for with_socket in [true, false] {
        let old = pid_of(&place);
        kill(&place, old);
        let (socket, path) = (path_of(&place, "socket"), path_of(&place, "record"));
        assert!(socket.exists(), "what a killed daemon leaves");
        let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        record["pid"] = json!(stranger.0.id());
        std::fs::write(&path, record.to_string()).unwrap();
        if !with_socket {
            std::fs::remove_file(&socket).unwrap();
        }
        assert_eq!(place.mcpx(&["stop", "--json"]).json(), json!({"status": "not running"}));
        assert_eq!(place.mcpx(&["status", "--json"]).json()["running"], false);
        let new = pid_of(&place);
        assert!(place.is_our_daemon(new) && new != old);
        assert_eq!(place.records()[0]["pid"], new, "the record is the new daemon's");
        assert_eq!(stranger.0.try_wait().unwrap(), None, "the stranger was harmed");
    }
}

#[test]
fn a_killed_daemon_is_replaced() {
    let place = Place::new();
    let pid = pid_of(&place);
    kill(&place, pid);
    assert_eq!(place.records()[0]["pid"], pid, "what a killed daemon leaves");
    let next = pid_of(&place);
    assert_ne!(next, pid);
    kill(&place, next);
    let daemon = Daemon::start_in(place, &[]);
    assert_eq!(daemon.value("return Deno.pid"), daemon.pid(), "mcpx daemon takes the place as well");
}

/// Runs commands while the daemon is suspended: each must end with an error that names the log.
#[track_caller]
fn fail_beside_a_suspended_daemon(commands: &[&[&str]]) {
    let place = Place::new();
    place.write("a.txt", "a");
    let (pid, log) = (pid_of(&place), path_of(&place, "log"));
    signal(pid, libc::SIGSTOP);
    let running: Vec<_> = commands.iter().map(|command| Running::start(place.command(command))).collect();
    for (command, running) in commands.iter().zip(running) {
        let said = running.end();
        fails(&said, 1, &["did not answer within", log.to_str().unwrap()]);
        assert_eq!(said.stderr.lines().count(), 1, "{command:?}: {said:?}");
    }
    signal(pid, libc::SIGCONT);
    assert_eq!(pid_of(&place), pid, "it goes on");
}

#[test]
fn commands_do_not_wait_for_ever_for_a_suspended_daemon() {
    fail_beside_a_suspended_daemon(&[&["exec", "return 1"], &["status"], &["stop"], &["artifact", "get", "art-0"]]);
}

#[test]
fn listings_calls_and_uploads_do_not_wait_for_ever_for_a_suspended_daemon() {
    fail_beside_a_suspended_daemon(&[&["ls"], &["call", "a.b"], &["artifact", "list"], &["artifact", "put", "a.txt"]]);
}

#[test]
fn what_is_no_socket_is_reported_and_left_alone() {
    let place = Place::new();
    let socket = path_of(&place, "socket");
    std::fs::create_dir_all(&socket).unwrap();
    std::fs::write(socket.join("inside"), "mine").unwrap();
    let commands: [&[&str]; 5] =
        [&["exec", "return 1"], &["status"], &["stop"], &["daemon"], &["daemon", "--detached"]];
    let refused = || {
        for command in commands {
            fails(&place.mcpx(command), 1, &[socket.to_str().unwrap(), "it was left alone: remove it"]);
        }
    };
    refused();
    assert_eq!(std::fs::read_to_string(socket.join("inside")).unwrap(), "mine");
    std::fs::remove_dir_all(&socket).unwrap();
    std::fs::write(&socket, "mine").unwrap();
    refused();
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "mine");
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(place.mcpx(&["exec", "return 1"]).ok(), "1\n");
}

#[test]
fn a_stale_socket_is_replaced_and_one_that_listens_is_not() {
    let place = Place::new();
    let socket = path_of(&place, "socket");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let foreign = UnixListener::bind(&socket).unwrap();
    fails(&place.mcpx(&["daemon"]), 1, &["another daemon serves this configuration"]);
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok(), "it is still the other one's");
    drop(foreign);
    assert!(socket.exists(), "a stale socket");
    assert_eq!(place.mcpx(&["exec", "return 1"]).ok(), "1\n");
}

#[test]
fn a_second_daemon_of_a_configuration_is_refused() {
    let mut first = Daemon::start();
    for command in [&["daemon"][..], &["daemon", "--detached"]] {
        fails(&first.place().mcpx(command), 1, &["another daemon serves this configuration", "mcpx status"]);
        first.is_alive();
    }
}

#[test]
fn a_signal_ends_the_runs_and_then_the_daemon() {
    let mut place = Place::new();
    let endless = "for (let i = 0; ; i++) { emit(i); await new Promise((done) => setTimeout(done, 5)) }";
    for (number, source) in [
        (libc::SIGTERM, endless),
        (libc::SIGTERM, "emit(0); while (true) {}"),
        (libc::SIGINT, "emit(0); await new Promise((done) => setTimeout(done, 3_600_000))"),
    ] {
        let daemon = Daemon::start_in(place, &[]);
        let (socket, record) = (daemon.socket(), path_of(daemon.place(), "record"));
        let mut frames = daemon.stream(source, &json!({}));
        frames.until("emit");
        daemon.signal(number);
        let rest: Vec<Value> = frames.filter(|frame| frame["type"] != "emit").collect();
        assert_eq!(words(&rest), ["error", "end"], "{source}: {rest:#?}");
        assert_eq!((&rest[0]["error"]["kind"], &rest[1]["exitCode"]), (&json!("interrupted"), &json!(1)));
        let ended = daemon.ended();
        assert_eq!(ended.0, 0, "{source}");
        place = ended.1;
        assert!(!socket.exists() && !record.exists(), "{source}");
    }
    assert_eq!(place.mcpx(&["exec", "return 1"]).ok(), "1\n", "the next command starts a new one");
}

#[test]
fn a_run_that_is_stopped_while_it_loads_a_built_in_does_not_take_the_daemon_along() {
    let mut daemon = Daemon::start();
    for source in ["emit(0); setTimeout(() => {}, 3_600_000)", "emit(0); await fetch('http://127.0.0.1:1/'); for (;;);"]
    {
        for _ in 0..20 {
            daemon.stream(source, &json!({})).until("emit");
            daemon.is_alive();
        }
    }
}

#[test]
fn stop_ends_the_daemon_and_says_so_when_there_is_none() {
    let place = Place::new();
    let none = "mcpx: no daemon runs for this configuration\n";
    assert_eq!(place.mcpx(&["stop"]), Said { code: 0, stdout: String::new(), stderr: none.to_owned() });
    let (pid, socket) = (pid_of(&place), path_of(&place, "socket"));
    let run =
        Running::start(place.command(&["--json", "exec", "setInterval(() => {}, 10); await new Promise(() => {})"]));
    let status = || place.mcpx(&["status", "--json"]).json();
    wait_until("the run to start", || status()["runs"]["running"] == 1);
    let said = place.mcpx(&["stop"]);
    assert_eq!((said.code, said.stderr), (0, format!("mcpx: daemon {pid} stopped\n")));
    wait_until("the daemon to be gone", || place.daemons().is_empty());
    assert!(!socket.exists() && place.records().is_empty());
    let said = run.end();
    assert_eq!(said.code, 1, "{said:?}");
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(failure_of(&document).0, "interrupted", "{document:#}");
    assert_ne!(pid_of(&place), pid);
    assert_eq!(place.mcpx(&["stop", "--json"]).json()["status"], "stopped");
}

#[test]
fn status_counts_a_run_once() {
    let daemon = Daemon::start();
    let mut frames = daemon.stream("emit(0); setTimeout(() => {}, 3_600_000)", &json!({}));
    frames.until("emit");
    let runs = daemon.status()["runs"].clone();
    assert_eq!((&runs["running"], &runs["queued"], &runs["finished"]), (&json!(1), &json!(0), &json!(0)), "{runs}");
}

#[test]
fn each_configuration_has_its_own_daemon_store_and_socket() {
    let place = Place::new();
    let command = |folder: &str, args: &[&str]| {
        let mut command = place.command(args);
        command.current_dir(place.work().join(folder));
        Running::start(command).end()
    };
    for (folder, servers) in [("one", json!({"one": {"command": "false"}})), ("two/deep", json!({}))] {
        place.write(&format!("{folder}/.mcp.json"), json!({"mcpServers": servers}).to_string());
        place.write(&format!("{folder}/a.txt"), folder);
    }
    let stored = command("one", &["--json", "artifact", "put", "a.txt"]).json();
    let id = stored["id"].as_str().unwrap();
    assert_eq!(command("one", &["artifact", "get", id]).ok(), "one");
    fails(&command("two/deep", &["artifact", "get", id]), 1, &["no artifact", id]);
    let [one, two] = ["one", "two/deep"].map(|folder| command(folder, &["--json", "status"]).json());
    for what in ["pid", "socket", "record", "state", "store", "log", "config", "configHash"] {
        assert_ne!(one[what], two[what], "{what}");
        assert!(!one[what].is_null(), "{what}");
    }
    assert_eq!((&one["artifacts"]["count"], &two["artifacts"]["count"]), (&json!(1), &json!(0)));
    assert_eq!(place.daemons().len(), 2, "both run at once");
    let health = |status: &Value| Client::new(Path::new(status["socket"].as_str().unwrap())).get("/v1/health").json();
    assert_eq!((&health(&one)["pid"], &health(&two)["pid"]), (&one["pid"], &two["pid"]));
    let servers = [&one, &two].map(|status| status["servers"].as_array().unwrap().len());
    assert_eq!(servers, [1, 0], "and its own servers");
}

#[test]
fn files_are_for_their_owner_only_and_the_record_says_what_it_must() {
    let place = Place::new();
    std::fs::create_dir(place.runtime()).unwrap();
    std::fs::set_permissions(place.runtime(), std::fs::Permissions::from_mode(0o777)).unwrap();
    place.servers(&json!({}));
    let pid = pid_of(&place);
    for (what, expected) in [("socket", 0o600), ("record", 0o600), ("store", 0o600), ("log", 0o600), ("state", 0o700)] {
        assert_eq!(mode(&path_of(&place, what)), expected, "{what}");
    }
    assert_eq!(mode(&place.runtime()), 0o700);
    let record = place.records().remove(0);
    let fields: Vec<&String> = record.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["pid", "socket", "endpoint", "version", "configHash", "startedAt"]);
    let socket = path_of(&place, "socket");
    assert_eq!((&record["pid"], &record["socket"]), (&json!(pid), &json!(socket)));
    assert_eq!(record["endpoint"], format!("unix://{}", socket.display()));
    assert_eq!(record["version"], env!("CARGO_PKG_VERSION"));
    let hash = record["configHash"].as_str().unwrap();
    assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{record}");
    let started = record["startedAt"].as_str().unwrap();
    assert!(started.as_bytes()[10] == b'T' && started.ends_with('Z'), "{record}");
    place.mcpx(&["stop"]).ok();
    place.write(".mcp.json", "{\"mcpServers\": {}}\n");
    pid_of(&place);
    assert_ne!(place.records()[0]["configHash"], hash, "it follows the content");
}

#[test]
fn an_idle_daemon_ends_and_a_busy_one_does_not() {
    let daemon = Daemon::with_flags(&["--daemon-idle-exit=300ms"]);
    let socket = daemon.socket();
    let (code, place) = daemon.ended();
    assert!(code == 0 && !socket.exists() && place.records().is_empty(), "{code}");
    let daemon = Daemon::start_in(place, &["--daemon-idle-exit=2s"]);
    let document = daemon.exec("await new Promise((done) => setTimeout(done, 3000)); return 'whole'");
    assert_eq!(result_of(&document), "whole");
    assert_eq!(daemon.ended().0, 0);
}

#[test]
fn a_detached_daemon_answers_when_the_command_returns() {
    let place = Place::new();
    let said = place.mcpx(&["daemon", "--detached", "--artifacts-list-limit=7"]);
    let socket = path_of(&place, "socket");
    let listens = format!("mcpx: the daemon listens on {}\n", socket.display());
    assert_eq!(said, Said { code: 0, stdout: String::new(), stderr: listens });
    let client = Client::new(&socket);
    assert_eq!(client.get("/v1/health").json()["pid"], place.records()[0]["pid"]);
    let refusal = client.get("/v1/artifacts?limit=8").refusal();
    assert!(refusal.1.contains("1 to 7 (artifacts.listLimit)"), "its flags are the daemon's: {refusal:?}");
}

#[test]
fn status_without_a_daemon_says_so_and_starts_none() {
    let place = Place::new();
    let said = place.mcpx(&["status"]).ok();
    let socket = place.runtime().join("default.sock");
    for line in ["running: false".to_owned(), format!("socket: {}", socket.display())] {
        assert!(said.lines().any(|found| found == line), "{line} in {said}");
    }
    assert!(place.daemons().is_empty() && !place.runtime().exists());
    assert_eq!(std::fs::read_dir(place.state()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_broken_configuration_is_named_with_its_line() {
    let place = Place::new();
    let path = place.write(".mcp.json", "{\n  \"mcpServers\": {\n    \"a\": nonsense\n  }\n}\n");
    for command in [&["exec", "return 1"][..], &["daemon"], &["daemon", "--detached"], &["status"], &["stop"]] {
        fails(&place.mcpx(command), 2, &[&format!("{}:3:", path.display())]);
    }
    let missing = place.work().join("none.json");
    fails(&place.mcpx(&["--config", "none.json", "status"]), 2, &[missing.to_str().unwrap(), "does not exist"]);
    assert!(place.daemons().is_empty());
}

#[test]
fn an_unknown_setting_is_refused_with_a_suggestion_and_a_known_one_counts() {
    let place = Place::new();
    place.write(".mcp.json", json!({"settings": {"exec.timout": "1s"}}).to_string());
    let suggestion = "there is no setting \"exec.timout\" (from the configuration); did you mean exec.timeout?";
    fails(&place.mcpx(&["daemon"]), 2, &[suggestion]);
    let said = place.mcpx(&["exec", "return 1"]);
    assert!(said.code != 0 && said.stderr.contains(suggestion), "{said:?}");
    place.write(".mcp.json", json!({"settings": {"artifacts.listLimit": 7}}).to_string());
    let daemon = Daemon::start_in(place, &[]);
    let refusal = daemon.remote().get("/v1/artifacts?limit=8").refusal();
    assert!(refusal.1.contains("1 to 7"), "{refusal:?}");
}
