//! A storage medium in memory that can lose what was not synced, refuse, run full, or hold its syncs back.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redb::{Builder, Durability, StorageBackend};

use crate::store::artifact::StoreOptions;
use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::writer::transact;

#[derive(Clone, Debug, Default)]
pub(super) struct Medium(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct State {
    live: Vec<u8>,
    /// What a crash is sure to leave.
    synced: Vec<u8>,
    /// What came after, in order: a crash may leave any of it.
    since: Vec<Change>,
    syncs: u64,
    changes: u64,
    /// The crash to come: at which change, and the seed of what survives.
    crash: Option<(u64, u64)>,
    image: Option<Vec<u8>>,
    capacity: Option<usize>,
    /// Refuses this many operations from now on.
    refusals: u64,
    /// Refuses the sync after this many more, once.
    bad_sync: Option<u64>,
    gate_closed: bool,
}

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Medium {
    /// A medium with an empty store on it.
    pub(super) fn with_store() -> Self {
        let medium = Self::default();
        let database = Builder::new()
            .set_cache_size(1 << 20)
            .create_with_backend(medium.clone())
            .expect("an empty medium takes a database");
        transact(&database, Durability::Immediate, |tables| tables.initialize()).expect("the medium takes the tables");
        database.close().expect("the medium takes the last sync");
        medium
    }

    /// A medium with these bytes, as after a restart.
    pub(super) fn holding(image: Vec<u8>) -> Self {
        let medium = Self::default();
        medium.state().live.clone_from(&image);
        medium.state().synced = image;
        medium
    }

    pub(super) fn open(&self, options: StoreOptions) -> Result<Store, StoreError> {
        let medium = self.clone();
        let opener = Box::new(move || Builder::new().set_cache_size(1 << 20).create_with_backend(medium.clone()));
        Store::open_with(Path::new("medium"), opener, options)
    }

    /// Crashes at the given change from now on; `seed` decides what of the unsynced changes survives.
    pub(super) fn crash_after(&self, changes: u64, seed: u64) {
        let mut state = self.state();
        state.crash = Some((state.changes + changes, seed));
    }

    /// What the crash left, if it has come.
    pub(super) fn image(&self) -> Option<Vec<u8>> {
        self.state().image.clone()
    }

    pub(super) fn live(&self) -> Vec<u8> {
        self.state().live.clone()
    }

    pub(super) fn syncs(&self) -> u64 {
        self.state().syncs
    }

    pub(super) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Refuses writes that would need room beyond the present length plus `more` bytes; `None` lifts the limit.
    pub(super) fn limit(&self, more: Option<usize>) {
        let mut state = self.state();
        state.capacity = more.map(|more| state.live.len() + more);
    }

    /// Refuses the next `count` operations.
    pub(super) fn refuse(&self, count: u64) {
        self.state().refusals = count;
    }

    /// Refuses one sync, after `more` good ones.
    pub(super) fn refuse_sync_after(&self, more: u64) {
        self.state().bad_sync = Some(more);
    }

    /// Holds every sync until the gate is opened.
    pub(super) fn gate(&self, closed: bool) {
        self.state().gate_closed = closed;
        self.0.opened.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refused(&mut self) -> io::Result<()> {
        if self.refusals == 0 {
            return Ok(());
        }
        self.refusals -= 1;
        Err(io::Error::other("the test refuses"))
    }

    fn room_for(&self, end: usize) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if end > capacity => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn record(&mut self, change: Change) {
        change.apply(&mut self.live, usize::MAX);
        self.since.push(change);
        self.changes += 1;
        let Some((at, seed)) = self.crash else { return };
        if self.changes >= at && self.image.is_none() {
            self.image = Some(self.survivors(seed));
        }
    }

    /// The synced bytes and a random choice of the later changes, some of them torn at a sector.
    fn survivors(&self, seed: u64) -> Vec<u8> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut image = self.synced.clone();
        for change in &self.since {
            match random.random_range(0..4) {
                0 | 1 => change.apply(&mut image, usize::MAX),
                2 => change.apply(&mut image, 512 * random.random_range(0..16_usize)),
                _ => {}
            }
        }
        image
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>, most: usize) {
        match self {
            Self::Length(length) => to.resize(*length as usize, 0),
            Self::Write(offset, bytes) => {
                let start = *offset as usize;
                let bytes = &bytes[..bytes.len().min(most)];
                if to.len() < start + bytes.len() {
                    to.resize(start + bytes.len(), 0);
                }
                to[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.refused()?;
        let start = offset as usize;
        let from = state.live.get(start..start + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.refused()?;
        state.room_for(len as usize)?;
        state.record(Change::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        while state.gate_closed {
            state = self.0.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.refused()?;
        state.bad_sync = match state.bad_sync {
            Some(0) => {
                state.bad_sync = None;
                return Err(io::Error::other("the test refuses this sync"));
            }
            more => more.map(|more| more - 1),
        };
        let State { synced, since, syncs, .. } = &mut *state;
        since.drain(..).for_each(|change| change.apply(synced, usize::MAX));
        *syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.refused()?;
        state.room_for(offset as usize + data.len())?;
        state.record(Change::Write(offset, data.to_vec()));
        Ok(())
    }
}
