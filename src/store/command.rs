//! What travels to the writer thread, and what comes back.
//!
//! Owns the shapes of commands and the pairing of each with its answer. Decides nothing.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::artifact::{ArtifactMeta, Prepared};
use super::error::StoreError;
use super::id::ArtifactId;

/// Why an upload cannot go on, seen by its `BlobWriter`.
pub(super) type Fate = Arc<OnceLock<StoreError>>;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One change, as it waits in the queue.
#[derive(Debug)]
pub(super) enum Command {
    /// Stores an artifact whose body is at hand.
    Put {
        artifact: Box<Prepared>,
        body: Bytes,
        reply: Reply<ArtifactMeta>,
    },
    /// The next chunk of an upload; the first one begins it.
    Chunk {
        upload: u64,
        index: u32,
        bytes: Bytes,
        fate: Fate,
    },
    /// Makes an artifact of an upload of `chunks` chunks.
    Finish {
        upload: u64,
        chunks: u32,
        artifact: Box<Prepared>,
        reply: Reply<ArtifactMeta>,
    },
    /// Drops an upload, if it is still there.
    Abort {
        upload: u64,
    },
    Delete {
        id: ArtifactId,
        reply: Reply<bool>,
    },
    /// Removes up to `limit` expired artifacts.
    Sweep {
        limit: u64,
        reply: Reply<u64>,
    },
    /// Opens the file again, unless that happened since `generation`.
    Recover {
        generation: u64,
        reply: Reply<()>,
    },
    /// Ends the thread; what is queued behind it is answered with `Closed`.
    Close,
}

/// A command with its share of the budget, which it holds until it is answered.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) command: Command,
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// What a command came to, until the commit allows saying so.
pub(super) enum Outcome {
    Stored(Box<ArtifactMeta>),
    Deleted(bool),
    Swept(u64),
    /// Nobody waits for this one.
    Silent,
    Refused(StoreError),
}

/// A receiver that has gone away does not want the answer.
pub(super) fn answer(command: Command, outcome: Outcome) {
    match (command, outcome) {
        (Command::Put { reply, .. } | Command::Finish { reply, .. }, Outcome::Stored(meta)) => {
            let _ = reply.send(Ok(*meta));
        }
        (Command::Put { reply, .. } | Command::Finish { reply, .. }, Outcome::Refused(error)) => {
            let _ = reply.send(Err(error));
        }
        (Command::Chunk { fate, .. }, Outcome::Refused(error)) => {
            let _ = fate.set(error);
        }
        (Command::Delete { reply, .. }, Outcome::Deleted(existed)) => {
            let _ = reply.send(Ok(existed));
        }
        (Command::Delete { reply, .. }, Outcome::Refused(error)) => {
            let _ = reply.send(Err(error));
        }
        (Command::Sweep { reply, .. }, Outcome::Swept(count)) => {
            let _ = reply.send(Ok(count));
        }
        (Command::Sweep { reply, .. }, Outcome::Refused(error)) => {
            let _ = reply.send(Err(error));
        }
        // `Silent`, and `Abort`, which has nobody to tell.
        _ => {}
    }
}
