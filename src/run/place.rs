//! Where a run stands in the file system: its private temp folder, its working directory, and what no run may touch.

use std::path::{Path, PathBuf};

/// The folders that every run of a daemon is kept out of, and the root of the private ones.
#[derive(Debug, Clone)]
pub struct Grounds {
    /// Parent of the private temp folders; mode 0700.
    pub temp_root: PathBuf,
    /// State, socket, `/proc` of the daemon: denied in every profile.
    pub forbidden: Vec<PathBuf>,
}

impl Grounds {
    /// A fresh private folder, removed with everything in it when the guard is dropped.
    ///
    /// # Errors
    /// The file system's.
    pub fn private_folder(&self) -> std::io::Result<PrivateFolder> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = self.temp_root.join(format!("run-{:032x}", rand::random::<u128>()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(PrivateFolder(path))
    }
}

/// A run's private temp folder.
#[derive(Debug)]
pub struct PrivateFolder(PathBuf);

impl PrivateFolder {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}
