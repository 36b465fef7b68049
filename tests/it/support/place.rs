//! A place of its own for a test: a temp folder with everything in it that mcpx would otherwise take from the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cli::{Running, Said};
use super::wait::wait_until;

/// The program under test.
const MCPX: &str = env!("CARGO_BIN_EXE_mcpx");

/// Folders of one test: working folder, state, cache, runtime, home, temp. Daemons that were started in it end with it.
#[derive(Debug)]
pub(crate) struct Place {
    root: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        // Under /tmp whatever TMPDIR says: the path of a socket has room for 103 bytes.
        let root = tempfile::Builder::new().prefix("mcpx-it-").tempdir_in("/tmp").unwrap();
        let place = Self { root };
        for folder in ["work", "state", "cache", "run", "home", "tmp"] {
            std::fs::create_dir(place.root().join(folder)).unwrap();
        }
        place
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// The working folder of the commands.
    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    /// Where state goes: one folder a configuration.
    pub(crate) fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    /// Where sockets and records are.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.root().join("run/mcpx")
    }

    /// Writes a file below the working folder.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Makes `servers` the configuration of the working folder.
    pub(crate) fn servers(&self, servers: &Value) {
        self.write(".mcp.json", json!({"mcpServers": servers}).to_string());
    }

    /// The entry of a fake server that does what `spec` says (see `fixtures/fake.mjs`).
    pub(crate) fn fake(&self, name: &str, spec: &Value) -> Value {
        let spec = self.write(&format!("specs/{name}.json"), spec.to_string());
        json!({"command": "node", "args": [concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fake.mjs"), spec]})
    }

    /// `mcpx` in this place: nothing of the test's own environment but PATH, no input.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(MCPX);
        let path = std::env::vars().find(|(name, _)| name == "PATH").map(|(_, value)| value);
        command
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", path.unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("HOME", self.root().join("home"))
            .env("TMPDIR", self.root().join("tmp"))
            .env("MCPX_STATE_DIR", self.state())
            .env("MCPX_CACHE_DIR", self.root().join("cache"))
            .env("XDG_RUNTIME_DIR", self.root().join("run"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line to its end.
    pub(crate) fn mcpx<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Said {
        Running::start(self.command(args)).end()
    }

    /// The info records of the daemons that were started here.
    pub(crate) fn records(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.runtime()).into_iter().flatten().flatten();
        let records = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|ext| ext == "json"));
        records.filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok()).collect()
    }

    /// Whether a process is a daemon of ours that was started in this place, and no stranger with a recycled id.
    pub(crate) fn is_our_daemon(&self, pid: libc::pid_t) -> bool {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        // A daemon of a build that has been replaced meanwhile has " (deleted)" behind its path.
        let is_mcpx = exe.to_string_lossy().starts_with(MCPX);
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let state = format!("MCPX_STATE_DIR={}", self.state().display());
        is_mcpx && environment.split(|byte| *byte == 0).any(|entry| entry == state.as_bytes())
    }

    /// The processes that are daemons of this place.
    pub(crate) fn daemons(&self) -> Vec<libc::pid_t> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| self.is_our_daemon(*pid)).collect()
    }
}

impl Place {
    /// What the daemons of this place have logged, for a test that fails.
    fn show_logs(&self) {
        let states = std::fs::read_dir(self.state()).into_iter().flatten().flatten();
        let logs = states.map(|state| state.path().join("daemon.log")).chain([self.root().join("daemon.err")]);
        for log in logs {
            if let Ok(text) = std::fs::read_to_string(&log) {
                #[expect(clippy::print_stderr, reason = "the harness shows it with the failure")]
                {
                    eprintln!("{}:\n{text}", log.display());
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
        for pid in self.daemons() {
            signal(pid, libc::SIGCONT);
            signal(pid, libc::SIGTERM);
            let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                wait_until("an autostarted daemon to end", || !self.is_our_daemon(pid));
            }));
            if gone.is_err() {
                signal(-pid, libc::SIGKILL);
            }
        }
    }
}

/// Sends a signal; to a process that is gone it does nothing.
pub(crate) fn signal(pid: libc::pid_t, number: libc::c_int) {
    assert!(!(-1..=1).contains(&pid), "not a process of ours: {pid}");
    // SAFETY: kill takes two integers and touches no memory of ours.
    unsafe { libc::kill(pid, number) };
}
