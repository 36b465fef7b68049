//! Where things are on disk (SPEC 2): state, cache, socket, info record; and the environment they are derived from.
//!
//! Owns names and rules only; nothing is created here except by [`private_folder`]. Each set of config files (its key) has its
//! own state folder and socket, so that two projects never share or fight over one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Variables that stay in the daemon's process: the search path, the locale, where temporary files go, proxies and certificates
/// for `fetch`.
const KEPT: [&str; 12] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RUST_BACKTRACE",
];

/// Longest path of a unix socket that every system takes, in bytes.
const SOCKET_PATH_MAX: usize = 103;

/// The environment of this process, read once at its start.
#[derive(Debug, Clone, Default)]
pub struct Environment(pub BTreeMap<String, String>);

impl Environment {
    /// Reads it; entries that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        let entries = std::env::vars_os();
        Self(entries.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect())
    }

    /// Takes out of the process's own environment what this value remembers, except what libraries in this process read: what a
    /// script starts with `Deno.Command` inherits the process's environment, which may hold the caller's secrets.
    ///
    /// Call it while the process has one thread.
    pub fn scrub_process(&self) {
        for name in self.0.keys().filter(|name| !KEPT.contains(&name.to_ascii_uppercase().as_str())) {
            // SAFETY: no other thread exists that could read the environment meanwhile.
            unsafe { std::env::remove_var(name) };
        }
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        // A relative path in one of these variables means nothing (XDG base directory specification).
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    pub fn home(&self) -> Option<PathBuf> {
        self.path("HOME")
    }

    pub fn xdg_config_home(&self) -> Option<PathBuf> {
        self.path("XDG_CONFIG_HOME")
    }
}

/// A place that cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    #[error("no place for mcpx's state: set MCPX_STATE_DIR, XDG_STATE_HOME or HOME")]
    NoState,
    #[error("the socket path {} is {length} bytes long, over the {SOCKET_PATH_MAX} that systems take; give a shorter one", path.display())]
    SocketTooLong { path: PathBuf, length: usize },
}

/// The paths of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `<state>/<key>`: store, token, log.
    pub state: PathBuf,
    pub store: PathBuf,
    pub log: PathBuf,
    /// Folder of socket and record.
    pub runtime: PathBuf,
    pub socket: PathBuf,
    pub record: PathBuf,
    /// Held by the daemon for its whole life.
    pub lock: PathBuf,
    /// Parent of the runs' private folders.
    pub temp: PathBuf,
}

impl Paths {
    /// The paths of the daemon for a configuration's key. `socket` overrides where its socket is.
    ///
    /// # Errors
    /// Neither `HOME` nor anything else says where state goes; the given socket path is too long.
    pub fn resolve(env: &Environment, key: &str, socket: Option<&Path>) -> Result<Self, PathsError> {
        let state_root = env
            .path("MCPX_STATE_DIR")
            .or_else(|| env.path("XDG_STATE_HOME").map(|path| path.join("mcpx")))
            .or_else(|| env.home().map(|path| path.join(".local/state/mcpx")))
            .ok_or(PathsError::NoState)?;
        let state = state_root.join(key);
        let fallback = temp_root(env);
        let socket = match socket.map(Path::to_owned).or_else(|| env.path("MCPX_SOCKET")) {
            Some(given) => {
                let length = given.as_os_str().len();
                if length > SOCKET_PATH_MAX {
                    return Err(PathsError::SocketTooLong { path: given, length });
                }
                given
            }
            None => {
                let name = format!("{key}.sock");
                let preferred = env.path("XDG_RUNTIME_DIR").map(|path| path.join("mcpx").join(&name));
                preferred
                    .filter(|path| path.as_os_str().len() <= SOCKET_PATH_MAX)
                    .unwrap_or_else(|| fallback.join(&name))
            }
        };
        let runtime = socket.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self {
            store: state.join("artifacts.redb"),
            log: state.join("daemon.log"),
            temp: fallback.join(format!("runs-{key}")),
            record: socket.with_extension("json"),
            lock: socket.with_extension("lock"),
            runtime,
            socket,
            state,
        })
    }
}

/// A folder of this user's under the temp folder.
fn temp_root(env: &Environment) -> PathBuf {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    env.path("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")).join(format!("mcpx-{user}"))
}

/// Makes a folder, and its parents, for this user only.
///
/// # Errors
/// The file system's; `PermissionDenied` when the folder exists and belongs to somebody else.
pub fn private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = std::fs::metadata(path)?;
    // SAFETY: geteuid has no preconditions and cannot fail.
    if found.uid() != unsafe { libc::geteuid() } {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if found.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(entries: &[(&str, &str)]) -> Environment {
        Environment(entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn state_and_socket_by_key() {
        let env = env(&[("HOME", "/home/u"), ("XDG_RUNTIME_DIR", "/run/user/7")]);
        let paths = Paths::resolve(&env, "0123456789abcdef", None).expect("HOME is set");
        assert_eq!(paths.store, Path::new("/home/u/.local/state/mcpx/0123456789abcdef/artifacts.redb"));
        assert_eq!(paths.socket, Path::new("/run/user/7/mcpx/0123456789abcdef.sock"));
        assert_eq!(paths.record, Path::new("/run/user/7/mcpx/0123456789abcdef.json"));
    }

    #[test]
    fn long_runtime_folders_fall_back_and_given_sockets_do_not() {
        let long = format!("/{}", "x".repeat(120));
        let env = env(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", &long), ("TMPDIR", "/t")]);
        let paths = Paths::resolve(&env, "default", None).expect("HOME is set");
        assert!(paths.socket.starts_with("/t"), "{paths:?}");
        assert!(Paths::resolve(&env, "default", Some(Path::new(&long))).is_err());
        assert!(matches!(Paths::resolve(&Environment::default(), "default", None), Err(PathsError::NoState)));
    }
}
