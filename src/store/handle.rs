//! `Store`: the handle everybody holds, and the way a write takes to the writer thread.
//!
//! Owns the queue, its budget and the life of the writer thread: it ends with `close` or with the last handle. Does not
//! read tables (`reader.rs`) nor write them (`writer.rs`). Handles are cheap clones and may be used from any thread.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::artifact::{ArtifactMeta, NewArtifact, StoreOptions};
use super::command::{Command, Queued};
use super::create::files;
use super::error::StoreError;
use super::id::ArtifactId;
use super::shelf::Shelf;
use super::upload::BlobWriter;
use super::wait::block_on;
use super::writer::Writer;

/// Bytes of bodies that may wait for the writer at once, over all callers. More would only be memory: the disk is
/// behind.
const BUDGET: usize = 8 << 20;

/// What a command counts for at least, so that many small ones are bounded too (2048 of them).
const LEAST: usize = 4 << 10;

/// Largest body that travels in one command. Larger ones go in chunks, like a stream.
const DIRECT_MAX: usize = 1 << 20;

/// A handle of the artifact store. Clone it freely.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    shelf: Arc<Shelf>,
    options: StoreOptions,
    queue: mpsc::UnboundedSender<Queued>,
    budget: Arc<Semaphore>,
    next_upload: AtomicU64,
    /// `None` once somebody has joined it.
    writer: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
}

impl Store {
    /// Starts the writer thread on an open database.
    pub(super) fn start(shelf: Arc<Shelf>, options: StoreOptions, leftovers: bool) -> Result<Self, StoreError> {
        // Unbounded, because the budget bounds it, and because a dropped upload must always be able to say so.
        let (queue, commands) = mpsc::unbounded_channel();
        let writer = Writer::new(Arc::clone(&shelf), options.clock.clone(), leftovers);
        let thread = thread::Builder::new()
            .name("mcpx-store".to_owned())
            .spawn(move || writer.run(commands))
            .map_err(|error| files("start the writer thread of", shelf.path(), error))?;
        let inner = Inner {
            shelf,
            options,
            queue,
            budget: Arc::new(Semaphore::new(BUDGET)),
            next_upload: AtomicU64::new(0),
            writer: Mutex::new(Some(thread)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Stores `body` as a new artifact. The future resolves when it is durable, and may be spawned. Equal bytes are
    /// stored once. The body is hashed on the caller's thread, in the first poll: about a millisecond per MiB.
    ///
    /// # Errors
    /// `TooLarge`, `LabelTooLong`, `Write` when the commit failed; nothing is stored then.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the artifact may or may not be stored, but never half.
    pub fn put(
        &self,
        artifact: NewArtifact,
        body: Bytes,
    ) -> impl Future<Output = Result<ArtifactMeta, StoreError>> + Send + use<> {
        let store = self.clone();
        async move {
            store.check_size(body.len() as u64)?;
            if body.len() > DIRECT_MAX {
                artifact.check_labels()?;
                let mut upload = store.begin();
                upload.write(body).await?;
                return upload.finish(artifact).await;
            }
            let sha256 = Sha256::digest(&body).into();
            store.put_hashed(artifact, body, sha256).await
        }
    }

    /// `put` for a thread without futures: parks it until the artifact is durable. Works with or without a runtime, but
    /// on a runtime's thread it stops everything else there.
    ///
    /// # Errors
    /// As `put`.
    pub fn put_blocking(&self, artifact: NewArtifact, body: Bytes) -> Result<ArtifactMeta, StoreError> {
        block_on(self.put(artifact, body))
    }

    /// Begins a body of unknown size. Dropping the writer undoes it.
    pub fn begin(&self) -> BlobWriter {
        BlobWriter::new(self.clone(), self.inner.next_upload.fetch_add(1, Ordering::Relaxed))
    }

    /// Removes an artifact, and its body if no other artifact has the same. The future resolves, when the removal is
    /// durable, to whether the artifact existed.
    ///
    /// # Errors
    /// `Write` when the commit failed.
    ///
    /// # Cancel safety
    /// Once polled, the removal happens even if the future is dropped.
    pub fn delete(&self, id: &ArtifactId) -> impl Future<Output = Result<bool, StoreError>> + Send + use<> {
        let (store, id) = (self.clone(), *id);
        async move {
            let permit = store.admit(0).await?;
            store.ask(permit, |reply| Command::Delete { id, reply }).await
        }
    }

    /// Removes up to `limit` expired artifacts and resolves to how many. They are invisible before that; this frees
    /// their space. A small `limit` keeps the transaction short, so that writers wait less.
    ///
    /// # Errors
    /// `Write` when the commit failed.
    pub fn remove_expired(&self, limit: u64) -> impl Future<Output = Result<u64, StoreError>> + Send + use<> {
        let store = self.clone();
        async move {
            let permit = store.admit(0).await?;
            store.ask(permit, |reply| Command::Sweep { limit, reply }).await
        }
    }

    /// Commits what is queued, closes the file and joins the writer thread. Blocks. Later calls, on any handle, give
    /// `Closed`; reads that are under way end with it too. Dropping the last handle does the same, without the error.
    ///
    /// # Errors
    /// `Write` if the last commit or the closing of the file failed; everything acknowledged is durable regardless.
    pub fn close(&self) -> Result<(), StoreError> {
        self.inner.close()
    }

    /// The file of this store.
    pub fn path(&self) -> &Path {
        self.inner.shelf.path()
    }

    pub(super) fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    pub(super) fn shelf(&self) -> &Shelf {
        &self.inner.shelf
    }

    pub(super) fn check_size(&self, size: u64) -> Result<(), StoreError> {
        let limit = self.inner.options.max_artifact_bytes;
        if size > limit { Err(StoreError::TooLarge { size, limit }) } else { Ok(()) }
    }

    /// Stores a body of at most `DIRECT_MAX` bytes whose hash is known.
    pub(super) async fn put_hashed(
        &self,
        artifact: NewArtifact,
        body: Bytes,
        sha256: [u8; 32],
    ) -> Result<ArtifactMeta, StoreError> {
        let artifact = Box::new(artifact.prepare(self.options(), body.len() as u64, sha256)?);
        let permit = self.admit(body.len()).await?;
        self.ask(permit, |reply| Command::Put { artifact, body, reply }).await
    }

    /// Waits for room in the budget. Fair: a large body is not overtaken for ever by small ones.
    pub(super) async fn admit(&self, bytes: usize) -> Result<OwnedSemaphorePermit, StoreError> {
        let weight = u32::try_from(bytes.clamp(LEAST, BUDGET)).expect("this fits because the budget is 8 MiB");
        Arc::clone(&self.inner.budget).acquire_many_owned(weight).await.map_err(|_| StoreError::Closed)
    }

    /// Queues a command and waits for its answer.
    pub(super) async fn ask<T>(
        &self,
        permit: OwnedSemaphorePermit,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply), Some(permit))?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Queues a command without waiting.
    pub(super) fn send(&self, command: Command, permit: Option<OwnedSemaphorePermit>) -> Result<(), StoreError> {
        self.inner.queue.send(Queued { command, _permit: permit }).map_err(|_| StoreError::Closed)
    }

    /// Has the file opened again after the I/O error a read met. Blocks.
    pub(super) fn recover(&self, generation: u64) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Recover { generation, reply }, None)?;
        block_on(answer).unwrap_or(Err(StoreError::Closed))
    }
}

impl Inner {
    fn close(&self) -> Result<(), StoreError> {
        self.budget.close();
        // It fails only if the writer has ended already.
        let _ = self.queue.send(Queued { command: Command::Close, _permit: None });
        let thread = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread.map(JoinHandle::join) {
            Some(Ok(closed)) => closed,
            Some(Err(_)) => Err(StoreError::Closed),
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        let _ = self.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path()).finish_non_exhaustive()
    }
}
