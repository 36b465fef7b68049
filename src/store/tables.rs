//! The tables of the store file: names, key layouts, the format number and the size of a chunk row.
//!
//! Owns the layout of keys; `record.rs` owns the layout of values. Does not open a file. Any change here or there that
//! an older build would misread raises `FORMAT_VERSION`. Integers inside keys are big endian, so that byte order is
//! numeric order; integers inside values are little endian.
//!
//! ```text
//! table      key                                                value
//! meta       text                                               u64
//! artifacts  id 16                                              artifact record (record.rs)
//! order      kind 1 | label length 2 | label | sequence 8       id 16
//! expiry     expires ms 8 | id 16                               ()
//! blobs      sha256 32                                          blob record 32 (record.rs)
//! chunks     blob number 8 | index 4                            checksum 8 | bytes, up to CHUNK_BYTES
//! staging    blob number (u64)                                  ()
//! ```

use redb::{Table, TableDefinition, WriteTransaction};

use super::error::Fault;
use super::id::ArtifactId;

/// The format this build reads and writes.
pub(super) const FORMAT_VERSION: u64 = 1;

/// Bytes of a body in one full chunk row. redb puts one such row on a page of its own and rounds the page up to a power
/// of two; key, checksum and page header take about 40 bytes, so 256 KiB of body would take 512 KiB of disk. 255 KiB
/// leave a margin of 1 KiB, 0.4 %, for headers of later redb versions.
pub(super) const CHUNK_BYTES: usize = 255 * 1024;

/// The store's own numbers. Present in every store: `format`, `next_blob`, `next_sequence`, `distinct_bytes`.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const ARTIFACTS: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("artifacts");
/// Lists, newest last: every artifact under kind `all`, and again under its run and its session.
pub(super) const ORDER: TableDefinition<'_, &[u8], &[u8; 16]> = TableDefinition::new("order");
/// Artifacts with an end, soonest first.
pub(super) const EXPIRY: TableDefinition<'_, &[u8; 24], ()> = TableDefinition::new("expiry");
pub(super) const BLOBS: TableDefinition<'_, &[u8; 32], &[u8; 32]> = TableDefinition::new("blobs");
pub(super) const CHUNKS: TableDefinition<'_, &[u8; 12], &[u8]> = TableDefinition::new("chunks");
/// Blob numbers whose chunk rows belong to no blob yet. Not empty at open means a crash during an upload.
pub(super) const STAGING: TableDefinition<'_, u64, ()> = TableDefinition::new("staging");

pub(super) const FORMAT: &str = "format";
pub(super) const NEXT_BLOB: &str = "next_blob";
pub(super) const NEXT_SEQUENCE: &str = "next_sequence";
pub(super) const DISTINCT_BYTES: &str = "distinct_bytes";

/// Every table, open in one write transaction.
#[derive(Debug)]
pub(super) struct Tables<'txn> {
    pub(super) meta: Table<'txn, &'static str, u64>,
    pub(super) artifacts: Table<'txn, &'static [u8; 16], &'static [u8]>,
    pub(super) order: Table<'txn, &'static [u8], &'static [u8; 16]>,
    pub(super) expiry: Table<'txn, &'static [u8; 24], ()>,
    pub(super) blobs: Table<'txn, &'static [u8; 32], &'static [u8; 32]>,
    pub(super) chunks: Table<'txn, &'static [u8; 12], &'static [u8]>,
    pub(super) staging: Table<'txn, u64, ()>,
}

impl<'txn> Tables<'txn> {
    pub(super) fn open(txn: &'txn WriteTransaction) -> Result<Self, Fault> {
        Ok(Self {
            meta: txn.open_table(META)?,
            artifacts: txn.open_table(ARTIFACTS)?,
            order: txn.open_table(ORDER)?,
            expiry: txn.open_table(EXPIRY)?,
            blobs: txn.open_table(BLOBS)?,
            chunks: txn.open_table(CHUNKS)?,
            staging: txn.open_table(STAGING)?,
        })
    }

    /// Writes the numbers of an empty store, after `open` has made its tables.
    pub(super) fn initialize(&mut self) -> Result<(), Fault> {
        for (key, value) in [(FORMAT, FORMAT_VERSION), (NEXT_BLOB, 1), (NEXT_SEQUENCE, 1), (DISTINCT_BYTES, 0)] {
            self.meta.insert(key, value)?;
        }
        Ok(())
    }
}

/// One of the lists in `order`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listing<'a> {
    All,
    Run(&'a str),
    Session(&'a str),
}

/// The length before the label keeps a label from being the beginning of another one's keys. Labels are at most
/// `record::LABEL_MAX` bytes; a longer one is cut here, which can only be a question for a label that no artifact has.
pub(super) fn order_key(listing: Listing<'_>, sequence: u64) -> Vec<u8> {
    let (kind, label) = match listing {
        Listing::All => (b'a', ""),
        Listing::Run(run) => (b'r', run),
        Listing::Session(session) => (b's', session),
    };
    let length = u16::try_from(label.len()).unwrap_or(u16::MAX);
    let mut key = Vec::with_capacity(11 + usize::from(length));
    key.push(kind);
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(&label.as_bytes()[..usize::from(length)]);
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// The sequence at the end of an `order` key.
pub(super) fn sequence_of(order_key: &[u8]) -> Option<u64> {
    order_key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

pub(super) fn expiry_key(expires_ms: u64, id: ArtifactId) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&expires_ms.to_be_bytes());
    key[8..].copy_from_slice(id.as_bytes());
    key
}

/// The id in an `expiry` key.
pub(super) fn id_of(expiry_key: &[u8; 24]) -> ArtifactId {
    let mut id = [0; 16];
    id.copy_from_slice(&expiry_key[8..]);
    ArtifactId::from_bytes(id)
}

pub(super) fn chunk_key(number: u64, index: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_numbers() {
        assert!(chunk_key(1, 255) < chunk_key(1, 256));
        assert!(chunk_key(255, 9) < chunk_key(256, 0));
        let id = ArtifactId::from_bytes([7; 16]);
        assert!(expiry_key(255, id) < expiry_key(256, id));
        assert_eq!(id_of(&expiry_key(255, id)), id);
        assert!(order_key(Listing::Run("a"), 255) < order_key(Listing::Run("a"), 256));
        assert_eq!(sequence_of(&order_key(Listing::Run("a"), 7)), Some(7));
    }

    #[test]
    fn a_label_never_reaches_into_another_list() {
        let (low, high) = (order_key(Listing::Run("a"), 0), order_key(Listing::Run("a"), u64::MAX));
        for other in [Listing::All, Listing::Run("ab"), Listing::Run(""), Listing::Session("a")] {
            let key = order_key(other, 5);
            assert!(key < low || key > high, "{other:?}");
        }
    }
}
