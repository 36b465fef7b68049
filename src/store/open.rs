//! Opening a store: the file, its format, a first look at its tables, then the writer thread.
//!
//! Owns what is refused at open: a locked file, a foreign format, a file whose tables cannot be walked. Bodies are not
//! read here, since a start must not take as long as a gigabyte; `Store::verify` does that. Never replaces a file.

use std::path::Path;
use std::sync::Arc;

use redb::{Builder, ReadableTable, ReadableTableMetadata};

use super::artifact::StoreOptions;
use super::create;
use super::error::{Fault, StoreError};
use super::handle::Store;
use super::shelf::{Opener, Shelf, guarded};
use super::tables::{ARTIFACTS, BLOBS, CHUNKS, EXPIRY, FORMAT, FORMAT_VERSION, META, ORDER, STAGING};

impl Store {
    /// Opens the store at `path`, making folder (0700) and file (0600) if there are none. Blocks; the time grows with
    /// the number of artifacts, not with their bytes.
    ///
    /// # Errors
    /// `Locked` if another process has it open, `Format` for another format, `DamagedFile` if the file is not a sound
    /// store (it is left untouched), `Files` and `Open` for what the system refuses.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        create::ensure(path)?;
        let file = path.to_owned();
        let opener = Box::new(move || Builder::new().set_cache_size(create::CACHE_BYTES).open(&file));
        Self::open_with(path, opener, options)
    }

    /// Opens what `opener` opens; `path` is its name in errors.
    pub(super) fn open_with(path: &Path, opener: Opener, options: StoreOptions) -> Result<Self, StoreError> {
        let shelf = Arc::new(Shelf::open(path, opener)?);
        let leftovers = guarded(|| inspect(&shelf)).map_err(|fault| shelf.read_error(fault))?;
        Self::start(shelf, options, leftovers)
    }
}

/// Checks the format, then walks every table but the bodies', so that a broken tree is found now and not in the middle
/// of a run. Damaged single records are left to the reads that meet them. True if an upload was cut off by a crash.
fn inspect(shelf: &Shelf) -> Result<bool, Fault> {
    let txn = shelf.begin_read()?;
    let found = txn.open_table(META)?.get(FORMAT)?.map(|number| number.value());
    match found {
        Some(FORMAT_VERSION) => {}
        Some(found) => {
            let path = shelf.path().to_owned();
            return Err(StoreError::Format { path, found, supported: FORMAT_VERSION }.into());
        }
        None => return Err(Fault::Storage(redb::Error::Corrupted("meta has no format".to_owned()))),
    }
    for row in txn.open_table(META)?.iter()? {
        row?;
    }
    for row in txn.open_table(ARTIFACTS)?.iter()? {
        row?;
    }
    for row in txn.open_table(ORDER)?.iter()? {
        row?;
    }
    for row in txn.open_table(EXPIRY)?.iter()? {
        row?;
    }
    for row in txn.open_table(BLOBS)?.iter()? {
        row?;
    }
    txn.open_table(CHUNKS)?;
    Ok(!txn.open_table(STAGING)?.is_empty()?)
}
