//! The frames of a run, as they arrive.

use serde_json::Value;

use super::http::Opened;

/// A stream of NDJSON. Dropping it closes the connection, which stops the run.
#[derive(Debug)]
pub(crate) struct Frames {
    opened: Opened,
    buffer: Vec<u8>,
    ended: bool,
}

impl Frames {
    #[track_caller]
    pub(crate) fn new(opened: Opened) -> Self {
        if opened.status != 200 {
            let answer = opened.rest();
            panic!("{}: {}", answer.status, answer.text());
        }
        Self { opened, buffer: Vec::new(), ended: false }
    }

    /// Reads on until there is a frame of this type, and returns it.
    #[track_caller]
    pub(crate) fn until(&mut self, word: &str) -> Value {
        let found = self.find(|frame| frame["type"] == word);
        found.unwrap_or_else(|| panic!("the stream ended without a frame {word}"))
    }

    /// The next frame of a daemon that may be killed at any moment; `None` as well when the stream breaks off.
    pub(crate) fn next_if_any(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                return Some(serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")));
            }
            match self.opened.try_piece() {
                Ok(Some(piece)) => self.buffer.extend(piece),
                Ok(None) => {
                    self.ended = true;
                    return None;
                }
                Err(_) => return None,
            }
        }
    }
}

impl Iterator for Frames {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let frame = self.next_if_any();
        if frame.is_none() {
            assert!(self.ended, "the stream broke off");
            assert!(self.buffer.is_empty(), "half a frame: {:?}", String::from_utf8_lossy(&self.buffer));
        }
        frame
    }
}

/// The types of frames, in order.
pub(crate) fn words(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}
