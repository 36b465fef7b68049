//! The producing and the consuming end of a run's frames.
//!
//! Invariants: frames leave in the order of SPEC 5.2; exactly one `end`, and nothing after it; output is bounded while it is
//! produced, so the queue between the two ends needs no bound of its own. Only this file can end a stream. The sink is shared by
//! the isolate's thread and the supervisor (which must be able to end the stream of a thread that does not answer); its mutex is
//! held for the length of one push.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::frame::{Artifact, End, Frame, RunError, Timings, Truncated};
use super::outcome::{Outcome, StopReason};
use crate::error::ErrorKind;

/// Makes the two ends. `limit` is the number of bytes that each of stdout, stderr, logs and emits may take.
pub fn frames(limit: u64) -> (FrameSink, FrameStream) {
    let (tx, rx) = mpsc::unbounded_channel();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let state = SinkState {
        tx,
        phase: Phase::Open,
        stdout: Gate::new(limit),
        stderr: Gate::new(limit),
        logs: Gate::new(limit),
        emits: Gate::new(limit),
        stdout_cut: Vec::new(),
        stderr_cut: Vec::new(),
        result: None,
        failing: None,
        started: Instant::now(),
        limit,
    };
    (FrameSink { state: Arc::new(Mutex::new(state)) }, FrameStream { rx })
}

/// The producing end. Cheap to clone; every method is a no-op once the stream has ended.
#[derive(Debug, Clone)]
pub struct FrameSink {
    state: Arc<Mutex<SinkState>>,
}

/// The consuming end. Dropping it tells the producer that nobody listens.
#[derive(Debug)]
pub struct FrameStream {
    rx: mpsc::UnboundedReceiver<Frame>,
}

impl FrameStream {
    /// The next frame; `None` after `end`.
    ///
    /// # Cancel safety
    /// Cancel safe: no frame is lost.
    pub async fn next(&mut self) -> Option<Frame> {
        self.rx.recv().await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Ended,
}

#[derive(Debug)]
struct SinkState {
    tx: mpsc::UnboundedSender<Frame>,
    phase: Phase,
    stdout: Gate,
    stderr: Gate,
    logs: Gate,
    emits: Gate,
    /// The beginning of a character whose rest has not been written yet.
    stdout_cut: Vec<u8>,
    stderr_cut: Vec<u8>,
    result: Option<Box<RawValue>>,
    failing: Option<ErrorKind>,
    started: Instant,
    limit: usize,
}

/// Which text stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    Stdout,
    Stderr,
}

impl FrameSink {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        // A panic while the lock was held leaves at worst one frame unsent; the stream can still be ended.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `start` and begins to count the run's time.
    pub fn start(&self, frame: Frame) {
        let mut state = self.lock();
        state.started = Instant::now();
        state.send(frame);
    }

    /// Bytes of a text stream. A character split between two writes is put together; bytes that are no UTF-8 become U+FFFD.
    pub fn write(&self, stream: Text, bytes: &[u8]) {
        let mut state = self.lock();
        if state.phase == Phase::Ended {
            return;
        }
        let cut = match stream {
            Text::Stdout => std::mem::take(&mut state.stdout_cut),
            Text::Stderr => std::mem::take(&mut state.stderr_cut),
        };
        let joined;
        let bytes = if cut.is_empty() {
            bytes
        } else {
            joined = [&cut[..], bytes].concat();
            &joined
        };
        let whole = whole_characters(bytes);
        let (whole, rest) = bytes.split_at(whole);
        match stream {
            Text::Stdout => state.stdout_cut = rest.to_vec(),
            Text::Stderr => state.stderr_cut = rest.to_vec(),
        }
        if !whole.is_empty() {
            state.text(stream, String::from_utf8_lossy(whole).into_owned());
        }
    }

    pub fn log(&self, level: &str, message: &str, attrs: Option<Box<RawValue>>) {
        let size = message.len() + attrs.as_ref().map_or(0, |attrs| attrs.get().len()) + 16;
        let frame = Frame::Log { level: level.to_owned(), message: message.to_owned(), attrs };
        let mut state = self.lock();
        state.push(|state| &mut state.logs, frame, size);
    }

    pub fn emit(&self, value: Box<RawValue>) {
        let size = value.get().len();
        let mut state = self.lock();
        state.push(|state| &mut state.emits, Frame::Emit { value }, size);
    }

    pub fn artifact(&self, artifact: Artifact) {
        self.lock().send(Frame::Artifact { artifact });
    }

    /// Remembers the run's value; its frame is sent by [`FrameSink::end`].
    pub fn result(&self, value: Box<RawValue>) {
        let mut state = self.lock();
        if state.result.is_none() {
            state.result = Some(value);
        }
    }

    /// Remembers the kind of the failure that the script is about to end with.
    pub fn failing(&self, kind: ErrorKind) {
        self.lock().failing = Some(kind);
    }

    /// The kind remembered by [`FrameSink::failing`], taken.
    pub fn take_failing(&self) -> Option<ErrorKind> {
        self.lock().failing.take()
    }

    /// Resolves when the consumer is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn closed(&self) {
        let tx = self.lock().tx.clone();
        tx.closed().await;
    }

    /// Sends what is left, `result` or `error`, and `end`. The first call counts; later ones, from whichever side, do nothing.
    pub fn end(&self, outcome: &Outcome, stop: Option<&StopReason>, retired: bool, timings: Option<Timings>) -> bool {
        let mut state = self.lock();
        if state.phase == Phase::Ended {
            return false;
        }
        let truncated = state.flush();
        let (error, exit_code) = match (stop, outcome) {
            // What the script had returned before it was stopped stands; only its left-overs were stopped.
            (Some(reason), _) if state.result.is_some() => (None, reason.exit_code()),
            (Some(reason), _) => (reason.error(), reason.exit_code()),
            (None, Outcome::Threw(error)) => {
                let code = i32::from(error.kind.row().exit);
                (Some(error.clone()), if code == 0 { 1 } else { code })
            }
            (None, Outcome::Finished { exit_code: 0 }) => (None, 0),
            (None, Outcome::Finished { exit_code }) => {
                let error = StopReason::Exit { code: *exit_code }.error().filter(|_| state.result.is_none());
                (error, *exit_code)
            }
        };
        match (error, state.result.take()) {
            (Some(error), _) => state.send(Frame::Error { error }),
            (None, Some(value)) => state.send(Frame::Result { value }),
            (None, None) => {}
        }
        let end = End {
            exit_code,
            duration_ms: u64::try_from(state.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            timed_out: stop.is_some_and(StopReason::is_timeout),
            truncated,
            retired,
            timings,
        };
        state.send(Frame::End(end));
        state.phase = Phase::Ended;
        // A fresh sender without a receiver: the stream's `next` returns None after the frames that are queued.
        state.tx = mpsc::unbounded_channel().0;
        true
    }

    /// Ends the stream of a run that never came to an isolate.
    pub fn end_unstarted(&self, error: RunError) {
        self.end(&Outcome::Threw(error), None, true, None);
    }
}

impl SinkState {
    fn send(&mut self, frame: Frame) {
        if self.phase == Phase::Open {
            // The consumer may be gone; the supervisor notices that by itself.
            let _ = self.tx.send(frame);
        }
    }

    fn push(&mut self, gate: impl Fn(&mut Self) -> &mut Gate, frame: Frame, size: usize) {
        if self.phase == Phase::Ended {
            return;
        }
        if let Some(frame) = gate(self).admit(frame, size) {
            self.send(frame);
        }
    }

    /// Text goes out whole while it fits the head, is cut where the head ends, and is kept as tail after that.
    fn text(&mut self, stream: Text, mut text: String) {
        let (gate, make): (_, fn(String) -> Frame) = match stream {
            Text::Stdout => (&mut self.stdout, |text| Frame::Stdout { text }),
            Text::Stderr => (&mut self.stderr, |text| Frame::Stderr { text }),
        };
        let mut head = None;
        if gate.tail.is_empty() && gate.head_left > 0 {
            if text.len() <= gate.head_left {
                gate.head_left -= text.len();
                self.send(make(text));
                return;
            }
            let rest = text.split_off(text.floor_char_boundary(gate.head_left));
            head = (!text.is_empty()).then(|| make(std::mem::replace(&mut text, rest)));
        }
        gate.head_left = 0;
        if text.len() > gate.tail_limit {
            let from = text.ceil_char_boundary(text.len() - gate.tail_limit);
            gate.dropped += from as u64;
            text.drain(..from);
        }
        let size = text.len();
        gate.keep(make(text), size);
        if let Some(head) = head {
            self.send(head);
        }
    }

    /// Sends the kept tails with a notice of what is missing.
    fn flush(&mut self) -> Option<Truncated> {
        for (stream, cut) in
            [(Text::Stdout, std::mem::take(&mut self.stdout_cut)), (Text::Stderr, std::mem::take(&mut self.stderr_cut))]
        {
            if !cut.is_empty() {
                self.text(stream, String::from_utf8_lossy(&cut).into_owned());
            }
        }
        let limit = self.limit;
        let notice = |what: &str, dropped: u64| {
            format!(
                "\n[mcpx: {dropped} bytes of {what} are missing here; the limit is {} (exec.maxOutputBytes)]\n",
                bytesize::ByteSize(limit as u64).display().iec()
            )
        };
        let mut truncated = Truncated::default();
        let gates = [&mut self.stdout, &mut self.stderr, &mut self.logs, &mut self.emits];
        let [stdout, stderr, logs, emits] = gates.map(|gate| (gate.dropped, std::mem::take(&mut gate.tail)));
        for ((dropped, tail), what, into) in [
            (stdout, "stdout", &mut truncated.stdout),
            (stderr, "stderr", &mut truncated.stderr),
            (logs, "logs", &mut truncated.logs),
            (emits, "emits", &mut truncated.emits),
        ] {
            *into = dropped;
            if dropped > 0 {
                match what {
                    "stdout" => self.send(Frame::Stdout { text: notice(what, dropped) }),
                    "stderr" => self.send(Frame::Stderr { text: notice(what, dropped) }),
                    _ => {}
                }
            }
            for (frame, _) in tail {
                self.send(frame);
            }
        }
        (truncated != Truncated::default()).then_some(truncated)
    }
}

/// Bounds one kind of output: the first half of the limit passes at once, of the rest the last half is kept for the end.
#[derive(Debug)]
struct Gate {
    head_left: usize,
    tail: VecDeque<(Frame, usize)>,
    tail_bytes: usize,
    tail_limit: usize,
    /// Bytes dropped between head and tail.
    dropped: u64,
}

impl Gate {
    fn new(limit: usize) -> Self {
        let half = limit / 2;
        Self { head_left: limit - half, tail: VecDeque::new(), tail_bytes: 0, tail_limit: half, dropped: 0 }
    }

    /// The frame back, when it may go out now.
    fn admit(&mut self, frame: Frame, size: usize) -> Option<Frame> {
        if self.tail.is_empty() && size <= self.head_left {
            self.head_left -= size;
            return Some(frame);
        }
        self.head_left = 0;
        self.keep(frame, size);
        None
    }

    fn keep(&mut self, frame: Frame, size: usize) {
        self.tail.push_back((frame, size));
        self.tail_bytes += size;
        while self.tail_bytes > self.tail_limit
            && let Some((_, size)) = self.tail.pop_front()
        {
            self.tail_bytes -= size;
            self.dropped += size as u64;
        }
    }
}

/// Length of the longest prefix that does not end inside a character.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    for (at, byte) in bytes.iter().enumerate().skip(last).rev() {
        let width = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return bytes.len(),
        };
        return if at + width > bytes.len() { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(stream: &mut FrameStream) -> Vec<Frame> {
        std::iter::from_fn(|| stream.rx.try_recv().ok()).collect()
    }

    fn text_of(frames: &[Frame]) -> String {
        frames
            .iter()
            .filter_map(|frame| if let Frame::Stdout { text } = frame { Some(text.as_str()) } else { None })
            .collect()
    }

    const DONE: Outcome = Outcome::Finished { exit_code: 0 };

    #[test]
    fn one_end_and_nothing_after_it() {
        let (sink, mut stream) = frames(100);
        assert!(sink.end(&DONE, None, true, None));
        assert!(!sink.end(&DONE, Some(&StopReason::Cancelled), false, None));
        sink.write(Text::Stdout, b"late");
        sink.emit(RawValue::from_string("1".to_owned()).expect("JSON"));
        let words: Vec<_> = drain(&mut stream).iter().map(Frame::word).collect();
        assert_eq!(words, ["end"]);
    }

    #[test]
    fn characters_split_between_writes_are_joined() {
        let (sink, mut stream) = frames(100);
        for byte in "aé€😀z".as_bytes() {
            sink.write(Text::Stdout, &[*byte]);
        }
        sink.write(Text::Stdout, &[0xFF, b'!', 0xE2]);
        sink.end(&DONE, None, true, None);
        assert_eq!(text_of(&drain(&mut stream)), "aé€😀z\u{FFFD}!\u{FFFD}");
    }

    #[test]
    fn a_flood_keeps_head_and_tail() {
        let (sink, mut stream) = frames(20);
        sink.write(Text::Stdout, b"0123456789");
        for letter in b'a'..=b'z' {
            sink.write(Text::Stdout, &[letter]);
        }
        sink.end(&DONE, None, true, None);
        let frames = drain(&mut stream);
        let text = text_of(&frames);
        assert!(text.starts_with("0123456789\n[mcpx: 16 bytes of stdout"), "{text}");
        assert!(text.ends_with("qrstuvwxyz"), "{text}");
        let Some(Frame::End(end)) = frames.last() else { panic!("no end") };
        assert_eq!(end.truncated, Some(Truncated { stdout: 16, ..Truncated::default() }));
    }

    #[test]
    fn one_long_text_is_cut_at_characters() {
        let (sink, mut stream) = frames(10);
        sink.write(Text::Stdout, format!("a{}z", "é".repeat(100)).as_bytes());
        sink.end(&DONE, None, true, None);
        let text = text_of(&drain(&mut stream));
        assert!(text.starts_with("aéé\n[mcpx: 192 bytes"), "{text}");
        assert!(text.ends_with("]\nééz"), "{text}");
    }

    #[test]
    fn what_was_returned_before_a_stop_stands() {
        let (sink, mut stream) = frames(10);
        sink.result(RawValue::from_string("7".to_owned()).expect("JSON"));
        let reason = StopReason::Deadline { limit: std::time::Duration::from_secs(1) };
        sink.end(&DONE, Some(&reason), true, None);
        let frames = drain(&mut stream);
        assert!(
            matches!(&frames[..], [Frame::Result { .. }, Frame::End(end)] if end.timed_out && end.exit_code == 124)
        );
    }

    proptest::proptest! {
        /// However a text is cut into writes and however small the limit, what arrives is valid and bounded.
        #[test]
        fn output_is_bounded(chunks in proptest::collection::vec("\\PC{0,40}", 0..40), limit in 2u64..200) {
            let (sink, mut stream) = frames(limit);
            for chunk in &chunks {
                sink.write(Text::Stdout, chunk.as_bytes());
            }
            sink.end(&DONE, None, true, None);
            let frames = drain(&mut stream);
            let whole = chunks.concat();
            let text = text_of(&frames);
            if whole.len() as u64 <= limit / 2 {
                proptest::prop_assert_eq!(text, whole);
            } else {
                proptest::prop_assert!(text.len() as u64 <= limit + 200);
            }
        }
    }
}
