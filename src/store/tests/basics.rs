//! Storing, sharing, deleting, listing, expiry, limits, and group commit.

use std::os::unix::fs::PermissionsExt;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::medium::Medium;
use super::{Hand, bytes, delete, options, put, rows, scratch, whole};
use crate::store::artifact::{NewArtifact, StoreOptions};
use crate::store::error::StoreError;
use crate::store::id::ArtifactId;
use crate::store::list::{Cursor, ListQuery};
use crate::store::reader::StoreStats;
use crate::store::tables::CHUNK_BYTES;
use crate::store::wait::block_on;

#[test]
fn what_was_put_comes_back() {
    let (store, folder) = scratch();
    let sizes = [0, 1, 4096, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 1 << 20, (1 << 20) + 1, 5 * CHUNK_BYTES];
    let stored: Vec<_> = sizes
        .iter()
        .map(|size| put(&store, "../my shot.png", bytes(*size as u64, *size)).expect("the put commits"))
        .collect();
    store.close().expect("the last commit succeeds");
    let store = super::open(&folder.path().join("store.redb")).expect("the store opens again");
    for (size, meta) in sizes.into_iter().zip(stored) {
        assert_eq!((meta.name.as_str(), meta.mime.as_str(), meta.size), ("my-shot.png", "image/png", size as u64));
        assert_eq!(meta.uri(), format!("mcpx://artifacts/{}", meta.id));
        assert_eq!(store.get(&meta.id).expect("the file is sound"), Some(meta.clone()));
        assert_eq!(whole(&store, meta.id).expect("the file is sound"), Some(bytes(size as u64, size).to_vec()));
    }
    assert_eq!(store.verify().expect("the file is readable").len(), 0);
    assert_eq!(store.get(&ArtifactId::from_bytes([0; 16])).expect("the file is sound"), None);
    let mode = |path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(store.path().to_owned()), 0o600);
}

#[test]
fn the_hash_is_the_content_s() {
    let (store, _folder) = scratch();
    let meta = put(&store, "a", Bytes::from_static(b"abc")).expect("the put commits");
    assert_eq!(meta.sha256_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn equal_bytes_share_a_body_until_the_last_is_deleted() {
    let (store, _folder) = scratch();
    let body = bytes(1, 700_000);
    let first = put(&store, "a.bin", body.clone()).expect("the put commits");
    let second = put(&store, "b.bin", body.clone()).expect("the put commits");
    let other = put(&store, "c.bin", bytes(2, 10)).expect("the put commits");
    assert_ne!(first.id, second.id);
    let totals = |artifacts, bodies, distinct_bytes| StoreStats { artifacts, bodies, distinct_bytes };
    assert_eq!(store.stats().expect("the file is sound"), totals(3, 2, 700_010));
    assert_eq!(rows(&store), (4, 0));

    assert!(delete(&store, first.id));
    assert!(!delete(&store, first.id));
    assert_eq!(whole(&store, second.id).expect("the file is sound"), Some(body.to_vec()));
    assert_eq!(store.stats().expect("the file is sound"), totals(2, 2, 700_010));

    assert!(delete(&store, second.id));
    assert_eq!(store.stats().expect("the file is sound"), totals(1, 1, 10));
    assert_eq!(rows(&store), (1, 0));
    assert!(delete(&store, other.id));
    assert_eq!((store.stats().expect("the file is sound"), rows(&store)), (totals(0, 0, 0), (0, 0)));
}

#[test]
fn a_running_read_does_not_see_the_delete() {
    let (store, _folder) = scratch();
    let body = bytes(3, 3 * CHUNK_BYTES);
    let meta = put(&store, "a", body.clone()).expect("the put commits");
    let (_, mut reader) = store.open_body(&meta.id).expect("the file is sound").expect("it was just stored");
    let head = reader.read_at(0, 100).expect("the file is sound");
    assert!(delete(&store, meta.id));
    for seed in 10..20 {
        put(&store, "filler", bytes(seed, 3 * CHUNK_BYTES)).expect("the put commits");
    }
    assert_eq!(head, body[..100]);
    let chunks: Vec<u8> =
        reader.chunks(50..10_000_000).flat_map(|chunk| chunk.expect("the snapshot is kept").to_vec()).collect();
    assert!(chunks == body[50..]);
}

#[test]
fn reads_at_any_place() {
    let (store, _folder) = scratch();
    let body = bytes(4, 2 * CHUNK_BYTES + 77);
    let meta = put(&store, "a", body.clone()).expect("the put commits");
    let (_, mut reader) = store.open_body(&meta.id).expect("the file is sound").expect("it was just stored");
    for (offset, max) in [(0, 1), (CHUNK_BYTES - 3, 9), (CHUNK_BYTES, 5), (2 * CHUNK_BYTES + 70, 100), (body.len(), 4)]
    {
        let read = reader.read_at(offset as u64, max).expect("the file is sound");
        assert_eq!(read, body[offset..offset + read.len()]);
        assert!(!read.is_empty() || offset == body.len());
    }
    assert!(reader.read_at(u64::MAX, 1).expect("the file is sound").is_empty());
}

#[test]
fn expired_means_gone_at_its_millisecond() {
    let hand = Hand::default();
    hand.set(1_000);
    let medium = Medium::with_store();
    let store = medium.open(StoreOptions { clock: hand.clock(), ..options() }).expect("a new store opens");
    let ttl = |ttl| NewArtifact { ttl, run: Some("r".into()), ..NewArtifact::named("a") };
    let short = store.put_blocking(ttl(Some(Duration::from_millis(500))), bytes(1, 9)).expect("the put commits");
    let shared = store.put_blocking(ttl(None), bytes(1, 9)).expect("the put commits");
    let dead = store.put_blocking(ttl(Some(Duration::ZERO)), bytes(2, 9)).expect("the put commits");
    assert_eq!((short.created_ms, short.expires_ms, shared.expires_ms), (1_000, Some(1_500), None));
    assert_eq!(store.get(&dead.id).expect("the file is sound"), None);

    let listed = |store: &crate::store::Store| {
        store.list(&ListQuery { limit: 9, ..ListQuery::default() }).expect("the file is sound").artifacts.len()
    };
    hand.set(1_499);
    assert!(store.get(&short.id).expect("the file is sound").is_some());
    assert_eq!(listed(&store), 2);
    hand.set(1_500);
    assert!(store.get(&short.id).expect("the file is sound").is_none());
    assert!(store.open_body(&short.id).expect("the file is sound").is_none());
    assert_eq!(listed(&store), 1);
    assert!(!delete(&store, dead.id), "what has expired does not exist");

    assert_eq!(block_on(store.remove_expired(100)).expect("the sweep commits"), 1);
    let stats = store.stats().expect("the file is sound");
    assert_eq!(stats, StoreStats { artifacts: 1, bodies: 1, distinct_bytes: 9 });
    assert!(store.get(&shared.id).expect("the file is sound").is_some());
}

#[test]
fn lists_are_newest_first_and_pages_meet() {
    let (store, _folder) = scratch();
    let labelled = |n: u64, run: &str, session: &str| {
        let artifact =
            NewArtifact { run: Some(run.into()), session: Some(session.into()), ..NewArtifact::named(&n.to_string()) };
        store.put_blocking(artifact, bytes(n, 8)).expect("the put commits")
    };
    let all: Vec<_> = (0..12)
        .map(|n| labelled(n, if n % 2 == 0 { "even" } else { "odd" }, if n < 6 { "low" } else { "high" }).name)
        .collect();
    let names = |run: Option<&str>, session: Option<&str>, limit| {
        let (mut names, mut pages, mut before) = (Vec::new(), 0, None::<Cursor>);
        loop {
            let query = ListQuery { run: run.map(Into::into), session: session.map(Into::into), limit, before };
            let page = store.list(&query).expect("the file is sound");
            assert!(page.artifacts.len() <= limit);
            names.extend(page.artifacts.into_iter().map(|meta| meta.name));
            pages += 1;
            before = page.next.map(|next| next.to_string().parse().expect("a cursor reads back"));
            if before.is_none() {
                return (names, pages);
            }
        }
    };
    let newest_first: Vec<_> = all.into_iter().rev().collect();
    assert_eq!(names(None, None, 100), (newest_first.clone(), 1));
    assert_eq!(names(None, None, 5), (newest_first.clone(), 3));
    assert_eq!(names(None, None, 6), (newest_first, 2));
    assert_eq!(names(Some("even"), None, 4).0, ["10", "8", "6", "4", "2", "0"]);
    assert_eq!(names(None, Some("low"), 4).0, ["5", "4", "3", "2", "1", "0"]);
    assert_eq!(names(Some("odd"), Some("high"), 2).0, ["11", "9", "7"]);
    assert_eq!(names(Some("eve"), None, 4).0, Vec::<String>::new());
    let long = "x".repeat(100_000);
    assert_eq!(names(Some(&long), None, 4).0, Vec::<String>::new());
    for text in ["", "+1", "-1", "g", "10000000000000000"] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
}

#[test]
fn a_limit_is_an_error_and_stores_nothing() {
    let medium = Medium::with_store();
    let limit = 3 * CHUNK_BYTES as u64;
    let store = medium.open(StoreOptions { max_artifact_bytes: limit, ..options() }).expect("a new store opens");
    let fits = put(&store, "a", bytes(1, limit as usize)).expect("it is just the limit");
    assert_eq!(fits.size, limit);
    let refused = put(&store, "a", bytes(2, limit as usize + 1)).expect_err("it is over the limit");
    let text = refused.to_string();
    assert_eq!(text, "artifact is 783361 bytes, over the 783360 byte limit (raise artifacts.maxBytes)");
    let label = NewArtifact { run: Some("r".repeat(1025)), ..NewArtifact::named("a") };
    assert!(matches!(store.put_blocking(label, bytes(3, 1)), Err(StoreError::LabelTooLong { label: "run", .. })));
    assert_eq!((store.stats().expect("the file is sound").artifacts, rows(&store)), (1, (3, 0)));
}

#[test]
fn many_puts_share_commits() {
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    let before = medium.syncs();
    medium.gate(true);
    let mut puts: Vec<_> =
        (0..64).map(|n| Box::pin(store.put(NewArtifact::named(&n.to_string()), bytes(n, 1000)))).collect();
    // The first poll queues the command. No answer can come while the gate is closed, so all of them are queued.
    for put in &mut puts {
        assert!(put.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    medium.gate(false);
    for put in puts {
        let meta = block_on(put).expect("the commit succeeds");
        assert!(store.get(&meta.id).expect("the file is sound").is_some());
    }
    let syncs = medium.syncs() - before;
    assert!(syncs <= 6, "64 puts took {syncs} syncs; two commits take two each");
}

#[test]
fn a_refused_command_does_not_fail_its_neighbours() {
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    let body = bytes(1, 2 * CHUNK_BYTES);
    medium.gate(true);
    let mut puts: Vec<_> = (0..8).map(|n| Box::pin(store.put(NewArtifact::named("a"), bytes(n, 100)))).collect();
    for put in &mut puts {
        assert!(put.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // An upload whose first chunk never came.
    let (reply, refused) = tokio::sync::oneshot::channel();
    let artifact = Box::new(
        NewArtifact::named("b").prepare(store.options(), body.len() as u64, [0; 32]).expect("it has no labels"),
    );
    store
        .send(crate::store::command::Command::Finish { upload: 77, chunks: 2, artifact, reply }, None)
        .expect("the writer runs");
    let last = Box::pin(store.put(NewArtifact::named("z"), bytes(9, 100)));
    medium.gate(false);
    assert!(matches!(block_on(refused), Ok(Err(StoreError::UploadLost))));
    for put in puts {
        block_on(put).expect("its neighbour is no concern of it");
    }
    block_on(last).expect("the store goes on");
    assert_eq!(store.stats().expect("the file is sound").artifacts, 9);
}

#[test]
fn after_close_everything_says_so() {
    let (store, _folder) = scratch();
    let meta = put(&store, "a", bytes(1, 10)).expect("the put commits");
    let (_, mut reader) = store.open_body(&meta.id).expect("the file is sound").expect("it was just stored");
    let upload = store.begin();
    let other = store.clone();
    store.close().expect("the last commit succeeds");
    assert!(matches!(put(&other, "b", bytes(2, 10)), Err(StoreError::Closed)));
    assert!(matches!(other.get(&meta.id), Err(StoreError::Closed)));
    assert!(matches!(block_on(other.delete(&meta.id)), Err(StoreError::Closed)));
    assert!(matches!(block_on(upload.finish(NewArtifact::named("c"))), Err(StoreError::Closed)));
    // The reader may have its pages already; if not, it must not hang.
    let _ = reader.read_at(0, 10);
    other.close().expect("a second close has nothing to do");
}

#[test]
fn the_last_handle_closes() {
    let (store, folder) = scratch();
    let meta = put(&store, "a", bytes(1, 10)).expect("the put commits");
    drop(store);
    let store = super::open(&folder.path().join("store.redb")).expect("the lock is free again");
    assert!(store.get(&meta.id).expect("the file is sound").is_some());
}
