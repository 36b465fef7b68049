//! The info record: how a client on this machine finds the daemon of a configuration (SPEC 3).
//!
//! Written when the daemon is ready, removed when it stops. It is a hint, never a proof: a record of a dead daemon can stay
//! behind, so clients connect to the socket and never signal the pid.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfoRecord {
    pub pid: u32,
    pub socket: PathBuf,
    pub endpoint: String,
    pub version: String,
    /// First 16 hex digits of the SHA-256 over the configuration files' contents.
    pub config_hash: String,
    /// RFC 3339 with nanoseconds. Whoever can name it has read this file, and so shares the daemon's file system.
    pub started_at: String,
}

impl InfoRecord {
    /// Writes the record under a temporary name and renames it, mode 0600.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let temporary = path.with_extension(format!("json.{}", self.pid));
        let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        drop(file);
        std::fs::rename(&temporary, path)
    }

    /// Reads a record; `None` when there is none or it is not one.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}
