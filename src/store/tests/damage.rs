//! Files that are locked, foreign, cut or changed: an error that says what to do, and the file left as it was.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use redb::{Builder, Database, Durability, ReadableTable};

use super::{bytes, open, put, scratch, whole};
use crate::store::error::StoreError;
use crate::store::id::ArtifactId;
use crate::store::tables::{CHUNK_BYTES, FORMAT, chunk_key};
use crate::store::writer::transact;

/// A closed store with three artifacts of some size.
fn filled() -> (tempfile::TempDir, PathBuf, Vec<ArtifactId>) {
    let (store, folder) = scratch();
    let ids = (0..3).map(|seed| put(&store, "a", bytes(seed, 4 * CHUNK_BYTES)).expect("the put commits").id).collect();
    store.close().expect("the last commit succeeds");
    let path = folder.path().join("store.redb");
    (folder, path, ids)
}

fn database(path: &Path) -> Database {
    Builder::new().open(path).expect("the store is closed")
}

#[test]
fn modes_are_private() {
    let folder = tempfile::tempdir().expect("the test machine has a temporary folder");
    let path = folder.path().join("deep/er/store.redb");
    drop(open(&path).expect("a new store opens"));
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().expect("it has one"))), (0o600, 0o700));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the file is ours");
    drop(open(&path).expect("it opens again"));
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_second_opener_is_told_which_file() {
    let (_store, folder) = scratch();
    let path = folder.path().join("store.redb");
    let error = open(&path).expect_err("the first one has the lock");
    assert!(matches!(error, StoreError::Locked { .. }));
    assert!(error.to_string().starts_with(&format!("another mcpx daemon has {} open", path.display())));
}

#[test]
fn another_format_is_named() {
    let (_folder, path, _) = filled();
    let change = |number| {
        transact(&database(&path), Durability::Immediate, |tables| {
            tables.meta.insert(FORMAT, number)?;
            Ok(())
        })
        .expect("the change commits");
    };
    change(7);
    let error = open(&path).expect_err("format 7 is unknown").to_string();
    assert!(error.contains("has store format 7, this mcpx reads 1; use the mcpx version that wrote it"), "{error}");
    change(1);
    drop(open(&path).expect("it is format 1 again"));
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let folder = tempfile::tempdir().expect("the test machine has a temporary folder");
    let path = folder.path().join("store.redb");
    for content in [Vec::new(), b"hello".to_vec(), vec![0; 1 << 20], bytes(1, 1 << 20).to_vec()] {
        fs::write(&path, &content).expect("the folder is ours");
        let error = open(&path).expect_err("it is no store");
        assert!(matches!(error, StoreError::DamagedFile { .. }), "{} bytes: {error:?}", content.len());
        assert!(fs::read(&path).expect("it is still there") == content, "{} bytes: untouched", content.len());
    }
    fs::remove_file(&path).expect("the folder is ours");
    drop(Builder::new().create(&path).expect("an empty database of something else"));
    assert!(matches!(open(&path), Err(StoreError::DamagedFile { .. })));
}

#[test]
fn leftovers_of_a_killed_creation_are_removed() {
    let folder = tempfile::tempdir().expect("the test machine has a temporary folder");
    let path = folder.path().join("store.redb");
    let leftover = |name: &str| folder.path().join(name);
    fs::write(leftover(".store.redb.new-art-1"), b"half").expect("the folder is ours");
    fs::write(leftover(".store.redb.new-art-2"), b"").expect("the folder is ours");
    fs::write(leftover(".other.redb.new-art-2"), b"").expect("the folder is ours");
    let busy = leftover(".store.redb.new-art-3");
    let held = Builder::new().create(&busy).expect("the folder is ours");
    let store = open(&path).expect("leftovers do not matter");
    let meta = put(&store, "a", bytes(1, 10)).expect("the put commits");
    assert!(busy.exists(), "it is being written by somebody");
    drop((held, store));
    // A kill between the naming and the removal of the draft leaves two names of one file.
    fs::hard_link(&path, leftover(".store.redb.new-art-4")).expect("the file system has hard links");
    let store = open(&path).expect("leftovers do not matter");
    assert!(whole(&store, meta.id).expect("the file is sound").is_some());
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).expect("it exists").map(|entry| entry.expect("it exists").file_name()).collect();
    names.sort();
    assert_eq!(names, [".other.redb.new-art-2", "store.redb"]);
}

#[test]
fn a_damaged_chunk_is_that_artifact_s_alone() {
    let (_folder, path, ids) = filled();
    let mut content = fs::read(&path).expect("it exists");
    let needle = &bytes(1, 4 * CHUNK_BYTES)[CHUNK_BYTES + 100_000..][..64];
    let place = content.windows(64).position(|window| window == needle).expect("bodies are stored as they are");
    content[place] ^= 4;
    fs::write(&path, content).expect("the file is ours");

    let store = open(&path).expect("the tables are sound");
    let error = whole(&store, ids[1]).expect_err("a bit was flipped");
    assert!(matches!(error, StoreError::DamagedArtifact { id, part: "chunk" } if id == ids[1]), "{error:?}");
    assert!(error.to_string().contains("delete it and create it again"));
    for id in [ids[0], ids[2]] {
        assert!(whole(&store, id).expect("the others are not affected").is_some());
    }
    let report = store.verify().expect("the file is readable");
    assert!(matches!(report[..], [StoreError::DamagedArtifact { id, .. }] if id == ids[1]), "{report:?}");
    assert!(super::delete(&store, ids[1]));
    assert_eq!(store.verify().expect("the file is readable").len(), 0);
}

#[test]
fn a_damaged_record_is_that_artifact_s_alone() {
    let (_folder, path, ids) = filled();
    transact(&database(&path), Durability::Immediate, |tables| {
        let mut record = tables.artifacts.get(ids[0].as_bytes())?.expect("it is there").value().to_vec();
        record[20] ^= 1;
        tables.artifacts.insert(ids[0].as_bytes(), &record[..])?;
        tables.chunks.remove(&chunk_key(2, 3))?;
        Ok(())
    })
    .expect("the change commits");
    let store = open(&path).expect("the tables are sound");
    assert!(matches!(store.get(&ids[0]), Err(StoreError::DamagedArtifact { part: "record", .. })));
    assert!(matches!(whole(&store, ids[1]), Err(StoreError::DamagedArtifact { part: "chunk", .. })));
    assert!(whole(&store, ids[2]).expect("it is not affected").is_some());
    assert_eq!(store.verify().expect("the file is readable").len(), 2);
    assert!(super::delete(&store, ids[0]) && super::delete(&store, ids[1]));
    assert_eq!(
        store.list(&crate::store::ListQuery { limit: 9, ..Default::default() }).map(|p| p.artifacts.len()).ok(),
        Some(1)
    );
}

/// Anything but a panic, a hang or wrong bytes is an answer.
#[test]
fn cut_and_zeroed_files_never_give_wrong_bytes() {
    let (_folder, path, ids) = filled();
    let content = fs::read(&path).expect("it exists");
    let mut refused = 0;
    let mut damaged = |content: &[u8], what: &str| {
        fs::write(&path, content).expect("the file is ours");
        match open(&path) {
            Err(StoreError::DamagedFile { .. } | StoreError::Open { .. }) => {
                refused += 1;
                assert!(fs::read(&path).expect("it is still there") == content, "{what}: untouched");
            }
            Err(other) => panic!("{what}: {other:?}"),
            Ok(store) => {
                for (seed, id) in ids.iter().enumerate() {
                    if let Ok(Some(body)) = whole(&store, *id) {
                        assert!(body == bytes(seed as u64, 4 * CHUNK_BYTES), "{what}: wrong bytes");
                    }
                }
                let _ = store.verify();
                let _ = put(&store, "b", bytes(50, CHUNK_BYTES));
            }
        }
    };
    for part in 0..8 {
        damaged(&content[..content.len() * part / 8], &format!("cut to {part}/8"));
    }
    let (page, pages) = (4096, content.len() / 4096);
    for number in (0..pages).step_by(pages.div_ceil(40)).chain(0..4) {
        let mut content = content.clone();
        content[number * page..(number + 1) * page].fill(0);
        damaged(&content, &format!("page {number} of {pages} zeroed"));
    }
    assert!(refused > 0);
}
