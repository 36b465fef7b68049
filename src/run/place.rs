//! Where a run stands in the file system: its private temp folder, its working directory, and what no run may touch.
//!
//! Making and removing a folder takes longer than starting a script, so neither happens while a caller waits: a few folders are
//! made ahead, and removal goes to the blocking pool.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

/// Folders that are kept ready.
const READY: usize = 4;

/// The folders that every run of a daemon is kept out of, and the private ones it gets. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Grounds {
    /// Parent of the private temp folders; mode 0700.
    temp_root: PathBuf,
    /// State, socket, `/proc` of the daemon: denied in every profile.
    pub forbidden: Vec<PathBuf>,
    ready: Arc<Mutex<Vec<PrivateFolder>>>,
}

impl Grounds {
    pub fn new(temp_root: PathBuf, forbidden: Vec<PathBuf>) -> Self {
        Self { temp_root, forbidden, ready: Arc::default() }
    }

    /// A fresh private folder, removed with everything in it after the guard is dropped.
    ///
    /// # Errors
    /// The file system's, when none was ready.
    pub fn private_folder(&self) -> io::Result<PrivateFolder> {
        let ready = self.lock().pop();
        ready.map_or_else(|| self.make(), Ok)
    }

    /// Makes folders ahead, off the caller's thread. Call it when nobody waits.
    pub fn restock(&self) {
        if self.lock().len() >= READY {
            return;
        }
        let grounds = self.clone();
        off_thread(move || {
            while grounds.lock().len() < READY {
                match grounds.make() {
                    Ok(folder) => grounds.lock().push(folder),
                    // Whoever needs one meets the error again, and can tell it to somebody.
                    Err(_) => return,
                }
            }
        });
    }

    fn make(&self) -> io::Result<PrivateFolder> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = self.temp_root.join(format!("run-{:032x}", rand::random::<u128>()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(PrivateFolder(path))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PrivateFolder>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
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
        let path = std::mem::take(&mut self.0);
        off_thread(move || {
            if let Err(error) = std::fs::remove_dir_all(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        });
    }
}

/// Does file-system work on the blocking pool; outside of a runtime, here.
fn off_thread(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_fresh_and_go_with_their_content() {
        let root = tempfile::tempdir().expect("a folder");
        let grounds = Grounds::new(root.path().to_owned(), Vec::new());
        grounds.restock();
        let listed = || std::fs::read_dir(root.path()).map_or(0, Iterator::count);
        assert_eq!(listed(), READY);
        let (first, second) = (grounds.private_folder().expect("one"), grounds.private_folder().expect("another"));
        assert_ne!(first.path(), second.path());
        std::fs::write(first.path().join("f"), "x").expect("it can be written");
        drop((first, second));
        assert_eq!(listed(), READY - 2);
        drop(grounds);
        assert_eq!(listed(), 0);
    }
}
