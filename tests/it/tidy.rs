//! The rules of ARCHITECTURE.md that a reader of the sources can check. Each failure is the rule and the lines that break it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Folders of the sources; `build.rs` is beside them.
const SOURCES: [&str; 5] = ["src", "ops", "js", "benches", "tests"];

/// A file of the tree: its path from the root, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

/// A line with its place.
struct Line<'a> {
    file: &'a str,
    number: usize,
    text: &'a str,
}

impl Source {
    fn is_in(&self, places: &[&str]) -> bool {
        let inside = |place: &&str| self.path == **place || self.path.starts_with(&format!("{place}/"));
        places.iter().any(inside)
    }

    fn is_test(&self) -> bool {
        self.is_in(&["tests"]) || self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.text.lines().enumerate().map(|(at, text)| Line { file: &self.path, number: at + 1, text })
    }

    /// The lines that are not comments.
    fn code(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines().filter(|line| !line.text.trim_start().starts_with("//"))
    }

    /// The lines of code before the file's own test module.
    fn shipped(&self) -> impl Iterator<Item = Line<'_>> {
        self.code().take_while(|line| line.text != "#[cfg(test)]")
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "node_modules", ".git", ".cache"].contains(&name.as_str()) {
                walk(&path, found);
            }
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// The text files below a folder with one of these extensions; all of them when none is given.
fn files(folder: &str, extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    walk(&Path::new(ROOT).join(folder), &mut found);
    found.sort();
    let wanted = |path: &PathBuf| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        extensions.is_empty() || extensions.contains(&extension.as_ref())
    };
    let read = |path: PathBuf| {
        let name = path.strip_prefix(ROOT).unwrap().to_str().unwrap().to_owned();
        Some(Source { path: name, text: String::from_utf8(std::fs::read(path).unwrap()).ok()? })
    };
    found.into_iter().filter(wanted).filter_map(read).collect()
}

fn rust() -> Vec<Source> {
    let mut sources: Vec<Source> = SOURCES.iter().flat_map(|folder| files(folder, &["rs"])).collect();
    let text = std::fs::read_to_string(Path::new(ROOT).join("build.rs")).unwrap();
    sources.push(Source { path: "build.rs".to_owned(), text });
    assert!(sources.len() > 50, "the sources are found: {}", sources.len());
    sources
}

/// Fails with the rule and the lines that break it, if there are any.
#[track_caller]
fn holds<'a>(rule: &str, broken: impl IntoIterator<Item = Line<'a>>) {
    let mut report = String::new();
    for line in broken {
        write!(report, "\n  {}:{}: {}", line.file, line.number, line.text.trim()).unwrap();
    }
    assert!(report.is_empty(), "{rule}\nbut:{report}");
}

/// Fails unless what is looked for is found where it belongs: a pattern that matches nothing proves nothing.
#[track_caller]
fn is_found<'a>(what: &str, lines: impl IntoIterator<Item = Line<'a>>) {
    assert!(lines.into_iter().next().is_some(), "{what} is found nowhere: the check looks for the wrong thing");
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Places of `word` where it is no part of a longer one: what is before it, and what is behind it.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let around = |at: usize| (&text[..at], &text[at + word.len()..]);
    let whole = |(before, after): &(&str, &str)| !before.ends_with(is_of_word) && !after.starts_with(is_of_word);
    text.match_indices(word).map(move |(at, _)| around(at)).filter(whole)
}

/// Whether a line of code names this crate or module as the beginning of a path.
fn names(text: &str, krate: &str) -> bool {
    let is_use = text.trim_start().starts_with("use ") || text.contains("extern crate ");
    words(text, krate).any(|(before, after)| {
        !before.ends_with("::") && (after.starts_with("::") || is_use && after.starts_with([';', ' ', ',']))
    })
}

/// Only these places name any of these crates.
#[track_caller]
fn only(rule: &str, crates: &[&str], places: &[&str]) {
    let sources = rust();
    let named = |line: &Line<'_>| crates.iter().any(|krate| names(line.text, krate));
    for krate in crates {
        let allowed = sources.iter().filter(|source| source.is_in(places));
        is_found(krate, allowed.flat_map(Source::code).filter(|line| names(line.text, krate)));
    }
    holds(rule, sources.iter().filter(|source| !source.is_in(places)).flat_map(Source::code).filter(named));
}

/// Whether a line of code names a module of the crate.
fn names_module(text: &str, module: &str) -> bool {
    words(text, module).any(|(before, _)| ["crate::", "super::"].iter().any(|path| before.ends_with(path)))
}

#[test]
fn every_file_says_what_it_is_for() {
    let sources = rust();
    let silent = sources.iter().filter(|source| !source.text.starts_with("//! "));
    holds("Every Rust file starts with `//!`.", silent.filter_map(|source| source.lines().next()));
}

#[test]
fn files_are_short() {
    let scripts = files("js", &["js"]);
    assert!(!scripts.is_empty());
    let sources = rust();
    let long = sources.iter().chain(&scripts).filter_map(|source| source.lines().nth(600));
    holds("No file of Rust or JavaScript is longer than 600 lines.", long);
}

#[test]
fn each_big_dependency_has_one_owner() {
    only(
        "Only src/isolate, ops and build.rs name Deno's crates and V8.",
        &["deno_core", "deno_runtime", "deno_permissions", "deno_ast", "v8"],
        &["src/isolate", "ops", "build.rs"],
    );
    only("Only src/store names redb.", &["redb"], &["src/store"]);
    // daemon/serve.rs serves the router, and gives the server its shutdown.
    only("Only src/http names axum, and daemon/serve.rs to serve it.", &["axum"], &["src/http", "src/daemon/serve.rs"]);
    // The benchmark compares with a bare rmcp client.
    only("Only src/mcp names rmcp (and the benchmark that compares with it).", &["rmcp"], &["src/mcp", "benches"]);
}

#[test]
fn modules_know_only_whom_they_may_know() {
    // Folder, module it may not name, files in it that may.
    let rules: [(&str, &str, &[&str]); 12] = [
        ("src/http", "isolate", &[]),
        ("src/mcp", "isolate", &[]),
        ("src/api", "isolate", &[]),
        ("src/cli", "isolate", &["src/cli/mod.rs"]),
        ("src/run", "isolate", &["src/run/engine.rs", "src/run/runs.rs"]),
        ("src/run", "store", &["src/run/ports.rs", "src/run/runs.rs"]),
        ("src/run", "mcp", &["src/run/ports.rs", "src/run/runs.rs"]),
        ("src/isolate", "store", &[]),
        ("src/isolate", "mcp", &[]),
        ("src/isolate", "http", &[]),
        ("src/mcp", "run", &[]),
        ("src/run", "http", &[]),
    ];
    let sources = rust();
    let groups = sources.iter().flat_map(Source::code).filter(|line| line.text.starts_with("use crate::{"));
    holds("Modules of the crate are imported one a line, so that this test sees them.", groups);
    for (folder, module, but) in rules {
        let bound = sources.iter().filter(|source| source.is_in(&[folder]) && !source.is_in(but));
        let rule = format!("{folder} does not name crate::{module} (files that may: {but:?}).");
        holds(&rule, bound.flat_map(Source::code).filter(|line| names_module(line.text, module)));
    }
    let cli = sources.iter().filter(|source| source.path == "src/cli/mod.rs").flat_map(Source::code);
    let other = cli.filter(|line| names_module(line.text, "isolate") && line.text != "use crate::isolate::Platform;");
    holds("The command line names of crate::isolate only the Platform.", other);
    let leaves = ["src/store", "src/error.rs", "src/id.rs", "src/settings.rs", "src/paths.rs"];
    let of_leaves = sources.iter().filter(|source| source.is_in(&leaves)).flat_map(Source::code);
    let rule = "store, error, id, settings and paths are leaves: they name no other module of the crate.";
    holds(rule, of_leaves.filter(|line| line.text.contains("crate::") && !line.text.contains("crate::store::")));
    let ops = sources.iter().filter(|source| source.is_in(&["ops"])).flat_map(Source::code);
    let rule = "ops imports nothing from src.";
    holds(rule, ops.filter(|line| names(line.text, "mcpx") || names_module(line.text, "run")));
}

/// Whether the line makes an `end` frame: the word is there, and what follows its parentheses is not what follows a pattern.
fn makes_end(text: &str) -> bool {
    words(text, "Frame::End").filter(|(_, after)| after.starts_with('(')).any(|(_, after)| {
        let behind = after.split_once(')').map_or("", |(_, behind)| behind).trim_start();
        !["=>", "= ", "|", "if "].iter().any(|sign| behind.starts_with(sign))
    })
}

#[test]
fn a_stream_has_one_end() {
    assert!(makes_end("state.send(Frame::End(end));") && !makes_end("Frame::End(end) => {"), "the check itself");
    let sources = rust();
    let made = |source: &Source| source.shipped().filter(|line| makes_end(line.text)).count();
    let sink = sources.iter().find(|source| source.path == "src/run/sink.rs").unwrap();
    assert_eq!(made(sink), 1, "The sink ends once: one place of src/run/sink.rs makes the `end` frame.");
    let others = sources.iter().filter(|source| source.path != "src/run/sink.rs" && source.is_in(&["src"]));
    holds("Only run/sink.rs makes the `end` frame.", others.flat_map(Source::code).filter(|line| makes_end(line.text)));
}

#[test]
fn one_file_writes_the_store() {
    let sources = rust();
    let word = ["begin", "write"].join("_");
    let begins = |line: &Line<'_>| words(line.text, &word).next().is_some();
    let (writers, others): (Vec<_>, Vec<_>) =
        sources.iter().partition(|source| source.is_in(&["src/store/writer.rs", "src/store/tests"]));
    is_found(&word, writers.into_iter().flat_map(Source::code).filter(begins));
    let rule = "Only store/writer.rs begins a write transaction.";
    holds(rule, others.into_iter().flat_map(Source::code).filter(begins));
}

#[test]
fn unsafe_code_is_where_it_is_known_to_be() {
    let known = [
        ("src/isolate", "V8's allocator, and the thread's own working folder"),
        ("ops", "signals, and the id of the parent process"),
        ("src/daemon/start.rs", "setsid between fork and exec"),
        ("src/daemon/serve.rs", "_exit at the second signal"),
        ("src/paths.rs", "geteuid, and the environment while there is one thread"),
        ("src/http/mod.rs", "sysconf, for the size of a page"),
        ("src/cli/exec.rs", "fstat of standard input"),
        ("src/mcp/child.rs", "killpg of an MCP server"),
        ("tests/it/support/place.rs", "kill of the daemons that tests start"),
    ];
    let sources = rust();
    let word = ["un", "safe"].concat();
    let is_one = |line: &Line<'_>| words(line.text, &word).any(|(_, after)| after.starts_with([' ', '{']));
    for (place, reason) in known {
        let inside = sources.iter().filter(|source| source.is_in(&[place])).flat_map(Source::code);
        is_found(&format!("{word} in {place} ({reason})"), inside.filter(is_one));
    }
    let others = sources.iter().filter(|source| !known.iter().any(|(place, _)| source.is_in(&[place])));
    holds("Unsafe code is only in the files of this test's list.", others.flat_map(Source::code).filter(is_one));
}

#[test]
fn no_panic_may_start_in_an_op() {
    let sources = rust();
    let words = [".unwrap(", ".expect(", "panic!(", "unreachable!(", "todo!(", "unimplemented!("];
    let ops = sources.iter().filter(|source| source.is_in(&["ops"]) && !source.is_test()).flat_map(Source::shipped);
    let rule = "No panic in ops: unwinding out of an op aborts the daemon.";
    holds(rule, ops.filter(|line| words.iter().any(|word| line.text.contains(word))));
}

#[test]
fn scripts_of_the_snapshot_are_ascii() {
    let scripts = files("js", &["js"]);
    let lines = scripts.iter().flat_map(Source::lines);
    holds("js is ASCII: V8 keeps such sources at one byte a character.", lines.filter(|line| !line.text.is_ascii()));
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    // Inputs of tests, about no machine.
    let inputs = [("src/paths.rs", "\"/home/u"), ("tests/it/tidy.rs", "let inputs = ")];
    let everything = files("", &[]);
    assert!(everything.len() > 80, "the tree is found: {}", everything.len());
    let is_one = |line: &Line<'_>| {
        let folders = ["/work/", "/home/", "/root/"];
        let places = folders.iter().flat_map(|folder| line.text.match_indices(folder));
        let absolute = places.filter(|(at, folder)| {
            let (before, after) = (&line.text[..*at], &line.text[at + folder.len()..]);
            let from_the_root = !before.ends_with(|end: char| is_of_word(end) || ".~})".contains(end));
            from_the_root && after.starts_with(|start: char| start.is_ascii_alphabetic() || start == '.')
        });
        let known = inputs.iter().any(|(file, input)| line.file == *file && line.text.contains(input));
        absolute.count() > 0 && !known
    };
    let rule = "No file mentions a path of some machine.";
    holds(rule, everything.iter().flat_map(Source::lines).filter(is_one));
}

#[test]
fn every_setting_has_an_effect() {
    let sources = files("src", &["rs"]);
    let (table, others): (Vec<_>, Vec<_>) = sources.iter().partition(|source| source.path == "src/settings.rs");
    let rows = table[0].lines().filter_map(|line| {
        let (field, rest) = line.text.strip_prefix("    ")?.split_once(": ")?;
        (field.chars().all(is_of_word) && rest.contains(" = \"") && rest.ends_with("\";")).then_some((field, line))
    });
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() >= 19, "the table is found: {}", rows.len());
    let used = |field: &str| {
        // A value that the table itself resolves is read through a method of the same name.
        let field = if field == "exec_concurrency" { "concurrency" } else { field };
        let mut code = others.iter().filter(|source| !source.is_test()).flat_map(|source| source.shipped());
        code.any(|line| words(line.text, field).any(|(before, _)| before.ends_with('.')))
    };
    let rule = "Every setting is read somewhere: none is without effect.";
    holds(rule, rows.into_iter().filter(|(field, _)| !used(field)).map(|(_, line)| line));
}

#[test]
fn tests_wait_for_something_and_are_never_skipped() {
    let sources = files("tests/it", &["rs"]);
    let (pause, skip) = (["thread::", "sleep"].concat(), ["#[", "ignore"].concat());
    let waiting = sources.iter().filter(|source| source.path == "tests/it/support/wait.rs").flat_map(Source::code);
    is_found(&pause, waiting.filter(|line| line.text.contains(&pause)));
    let others = sources.iter().filter(|source| source.path != "tests/it/support/wait.rs").flat_map(Source::code);
    let rule = "Only support/wait.rs pauses, and no test is skipped.";
    holds(rule, others.filter(|line| line.text.contains(&pause) || line.text.contains(&skip)));
}
