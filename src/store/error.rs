//! What can go wrong in the store, by operation, with the cause kept.
//!
//! Owns `StoreError` (public) and `Fault` (what the table code returns before it is known which file and operation it
//! belongs to). Does not own status codes: the error table of the crate maps these. Errors are `Clone`, because one
//! failed commit answers every command of its batch; causes are therefore behind `Arc`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::id::ArtifactId;

/// An operation of the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the exclusive lock of the file.
    #[error(
        "another mcpx daemon has {} open; stop it (mcpx status names it) or choose another MCPX_STATE_DIR",
        path.display()
    )]
    Locked {
        /// The store file.
        path: PathBuf,
    },
    /// The file is a store, of a format this build does not read.
    #[error(
        "{} has store format {found}, this mcpx reads {supported}; use the mcpx version that wrote it to fetch what \
         you need, then move the file away (a new one is created)",
        path.display()
    )]
    Format {
        /// The store file.
        path: PathBuf,
        /// The format number in the file.
        found: u64,
        /// The format number this build reads and writes.
        supported: u64,
    },
    /// The file as a whole cannot be trusted. It is left as it is.
    #[error(
        "the store file {} is damaged; nothing was changed in it: restore it from a backup, or stop mcpx and move \
         it away to start with an empty store",
        path.display()
    )]
    DamagedFile {
        /// The store file.
        path: PathBuf,
        /// What redb said.
        #[source]
        source: Arc<redb::Error>,
    },
    /// One artifact fails its checksum; the others are not affected.
    #[error("artifact {id} is damaged on disk ({part}); delete it and create it again, the others are not affected")]
    DamagedArtifact {
        /// The artifact whose bytes or record are damaged.
        id: ArtifactId,
        /// Which part failed: `record`, `blob row`, `chunk`, `length` or `sha256`.
        part: &'static str,
    },
    /// A file or folder operation outside redb failed.
    #[error("cannot {action} {}", path.display())]
    Files {
        /// What was tried, as the words after "cannot".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// redb could not open the file, for a reason that is neither damage nor a lock.
    #[error("cannot open the store file {}", path.display())]
    Open {
        /// The store file.
        path: PathBuf,
        /// What redb said.
        #[source]
        source: Arc<redb::Error>,
    },
    /// A read failed (an I/O error, not a missing artifact).
    #[error("cannot read the artifact store")]
    Read(#[source] Arc<redb::Error>),
    /// A commit failed. Nothing of it was acknowledged; the store accepts later writes once the cause is gone.
    #[error("cannot write the artifact store, nothing was stored (is the disk full?)")]
    Write(#[source] Arc<redb::Error>),
    /// The body is larger than the setting allows. Nothing was stored.
    #[error("artifact is {size} bytes, over the {limit} byte limit (raise artifacts.maxBytes)")]
    TooLarge {
        /// Bytes of the body; for a stream, the bytes seen when the limit was passed.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A run or session label does not fit its key.
    #[error("the {label} label of an artifact is {bytes} bytes, over the {limit} byte limit")]
    LabelTooLong {
        /// `run` or `session`.
        label: &'static str,
        /// Its length, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A streamed body lost its staged rows, because the store had to reopen its file. Nothing was stored.
    #[error("the upload was interrupted by a storage error and nothing was stored; send it again")]
    UploadLost,
    /// The artifact was deleted during a read, and the file had to be reopened, which ended the read's snapshot.
    #[error("artifact {id} was deleted while it was read")]
    Gone {
        /// The artifact that was read.
        id: ArtifactId,
    },
    /// The system gave no random bytes for an id.
    #[error("the system gave no random bytes for an artifact id")]
    Random(#[source] Arc<rand::rngs::SysError>),
    /// `Store::close` was called, or the writer thread is gone.
    #[error("the artifact store is closed")]
    Closed,
}

/// What table code returns: either a storage failure, which ends the transaction, or an answer for one command.
#[derive(Debug)]
pub(super) enum Fault {
    /// redb failed; the transaction is lost.
    Storage(redb::Error),
    /// This command alone is refused; it has written nothing.
    Refused(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

macro_rules! storage_fault {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self::Storage(error.into())
            }
        })*
    };
}

storage_fault!(
    redb::Error,
    redb::StorageError,
    redb::TableError,
    redb::TransactionError,
    redb::CommitError,
    redb::DatabaseError,
    redb::SetDurabilityError
);
