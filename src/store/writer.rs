//! The one thread that changes the store.
//!
//! Owns every write transaction, and group commit: it takes what is queued, applies all of it in one transaction,
//! commits once, then answers everybody. Does not hash and does not wait for callers. Invariant: an answer `Ok` is sent
//! only after a commit with `Durability::Immediate`; chunk rows of unfinished uploads answer nobody, so they are
//! committed without a sync and become durable with the commit that finishes them. Thread: `mcpx-store`.

use std::collections::HashMap;
use std::sync::Arc;

use redb::{Database, Durability};
use tokio::sync::mpsc;

use super::artifact::Clock;
use super::command::{Command, Fate, Outcome, Queued, answer};
use super::error::{Fault, StoreError};
use super::id::ArtifactId;
use super::shelf::Shelf;
use super::tables::Tables;

/// Most commands in one transaction. Their bytes are bounded by the budget in `handle.rs`, which every command with a
/// body draws from.
const BATCH_MAX: usize = 512;

/// Most staged bytes committed without a sync before one is made, so that redb's list of unsynced pages stays short.
const UNSYNCED_MAX: u64 = 32 << 20;

pub(super) struct Writer {
    shelf: Arc<Shelf>,
    clock: Clock,
    /// Uploads with rows in `staging`, by the number their `BlobWriter` has.
    uploads: HashMap<u64, Upload>,
    /// Artifacts of failed commits, which may be on disk all the same and must go, because nobody knows them.
    undo: Vec<ArtifactId>,
    /// Staged rows or `undo` are left over from before; they go before anything else is written.
    leftovers: bool,
    /// Staged bytes committed without a sync since the last one.
    unsynced: u64,
}

struct Upload {
    number: u64,
    /// Chunks so far, which is the index of the next one.
    chunks: u32,
    fate: Fate,
}

/// Runs `change` in one write transaction. On any error nothing of it remains, and `Storage` errors leave `database` to
/// be reopened. Quick repair makes the open after a crash take milliseconds instead of a walk over the file.
pub(super) fn transact<T>(
    database: &Database,
    durability: Durability,
    change: impl FnOnce(&mut Tables<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut txn = database.begin_write()?;
    txn.set_durability(durability)?;
    txn.set_quick_repair(true);
    let changed = Tables::open(&txn).and_then(|mut tables| change(&mut tables));
    match changed {
        Ok(value) => {
            txn.commit()?;
            Ok(value)
        }
        Err(fault) => {
            // A failed abort is the same failure seen again.
            let _ = txn.abort();
            Err(fault)
        }
    }
}

impl Writer {
    pub(super) fn new(shelf: Arc<Shelf>, clock: Clock, leftovers: bool) -> Self {
        Self { shelf, clock, uploads: HashMap::new(), undo: Vec::new(), leftovers, unsynced: 0 }
    }

    /// Works until a `Close` or until every sender is gone, then closes the database.
    pub(super) fn run(mut self, mut queue: mpsc::UnboundedReceiver<Queued>) -> Result<(), StoreError> {
        // If this fails, for want of space, reads still work and the next write tries again.
        let _ = self.clean();
        let mut open = true;
        while open && let Some(first) = queue.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < BATCH_MAX
                && let Ok(next) = queue.try_recv()
            {
                batch.push(next);
            }
            if let Some(end) = batch.iter().position(|queued| matches!(queued.command, Command::Close)) {
                batch.truncate(end);
                open = false;
            }
            self.recover_if_asked(&mut batch);
            if !batch.is_empty() {
                self.commit(batch);
            }
        }
        self.leftovers |= !self.uploads.is_empty();
        let cleaned = self.clean();
        self.shelf.close().and(cleaned)
    }

    /// Answers the readers that met a failed database, with one reopening for all of them.
    fn recover_if_asked(&mut self, batch: &mut Vec<Queued>) {
        for Queued { command, .. } in batch.extract_if(.., |queued| matches!(queued.command, Command::Recover { .. })) {
            if let Command::Recover { generation, reply } = command {
                let recovered =
                    if generation == self.shelf.generation() { self.reopen(&StoreError::UploadLost) } else { Ok(()) };
                let _ = reply.send(recovered);
            }
        }
    }

    fn commit(&mut self, batch: Vec<Queued>) {
        let mut outcomes = self.ready().and_then(|()| self.apply_all(&batch));
        if outcomes.as_ref().is_err_and(is_stale) {
            // The failure is older than this batch, a reader's for example, and the file has been opened again since.
            outcomes = self.ready().and_then(|()| self.apply_all(&batch));
        }
        match outcomes {
            Ok(outcomes) => {
                for (queued, outcome) in batch.into_iter().zip(outcomes) {
                    answer(queued.command, outcome);
                }
            }
            Err(error) => {
                for queued in batch {
                    answer(queued.command, Outcome::Refused(error.clone()));
                }
            }
        }
    }

    /// An open database without leftovers.
    fn ready(&mut self) -> Result<(), StoreError> {
        if !self.shelf.is_open() {
            self.reopen(&StoreError::UploadLost)?;
        }
        self.clean()
    }

    /// One transaction for all of `batch`.
    fn apply_all(&mut self, batch: &[Queued]) -> Result<Vec<Outcome>, StoreError> {
        let durability = self.durability(batch);
        let now_ms = self.clock.now_ms();
        let shelf = Arc::clone(&self.shelf);
        let applied = shelf.with(|database| {
            transact(database, durability, |tables| {
                let outcome = |queued: &Queued| match self.apply(tables, &queued.command, now_ms) {
                    Ok(outcome) => Ok(outcome),
                    Err(Fault::Refused(error)) => Ok(Outcome::Refused(error)),
                    Err(storage) => Err(storage),
                };
                batch.iter().map(outcome).collect()
            })
        });
        applied.map_err(|fault| {
            self.undo.extend(batch.iter().filter_map(|queued| match &queued.command {
                Command::Put { artifact, .. } | Command::Finish { artifact, .. } => Some(artifact.id()),
                _ => None,
            }));
            self.fail(fault)
        })
    }

    fn durability(&mut self, batch: &[Queued]) -> Durability {
        let mut acknowledged = false;
        for queued in batch {
            match &queued.command {
                Command::Chunk { bytes, .. } => self.unsynced += bytes.len() as u64,
                Command::Abort { .. } => {}
                _ => acknowledged = true,
            }
        }
        if acknowledged || self.unsynced >= UNSYNCED_MAX {
            self.unsynced = 0;
            Durability::Immediate
        } else {
            Durability::None
        }
    }

    fn apply(&mut self, tables: &mut Tables<'_>, command: &Command, now_ms: u64) -> Result<Outcome, Fault> {
        match command {
            // Its caller has gone: an artifact that nobody knows would only take space.
            Command::Put { reply, .. } if reply.is_closed() => Ok(Outcome::Silent),
            Command::Put { artifact, body, .. } => {
                let meta = artifact.stamped(now_ms);
                tables.put(&meta, body)?;
                Ok(Outcome::Stored(Box::new(meta)))
            }
            Command::Chunk { upload, index, bytes, fate } => {
                self.apply_chunk(tables, (*upload, *index), bytes, fate)?;
                Ok(Outcome::Silent)
            }
            Command::Finish { upload, chunks, artifact, reply } => {
                let Some(found) = self.uploads.remove(upload) else {
                    return Err(StoreError::UploadLost.into());
                };
                if reply.is_closed() || found.chunks != *chunks {
                    tables.drop_staged(found.number)?;
                    return Err(StoreError::UploadLost.into());
                }
                let meta = artifact.stamped(now_ms);
                match tables.adopt(&meta, found.number) {
                    Ok(()) => Ok(Outcome::Stored(Box::new(meta))),
                    Err(Fault::Refused(error)) => {
                        tables.drop_staged(found.number)?;
                        Ok(Outcome::Refused(error))
                    }
                    Err(storage) => Err(storage),
                }
            }
            Command::Abort { upload } => {
                if let Some(found) = self.uploads.remove(upload) {
                    tables.drop_staged(found.number)?;
                }
                Ok(Outcome::Silent)
            }
            Command::Delete { id, .. } => Ok(Outcome::Deleted(tables.delete(*id, now_ms)?)),
            Command::Sweep { limit, .. } => Ok(Outcome::Swept(tables.sweep(now_ms, *limit)?)),
            Command::Recover { .. } | Command::Close => Ok(Outcome::Silent),
        }
    }

    /// The chunk that begins an upload has index 0; any other one of an unknown upload belongs to one that was lost.
    fn apply_chunk(
        &mut self,
        tables: &mut Tables<'_>,
        (upload, index): (u64, u32),
        bytes: &[u8],
        fate: &Fate,
    ) -> Result<(), Fault> {
        if index == 0 && fate.get().is_none() {
            let begun = Upload { number: tables.stage()?, chunks: 0, fate: Arc::clone(fate) };
            self.uploads.insert(upload, begun);
        }
        let found = self.uploads.get_mut(&upload).filter(|found| found.chunks == index);
        let Some(found) = found else {
            return Err(StoreError::UploadLost.into());
        };
        tables.chunk(found.number, index, bytes)?;
        found.chunks += 1;
        Ok(())
    }

    /// Removes what a crash, a failed commit or a lost upload has left. In a transaction of its own, so that on a full
    /// disk its space is free before the next artifact is written.
    fn clean(&mut self) -> Result<(), StoreError> {
        if !self.leftovers {
            return Ok(());
        }
        let undo = &self.undo;
        let cleaned = self.shelf.with(|database| {
            transact(database, Durability::Immediate, |tables| {
                tables.drop_all_staged()?;
                undo.iter().try_for_each(|id| tables.delete(*id, 0).map(|_| ()))
            })
        });
        match cleaned {
            Ok(()) => {
                self.undo.clear();
                self.leftovers = false;
                Ok(())
            }
            Err(fault) => Err(self.fail(fault)),
        }
    }

    /// After a failed transaction: redb refuses further work on this opening, so there has to be a new one.
    fn fail(&mut self, fault: Fault) -> StoreError {
        let error = self.shelf.write_error(fault);
        // If the file cannot be opened either, the shelf keeps that error, and the next command tries again.
        let _ = self.reopen(&error);
        error
    }

    /// Uploads end here, because their unsynced rows may be gone; `cause` is what they are told.
    fn reopen(&mut self, cause: &StoreError) -> Result<(), StoreError> {
        for (_, upload) in self.uploads.drain() {
            let _ = upload.fate.set(cause.clone());
        }
        self.leftovers = true;
        self.unsynced = 0;
        self.shelf.reopen()
    }
}

/// redb said no because of an earlier failure, not because of this transaction.
fn is_stale(error: &StoreError) -> bool {
    use redb::Error::{DatabaseClosed, LockPoisoned, PreviousIo};
    matches!(error, StoreError::Write(source) if matches!(**source, PreviousIo | DatabaseClosed | LockPoisoned(_)))
}
