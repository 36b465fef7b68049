//! Power cuts, full disks and failing disks: what was acknowledged stays whole, the rest is not there at all.

use super::medium::Medium;
use super::{bytes, delete, options, put, rows, whole};
use crate::store::artifact::{ArtifactMeta, NewArtifact};
use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::list::ListQuery;
use crate::store::tables::CHUNK_BYTES;
use crate::store::wait::block_on;

const BIG: usize = 2 * CHUNK_BYTES + 5000;

/// Does the same work every time; calls `acknowledged` after each answer with what must be there from then on, or with
/// an id that must be gone.
fn work(store: &Store, mut acknowledged: impl FnMut(Result<(ArtifactMeta, u64, usize), ArtifactMeta>)) {
    let mut last = None;
    for seed in 0..6 {
        let size = [10, 5000, 300_000][seed as usize % 3];
        let meta = put(store, "a", bytes(seed, size)).expect("the medium does not refuse");
        acknowledged(Ok((meta.clone(), seed, size)));
        if seed % 2 == 1 {
            let mut upload = store.begin();
            block_on(upload.write(bytes(100 + seed, BIG))).expect("the medium does not refuse");
            let meta = block_on(upload.finish(NewArtifact::named("b"))).expect("the medium does not refuse");
            acknowledged(Ok((meta, 100 + seed, BIG)));
        }
        if seed % 3 == 2 {
            let gone: ArtifactMeta = last.take().expect("this is set because two puts came before");
            assert!(delete(store, gone.id));
            acknowledged(Err(gone));
        }
        last = Some(meta);
    }
}

/// Everything in the store is whole, and its totals agree with it.
fn check_sound(store: &Store) {
    assert_eq!(store.verify().expect("the file is readable").len(), 0);
    let listed =
        store.list(&ListQuery { limit: 1000, ..ListQuery::default() }).expect("the file is readable").artifacts;
    let stats = store.stats().expect("the file is readable");
    assert_eq!(listed.len() as u64, stats.artifacts);
    let mut sizes = std::collections::HashMap::new();
    for meta in &listed {
        assert!(whole(store, meta.id).expect("the file is readable").is_some());
        sizes.insert(meta.sha256, meta.size);
    }
    assert_eq!((sizes.len() as u64, sizes.values().sum::<u64>()), (stats.bodies, stats.distinct_bytes));
    let chunks: u64 = sizes.values().map(|size| size.div_ceil(CHUNK_BYTES as u64)).sum();
    assert_eq!(rows(store), (chunks, 0));
}

#[test]
fn a_power_cut_at_any_write() {
    let measured = Medium::with_store();
    let before = measured.changes();
    let store = measured.open(options()).expect("a new store opens");
    work(&store, |_| {});
    drop(store);
    let total = measured.changes() - before;
    assert!(total > 100, "{total} writes");

    for round in 0..60 {
        let medium = Medium::with_store();
        medium.crash_after(1 + round * total / 60, round);
        let store = medium.open(options()).expect("a new store opens");
        let mut sure: Vec<(ArtifactMeta, u64, usize)> = Vec::new();
        let mut gone = Vec::new();
        let mut perhaps_gone = None;
        work(&store, |answer| {
            let crashed = medium.image().is_some();
            match answer {
                Ok(stored) if !crashed => sure.push(stored),
                Err(meta) if !crashed => gone.push(meta.id),
                // Only the first one can be of a commit that was under way; later ones came to a medium that was dead.
                Err(meta) => _ = perhaps_gone.get_or_insert(meta.id),
                Ok(_) => {}
            }
        });
        drop(store);
        let Some(image) = medium.image() else { continue };
        let store = Medium::holding(image).open(options()).unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        block_on(store.remove_expired(0)).expect("the medium does not refuse");
        check_sound(&store);
        for (meta, seed, size) in sure {
            if gone.contains(&meta.id) || perhaps_gone == Some(meta.id) {
                continue;
            }
            let body = whole(&store, meta.id).expect("the file is readable");
            assert!(body.as_deref() == Some(&bytes(seed, size)[..]), "round {round}: {} is not whole", meta.id);
        }
        for id in gone {
            assert_eq!(store.get(&id).expect("the file is readable"), None, "round {round}: deleted for good");
        }
        put(&store, "after", bytes(7, BIG)).expect("the store goes on");
        check_sound(&store);
    }
}

#[test]
fn a_full_disk_fails_writes_until_there_is_room() {
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    let kept = put(&store, "kept", bytes(1, 2 * CHUNK_BYTES)).expect("there is room");
    let (_, mut reader) = store.open_body(&kept.id).expect("the file is sound").expect("it was just stored");
    medium.limit(Some(0));
    for seed in 2..5 {
        let error = put(&store, "a", bytes(seed, 60 * CHUNK_BYTES)).expect_err("there is no room");
        assert!(matches!(&error, StoreError::Write(source) if matches!(**source, redb::Error::Io(_))), "{error:?}");
        assert!(whole(&store, kept.id).expect("reads go on").is_some());
    }
    // The snapshot of this reader ended with the database it was taken from.
    assert_eq!(
        reader.read_at(CHUNK_BYTES as u64, 9).expect("reads go on"),
        bytes(1, 2 * CHUNK_BYTES)[CHUNK_BYTES..][..9]
    );
    assert!(put(&store, "small", bytes(9, 10)).is_ok(), "what fits is taken");
    medium.limit(None);
    let after = put(&store, "a", bytes(2, 60 * CHUNK_BYTES)).expect("there is room again");
    assert!(whole(&store, after.id).expect("the file is sound").is_some());
    assert_eq!(store.stats().expect("the file is sound").artifacts, 3);
    check_sound(&store);
}

#[test]
fn an_upload_hears_of_the_failure() {
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    let mut upload = store.begin();
    block_on(upload.write(bytes(1, CHUNK_BYTES))).expect("there is room");
    block_on(store.remove_expired(0)).expect("there is room");
    medium.limit(Some(0));
    let error = (0..200)
        .find_map(|seed| block_on(upload.write(bytes(seed, CHUNK_BYTES))).err())
        .unwrap_or_else(|| block_on(upload.finish(NewArtifact::named("a"))).expect_err("there is no room"));
    assert!(matches!(error, StoreError::Write(_)), "{error:?}");
    medium.limit(None);
    put(&store, "a", bytes(1, 10)).expect("there is room again");
    check_sound(&store);
}

#[test]
fn any_refused_operation_is_survived() {
    let mut failures = 0;
    for round in 0..40 {
        let medium = Medium::with_store();
        let store = medium.open(options()).expect("a new store opens");
        let kept = put(&store, "kept", bytes(1, BIG)).expect("the medium does not refuse");
        let mut acknowledged = vec![(kept.id, 1, BIG)];
        for seed in 2..6 {
            medium.refuse(if seed % 2 == 0 { 1 + round % 3 } else { 0 });
            match put(&store, "a", bytes(seed * 50 + round, BIG)) {
                Ok(meta) => acknowledged.push((meta.id, seed * 50 + round, BIG)),
                Err(_) => failures += 1,
            }
            // With refusals left, this read may be the one that fails, but it must come back, and not with wrong bytes.
            if let Ok(body) = whole(&store, kept.id) {
                assert!(body.as_deref() == Some(&bytes(1, BIG)[..]));
            }
        }
        medium.refuse(0);
        put(&store, "after", bytes(7, 10)).expect("the store goes on");
        assert_eq!(store.stats().expect("the file is sound").artifacts, acknowledged.len() as u64 + 1);
        for (id, seed, size) in acknowledged {
            assert!(whole(&store, id).expect("the file is sound").as_deref() == Some(&bytes(seed, size)[..]));
        }
        check_sound(&store);
    }
    assert!(failures > 0, "the refusals reached the writer");
}

#[test]
fn what_failed_is_not_there_even_if_it_reached_the_disk() {
    // A commit takes up to four syncs; after the last one is refused, the file holds the commit all the same.
    for good in 0..4 {
        let medium = Medium::with_store();
        let store = medium.open(options()).expect("a new store opens");
        put(&store, "kept", bytes(1, 10)).expect("the medium does not refuse");
        medium.refuse_sync_after(good);
        assert!(matches!(put(&store, "a", bytes(2, BIG)), Err(StoreError::Write(_))), "sync {good} was refused");
        // The sender tries again, with the bytes that may be there already.
        let again = put(&store, "a", bytes(2, BIG)).expect("the store goes on");
        assert!(whole(&store, again.id).expect("the file is sound").as_deref() == Some(&bytes(2, BIG)[..]));
        assert_eq!(store.stats().expect("the file is sound").artifacts, 2, "after sync {good} was refused");
        check_sound(&store);
    }
}

#[test]
fn a_refused_read_is_tried_again() {
    let medium = Medium::with_store();
    let store = medium.open(options()).expect("a new store opens");
    let meta = put(&store, "a", bytes(1, 40 * CHUNK_BYTES)).expect("the medium does not refuse");
    // The cache is 1 MiB, so that most of the body has to come from the medium.
    medium.refuse(1);
    assert!(whole(&store, meta.id).expect("it was refused once").as_deref() == Some(&bytes(1, 40 * CHUNK_BYTES)[..]));
    put(&store, "b", bytes(2, 10)).expect("the store goes on");
}
