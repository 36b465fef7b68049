//! What a server said outside the protocol, kept for error messages.
//!
//! Owns the bounded record of one child: the end of its standard error, the end of its noise on standard output, and
//! counters. Invariant: memory stays under the two limits however much a server writes. Shared between the tasks of one
//! connection; the locks are held for a copy only.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::Evidence;

/// Bytes of noise that are kept: enough to recognise what the program is.
const NOISE_BYTES: usize = 512;

/// The record of one child.
#[derive(Debug)]
pub(super) struct Transcript {
    stderr: Tail,
    noise: Tail,
    noise_lines: AtomicU64,
    oversized_lines: AtomicU64,
}

impl Transcript {
    /// `stderr_bytes` of standard error are kept.
    pub(super) fn new(stderr_bytes: usize) -> Self {
        Self {
            stderr: Tail::new(stderr_bytes),
            noise: Tail::new(NOISE_BYTES),
            noise_lines: AtomicU64::new(0),
            oversized_lines: AtomicU64::new(0),
        }
    }

    pub(super) fn stderr(&self, bytes: &[u8]) {
        self.stderr.push(bytes);
    }

    /// A line on standard output that is no message.
    pub(super) fn noise(&self, line: &[u8]) {
        self.noise_lines.fetch_add(1, Ordering::Relaxed);
        self.noise.push(line);
        self.noise.push(b"\n");
    }

    /// A line on standard output that was dropped for its length.
    pub(super) fn oversized(&self) {
        self.oversized_lines.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn oversized_lines(&self) -> u64 {
        self.oversized_lines.load(Ordering::Relaxed)
    }

    pub(super) fn evidence(&self) -> Evidence {
        Evidence {
            stderr: self.stderr.text(),
            noise: self.noise.text(),
            noise_lines: self.noise_lines.load(Ordering::Relaxed),
            oversized_lines: self.oversized_lines(),
        }
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
struct Tail {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    cut: bool,
}

impl Tail {
    fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    fn push(&self, bytes: &[u8]) {
        // A poisoned lock means a panic between two copies of bytes; the bytes are still bytes.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let last = bytes.get(bytes.len().saturating_sub(self.limit)..).unwrap_or_default();
        let surplus = (kept.bytes.len() + last.len()).saturating_sub(self.limit);
        kept.cut |= surplus > 0 || last.len() < bytes.len();
        kept.bytes.drain(..surplus);
        kept.bytes.extend(last);
    }

    /// The text, trimmed, after "..." if something came before it.
    fn text(&self) -> String {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = kept.cut;
        let bytes = kept.bytes.make_contiguous();
        // The first character may have been cut in two; its rest is no character.
        let start = if cut { bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count() } else { 0 };
        let text = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default());
        format!("{}{}", if cut { "..." } else { "" }, text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::Tail;

    #[test]
    fn only_the_end_is_kept() {
        let tail = Tail::new(8);
        tail.push("héé".as_bytes());
        assert_eq!(tail.text(), "héé");
        tail.push(b"12345");
        assert_eq!(tail.text(), "...é12345");
        tail.push("0123456789é".as_bytes());
        assert_eq!(tail.text(), "...456789é");
        tail.push(b"\xA9\xA9\xA9\xA9\xA9ok\n");
        assert!(tail.text().ends_with("ok"));
    }
}
