//! The values in the tables: byte layouts and the checksums that make damage visible.
//!
//! Owns encoding and decoding. Does not read tables. Integers are little endian. redb verifies its own checksums only
//! when it repairs a file, so every value here carries one, seeded with its key: a value that was changed, or that
//! belongs to another key, is noticed when it is read.
//!
//! ```text
//! artifact record                          blob record, 32 bytes
//!  0   1  record version, 1                 0  8  blob number
//!  1   8  sequence                          8  8  size, bytes
//!  9   8  size, bytes                      16  8  references
//! 17  32  sha256, the key in `blobs`       24  8  checksum, seeded with the sha256's first 8 bytes
//! 49   8  created, ms
//! 57   8  expires, ms, 0 is never          chunk row
//! 65   .  name                              0  8  checksum, seeded with blob number and index
//!  .   .  mime                              8  .  bytes
//!  .   .  run
//!  .   .  session                          text: length 2, UTF-8. No run or session: length 0xffff, no bytes
//!  .   8  checksum, seeded with the id's first 8 bytes
//! ```

use super::artifact::ArtifactMeta;
use super::id::ArtifactId;

const RECORD_VERSION: u8 = 1;
const ABSENT: u16 = u16::MAX;

/// Longest run or session label, in bytes.
pub(super) const LABEL_MAX: usize = 1024;

/// Bytes before the body in a chunk row.
pub(super) const CHUNK_HEADER: usize = 8;

/// An artifact as its record holds it.
#[derive(Debug, PartialEq)]
pub(super) struct ArtifactRecord {
    /// Its place in the lists: rises with every artifact, never reused.
    pub(super) sequence: u64,
    pub(super) meta: ArtifactMeta,
}

/// A body as its row in `blobs` holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BlobRecord {
    /// The first half of its chunk keys.
    pub(super) number: u64,
    /// Bytes of the body.
    pub(super) size: u64,
    /// Artifacts that name it. Never 0 in a committed row.
    pub(super) references: u64,
}

pub(super) fn encode_artifact(record: &ArtifactRecord) -> Vec<u8> {
    let meta = &record.meta;
    let mut out = Vec::with_capacity(128 + meta.name.len() + meta.mime.len());
    out.push(RECORD_VERSION);
    out.extend_from_slice(&record.sequence.to_le_bytes());
    out.extend_from_slice(&meta.size.to_le_bytes());
    out.extend_from_slice(&meta.sha256);
    out.extend_from_slice(&meta.created_ms.to_le_bytes());
    out.extend_from_slice(&meta.expires_ms.unwrap_or(0).to_le_bytes());
    for text in [Some(&meta.name), Some(&meta.mime), meta.run.as_ref(), meta.session.as_ref()] {
        encode_text(&mut out, text.map(String::as_str));
    }
    let sum = checksum(artifact_seed(meta.id), &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Names, types and labels are all bounded far below the length's range before they get here.
fn encode_text(out: &mut Vec<u8>, text: Option<&str>) {
    let Some(text) = text else { return out.extend_from_slice(&ABSENT.to_le_bytes()) };
    let length = u16::try_from(text.len()).unwrap_or(ABSENT - 1).min(ABSENT - 1);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
}

/// `None` when the record is damaged, or not this artifact's.
pub(super) fn decode_artifact(id: ArtifactId, bytes: &[u8]) -> Option<ArtifactRecord> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if checksum(artifact_seed(id), body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let mut rest = body;
    let [RECORD_VERSION] = take::<1>(&mut rest)? else { return None };
    let sequence = u64::from_le_bytes(take(&mut rest)?);
    let size = u64::from_le_bytes(take(&mut rest)?);
    let sha256 = take(&mut rest)?;
    let created_ms = u64::from_le_bytes(take(&mut rest)?);
    let expires_ms = Some(u64::from_le_bytes(take(&mut rest)?)).filter(|expires| *expires != 0);
    let (name, mime) = (decode_text(&mut rest)??, decode_text(&mut rest)??);
    let (run, session) = (decode_text(&mut rest)?, decode_text(&mut rest)?);
    let meta = ArtifactMeta { id, name, mime, size, sha256, created_ms, expires_ms, run, session };
    rest.is_empty().then_some(ArtifactRecord { sequence, meta })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

/// The outer `None` is damage, the inner one an absent text.
fn decode_text(rest: &mut &[u8]) -> Option<Option<String>> {
    let length = u16::from_le_bytes(take(rest)?);
    if length == ABSENT {
        return Some(None);
    }
    let (head, tail) = rest.split_at_checked(usize::from(length))?;
    *rest = tail;
    Some(Some(str::from_utf8(head).ok()?.to_owned()))
}

pub(super) fn encode_blob(sha256: &[u8; 32], record: BlobRecord) -> [u8; 32] {
    let mut out = [0; 32];
    out[..8].copy_from_slice(&record.number.to_le_bytes());
    out[8..16].copy_from_slice(&record.size.to_le_bytes());
    out[16..24].copy_from_slice(&record.references.to_le_bytes());
    let sum = checksum(blob_seed(sha256), &out[..24]);
    out[24..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// `None` when the row is damaged.
pub(super) fn decode_blob(sha256: &[u8; 32], bytes: &[u8; 32]) -> Option<BlobRecord> {
    let mut rest = &bytes[..];
    let number = u64::from_le_bytes(take(&mut rest)?);
    let size = u64::from_le_bytes(take(&mut rest)?);
    let references = u64::from_le_bytes(take(&mut rest)?);
    let sum = u64::from_le_bytes(take(&mut rest)?);
    (checksum(blob_seed(sha256), &bytes[..24]) == sum).then_some(BlobRecord { number, size, references })
}

/// Fills a reserved chunk row of `CHUNK_HEADER + bytes.len()` bytes.
pub(super) fn encode_chunk(row: &mut [u8], number: u64, index: u32, bytes: &[u8]) {
    row[..CHUNK_HEADER].copy_from_slice(&checksum(chunk_seed(number, index), bytes).to_le_bytes());
    row[CHUNK_HEADER..].copy_from_slice(bytes);
}

/// The bytes of a chunk row; `None` when they are damaged or another row's.
pub(super) fn decode_chunk(row: &[u8], number: u64, index: u32) -> Option<&[u8]> {
    let (sum, bytes) = row.split_first_chunk::<CHUNK_HEADER>()?;
    (checksum(chunk_seed(number, index), bytes) == u64::from_le_bytes(*sum)).then_some(bytes)
}

fn artifact_seed(id: ArtifactId) -> u64 {
    id.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn blob_seed(sha256: &[u8; 32]) -> u64 {
    sha256.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn chunk_seed(number: u64, index: u32) -> u64 {
    number.rotate_left(32) ^ u64::from(index)
}

/// 2^64 divided by the golden ratio, odd: multiplying by it is a bijection.
const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// A checksum against accidents, not against an attacker (the SHA-256 in the record is the proof of content). Four
/// independent lanes of 8 bytes run at memory speed. Each step is a bijection of its lane, so damage inside one word is
/// always noticed, any other with a chance of 1 - 2^-64.
pub(super) fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    let mut lanes = [seed, seed ^ PRIME, seed.rotate_left(17), !seed];
    let (blocks, tail) = bytes.as_chunks::<32>();
    for block in blocks {
        mix(&mut lanes, block);
    }
    if !tail.is_empty() {
        let mut block = [0; 32];
        block[..tail.len()].copy_from_slice(tail);
        mix(&mut lanes, &block);
    }
    lanes.into_iter().fold(bytes.len() as u64, step)
}

fn mix(lanes: &mut [u64; 4], block: &[u8; 32]) {
    let (words, _) = block.as_chunks::<8>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane = step(*lane, u64::from_le_bytes(*word));
    }
}

fn step(lane: u64, word: u64) -> u64 {
    (lane ^ word).wrapping_mul(PRIME).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> ArtifactRecord {
        let meta = ArtifactMeta {
            id: ArtifactId::from_bytes([3; 16]),
            name: "shot.png".into(),
            mime: "image/png".into(),
            size: 70_000,
            sha256: [9; 32],
            created_ms: 1_700_000_000_000,
            expires_ms: Some(1_700_000_000_001),
            run: Some(String::new()),
            session: None,
        };
        ArtifactRecord { sequence: 42, meta }
    }

    #[test]
    fn layout_is_fixed() {
        let bytes = encode_artifact(&sample());
        assert_eq!(bytes.len(), 65 + 2 + 8 + 2 + 9 + 2 + 2 + 8);
        assert_eq!(bytes[..9], [1, 42, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[49..57], 1_700_000_000_000_u64.to_le_bytes());
        assert_eq!(bytes[65..75], *b"\x08\0shot.png");
        // The checksum is part of the format: this number may change only together with FORMAT_VERSION.
        assert_eq!(checksum(1, b"abc"), 12_460_267_684_837_182_931);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let record = sample();
        let mut bytes = encode_artifact(&record);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_artifact(record.meta.id, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(decode_artifact(ArtifactId::from_bytes([4; 16]), &bytes), None, "another key");
        for length in 0..bytes.len() {
            assert_eq!(decode_artifact(record.meta.id, &bytes[..length]), None, "cut to {length}");
        }
        assert_eq!(decode_artifact(record.meta.id, &bytes), Some(record));
    }

    proptest! {
        #[test]
        fn artifacts_survive(name in ".{0,60}", mime in "[a-z/]{0,40}", run in proptest::option::of(".{0,40}"),
            session in proptest::option::of(".{0,40}"), numbers in any::<[u64; 4]>()) {
            let mut record = sample();
            let [sequence, size, created_ms, expires] = numbers;
            record.sequence = sequence;
            record.meta = ArtifactMeta { name, mime, run, session, size, created_ms,
                expires_ms: Some(expires).filter(|ms| *ms != 0), ..record.meta };
            prop_assert_eq!(decode_artifact(record.meta.id, &encode_artifact(&record)), Some(record));
        }

        #[test]
        fn rows_survive_and_notice_zeros(bytes in proptest::collection::vec(1_u8..=255, 1..5000), number: u64,
            index: u32) {
            let mut row = vec![0; CHUNK_HEADER + bytes.len()];
            encode_chunk(&mut row, number, index, &bytes);
            prop_assert_eq!(decode_chunk(&row, number, index), Some(&bytes[..]));
            prop_assert_eq!(decode_chunk(&row, number, index.wrapping_add(1)), None);
            prop_assert_eq!(decode_chunk(&row[..row.len() - 1], number, index), None);
            let half = row.len() / 2;
            row[half..].fill(0);
            prop_assert_eq!(decode_chunk(&row, number, index), None);
            let blob = BlobRecord { number, size: 5, references: 1 };
            prop_assert_eq!(decode_blob(&[1; 32], &encode_blob(&[1; 32], blob)), Some(blob));
            prop_assert_eq!(decode_blob(&[2; 32], &encode_blob(&[1; 32], blob)), None);
        }
    }
}
