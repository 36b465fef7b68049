//! A daemon in the foreground, and the requests that most tests make.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Child;

use serde_json::{Value, json};

use super::cli::code_of;
use super::frames::Frames;
use super::http::{Answer, Client};
use super::place::{Place, signal};
use super::wait::wait_for;

/// Header by which a caller shows that it shares the daemon's file system.
pub(crate) const LOCAL_HEADER: &str = "x-mcpx-local";

/// `mcpx daemon` as a child. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    record: Value,
    // Dropped last: its folders are the daemon's.
    place: Option<Place>,
}

impl Daemon {
    /// A daemon without servers, with the default settings.
    pub(crate) fn start() -> Self {
        Self::start_in(Place::new(), &[])
    }

    pub(crate) fn with_flags(flags: &[&str]) -> Self {
        Self::start_in(Place::new(), flags)
    }

    /// A daemon of one server, `fake`, that does what `spec` says.
    pub(crate) fn with_fake(spec: &Value) -> Self {
        Self::with_fakes(&[("fake", spec)], &[])
    }

    /// A daemon of several fake servers.
    pub(crate) fn with_fakes(specs: &[(&str, &Value)], flags: &[&str]) -> Self {
        let place = Place::new();
        let entries = specs.iter().map(|(name, spec)| ((*name).to_owned(), place.fake(name, spec)));
        place.servers(&Value::Object(entries.collect()));
        Self::start_in(place, flags)
    }

    /// A daemon in a place that is prepared.
    #[track_caller]
    pub(crate) fn start_in(place: Place, flags: &[&str]) -> Self {
        let (child, log) = Self::spawn(&place, flags);
        let mut daemon = Self { child, record: Value::Null, place: Some(place) };
        daemon.record = wait_for("a daemon to become ready", || {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("the daemon ended ({status}): {}", std::fs::read_to_string(&log).unwrap());
            }
            let own = |record: &Value| record["pid"] == daemon.child.id();
            daemon.place().records().into_iter().find(own)
        });
        daemon
    }

    /// Starts `mcpx daemon` without waiting for it; also returns where it says what it has to say.
    pub(crate) fn spawn(place: &Place, flags: &[&str]) -> (Child, PathBuf) {
        let log = place.root().join("daemon.err");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = place.command(&[&["daemon"], flags].concat());
        command.process_group(0).stdout(file.try_clone().unwrap()).stderr(file);
        (command.spawn().unwrap(), log)
    }

    pub(crate) fn place(&self) -> &Place {
        self.place.as_ref().expect("the place is taken only when the daemon is given up")
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.child.id().try_into().unwrap()
    }

    /// What the daemon's info record says.
    pub(crate) fn record(&self) -> &Value {
        &self.record
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.record["socket"].as_str().unwrap().into()
    }

    /// A client that shares the daemon's file system, and shows it.
    pub(crate) fn client(&self) -> Client {
        self.remote().with_header(LOCAL_HEADER, self.record["startedAt"].as_str().unwrap())
    }

    /// A client that knows no more than the socket.
    pub(crate) fn remote(&self) -> Client {
        Client::new(&self.socket())
    }

    pub(crate) fn status(&self) -> Value {
        self.client().get("/v1/status").json()
    }

    /// Runs a script with options, to the answer as it is.
    pub(crate) fn post(&self, source: &str, options: &Value) -> Answer {
        self.client().post("/v1/exec", json!({"source": source, "options": options}).to_string())
    }

    /// Runs a script with options, to its document.
    #[track_caller]
    pub(crate) fn run(&self, source: &str, options: &Value) -> Value {
        let answer = self.post(source, options);
        assert_eq!(answer.status, 200, "{source}: {}", answer.text());
        answer.json()
    }

    /// Runs a script to its document.
    #[track_caller]
    pub(crate) fn exec(&self, source: &str) -> Value {
        self.run(source, &json!({}))
    }

    /// The value of a script that must succeed.
    #[track_caller]
    pub(crate) fn value(&self, source: &str) -> Value {
        result_of(&self.exec(source))
    }

    /// The frames of a script, while it runs.
    #[track_caller]
    pub(crate) fn stream(&self, source: &str, options: &Value) -> Frames {
        let mut options = options.clone();
        options["output"] = json!("stream");
        let body = json!({"source": source, "options": options}).to_string();
        let request = self.client().request("POST", "/v1/exec").header("accept", "application/x-ndjson");
        Frames::new(request.body(body).open())
    }

    /// The frames of a script that has ended.
    #[track_caller]
    pub(crate) fn frames(&self, source: &str) -> Vec<Value> {
        self.stream(source, &json!({})).collect()
    }

    /// Whether it is the process that it was, and answers.
    #[track_caller]
    pub(crate) fn is_alive(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "the daemon has ended: {}", self.said());
        assert_eq!(self.client().get("/v1/health").json()["pid"], self.child.id());
        assert_eq!(self.value("return 1"), 1);
    }

    pub(crate) fn signal(&self, number: libc::c_int) {
        signal(self.pid(), number);
    }

    /// Waits for its end, to its exit code and the place it leaves behind.
    pub(crate) fn ended(mut self) -> (i32, Place) {
        let status = wait_for("the daemon to end", || self.child.try_wait().unwrap());
        (code_of(status), self.place.take().unwrap())
    }

    /// SIGKILL, to the place it leaves behind.
    pub(crate) fn kill(mut self) -> Place {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.place.take().unwrap()
    }

    /// What it has written to standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.place().root().join("daemon.err")).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(-self.pid(), libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// The value in a document of a run that must have succeeded; null when there is none.
#[track_caller]
pub(crate) fn result_of(document: &Value) -> Value {
    assert_eq!(document["exitCode"], 0, "{document:#}");
    assert_eq!(document.get("error"), None, "{document:#}");
    document["result"].clone()
}

/// Kind and message of the failure in a document.
#[track_caller]
pub(crate) fn failure_of(document: &Value) -> (&str, &str) {
    let text = |name: &str| document["error"][name].as_str().unwrap_or_else(|| panic!("no error: {document:#}"));
    (text("kind"), text("message"))
}
