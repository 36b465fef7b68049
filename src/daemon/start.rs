//! Finds the daemon of a configuration, or starts it (SPEC 3, autostart).
//!
//! Whoever finds no daemon starts one and waits for the socket; when several do so at once, the lock lets one live and all of
//! them find it. Nothing that is not our own socket is ever removed or signalled from here.

use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;

use super::record::InfoRecord;
use crate::paths::{Paths, private_folder};

/// How long a starting daemon may take to answer.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// How long a daemon that listens may take to write its record.
const RECORD_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two looks at the socket.
const POLL: Duration = Duration::from_millis(10);

/// How much of the log an error shows, in bytes.
const LOG_TAIL: u64 = 2000;

/// No daemon can be reached.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot make {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("{} exists and is not a socket; it was left alone: remove it, or choose another --socket", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot start the daemon: {0}")]
    Spawn(#[source] std::io::Error),
    #[error("the daemon did not become ready within {}; see {}{tail}", humantime::format_duration(READY_WITHIN), log.display())]
    NotReady { log: PathBuf, tail: String },
    #[error("the daemon ended while it was starting ({status}); see {}{tail}", log.display())]
    Ended { status: String, log: PathBuf, tail: String },
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect { socket: PathBuf, source: std::io::Error },
}

/// A connection to the daemon, and its record when there is one.
pub type Connected = (UnixStream, Option<InfoRecord>);

/// Connects to the daemon that runs; `None` when none does.
///
/// # Errors
/// Something that is no socket at its place, or a socket we may not use.
pub async fn connect_running(paths: &Paths) -> Result<Option<Connected>, StartError> {
    match UnixStream::connect(&paths.socket).await {
        Ok(stream) => Ok(Some((stream, record_of(paths).await))),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => Ok(None),
            // A stale socket refuses; so does a plain file, which we must not take for one.
            _ if !is_socket_or_absent(&paths.socket) => Err(StartError::NotASocket { path: paths.socket.clone() }),
            std::io::ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(StartError::Connect { socket: paths.socket.clone(), source: error }),
        },
    }
}

/// The record of a daemon that accepts connections. One that is starting writes it a moment after it listens.
async fn record_of(paths: &Paths) -> Option<InfoRecord> {
    let began = Instant::now();
    loop {
        if let Some(record) = InfoRecord::read(&paths.record) {
            return Some(record);
        }
        if began.elapsed() > RECORD_WITHIN {
            return None;
        }
        tokio::time::sleep(POLL).await;
    }
}

fn is_socket_or_absent(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::symlink_metadata(path).map_or(true, |found| found.file_type().is_socket())
}

/// Connects to the daemon, starting it with these arguments of `mcpx daemon` when none runs.
///
/// # Errors
/// It cannot be started, or does not answer in time; the error names its log and shows the log's end.
pub async fn connect_or_start(paths: &Paths, daemon_args: &[String]) -> Result<Connected, StartError> {
    if let Some(connected) = connect_running(paths).await? {
        return Ok(connected);
    }
    let child = spawn_detached(paths, daemon_args)?;
    match wait_until_ready(paths, child).await {
        // It may have met a daemon that was just stopping. That one is gone now.
        Err(StartError::Ended { .. }) => wait_until_ready(paths, spawn_detached(paths, daemon_args)?).await,
        other => other,
    }
}

/// Starts `mcpx daemon` in a session of its own, its output going to its log.
///
/// # Errors
/// The folders or the process cannot be made.
pub fn spawn_detached(paths: &Paths, daemon_args: &[String]) -> Result<Child, StartError> {
    for path in [&paths.state, &paths.runtime] {
        private_folder(path).map_err(|source| StartError::Folder { path: path.clone(), source })?;
    }
    let open = || {
        use std::os::unix::fs::OpenOptionsExt as _;
        std::fs::File::options().create(true).append(true).mode(0o600).open(&paths.log)
    };
    let (out, err) = (open().map_err(StartError::Spawn)?, open().map_err(StartError::Spawn)?);
    let program = std::env::current_exe().map_err(StartError::Spawn)?;
    let mut command = Command::new(program);
    command.arg("daemon").args(daemon_args).stdin(Stdio::null()).stdout(out).stderr(err);
    // SAFETY: setsid is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| if libc::setsid() < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) });
    }
    command.spawn().map_err(StartError::Spawn)
}

/// Waits for a daemon to answer: this child, or one that somebody else started at the same moment.
async fn wait_until_ready(paths: &Paths, mut child: Child) -> Result<Connected, StartError> {
    let began = Instant::now();
    let mut ended = None;
    loop {
        if let Some(connected) = connect_running(paths).await? {
            return Ok(connected);
        }
        // A child that ended may have lost the race for the lock: then the winner's socket is about to appear.
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
        {
            ended = Some((status, Instant::now()));
        }
        let tail = || log_tail(&paths.log);
        if let Some((status, at)) = ended
            && at.elapsed() > Duration::from_millis(300)
            && !lock_is_held(&paths.lock)
        {
            return Err(StartError::Ended { status: status.to_string(), log: paths.log.clone(), tail: tail() });
        }
        if began.elapsed() > READY_WITHIN {
            return Err(StartError::NotReady { log: paths.log.clone(), tail: tail() });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether some daemon of this configuration is alive, ready or not.
fn lock_is_held(path: &Path) -> bool {
    let Ok(file) = std::fs::File::options().write(true).open(path) else { return false };
    matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock))
}

/// The end of the log, for an error message.
fn log_tail(path: &Path) -> String {
    let read = || {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(std::io::SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        std::io::Result::Ok(String::from_utf8_lossy(&tail).trim().to_owned())
    };
    match read() {
        Ok(tail) if !tail.is_empty() => format!("\n{tail}"),
        _ => String::new(),
    }
}
