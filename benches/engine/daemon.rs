//! A daemon of its own in a temporary place, and a client that keeps its connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Failure;

/// A running daemon; stopped when dropped.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
    place: tempfile::TempDir,
}

impl Daemon {
    /// Starts one with these flags, and with the no-op server under the name `noop`.
    pub(crate) fn start(flags: &[&str]) -> Result<Self, Failure> {
        let place = tempfile::tempdir()?;
        let config = place.path().join("mcp.json");
        let server = std::env::current_exe()?;
        let servers = serde_json::json!({"mcpServers": {"noop": {"command": server, "args": [crate::noop::FLAG]}}});
        std::fs::write(&config, servers.to_string())?;
        let socket = place.path().join("d.sock");
        let log = std::fs::File::create(place.path().join("log"))?;
        let child = Command::new(env!("CARGO_BIN_EXE_mcpx"))
            .args(["daemon", "--config"])
            .arg(&config)
            .arg("--socket")
            .arg(&socket)
            .args(flags)
            .env("MCPX_STATE_DIR", place.path().join("state"))
            .env("TMPDIR", place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let daemon = Self { child, socket, place };
        let began = Instant::now();
        while !daemon.socket.with_extension("json").exists() {
            if began.elapsed() > Duration::from_secs(20) {
                let log = std::fs::read_to_string(daemon.place.path().join("log"))?;
                return Err(format!("the daemon does not start: {log}").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let stream = UnixStream::connect(&self.socket)?;
        Ok(Client { reader: BufReader::new(stream.try_clone()?), stream })
    }

    /// Folder on the same file system as the store.
    pub(crate) fn folder(&self) -> PathBuf {
        self.place.path().to_owned()
    }

    /// Resident memory in bytes, once `isolates` of them are warm and none is being made or taken down.
    pub(crate) fn resident(&self, isolates: u64) -> Result<u64, Failure> {
        let mut client = self.client()?;
        let began = Instant::now();
        loop {
            let status = client.get("/v1/status")?;
            let (warm, live) = (status["isolates"]["warm"].as_u64(), status["isolates"]["live"].as_u64());
            if warm == Some(isolates) && live == Some(isolates) {
                return status["memoryBytes"].as_u64().ok_or_else(|| "this system does not tell".into());
            }
            if began.elapsed() > Duration::from_secs(30) {
                return Err(format!("expected {isolates} isolates, have {}", status["isolates"]).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The temporary place goes with it, so there is nothing to close in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One kept-alive HTTP/1.1 connection.
pub(crate) struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Client {
    /// `POST /v1/exec`, answered by the structured document; an error of the script is a failure.
    pub(crate) fn exec(&mut self, request: &[u8]) -> Result<Value, Failure> {
        let document = self.request("POST", "/v1/exec", request)?;
        match document.get("error") {
            Some(error) => Err(format!("the script failed: {error}").into()),
            None => Ok(document),
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Value, Failure> {
        self.request("GET", path, b"")
    }

    fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Value, Failure> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body].concat())?;
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            self.reader.read_line(&mut line)?;
            let lower = line.trim_end().to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if lower.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        self.reader.read_exact(&mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

/// The body of a request that runs this source.
pub(crate) fn source(text: &str) -> Vec<u8> {
    serde_json::json!({"source": text}).to_string().into_bytes()
}
