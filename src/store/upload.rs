//! `BlobWriter`: a body that arrives in pieces.
//!
//! Owns the cutting into chunk rows, the running hash and the size limit; holds at most one chunk itself, and the
//! budget in `handle.rs` bounds what waits for the writer, so memory does not grow with the body. Does not write
//! tables. Dropping it undoes it; a crash leaves staged rows, which the next open removes.

use std::mem;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use super::artifact::{ArtifactMeta, NewArtifact};
use super::command::{Command, Fate};
use super::error::StoreError;
use super::handle::Store;
use super::tables::CHUNK_BYTES;

/// Takes the bytes of one artifact. Nothing of it can be seen until `finish` resolves.
pub struct BlobWriter {
    store: Store,
    /// Unique in this process; the writer thread knows the upload by it.
    upload: u64,
    hash: Sha256,
    /// Bytes taken so far.
    size: u64,
    /// The beginning of the next chunk: always less than a whole one.
    buffer: BytesMut,
    /// Chunks sent so far.
    chunks: u32,
    /// Set once by whoever finds that this upload cannot go on.
    fate: Fate,
    /// True while `write` runs. Still true at the next call, it was dropped half way, and bytes are missing.
    writing: bool,
    /// The writer thread has nothing of it, or has been told to finish.
    settled: bool,
}

impl BlobWriter {
    pub(super) fn new(store: Store, upload: u64) -> Self {
        Self {
            store,
            upload,
            hash: Sha256::new(),
            size: 0,
            buffer: BytesMut::new(),
            chunks: 0,
            fate: Arc::new(OnceLock::new()),
            writing: false,
            settled: true,
        }
    }

    /// Bytes taken so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next bytes; waits while the disk is behind. Hashes on the caller's thread, one chunk (255 KiB) between
    /// waits.
    ///
    /// # Errors
    /// `TooLarge` as soon as the limit is passed, `Write` or `UploadLost` after a storage error. After an error every
    /// further call gives it again.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped call leaves a gap, so everything after it gives `UploadLost`.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        self.check()?;
        let size = self.size.saturating_add(bytes.len() as u64);
        if let Err(error) = self.store.check_size(size) {
            return Err(self.give_up(error));
        }
        self.size = size;
        self.writing = true;
        while self.buffer.len() + bytes.len() >= CHUNK_BYTES {
            let chunk = if self.buffer.is_empty() {
                // Whole chunks are passed on without a copy.
                bytes.split_to(CHUNK_BYTES)
            } else {
                self.buffer.extend_from_slice(&bytes.split_to(CHUNK_BYTES - self.buffer.len()));
                mem::take(&mut self.buffer).freeze()
            };
            self.send(chunk).await?;
        }
        if !bytes.is_empty() {
            self.buffer.reserve(CHUNK_BYTES - self.buffer.len());
            self.buffer.extend_from_slice(&bytes);
        }
        self.writing = false;
        Ok(())
    }

    /// Makes it an artifact; resolves when it is durable. Equal bytes that are already stored are kept once.
    ///
    /// # Errors
    /// As `write`, and `LabelTooLong`. Nothing is stored then.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the artifact may or may not be stored, but never half.
    pub async fn finish(mut self, artifact: NewArtifact) -> Result<ArtifactMeta, StoreError> {
        self.check()?;
        artifact.check_labels()?;
        let last = mem::take(&mut self.buffer).freeze();
        if self.chunks == 0 {
            self.hash.update(&last);
            let sha256 = mem::take(&mut self.hash).finalize().into();
            return self.store.put_hashed(artifact, last, sha256).await;
        }
        if !last.is_empty() {
            self.send(last).await?;
        }
        let sha256 = mem::take(&mut self.hash).finalize().into();
        let artifact = Box::new(artifact.prepare(self.store.options(), self.size, sha256)?);
        let permit = self.store.admit(0).await?;
        self.check()?;
        self.settled = true;
        let (upload, chunks) = (self.upload, self.chunks);
        let finished = self.store.ask(permit, |reply| Command::Finish { upload, chunks, artifact, reply }).await;
        // A storage error between the check and the commit is known here by its cause.
        finished.map_err(|error| match (error, self.fate.get()) {
            (StoreError::UploadLost, Some(cause)) => cause.clone(),
            (error, _) => error,
        })
    }

    /// Drops what was taken. The same as dropping the writer.
    pub fn abort(self) {}

    async fn send(&mut self, chunk: Bytes) -> Result<(), StoreError> {
        self.hash.update(&chunk);
        let permit = self.store.admit(chunk.len()).await?;
        // An upload that was lost while this waited must not begin again in the middle.
        if let Some(error) = self.fate.get() {
            return Err(error.clone());
        }
        let index = self.chunks;
        self.chunks = index.checked_add(1).ok_or(StoreError::UploadLost)?;
        self.settled = false;
        let fate = Arc::clone(&self.fate);
        self.store.send(Command::Chunk { upload: self.upload, index, bytes: chunk, fate }, Some(permit))
    }

    fn check(&mut self) -> Result<(), StoreError> {
        if self.writing {
            return Err(self.give_up(StoreError::UploadLost));
        }
        self.fate.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Frees the staged rows at once, rather than when the caller lets go.
    fn give_up(&mut self, error: StoreError) -> StoreError {
        let _ = self.fate.set(error);
        self.buffer = BytesMut::new();
        self.undo();
        self.fate.get().expect("this is set because the line above sets it, if nothing did before").clone()
    }

    fn undo(&mut self) {
        if !mem::replace(&mut self.settled, true) {
            // A closed store has removed them itself.
            let _ = self.store.send(Command::Abort { upload: self.upload }, None);
        }
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        self.undo();
    }
}

impl std::fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobWriter").field("upload", &self.upload).field("size", &self.size).finish_non_exhaustive()
    }
}
