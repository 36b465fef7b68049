//! Reading: one artifact, its bytes, the totals, and the check of everything.
//!
//! Owns snapshots and what happens to them when the file has to be reopened. Writes nothing; `list.rs` has the lists.
//! Every call here blocks on disk reads: call it from `spawn_blocking`, or from a thread that may wait. An expired
//! artifact does not exist from its expiry millisecond on, whether or not its rows are still there.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata};
use sha2::{Digest, Sha256};

use super::artifact::ArtifactMeta;
use super::error::{Fault, StoreError};
use super::handle::Store;
use super::id::ArtifactId;
use super::record::{ArtifactRecord, BlobRecord, decode_artifact, decode_blob, decode_chunk};
use super::shelf::{guarded, needs_reopening};
use super::tables::{ARTIFACTS, BLOBS, CHUNK_BYTES, CHUNKS, DISTINCT_BYTES, META, chunk_key};

type ChunkTable = ReadOnlyTable<&'static [u8; 12], &'static [u8]>;

/// Totals of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Artifacts, with expired ones that are not yet removed.
    pub artifacts: u64,
    /// Different bodies.
    pub bodies: u64,
    /// Bytes of the different bodies: what a quota counts.
    pub distinct_bytes: u64,
}

impl Store {
    /// An artifact without its bytes; `None` if there is none or it has expired. Blocks.
    ///
    /// # Errors
    /// `DamagedArtifact` if its record fails the checksum, `Read` and `DamagedFile` if the file cannot be read.
    pub fn get(&self, id: &ArtifactId) -> Result<Option<ArtifactMeta>, StoreError> {
        self.read(|txn| self.find(txn, *id))
    }

    /// An artifact and its bytes, as they are at this moment: a later removal does not disturb the reader. Blocks.
    ///
    /// # Errors
    /// As `get`.
    pub fn open_body(&self, id: &ArtifactId) -> Result<Option<(ArtifactMeta, BodyReader)>, StoreError> {
        let generation = self.shelf().generation();
        let found = self.read(|txn| {
            let Some(meta) = self.find(txn, *id)? else { return Ok(None) };
            let number = blob_of(txn, &meta)?.number;
            Ok(Some((meta, number, txn.open_table(CHUNKS)?)))
        })?;
        Ok(found.map(|(meta, number, table)| {
            let body = BodyReader { store: self.clone(), meta: meta.clone(), number, table, generation, current: None };
            (meta, body)
        }))
    }

    /// The totals. Blocks, shortly.
    ///
    /// # Errors
    /// `Read` and `DamagedFile` if the file cannot be read.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.read(|txn| {
            Ok(StoreStats {
                artifacts: txn.open_table(ARTIFACTS)?.len()?,
                bodies: txn.open_table(BLOBS)?.len()?,
                distinct_bytes: txn.open_table(META)?.get(DISTINCT_BYTES)?.map_or(0, |total| total.value()),
            })
        })
    }

    /// Reads every record and every body and returns what is wrong with which artifact; empty means sound. Blocks for
    /// as long as it takes to read the file, in the order of the artifacts, so it is for the background. Each artifact
    /// is looked at as it is in that moment, and writes go on.
    ///
    /// # Errors
    /// `Read` and `DamagedFile` if the file cannot be read at all.
    pub fn verify(&self) -> Result<Vec<StoreError>, StoreError> {
        let ids: Vec<ArtifactId> = self.read(|txn| {
            let artifacts = txn.open_table(ARTIFACTS)?;
            let ids = artifacts.iter()?;
            ids.map(|row| Ok(ArtifactId::from_bytes(*row?.0.value()))).collect()
        })?;
        // Artifacts that share a body share the verdict on it.
        let mut bodies: HashMap<[u8; 32], Option<&'static str>> = HashMap::new();
        let mut damaged = Vec::new();
        for id in ids {
            let opened = match self.open_body(&id) {
                Ok(Some(opened)) => Ok(opened),
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            let verdict = opened.and_then(|(meta, body)| match bodies.get(&meta.sha256) {
                Some(Some(part)) => Err(StoreError::DamagedArtifact { id, part }),
                Some(None) => Ok(()),
                None => {
                    let verdict = body.prove();
                    let part = match &verdict {
                        Err(StoreError::DamagedArtifact { part, .. }) => Some(*part),
                        _ => None,
                    };
                    bodies.insert(meta.sha256, part);
                    verdict
                }
            });
            match verdict {
                // Deleted since the ids were read.
                Ok(()) | Err(StoreError::Gone { .. }) => {}
                Err(error @ StoreError::DamagedArtifact { .. }) => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    /// Runs `work` on a snapshot; once more on a new one if the file had to be reopened.
    pub(super) fn read<T>(&self, work: impl Fn(&ReadTransaction) -> Result<T, Fault>) -> Result<T, StoreError> {
        let attempt = || {
            let txn = self.shelf().begin_read()?;
            guarded(|| work(&txn))
        };
        let generation = self.shelf().generation();
        let result = match attempt() {
            Err(fault) if needs_reopening(&fault) => {
                self.recover(generation)?;
                attempt()
            }
            result => result,
        };
        result.map_err(|fault| self.shelf().read_error(fault))
    }

    fn find(&self, txn: &ReadTransaction, id: ArtifactId) -> Result<Option<ArtifactMeta>, Fault> {
        let Some(row) = txn.open_table(ARTIFACTS)?.get(id.as_bytes())? else { return Ok(None) };
        let ArtifactRecord { meta, .. } =
            decode_artifact(id, row.value()).ok_or(StoreError::DamagedArtifact { id, part: "record" })?;
        Ok(Some(meta).filter(|meta| !meta.is_expired(self.options().clock.now_ms())))
    }
}

fn blob_of(txn: &ReadTransaction, meta: &ArtifactMeta) -> Result<BlobRecord, Fault> {
    let row = txn.open_table(BLOBS)?.get(&meta.sha256)?;
    row.and_then(|row| decode_blob(&meta.sha256, row.value()))
        .filter(|blob| blob.size == meta.size)
        .ok_or_else(|| StoreError::DamagedArtifact { id: meta.id, part: "blob row" }.into())
}

/// The bytes of one artifact, read from a snapshot. The snapshot keeps the space of what is removed meanwhile, so do
/// not keep a reader longer than the read. Holds at most one chunk (255 KiB).
pub struct BodyReader {
    store: Store,
    meta: ArtifactMeta,
    number: u64,
    table: ChunkTable,
    /// Of the database `table` belongs to.
    generation: u64,
    /// The chunk read last, with its index: small reads in order verify each chunk once.
    current: Option<(u32, Bytes)>,
}

impl BodyReader {
    /// Bytes of the whole body.
    pub fn size(&self) -> u64 {
        self.meta.size
    }

    /// Up to `max` bytes from `offset` on: as many as one chunk gives, so possibly fewer; none only at the end (or for
    /// a `max` of 0). No copy is made beyond the one out of the file. Blocks.
    ///
    /// # Errors
    /// `DamagedArtifact` when the bytes fail their checksum, `Gone` when the artifact was deleted and its snapshot
    /// lost, `Read` and `DamagedFile` when the file cannot be read.
    pub fn read_at(&mut self, offset: u64, max: usize) -> Result<Bytes, StoreError> {
        if offset >= self.meta.size || max == 0 {
            return Ok(Bytes::new());
        }
        let index = u32::try_from(offset / CHUNK_BYTES as u64).map_err(|_| self.damaged("length"))?;
        let start = usize::try_from(offset % CHUNK_BYTES as u64)
            .expect("this fits because it is less than the size of a chunk");
        let chunk = self.chunk(index)?;
        Ok(chunk.slice(start..chunk.len().min(start.saturating_add(max))))
    }

    /// The bytes of `range`, cut to the body, chunk by chunk. Blocks in `next`.
    pub fn chunks(self, range: Range<u64>) -> Chunks {
        let range = range.start..range.end.min(self.meta.size);
        Chunks { body: self, range }
    }

    fn chunk(&mut self, index: u32) -> Result<Bytes, StoreError> {
        if let Some((held, bytes)) = &self.current
            && *held == index
        {
            return Ok(bytes.clone());
        }
        let bytes = match self.load(index) {
            Err(fault) if needs_reopening(&fault) => {
                self.renew()?;
                self.load(index)
            }
            result => result,
        };
        let bytes = bytes.map_err(|fault| self.store.shelf().read_error(fault))?;
        self.current = Some((index, bytes.clone()));
        Ok(bytes)
    }

    fn load(&self, index: u32) -> Result<Bytes, Fault> {
        guarded(|| {
            let row = self.table.get(&chunk_key(self.number, index))?;
            let row = row.ok_or_else(|| self.damaged("chunk"))?;
            let bytes = decode_chunk(row.value(), self.number, index).ok_or_else(|| self.damaged("chunk"))?;
            let rest = self.meta.size - u64::from(index) * CHUNK_BYTES as u64;
            if bytes.len() as u64 != rest.min(CHUNK_BYTES as u64) {
                return Err(self.damaged("length").into());
            }
            Ok(Bytes::copy_from_slice(bytes))
        })
    }

    /// Takes a new snapshot after the old one ended with its database. The content is named by its hash, so another
    /// snapshot of it is as good.
    fn renew(&mut self) -> Result<(), StoreError> {
        self.store.recover(self.generation)?;
        self.generation = self.store.shelf().generation();
        let (number, table) = self.store.read(|txn| {
            let here = txn.open_table(BLOBS)?.get(&self.meta.sha256)?.is_some();
            if !here {
                return Err(StoreError::Gone { id: self.meta.id }.into());
            }
            Ok((blob_of(txn, &self.meta)?.number, txn.open_table(CHUNKS)?))
        })?;
        (self.number, self.table) = (number, table);
        Ok(())
    }

    /// Reads all of it and compares the hash.
    fn prove(self) -> Result<(), StoreError> {
        let wrong = self.damaged("sha256");
        let expected = self.meta.sha256;
        let mut hash = Sha256::new();
        for bytes in self.chunks(0..u64::MAX) {
            hash.update(&bytes?);
        }
        if hash.finalize()[..] == expected { Ok(()) } else { Err(wrong) }
    }

    fn damaged(&self, part: &'static str) -> StoreError {
        StoreError::DamagedArtifact { id: self.meta.id, part }
    }
}

impl fmt::Debug for BodyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyReader").field("meta", &self.meta).finish_non_exhaustive()
    }
}

/// The bytes of a range of a body, one chunk or less at a time. Ends after an error.
#[derive(Debug)]
pub struct Chunks {
    body: BodyReader,
    range: Range<u64>,
}

impl Iterator for Chunks {
    type Item = Result<Bytes, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.range.is_empty() {
            return None;
        }
        let left = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX);
        let read = self.body.read_at(self.range.start, left);
        match &read {
            Ok(bytes) => self.range.start += bytes.len() as u64,
            Err(_) => self.range.start = self.range.end,
        }
        Some(read)
    }
}
