//! The config: all files merged.
//!
//! Owns the merge (the nearest file wins per server, whole entries; settings are merged key by key) and the config's
//! key. Invariant: a [`Config`] never changes; a reload makes a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::entry::{ServerSpec, is_self_reference, read_entry};
use super::error::ConfigError;
use super::files::{self, ConfigFile};

/// What loading depends on; nothing is read from the process itself.
#[derive(Debug, Clone)]
pub struct LoadOptions<'a> {
    /// The folder from which the search goes upward; absolute.
    pub cwd: PathBuf,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`.
    pub xdg_config_home: Option<PathBuf>,
    /// The file named by `--config` or `MCPX_CONFIG`: it alone is read then.
    pub explicit: Option<PathBuf>,
    /// The variables that `${VAR}` expands.
    pub env: &'a BTreeMap<String, String>,
}

/// Every server and setting of the config files in use.
#[derive(Debug, Clone, Default)]
pub struct Config {
    servers: Vec<ServerSpec>,
    settings: Map<String, Value>,
    sources: Vec<PathBuf>,
    skipped: Vec<String>,
}

impl Config {
    /// Reads and merges the config files (SPEC 11). Without any file the config is empty.
    ///
    /// # Errors
    /// The explicit file is missing; a file cannot be read or parsed; an `mcpx` block is wrong. A fault that concerns
    /// one server only (a missing variable, no command) is kept in that server and surfaces when it is used.
    pub fn load(options: &LoadOptions<'_>) -> Result<Self, ConfigError> {
        let mut seen = BTreeSet::new();
        let mut read = Vec::new();
        for candidate in files::candidates(options) {
            let Some(file) = files::read(&candidate)? else {
                if options.explicit.is_some() {
                    return Err(ConfigError::Missing { path: candidate.path });
                }
                continue;
            };
            // The walk up from the working folder may meet the user's own files a second time: the nearer reading
            // stays.
            if seen.insert(file.path.clone()) {
                read.push(file);
            }
        }
        let mut config = Self { sources: seen.into_iter().collect(), ..Self::default() };
        let mut taken = BTreeSet::new();
        for file in &read {
            config.add_servers(file, &mut taken, options.env)?;
            config.add_settings(file)?;
        }
        Ok(config)
    }

    fn add_servers(
        &mut self,
        file: &ConfigFile,
        taken: &mut BTreeSet<String>,
        env: &BTreeMap<String, String>,
    ) -> Result<(), ConfigError> {
        for (name, entry) in object(file, "mcpServers")? {
            // Faults in an entry that a nearer file replaces do not matter, so it is not even read.
            if !taken.insert(name.clone()) {
                continue;
            }
            let server = read_entry(name, entry, file, env)?;
            if is_self_reference(&server) {
                tracing::info!(server = name, file = %file.path.display(), "skipping a server that is mcpx itself");
                self.skipped.push(name.clone());
            } else {
                self.servers.push(server);
            }
        }
        Ok(())
    }

    fn add_settings(&mut self, file: &ConfigFile) -> Result<(), ConfigError> {
        fill_in(&mut self.settings, object(file, "settings")?);
        Ok(())
    }

    /// The servers, those of the nearest file first, each file's in its own order. Disabled and unusable ones are among
    /// them.
    #[must_use]
    pub fn servers(&self) -> &[ServerSpec] {
        &self.servers
    }

    /// The `settings` objects of all files, merged key by key at every depth, the nearest file winning. Not validated.
    #[must_use]
    pub fn settings_json(&self) -> &Map<String, Value> {
        &self.settings
    }

    /// Canonical paths of the files in use, sorted.
    #[must_use]
    pub fn sources(&self) -> &[PathBuf] {
        &self.sources
    }

    /// Names of the entries that were left out because they start mcpx itself.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Tells this set of config files from any other (SPEC 2): 16 hex digits, or `default` when there is no file.
    #[must_use]
    pub fn key(&self) -> String {
        if self.sources.is_empty() {
            return "default".to_owned();
        }
        let mut hash = Sha256::new();
        for (index, path) in self.sources.iter().enumerate() {
            if index > 0 {
                hash.update(b"\n");
            }
            hash.update(path.as_os_str().as_bytes());
        }
        hash.finalize().iter().take(8).fold(String::with_capacity(16), |mut key, byte| {
            // Writing to a String cannot fail.
            let _ = write!(key, "{byte:02x}");
            key
        })
    }
}

/// An object at the top level of a file; an absent one is empty.
fn object<'a>(file: &'a ConfigFile, key: &str) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, ConfigError> {
    match file.root.get(key) {
        None | Some(Value::Null) => Ok(None.into_iter().flatten()),
        Some(Value::Object(entries)) => Ok(Some(entries).into_iter().flatten()),
        Some(_) => Err(ConfigError::Shape { path: file.path.clone(), message: format!("{key} must be an object") }),
    }
}

/// Adds what `target` does not have yet; objects on both sides are merged.
fn fill_in<'a>(target: &mut Map<String, Value>, from: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (key, value) in from {
        match (target.get_mut(key), value) {
            (None, _) => {
                target.insert(key.clone(), value.clone());
            }
            (Some(Value::Object(target)), Value::Object(from)) => fill_in(target, from.iter()),
            (Some(_), _) => {}
        }
    }
}
