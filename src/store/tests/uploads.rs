//! Bodies that arrive in pieces.

use bytes::Bytes;

use super::medium::Medium;
use super::{bytes, options, put, rows, scratch, whole};
use crate::store::artifact::{NewArtifact, StoreOptions};
use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::tables::CHUNK_BYTES;
use crate::store::upload::BlobWriter;
use crate::store::wait::block_on;

/// Writes `body` in pieces of `piece` bytes.
fn feed(upload: &mut BlobWriter, body: &Bytes, piece: usize) -> Result<(), StoreError> {
    let mut rest = body.clone();
    while !rest.is_empty() {
        block_on(upload.write(rest.split_to(piece.min(rest.len()))))?;
    }
    Ok(())
}

/// The writer thread answers in order, so after this answer everything sent before it has been applied.
fn settle(store: &Store) {
    block_on(store.remove_expired(0)).expect("the commit succeeds");
}

#[test]
fn any_cut_gives_the_same_artifact() {
    let (store, _folder) = scratch();
    let body = bytes(1, 2 * CHUNK_BYTES + 1000);
    let wanted = put(&store, "a", body.clone()).expect("the put commits");
    for piece in [1000, 65_536, CHUNK_BYTES, CHUNK_BYTES + 1, 10 * CHUNK_BYTES] {
        let mut upload = store.begin();
        feed(&mut upload, &body, piece).expect("the upload goes on");
        let meta = block_on(upload.finish(NewArtifact::named("b.bin"))).expect("the finish commits");
        assert_eq!((meta.sha256, meta.size), (wanted.sha256, wanted.size));
        assert!(whole(&store, meta.id).expect("the file is sound").as_deref() == Some(&body[..]));
    }
    assert_eq!((store.stats().expect("the file is sound").bodies, rows(&store)), (1, (3, 0)));
    for size in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES] {
        let (mut upload, body) = (store.begin(), bytes(9, size));
        feed(&mut upload, &body, 70_000).expect("the upload goes on");
        let meta = block_on(upload.finish(NewArtifact::named("c"))).expect("the finish commits");
        assert!(whole(&store, meta.id).expect("the file is sound").as_deref() == Some(&body[..]), "{size}");
    }
}

#[test]
fn a_large_body_twice_and_once_aborted() {
    const SIZE: usize = 64 << 20;
    let (store, _folder) = scratch();
    let body = bytes(1, SIZE);
    let mut first = store.begin();
    feed(&mut first, &body, 1 << 20).expect("the upload goes on");
    let mut second = store.begin();
    feed(&mut second, &body, 300_000).expect("the upload goes on");
    let first = block_on(first.finish(NewArtifact::named("a"))).expect("the finish commits");
    let second = block_on(second.finish(NewArtifact::named("b"))).expect("the finish commits");
    let chunks = SIZE.div_ceil(CHUNK_BYTES) as u64;
    assert_eq!(rows(&store), (chunks, 0));
    assert_eq!(store.stats().expect("the file is sound").distinct_bytes, SIZE as u64);

    let mut aborted = store.begin();
    feed(&mut aborted, &bytes(2, SIZE), 1 << 20).expect("the upload goes on");
    settle(&store);
    assert_eq!(rows(&store).1, 1);
    aborted.abort();
    settle(&store);
    assert_eq!(rows(&store), (chunks, 0));

    super::delete(&store, first.id);
    assert!(whole(&store, second.id).expect("the file is sound").as_deref() == Some(&body[..]));
    super::delete(&store, second.id);
    assert_eq!(rows(&store), (0, 0));
    let length = std::fs::metadata(store.path()).expect("the file exists").len();
    assert!(length < 3 * SIZE as u64, "{length} bytes of file for two bodies of 64 MiB at once");
}

#[test]
fn over_the_limit_leaves_nothing() {
    let medium = Medium::with_store();
    let limit = 4 * CHUNK_BYTES as u64;
    let store = medium.open(StoreOptions { max_artifact_bytes: limit, ..options() }).expect("a new store opens");
    let mut upload = store.begin();
    let error = feed(&mut upload, &bytes(1, limit as usize + 1), 100_000).expect_err("it passes the limit");
    assert!(matches!(error, StoreError::TooLarge { size, limit: l } if size > limit && l == limit));
    settle(&store);
    assert_eq!(rows(&store), (0, 0), "its rows go at once, not when the caller lets go");
    assert!(matches!(block_on(upload.write(Bytes::new())), Err(StoreError::TooLarge { .. })));
    assert!(matches!(block_on(upload.finish(NewArtifact::named("a"))), Err(StoreError::TooLarge { .. })));
    assert_eq!(store.stats().expect("the file is sound").artifacts, 0);
}

#[test]
fn closing_removes_what_is_unfinished() {
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    let mut upload = store.begin();
    feed(&mut upload, &bytes(1, 3 * CHUNK_BYTES), 100_000).expect("the upload goes on");
    store.close().expect("the last commit succeeds");
    drop(upload);
    let store = Medium::holding(medium.live()).open(options()).expect("the store opens again");
    assert_eq!(rows(&store), (0, 0));
}

#[test]
fn an_open_after_a_crash_removes_staged_rows() {
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    let mut upload = store.begin();
    feed(&mut upload, &bytes(1, 3 * CHUNK_BYTES), 100_000).expect("the upload goes on");
    // A durable commit makes the staged rows durable with it.
    let kept = put(&store, "kept", bytes(2, 10)).expect("the put commits");
    let store_after = Medium::holding(medium.live()).open(options()).expect("the store opens again");
    settle(&store_after);
    assert_eq!(rows(&store_after), (1, 0));
    assert!(store_after.get(&kept.id).expect("the file is sound").is_some());
    drop(upload);
    drop(store);
}

#[test]
fn a_dropped_write_spoils_the_upload() {
    use std::task::{Context, Waker};
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    medium.gate(true);
    // A durable command keeps the writer at the gate, so that the budget runs out.
    let mut wait = Box::pin(store.put(NewArtifact::named("a"), bytes(3, 10)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    let mut upload = store.begin();
    let mut write = Box::pin(upload.write(bytes(1, 20 << 20)));
    assert!(write.as_mut().poll(&mut cx).is_pending(), "20 MiB do not fit in the budget");
    drop(write);
    medium.gate(false);
    block_on(wait).expect("the put commits");
    assert!(matches!(block_on(upload.write(bytes(1, 1))), Err(StoreError::UploadLost)));
    assert!(matches!(block_on(upload.finish(NewArtifact::named("b"))), Err(StoreError::UploadLost)));
    settle(&store);
    assert_eq!(rows(&store), (1, 0));
}
