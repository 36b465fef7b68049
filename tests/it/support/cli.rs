//! Running command lines and looking at what they say.

use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use super::place::signal;
use super::wait::wait_for;

/// What a command has said, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Exit code; 128 and the signal's number for a command that was killed.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Standard output of a command that must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// Standard output of a command that must have succeeded, as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

/// A command that runs. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    readers: Option<[JoinHandle<Vec<u8>>; 2]>,
}

fn reader(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let readers = [reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap())];
        Self { child, readers: Some(readers) }
    }

    /// Starts it with a text on its standard input, which is a pipe.
    pub(crate) fn start_with_input(mut command: Command, input: &str) -> Self {
        let mut running = Self::start({
            command.stdin(Stdio::piped());
            command
        });
        running.child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        running
    }

    pub(crate) fn signal(&self, number: libc::c_int) {
        signal(self.child.id().try_into().unwrap(), number);
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Said {
        let status = wait_for("a command to end", || self.child.try_wait().unwrap());
        let [stdout, stderr] = self.readers.take().unwrap().map(|reader| {
            let bytes = reader.join().unwrap();
            String::from_utf8(bytes).unwrap_or_else(|error| panic!("output that is no UTF-8: {error}"))
        });
        Said { code: code_of(status), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exit code, or 128 and the number of the signal.
pub(crate) fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
