//! Tests of config loading: files in a temporary folder in, servers and errors out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Config, ConfigError, LoadOptions, StdioSpec, Transport};

struct Fixture {
    root: tempfile::TempDir,
    env: BTreeMap<String, String>,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder, because the tests need one");
        let fixture = Self { root, env: BTreeMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]) };
        for (name, text) in files {
            let path = fixture.path(name);
            std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder can be made");
            std::fs::write(path, text).expect("the file can be written");
        }
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().expect("the temporary folder exists").join(name)
    }

    fn options(&self) -> LoadOptions<'_> {
        std::fs::create_dir_all(self.path("home/work/deep")).expect("the folder can be made");
        LoadOptions {
            cwd: self.path("home/work/deep"),
            home: Some(self.path("home")),
            xdg_config_home: Some(self.path("xdg")),
            explicit: None,
            env: &self.env,
        }
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.options())
    }
}

fn stdio<'a>(config: &'a Config, name: &str) -> &'a StdioSpec {
    match &server(config, name).transport {
        Transport::Stdio(stdio) => stdio,
        other => panic!("{name} is {other:?}"),
    }
}

fn server<'a>(config: &'a Config, name: &str) -> &'a super::ServerSpec {
    config.servers().iter().find(|server| server.name == name).unwrap_or_else(|| panic!("no server {name}"))
}

fn error(text: &str) -> String {
    Fixture::new(&[("home/work/.mcp.json", text)]).load().expect_err("the file is wrong").to_string()
}

#[test]
fn every_file_counts_and_the_nearest_wins() {
    let one = |command: &str, key: &str| {
        format!(r#"{{"mcpServers":{{"all":{{"command":"{command}"}},"{key}":{{"command":"x"}}}}}}"#)
    };
    let places = [
        "home/work/deep/.config/mcpx/config.json",
        "home/work/deep/.mcpx.json",
        "home/work/deep/.mcpx/config.json",
        "home/work/deep/.mcp.json",
        "home/work/.mcp.json",
        "xdg/mcpx/config.json",
        "home/.config/mcpx/config.json",
        "home/.mcpx.json",
    ];
    for nearest in 0..places.len() {
        let texts: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(index, place)| (*place, one(&format!("c{index}"), &format!("s{index}"))))
            .collect();
        let files: Vec<_> = texts.iter().skip(nearest).map(|(place, text)| (*place, text.as_str())).collect();
        let config = Fixture::new(&files).load().expect("the files are right");
        // The user's files are met on the way up from the working folder, before XDG_CONFIG_HOME.
        let want = if nearest == 5 { "c6" } else { &format!("c{nearest}") };
        assert_eq!(stdio(&config, "all").command, Path::new(want));
        assert_eq!(config.servers().len(), places.len() - nearest + 1);
        assert_eq!(config.sources().len(), places.len() - nearest);
    }
}

#[test]
fn an_explicit_file_is_alone_and_must_exist() {
    let fixture = Fixture::new(&[
        ("home/work/.mcp.json", r#"{"mcpServers":{"a":{"command":"a"}}}"#),
        ("home/work/deep/other.json", r#"{"mcpServers":{"b":{"command":"b"}}}"#),
    ]);
    let mut options = fixture.options();
    options.explicit = Some(PathBuf::from("other.json"));
    let config = Config::load(&options).expect("the file exists");
    assert_eq!(config.servers().iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(stdio(&config, "b").cwd, fixture.path("home/work/deep"));
    options.explicit = Some(PathBuf::from("nope.json"));
    let message = Config::load(&options).expect_err("there is no such file").to_string();
    assert!(message.contains("nope.json") && message.contains("does not exist"), "{message}");
}

#[test]
fn the_key_tells_sets_of_files_apart() {
    let empty = Fixture::new(&[]).load().expect("no file is a config, too");
    assert_eq!(empty.key(), "default");
    let fixture = Fixture::new(&[("home/work/.mcp.json", "{}"), ("home/.mcpx.json", "// nothing\n")]);
    let config = fixture.load().expect("the files are right");
    assert_eq!(config.sources(), [fixture.path("home/.mcpx.json"), fixture.path("home/work/.mcp.json")]);
    assert_eq!(config.key().len(), 16);
    assert_eq!(config.key(), fixture.load().expect("again").key());
    let mut options = fixture.options();
    options.cwd = fixture.path("home");
    assert_ne!(Config::load(&options).expect("one file").key(), config.key());
}

#[test]
fn jsonc_expansion_and_relative_paths() {
    let fixture = Fixture::new(&[(
        "home/work/.mcpx/config.json",
        r#"// servers
        {"mcpServers": {
            "a": {"command": ["./bin/tool", "-v"], "args": ["${TOKEN}", "${PORT:-80}", 7], "env": {"T": "x${TOKEN}", "N": 1}, "cwd": "sub"},
            "b": {"command": "node", "url2": 1, /* unknown keys are fine */ "mcpx": {"callTimeout": "2m", "startTimeout": 1500, "namespace": "bee"}},
        }, "somethingElse": true}"#,
    )]);
    let config = fixture.load().expect("the file is right");
    let a = stdio(&config, "a");
    assert_eq!(a.command, fixture.path("home/work/.mcpx/./bin/tool"));
    assert_eq!(a.args, ["-v", "s3cret", "80", "7"]);
    assert_eq!(a.env, BTreeMap::from([("T".to_owned(), "xs3cret".to_owned()), ("N".to_owned(), "1".to_owned())]));
    assert_eq!(a.cwd, fixture.path("home/work/.mcpx/sub"));
    assert!(!format!("{config:?}").contains("s3cret"), "secrets stay out of debug output");
    let b = server(&config, "b");
    assert_eq!(stdio(&config, "b").command, Path::new("node"));
    assert_eq!(stdio(&config, "b").cwd, fixture.path("home/work"));
    assert_eq!(b.call_timeout, Some(Duration::from_secs(120)));
    assert_eq!(b.start_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(b.namespace.as_deref(), Some("bee"));
}

#[test]
fn a_bad_entry_costs_only_itself() {
    let fixture = Fixture::new(&[(
        "home/work/.mcp.json",
        r#"{"mcpServers": {
            "novar": {"command": "x", "args": ["ok", "${NOPE}"]}, "nothing": {}, "scalar": 5, "web": {"type":"http","url":"http://h/${TOKEN}"},
            "self": {"command": "/usr/bin/mcpx", "args": ["serve"]}, "badenv": {"command":"x","env":{"A":[]}},
            "off": {"command":"x","mcpx":{"disabled":true}}, "good": {"command": "x"}}}"#,
    )]);
    let config = fixture.load().expect("the file as a whole is right");
    let reason = |name: &str| match &server(&config, name).transport {
        Transport::Broken { reason } => reason.clone(),
        other => panic!("{name} is {other:?}"),
    };
    assert!(reason("novar").contains("args[1]") && reason("novar").contains("NOPE"), "{}", reason("novar"));
    assert!(reason("nothing").contains("command, url or aliasOf"));
    assert!(reason("scalar").contains("object"));
    assert!(reason("badenv").contains("env.A"));
    assert!(matches!(server(&config, "web").transport, Transport::Unsupported { .. }));
    assert!(server(&config, "off").disabled);
    assert_eq!(config.skipped(), ["self"]);
    assert_eq!(stdio(&config, "good").command, Path::new("x"));
}

#[test]
fn broken_files_name_file_line_and_column() {
    let message = error("{\n  \"mcpServers\": {\n    \"a\" \"b\"\n  }\n}");
    assert!(message.contains(".mcp.json:3:"), "{message}");
    assert!(error("[1]").contains("object"));
    assert!(error(r#"{"mcpServers": []}"#).contains("mcpServers must be an object"));
    assert!(error(r#"{"a": 1} {"b": 2}"#).contains(".mcp.json:1:"));
}

#[test]
fn the_mcpx_block_is_checked() {
    let block = |text: &str| error(&format!(r#"{{"mcpServers":{{"srv":{{"command":"x","mcpx":{text}}}}}}}"#));
    let message = block(r#"{"callTimout":"1s"}"#);
    assert!(message.contains("did you mean \"callTimeout\"") && message.contains("\"srv\""), "{message}");
    assert!(block(r#"{"zzz":1}"#).contains("known keys are callTimeout"));
    assert!(block(r#"{"sharing":"exclusive"}"#).contains("not supported yet"));
    assert!(block(r#"{"callTimeout":"soon"}"#).contains("callTimeout"));
    assert!(block(r#"{"startTimeout":0}"#).contains("above zero"));
    assert!(block(r#"{"namespace":"console"}"#).contains("pick another"));
    assert!(block(r#"{"namespace":"class"}"#).contains("pick another"));
    assert!(block(r#"{"namespace":"my-box"}"#).contains("identifier"));
    assert!(block("5").contains("must be an object"));
}

#[test]
fn settings_are_merged_key_by_key() {
    let fixture = Fixture::new(&[
        ("home/work/.mcp.json", r#"{"settings":{"exec":{"timeout":"1s"},"a":1}}"#),
        ("home/.mcpx.json", r#"{"settings":{"exec":{"timeout":"9s","warm":4},"a":{"b":2},"c":3}}"#),
    ]);
    let config = fixture.load().expect("the files are right");
    let want = serde_json::json!({"exec":{"timeout":"1s","warm":4},"a":1,"c":3});
    assert_eq!(serde_json::Value::Object(config.settings_json().clone()), want);
}
