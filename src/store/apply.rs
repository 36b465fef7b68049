//! What one command changes in the tables.
//!
//! Owns the invariants between tables: an artifact has one row in every list it belongs to; a blob row counts exactly
//! the artifacts that name it and goes, with its chunks, when the last one does; `distinct_bytes` is the sum over
//! `blobs`. Does not begin or commit anything. Every function first reads and decides, then writes, so that a refused
//! command has changed nothing and its neighbours in the transaction are not affected. Writer thread only.

use redb::ReadableTable;

use super::artifact::ArtifactMeta;
use super::error::{Fault, StoreError};
use super::id::ArtifactId;
use super::record::{
    ArtifactRecord, BlobRecord, CHUNK_HEADER, decode_artifact, decode_blob, encode_artifact, encode_blob, encode_chunk,
};
use super::tables::{
    CHUNK_BYTES, DISTINCT_BYTES, Listing, NEXT_BLOB, NEXT_SEQUENCE, Tables, chunk_key, expiry_key, id_of, order_key,
};

impl Tables<'_> {
    /// Stores an artifact with its whole body. Equal bytes that are already here are not written again.
    pub(super) fn put(&mut self, meta: &ArtifactMeta, body: &[u8]) -> Result<(), Fault> {
        match self.blob(meta)? {
            Some(blob) => self.reference(&meta.sha256, blob)?,
            None => {
                let number = self.next(NEXT_BLOB)?;
                for (index, bytes) in (0..).zip(body.chunks(CHUNK_BYTES)) {
                    self.chunk(number, index, bytes)?;
                }
                self.add_blob(meta, number)?;
            }
        }
        self.add_artifact(meta)
    }

    /// Gives the staged rows of `number` to an artifact, or drops them when equal bytes are already here.
    pub(super) fn adopt(&mut self, meta: &ArtifactMeta, number: u64) -> Result<(), Fault> {
        match self.blob(meta)? {
            Some(blob) => {
                self.drop_staged(number)?;
                self.reference(&meta.sha256, blob)?;
            }
            None => {
                self.staging.remove(number)?;
                self.add_blob(meta, number)?;
            }
        }
        self.add_artifact(meta)
    }

    /// Begins a staged body and returns its blob number.
    pub(super) fn stage(&mut self) -> Result<u64, Fault> {
        let number = self.next(NEXT_BLOB)?;
        self.staging.insert(number, ())?;
        Ok(number)
    }

    /// Writes one chunk row.
    pub(super) fn chunk(&mut self, number: u64, index: u32, bytes: &[u8]) -> Result<(), Fault> {
        let mut row = self.chunks.insert_reserve(&chunk_key(number, index), CHUNK_HEADER + bytes.len())?;
        encode_chunk(row.as_mut(), number, index, bytes);
        Ok(())
    }

    /// Removes a staged body.
    pub(super) fn drop_staged(&mut self, number: u64) -> Result<(), Fault> {
        self.staging.remove(number)?;
        self.drop_chunks(number)
    }

    /// Removes every staged body: those of uploads that a crash or a reopen has ended.
    pub(super) fn drop_all_staged(&mut self) -> Result<(), Fault> {
        loop {
            let first = self.staging.first()?.map(|(number, _)| number.value());
            let Some(number) = first else { return Ok(()) };
            self.drop_staged(number)?;
        }
    }

    /// Removes an artifact, and its body with the last reference. True if it existed at `now_ms`; an expired one is
    /// removed all the same.
    pub(super) fn delete(&mut self, id: ArtifactId, now_ms: u64) -> Result<bool, Fault> {
        let Some(found) = self.artifacts.get(id.as_bytes())?.map(|row| decode_artifact(id, row.value())) else {
            return Ok(false);
        };
        let Some(ArtifactRecord { sequence, meta }) = found else {
            // Its times and lists are unknown, but lists skip rows without an artifact, so this is a whole deletion.
            // The body stays, because nobody can say which it was.
            self.artifacts.remove(id.as_bytes())?;
            return Ok(true);
        };
        let blob = match self.blobs.get(&meta.sha256)? {
            Some(row) => decode_blob(&meta.sha256, row.value()),
            None => None,
        };
        self.artifacts.remove(id.as_bytes())?;
        for listing in listings(&meta) {
            self.order.remove(&order_key(listing, sequence)[..])?;
        }
        if let Some(expires_ms) = meta.expires_ms {
            self.expiry.remove(&expiry_key(expires_ms, id))?;
        }
        if let Some(blob) = blob {
            self.release(&meta.sha256, blob)?;
        }
        Ok(!meta.is_expired(now_ms))
    }

    /// Removes up to `limit` artifacts whose time has come, soonest first; returns how many.
    pub(super) fn sweep(&mut self, now_ms: u64, limit: u64) -> Result<u64, Fault> {
        let mut swept = 0;
        while swept < limit {
            let first = self.expiry.first()?.map(|(key, _)| *key.value());
            let Some(key) = first else { break };
            if key > expiry_key(now_ms, ArtifactId::from_bytes([0xff; 16])) {
                break;
            }
            self.delete(id_of(&key), now_ms)?;
            // A damaged record did not say that this row was its own.
            self.expiry.remove(&key)?;
            swept += 1;
        }
        Ok(swept)
    }

    /// The blob of `meta`, if its bytes are already stored.
    fn blob(&self, meta: &ArtifactMeta) -> Result<Option<BlobRecord>, Fault> {
        let Some(row) = self.blobs.get(&meta.sha256)? else { return Ok(None) };
        match decode_blob(&meta.sha256, row.value()) {
            Some(blob) if blob.size == meta.size => Ok(Some(blob)),
            _ => Err(StoreError::DamagedArtifact { id: meta.id, part: "blob row" }.into()),
        }
    }

    fn add_blob(&mut self, meta: &ArtifactMeta, number: u64) -> Result<(), Fault> {
        let blob = BlobRecord { number, size: meta.size, references: 1 };
        self.blobs.insert(&meta.sha256, &encode_blob(&meta.sha256, blob))?;
        self.adjust_distinct(|total| total.saturating_add(meta.size))
    }

    fn reference(&mut self, sha256: &[u8; 32], blob: BlobRecord) -> Result<(), Fault> {
        let blob = BlobRecord { references: blob.references + 1, ..blob };
        self.blobs.insert(sha256, &encode_blob(sha256, blob))?;
        Ok(())
    }

    fn release(&mut self, sha256: &[u8; 32], blob: BlobRecord) -> Result<(), Fault> {
        if blob.references > 1 {
            let blob = BlobRecord { references: blob.references - 1, ..blob };
            self.blobs.insert(sha256, &encode_blob(sha256, blob))?;
            return Ok(());
        }
        self.blobs.remove(sha256)?;
        self.drop_chunks(blob.number)?;
        self.adjust_distinct(|total| total.saturating_sub(blob.size))
    }

    fn add_artifact(&mut self, meta: &ArtifactMeta) -> Result<(), Fault> {
        let sequence = self.next(NEXT_SEQUENCE)?;
        let record = ArtifactRecord { sequence, meta: meta.clone() };
        self.artifacts.insert(meta.id.as_bytes(), &encode_artifact(&record)[..])?;
        for listing in listings(meta) {
            self.order.insert(&order_key(listing, sequence)[..], meta.id.as_bytes())?;
        }
        if let Some(expires_ms) = meta.expires_ms {
            self.expiry.insert(&expiry_key(expires_ms, meta.id), ())?;
        }
        Ok(())
    }

    fn drop_chunks(&mut self, number: u64) -> Result<(), Fault> {
        self.chunks.retain_in::<&[u8; 12], _>(&chunk_key(number, 0)..=&chunk_key(number, u32::MAX), |_, _| false)?;
        Ok(())
    }

    /// Takes the next number of a counter.
    fn next(&mut self, counter: &'static str) -> Result<u64, Fault> {
        let number = self.number(counter)?;
        self.meta.insert(counter, number + 1)?;
        Ok(number)
    }

    fn adjust_distinct(&mut self, change: impl FnOnce(u64) -> u64) -> Result<(), Fault> {
        let total = change(self.number(DISTINCT_BYTES)?);
        self.meta.insert(DISTINCT_BYTES, total)?;
        Ok(())
    }

    /// A number every store has. A missing one is damage, never 0: that would hand out blob numbers twice.
    fn number(&self, key: &'static str) -> Result<u64, Fault> {
        match self.meta.get(key)? {
            Some(number) => Ok(number.value()),
            None => Err(Fault::Storage(redb::Error::Corrupted(format!("meta has no {key}")))),
        }
    }
}

fn listings(meta: &ArtifactMeta) -> impl Iterator<Item = Listing<'_>> {
    [Some(Listing::All), meta.run.as_deref().map(Listing::Run), meta.session.as_deref().map(Listing::Session)]
        .into_iter()
        .flatten()
}
