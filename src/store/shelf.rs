//! The place of the open database, so that it can be replaced while the store is in use.
//!
//! redb refuses all work after an I/O error until the file is opened again, and its lock allows one opener, so the old
//! database has to go before the new one comes. Owns that exchange and the translation of redb's errors into ours. Does
//! not begin write transactions. Only the writer thread exchanges; readers hold the lock only while a transaction
//! begins.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase};

use super::error::{Fault, StoreError};

/// Opens the file (or, in tests, a medium that forgets or refuses). Called again after an I/O error.
pub(super) type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

pub(super) struct Shelf {
    path: PathBuf,
    opener: Opener,
    slot: RwLock<Slot>,
}

struct Slot {
    content: Content,
    /// Rises with every exchange, so that many readers of a failed database cause one reopening.
    generation: u64,
}

enum Content {
    Open(Database),
    /// The last reopening failed; the next write or read tries again.
    Unavailable(StoreError),
    Closed,
}

impl Shelf {
    /// Opens the database for the first time.
    pub(super) fn open(path: &Path, opener: Opener) -> Result<Self, StoreError> {
        let database = guarded(|| Ok(opener()?)).map_err(|fault| open_error(path, fault))?;
        let slot = RwLock::new(Slot { content: Content::Open(database), generation: 0 });
        Ok(Self { path: path.to_owned(), opener, slot })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A snapshot of what is committed.
    pub(super) fn begin_read(&self) -> Result<ReadTransaction, Fault> {
        self.with(|database| Ok(database.begin_read()?))
    }

    /// Runs `work` on the database. Not to be held for long, except by the writer, who alone could want to exchange it.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, Fault>) -> Result<T, Fault> {
        match &self.lock().content {
            Content::Open(database) => guarded(|| work(database)),
            Content::Unavailable(error) => Err(Fault::Refused(error.clone())),
            Content::Closed => Err(Fault::Refused(StoreError::Closed)),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.lock().content, Content::Open(_))
    }

    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Closes the database and opens the file again. Reads that are under way notice and begin again on the new one.
    pub(super) fn reopen(&self) -> Result<(), StoreError> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.generation += 1;
        // The old database holds the lock of the file, so it must be gone before the new one is opened.
        drop_quietly(std::mem::replace(&mut slot.content, Content::Closed));
        match guarded(|| Ok((self.opener)()?)) {
            Ok(database) => {
                slot.content = Content::Open(database);
                Ok(())
            }
            Err(fault) => {
                let error = open_error(&self.path, fault);
                slot.content = Content::Unavailable(error.clone());
                Err(error)
            }
        }
    }

    /// Closes the database for good.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.generation += 1;
        match std::mem::replace(&mut slot.content, Content::Closed) {
            Content::Open(database) => guarded(|| Ok(database.close()?)).map_err(|fault| self.write_error(fault)),
            Content::Unavailable(error) => Err(error),
            Content::Closed => Ok(()),
        }
    }

    pub(super) fn read_error(&self, fault: Fault) -> StoreError {
        self.error(fault, StoreError::Read)
    }

    pub(super) fn write_error(&self, fault: Fault) -> StoreError {
        self.error(fault, StoreError::Write)
    }

    fn error(&self, fault: Fault, otherwise: fn(Arc<redb::Error>) -> StoreError) -> StoreError {
        match fault {
            Fault::Refused(error) => error,
            Fault::Storage(source) if is_damage(&source) => {
                StoreError::DamagedFile { path: self.path.clone(), source: Arc::new(source) }
            }
            Fault::Storage(source) => otherwise(Arc::new(source)),
        }
    }

    fn lock(&self) -> RwLockReadGuard<'_, Slot> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Turns a panic of redb into an error. Its `open` trusts a file that was closed cleanly and panics on some damage.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unexpected content");
        Err(Fault::Storage(redb::Error::Corrupted(text.to_owned())))
    })
}

/// A database that is being given up may fail, even panic, once more when it goes; that says nothing new.
fn drop_quietly(content: Content) {
    let _ = guarded(|| {
        drop(content);
        Ok(())
    });
}

/// The database is fine on disk as far as we know, but this opening of it is not usable any more.
pub(super) fn needs_reopening(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Storage(
            redb::Error::PreviousIo
                | redb::Error::Io(_)
                | redb::Error::Backend(_)
                | redb::Error::DatabaseClosed
                | redb::Error::LockPoisoned(_)
        ) | Fault::Refused(StoreError::Open { .. } | StoreError::DamagedFile { .. })
    )
}

fn is_damage(error: &redb::Error) -> bool {
    match error {
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::RepairAborted
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableDoesNotExist(_) => true,
        redb::Error::Io(error) => {
            matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

pub(super) fn open_error(path: &Path, fault: Fault) -> StoreError {
    let path = path.to_owned();
    match fault {
        Fault::Refused(error) => error,
        Fault::Storage(redb::Error::DatabaseAlreadyOpen) => StoreError::Locked { path },
        Fault::Storage(source) if is_damage(&source) => StoreError::DamagedFile { path, source: Arc::new(source) },
        Fault::Storage(source) => StoreError::Open { path, source: Arc::new(source) },
    }
}
