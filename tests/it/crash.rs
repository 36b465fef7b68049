//! What was acknowledged survives the daemon's death at any moment, and a damaged store is reported, never replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::support::{Daemon, Frames, Place, sha256, signal, wait_for, wait_until};

/// Size of an upload: more than one row of the store, and no whole number of them.
const UPLOAD: usize = 300_000;

/// Kills of one store.
const ROUNDS: usize = 10;

/// Numbers that look random and are the same every time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}

/// What the script of a round stores as number `i`; every fourth time bytes that are stored already.
fn stored_by_script(round: usize, i: usize) -> Vec<u8> {
    let (round, i) = if i % 4 == 3 { (0, 1) } else { (round, i) };
    (0..1000 + i * 7919 % UPLOAD).map(|at| u8::try_from((at * 7 + i * 31 + round * 101) % 251).unwrap()).collect()
}

fn script(round: usize) -> String {
    format!(
        "for (let i = 0; ; i++) {{
            const [r, n] = i % 4 === 3 ? [0, 1] : [{round}, i];
            const bytes = new Uint8Array(1000 + n * 7919 % 300_000);
            for (let at = 0; at < bytes.length; at++) bytes[at] = (at * 7 + n * 31 + r * 101) % 251;
            emit(await artifact('k' + i, bytes));
        }}"
    )
}

/// What has been acknowledged, and what has been sent at all: SHA-256 and length.
#[derive(Default)]
struct Ledger {
    acknowledged: Mutex<BTreeMap<String, (String, usize)>>,
    sent: Mutex<BTreeSet<String>>,
}

impl Ledger {
    fn acknowledge(&self, id: &Value, bytes: &[u8]) {
        let id = id.as_str().unwrap().to_owned();
        self.acknowledged.lock().unwrap().insert(id, (sha256(bytes), bytes.len()));
    }
}

/// Stores bytes over HTTP; the answer only if it came whole.
fn upload(socket: &Path, bytes: &[u8]) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let head = "POST /v1/artifacts?name=upload HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {}\r\n\r\n", bytes.len()).as_bytes()).ok()?;
    stream.write_all(bytes).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let stored = serde_json::from_str(body).ok()?;
    assert!(head.starts_with("HTTP/1.1 201 "), "{answer}");
    Some(stored)
}

fn upload_until_it_fails(socket: &Path, seed: u64, ledger: &Ledger) {
    let mut numbers = Numbers(seed);
    loop {
        let bytes = numbers.bytes(UPLOAD);
        ledger.sent.lock().unwrap().insert(sha256(&bytes));
        let Some(stored) = upload(socket, &bytes) else { return };
        ledger.acknowledge(&stored["id"], &bytes);
    }
}

/// Counts the frames of artifacts, and the values that were emitted after the promise.
fn watch(mut frames: Frames, round: usize, ledger: &Ledger) {
    while let Some(frame) = frames.next_if_any() {
        let artifact = match frame["type"].as_str() {
            Some("artifact") => &frame["artifact"],
            Some("emit") => &frame["value"],
            Some("start") => continue,
            _ => panic!("the script ended: {frame}"),
        };
        let number: usize = artifact["name"].as_str().unwrap().strip_prefix('k').unwrap().parse().unwrap();
        ledger.acknowledge(&artifact["id"], &stored_by_script(round, number));
    }
}

/// Every artifact that is listed, read whole: name and bytes by id.
fn read_all(daemon: &Daemon) -> BTreeMap<String, (String, Vec<u8>)> {
    let client = daemon.remote();
    let mut found = BTreeMap::new();
    let mut page = client.get("/v1/artifacts?limit=100").json();
    loop {
        for artifact in page["artifacts"].as_array().unwrap() {
            let (id, name) = (artifact["id"].as_str().unwrap(), artifact["name"].as_str().unwrap().to_owned());
            let answer = client.get(&format!("/v1/artifacts/{id}"));
            assert_eq!(answer.status, 200, "{id} is listed: {}", answer.text());
            let (size, hash) = (json!(answer.body.len()), json!(sha256(&answer.body)));
            assert_eq!((&artifact["size"], &artifact["sha256"]), (&size, &hash), "{id}");
            assert!(found.insert(id.to_owned(), (name, answer.body)).is_none(), "{id} is listed twice");
        }
        let Some(cursor) = page["cursor"].as_str() else { return found };
        page = client.get(&format!("/v1/artifacts?limit=100&cursor={cursor}")).json();
    }
}

/// All that was acknowledged is there, whole; nothing is there that nobody sent; the totals are right.
#[track_caller]
fn check(daemon: &Daemon, ledger: &Ledger, after: &str) {
    let found = read_all(daemon);
    let hashes: BTreeMap<_, _> = found.iter().map(|(id, (_, body))| (id, (sha256(body), body.len()))).collect();
    let acknowledged = ledger.acknowledged.lock().unwrap();
    for (id, expected) in &*acknowledged {
        assert_eq!(hashes.get(id), Some(expected), "{after}: {id} was acknowledged");
    }
    let sent = ledger.sent.lock().unwrap();
    for (id, (name, body)) in found.iter().filter(|(id, _)| !acknowledged.contains_key(*id)) {
        let whole = match name.strip_prefix('k') {
            Some(number) => (1..=ROUNDS).any(|round| stored_by_script(round, number.parse().unwrap()) == *body),
            None => sent.contains(&hashes[id].0),
        };
        assert!(whole, "{after}: nobody sent what {id} ({name}) holds");
    }
    let contents: BTreeMap<_, _> = hashes.values().cloned().collect();
    let totals = json!({"count": found.len(), "bytes": contents.values().sum::<usize>()});
    assert_eq!(daemon.status()["artifacts"], totals, "{after}");
}

#[test]
fn what_was_acknowledged_survives_a_kill_while_scripts_and_uploads_store() {
    let ledger = Arc::new(Ledger::default());
    let mut numbers = Numbers(33);
    let mut place = Place::new();
    for round in 1..=ROUNDS {
        let daemon = Daemon::start_in(place, &[]);
        check(&daemon, &ledger, &format!("before round {round}"));
        let acknowledged = || ledger.acknowledged.lock().unwrap().len();
        let wanted = acknowledged() + usize::try_from(numbers.next() % 41).unwrap();
        let frames = daemon.stream(&script(round), &json!({}));
        let watcher = thread::spawn({
            let ledger = ledger.clone();
            move || watch(frames, round, &ledger)
        });
        let uploads = [numbers.next(), numbers.next()].map(|seed| {
            let (ledger, socket) = (ledger.clone(), daemon.socket());
            thread::spawn(move || upload_until_it_fails(&socket, seed, &ledger))
        });
        wait_until("enough artifacts to be acknowledged", || {
            assert!(!watcher.is_finished() && !uploads.iter().any(thread::JoinHandle::is_finished), "{daemon:?}");
            acknowledged() >= wanted
        });
        place = daemon.kill();
        watcher.join().unwrap();
        uploads.into_iter().for_each(|upload| upload.join().unwrap());
    }
    let daemon = Daemon::start_in(place, &[]);
    check(&daemon, &ledger, "after the last round");
    assert!(ledger.acknowledged.lock().unwrap().len() >= 100, "the rounds stored something");
}

#[test]
fn a_kill_while_the_daemon_starts_leaves_a_store_that_opens() {
    let ledger = Ledger::default();
    let mut numbers = Numbers(547);
    // Killed at the first look, the second, ...; then once it is ready. Each time in a new place and in a used one.
    let mut used = Place::new();
    for looks in (0..12).chain([usize::MAX]) {
        let fresh = Place::new();
        for place in [&fresh, &used] {
            let (mut child, log) = Daemon::spawn(place, &[]);
            let own = |record: &Value| record["pid"] == child.id();
            let mut look = 0..looks;
            wait_until("a daemon to become ready", || look.next().is_none() || place.records().iter().any(own));
            child.kill().unwrap();
            let status = child.wait().unwrap();
            assert_eq!(status.code(), None, "it was killed: {}", std::fs::read_to_string(&log).unwrap());
        }
        let daemon = Daemon::start_in(fresh, &[]);
        assert_eq!(read_all(&daemon).len(), 0, "{looks} looks");
        assert!(upload(&daemon.socket(), b"hello").is_some());
        let daemon = Daemon::start_in(used, &[]);
        let bytes = numbers.bytes(UPLOAD);
        ledger.sent.lock().unwrap().insert(sha256(&bytes));
        ledger.acknowledge(&upload(&daemon.socket(), &bytes).unwrap()["id"], &bytes);
        check(&daemon, &ledger, &format!("{looks} looks"));
        used = daemon.kill();
    }
}

/// A place with a closed store of some artifacts: their ids and bytes, and the file.
fn filled() -> (Place, BTreeMap<String, Vec<u8>>, PathBuf) {
    let daemon = Daemon::start();
    let mut numbers = Numbers(7);
    let store = |bytes: Vec<u8>| {
        let stored = upload(&daemon.socket(), &bytes).unwrap();
        (stored["id"].as_str().unwrap().to_owned(), bytes)
    };
    let kept = (0..6).map(|_| numbers.bytes(UPLOAD)).map(store).collect();
    let path = daemon.status()["store"].as_str().unwrap().into();
    daemon.signal(libc::SIGTERM);
    let (code, place) = daemon.ended();
    assert_eq!(code, 0);
    (place, kept, path)
}

/// Starts a daemon on a damaged file: the daemon if it starts, else the place and what it has said.
fn start_or_refusal(place: Place) -> Result<Daemon, (Place, String)> {
    let said = |log: &Path| std::fs::read_to_string(log).unwrap_or_default();
    let earlier = said(&place.root().join("daemon.err")).len();
    let (mut child, log) = Daemon::spawn(&place, &[]);
    let ended = wait_for("a daemon to start or to refuse", || {
        let ready = place.records().iter().any(|record| record["pid"] == child.id());
        child.try_wait().unwrap().map(Some).or(ready.then_some(None))
    });
    let Some(status) = ended else {
        signal(child.id().try_into().unwrap(), libc::SIGTERM);
        child.wait().unwrap();
        return Ok(Daemon::start_in(place, &[]));
    };
    assert_eq!(status.code(), Some(1));
    Err((place, said(&log)[earlier..].to_owned()))
}

#[track_caller]
fn tells_what_to_do(said: &str, path: &Path) {
    for part in [&path.display().to_string(), "is damaged", "restore it from a backup", "move it away"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn zeros_in_the_store_are_reported_and_give_no_wrong_bytes() {
    let (mut place, kept, path) = filled();
    let sound = std::fs::read(&path).unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    let (damaged, bytes) = kept.iter().next().unwrap();
    let needle = &bytes[100_000..100_064];
    let inside = sound.windows(64).position(|window| window == needle).expect("bodies are stored as they are") & !4095;
    for at in [inside, (sound.len() / 2) & !4095, (sound.len() / 3) & !4095, 0] {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(sound.len() as u64).unwrap();
        file.write_all_at(&sound, 0).unwrap();
        file.write_all_at(&[0; 4096], at as u64).unwrap();
        let before = std::fs::read(&path).unwrap();
        place = match start_or_refusal(place) {
            Err((place, said)) => {
                tells_what_to_do(&said, &path);
                assert!(std::fs::read(&path).unwrap() == before, "the refused file is untouched");
                assert_ne!(at, inside, "damage of one body concerns that artifact only: {said}");
                place
            }
            Ok(daemon) => {
                assert_ne!(at, 0, "a file without its head is no store");
                let mut broken = BTreeSet::new();
                for (id, bytes) in &kept {
                    match get(&daemon, id) {
                        Some(body) => assert!(body == *bytes, "wrong bytes of {id} after zeros at {at}"),
                        None => assert!(broken.insert(id)),
                    }
                }
                if at == inside {
                    assert_eq!(broken, BTreeSet::from([damaged]));
                    assert!(daemon.said().contains(damaged), "the log names it: {}", daemon.said());
                }
                daemon.kill()
            }
        };
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode, "the file is not replaced");
    }
}

/// The bytes of an artifact, if the answer is whole; otherwise it must be an error of the server, or break off.
fn get(daemon: &Daemon, id: &str) -> Option<Vec<u8>> {
    let mut opened = daemon.remote().request("GET", &format!("/v1/artifacts/{id}")).open();
    if opened.status != 200 {
        assert!(opened.status >= 500, "{}", opened.status);
        return None;
    }
    let mut body = Vec::new();
    while let Some(piece) = opened.try_piece().ok()? {
        body.extend(piece);
    }
    Some(body)
}

#[test]
fn half_a_store_is_refused_with_what_to_do_and_left_alone() {
    let (place, _, path) = filled();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let half = std::fs::read(&path).unwrap();
    let Err((place, said)) = start_or_refusal(place) else { panic!("half a file is no store") };
    tells_what_to_do(&said, &path);
    let said = place.mcpx(&["exec", "return 1"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
    tells_what_to_do(&said.stderr, &path);
    assert!(said.stderr.contains("daemon.log"), "{said:?}");
    assert!(std::fs::read(&path).unwrap() == half, "the file is untouched");
}

#[test]
fn a_store_has_one_process() {
    let mut first = Daemon::start();
    let socket = first.place().root().join("other.sock");
    let said = first.place().mcpx(&["daemon", "--socket", socket.to_str().unwrap()]);
    assert_eq!(said.code, 1, "{said:?}");
    let store = first.status()["store"].as_str().unwrap().to_owned();
    let expected = format!("another mcpx daemon has {store} open; stop it");
    assert!(said.stderr.contains(&expected), "{said:?}");
    assert!(!socket.exists(), "the second one takes its socket along");
    first.is_alive();
}
