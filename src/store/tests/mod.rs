//! Tests of the store as a whole. What is pure is tested in its own file.
//!
//! Owns the fixtures: a store on a medium of our own or in a temporary folder, a clock that is set by hand, bodies with
//! recognizable bytes.

mod basics;
mod crash;
mod damage;
mod medium;
mod uploads;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadableTableMetadata};

use super::artifact::{ArtifactMeta, Clock, NewArtifact, StoreOptions};
use super::error::StoreError;
use super::handle::Store;
use super::id::ArtifactId;
use super::tables::{CHUNKS, STAGING};
use super::wait::block_on;

/// A clock that stands still until it is set.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        let hand = self.clone();
        Clock::new(move || hand.0.load(Ordering::SeqCst))
    }
}

fn options() -> StoreOptions {
    StoreOptions::default()
}

/// A store in a temporary folder, which goes with the second value.
fn scratch() -> (Store, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("the test machine has a temporary folder");
    let store = open(&folder.path().join("store.redb")).expect("a new store opens");
    (store, folder)
}

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(path, options())
}

/// Bytes that differ at every place and with every seed, so that a misplaced piece shows.
fn bytes(seed: u64, size: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(size + 8);
    while out.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(size);
    out.into()
}

fn put(store: &Store, name: &str, body: Bytes) -> Result<ArtifactMeta, StoreError> {
    store.put_blocking(NewArtifact::named(name), body)
}

fn delete(store: &Store, id: ArtifactId) -> bool {
    block_on(store.delete(&id)).expect("the delete commits")
}

/// The whole body, or `None` if there is no such artifact.
fn whole(store: &Store, id: ArtifactId) -> Result<Option<Vec<u8>>, StoreError> {
    let Some((meta, body)) = store.open_body(&id)? else { return Ok(None) };
    let mut out = Vec::new();
    for chunk in body.chunks(0..u64::MAX) {
        out.extend_from_slice(&chunk?);
    }
    assert_eq!(out.len() as u64, meta.size);
    Ok(Some(out))
}

/// Rows in `chunks` and in `staging`.
fn rows(store: &Store) -> (u64, u64) {
    let txn = store.shelf().begin_read().expect("the store is open");
    let chunks: ReadOnlyTable<&[u8; 12], &[u8]> = txn.open_table(CHUNKS).expect("every store has chunks");
    let staging = txn.open_table(STAGING).expect("every store has staging");
    (chunks.len().expect("the test file is sound"), staging.len().expect("the test file is sound"))
}
