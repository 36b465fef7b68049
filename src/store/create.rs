//! Making the folder and the file of a store.
//!
//! Owns modes (0700, 0600) and the promise that the store's name never holds a half-made file: a new file is made under
//! a temporary name in the same folder, completed and synced, and only then given its name. Does not open existing
//! stores.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Durability};

use super::error::StoreError;
use super::id::ArtifactId;
use super::shelf::{guarded, open_error};
use super::writer::transact;

/// redb's page cache, in bytes. Its default of 1 GiB would be most of a daemon's memory; bodies are read once, in
/// order.
pub(super) const CACHE_BYTES: usize = 8 << 20;

/// Makes sure that `path` is a store file of mode 0600 in an existing folder. A folder that is made here gets 0700; an
/// existing one keeps its mode, because it may not be ours alone.
pub(super) fn ensure(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| files("create the folder", folder, error))?;
    remove_leftovers(path)?;
    match fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o077 == 0 => Ok(()),
        Ok(_) => fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(|error| files("restrict to mode 0600", path, error)),
        Err(error) if error.kind() == ErrorKind::NotFound => make(path),
        Err(error) => Err(files("look at", path, error)),
    }
}

fn make(path: &Path) -> Result<(), StoreError> {
    let draft = draft_of(path)?;
    let made = write_draft(&draft).and_then(|()| publish(&draft, path));
    if let Err(error) = fs::remove_file(&draft)
        && error.kind() != ErrorKind::NotFound
        && made.is_ok()
    {
        return Err(files("remove", &draft, error));
    }
    made
}

/// A complete, empty, synced store under a name of its own.
fn write_draft(draft: &Path) -> Result<(), StoreError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(draft)
        .map_err(|error| files("create", draft, error))?;
    guarded(|| {
        let database = Builder::new().set_cache_size(CACHE_BYTES).create(draft)?;
        transact(&database, Durability::Immediate, |tables| tables.initialize())?;
        Ok(database.close()?)
    })
    .map_err(|fault| open_error(draft, fault))?;
    file.sync_all().map_err(|error| files("sync", draft, error))
}

/// Gives the draft its name, unless another process was first, whose store then counts.
fn publish(draft: &Path, path: &Path) -> Result<(), StoreError> {
    // A hard link, because it fails where a rename would replace the store another process has just made and filled.
    match fs::hard_link(draft, path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        // Some file systems have no hard links.
        Err(_) if !path.exists() => fs::rename(draft, path).map_err(|error| files("create", path, error))?,
        Err(error) => return Err(files("create", path, error)),
    }
    let folder = folder_of(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| files("sync the folder", folder, error))
}

/// Removes drafts of processes that were killed. One that is being written is locked, by redb, and stays.
fn remove_leftovers(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    let prefix = draft_prefix(path);
    let entries = fs::read_dir(folder).map_err(|error| files("list", folder, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| files("list", folder, error))?;
        if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            continue;
        }
        let draft = entry.path();
        let abandoned = File::open(&draft).is_ok_and(|file| file.try_lock().is_ok());
        if abandoned
            && let Err(error) = fs::remove_file(&draft)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(files("remove the leftover", &draft, error));
        }
    }
    Ok(())
}

fn draft_prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".new-");
    prefix
}

fn draft_of(path: &Path) -> Result<PathBuf, StoreError> {
    let mut name = draft_prefix(path);
    name.push(ArtifactId::random()?.to_string());
    Ok(folder_of(path).join(name))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn files(action: &'static str, path: &Path, error: io::Error) -> StoreError {
    StoreError::Files { action, path: path.to_owned(), source: Arc::new(error) }
}
