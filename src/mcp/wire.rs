//! JSON-RPC lines on a child's standard streams.
//!
//! Owns the framing, and what of a message is read by whom. rmcp gets its own types for the handshake, for requests and
//! for notifications. The `result` of any later answer is handed on as the text the server sent, as a JSON string
//! inside `CustomResult`: rmcp's own types would drop fields they do not know, refuse a whole listing for one odd tool,
//! and parse and print again what we only pass on. [`raw_result`] takes it out.
//!
//! Invariants: a line that is no message never ends the session and is never answered; messages are written in the
//! order in which rmcp sends them (so a cancellation cannot overtake its call); no line over [`MAX_LINE`] is ever in
//! memory.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio_util::bytes::{Buf as _, BytesMut};
use tokio_util::sync::CancellationToken;

use super::child::Pipes;
use super::transcript::Transcript;

/// Longest line, bytes. Longer ones are dropped and counted.
const MAX_LINE: usize = 64 * 1024 * 1024;

/// Bytes that one read asks for at least.
const CHUNK: usize = 64 * 1024;

/// A buffer that grew beyond this for one message is given back after it.
const KEEP: usize = 1024 * 1024;

/// The transport of one child.
#[derive(Debug)]
pub(super) struct StdioWire {
    stdout: ChildStdout,
    lines: Lines,
    queued: VecDeque<ServerJsonRpcMessage>,
    /// Whether answers are handed on as text: not before the handshake is over.
    raw: bool,
    outbox: Option<mpsc::UnboundedSender<Vec<u8>>>,
    transcript: Arc<Transcript>,
}

/// The switches of a transport that has gone into rmcp.
#[derive(Debug, Clone)]
pub(super) struct WireSwitch {
    /// Cancelling it closes standard input.
    pub(super) close: CancellationToken,
    /// Cancelled when standard input cannot be written any more.
    pub(super) broken: CancellationToken,
}

impl StdioWire {
    /// Must be called on the daemon's runtime: a task writes to standard input.
    pub(super) fn new(pipes: Pipes, transcript: Arc<Transcript>) -> (Self, WireSwitch) {
        let switch = WireSwitch { close: CancellationToken::new(), broken: CancellationToken::new() };
        let (outbox, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_out(pipes.stdin, queue, switch.clone()));
        let wire = Self {
            stdout: pipes.stdout,
            lines: Lines::default(),
            queued: VecDeque::new(),
            raw: false,
            outbox: Some(outbox),
            transcript,
        };
        (wire, switch)
    }

    fn read(&mut self, line: &[u8]) {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
        let read = match line.first() {
            None => return,
            Some(b'{') => read_message(line, self.raw).map(|message| self.queued.push_back(message)),
            // Batches existed in revision 2025-03-26.
            Some(b'[') => serde_json::from_slice::<Vec<&RawValue>>(line).ok().map(|batch| {
                let messages = batch.into_iter().filter_map(|part| read_message(part.get().as_bytes(), self.raw));
                self.queued.extend(messages);
            }),
            Some(_) => None,
        };
        if read.is_none() {
            self.transcript.noise(line);
        }
    }
}

impl Transport<RoleClient> for StdioWire {
    type Error = std::io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item {
            self.raw =
                !matches!(request.request, ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_));
        }
        // Queued here and not in the future: rmcp polls these futures on tasks of their own, in any order. The queue is
        // unbounded and stays small: nearly everything in it is a call whose caller waits.
        let sent = serde_json::to_vec(&item).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            let outbox = self.outbox.as_ref().ok_or(std::io::ErrorKind::NotConnected)?;
            outbox.send(line).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
        });
        std::future::ready(sent)
    }

    /// # Cancel safety
    /// Safe: rmcp drops this future whenever something else happens; bytes read so far stay in the buffer.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.queued.pop_front() {
                return Some(message);
            }
            match self.lines.next(MAX_LINE) {
                Line::Whole(line) => self.read(&line),
                Line::TooLong => self.transcript.oversized(),
                Line::Unfinished => match self.stdout.read_buf(self.lines.space()).await {
                    Ok(count) if count > 0 => {}
                    // The last line needs no end.
                    _ => match self.lines.rest() {
                        Some(line) => self.read(&line),
                        None => return None,
                    },
                },
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.outbox = None;
        Ok(())
    }
}

/// Cuts a byte stream into lines, without looking at any byte twice.
#[derive(Debug, Default)]
struct Lines {
    buffer: BytesMut,
    /// So many bytes at the front hold no line end.
    scanned: usize,
    /// Inside a line that was too long.
    skipping: bool,
}

enum Line {
    Whole(BytesMut),
    TooLong,
    Unfinished,
}

impl Lines {
    fn space(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(CHUNK);
        &mut self.buffer
    }

    fn next(&mut self, limit: usize) -> Line {
        loop {
            let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some(at) = fresh.iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.buffer.len();
                if self.skipping || self.buffer.len() > limit {
                    self.buffer.clear();
                    self.scanned = 0;
                    if !std::mem::replace(&mut self.skipping, true) {
                        return Line::TooLong;
                    }
                }
                return Line::Unfinished;
            };
            let line = self.buffer.split_to(self.scanned + at);
            self.buffer.advance(1);
            self.scanned = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            return if line.len() > limit { Line::TooLong } else { Line::Whole(line) };
        }
    }

    /// What is left at the end of the stream.
    fn rest(&mut self) -> Option<BytesMut> {
        self.scanned = 0;
        let rest = std::mem::take(&mut self.buffer);
        (!rest.is_empty() && !self.skipping).then_some(rest)
    }
}

/// Reads one message; `None` if it is none.
fn read_message(line: &[u8], raw: bool) -> Option<ServerJsonRpcMessage> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(default, borrow)]
        id: Option<&'a RawValue>,
        #[serde(default, borrow)]
        method: Option<&'a RawValue>,
        #[serde(default, borrow)]
        result: Option<&'a RawValue>,
        #[serde(default, borrow)]
        error: Option<&'a RawValue>,
    }
    // A server may print bytes that are no UTF-8 inside a string; an answer with a few marks in it beats none.
    let line = String::from_utf8_lossy(line);
    let envelope: Envelope<'_> = serde_json::from_str(&line).ok()?;
    if envelope.method.is_some() {
        return serde_json::from_str(&line).ok();
    }
    let id: RequestId = serde_json::from_str(envelope.id?.get()).ok()?;
    if let Some(error) = envelope.error {
        return Some(JsonRpcMessage::error(read_error(error.get()), Some(id)));
    }
    if !raw {
        return serde_json::from_str(&line).ok();
    }
    let text = envelope.result.map_or("null", RawValue::get).to_owned();
    Some(JsonRpcMessage::response(ServerResult::CustomResult(CustomResult::new(Value::String(text))), id))
}

/// Reads a JSON-RPC error, whatever its shape: its caller waits for one.
fn read_error(text: &str) -> ErrorData {
    serde_json::from_str(text).unwrap_or_else(|_| {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let code = value.get("code").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
        let message = value.get("message").and_then(Value::as_str).map_or_else(|| text.to_owned(), str::to_owned);
        ErrorData::new(code.map_or(ErrorCode::INTERNAL_ERROR, ErrorCode), message, None)
    })
}

/// The text of an answer that came through a [`StdioWire`] after the handshake.
pub(super) fn raw_result(result: ServerResult) -> Option<String> {
    match result {
        ServerResult::CustomResult(CustomResult(Value::String(text))) => Some(text),
        _ => None,
    }
}

async fn write_out(mut stdin: ChildStdin, mut queue: mpsc::UnboundedReceiver<Vec<u8>>, switch: WireSwitch) {
    let write = async {
        while let Some(line) = queue.recv().await {
            if stdin.write_all(&line).await.is_err() {
                switch.broken.cancel();
                return;
            }
        }
    };
    tokio::select! {
        () = switch.close.cancelled() => {}
        () = write => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&str], limit: usize) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            lines.space().extend_from_slice(chunk.as_bytes());
            loop {
                match lines.next(limit) {
                    Line::Whole(line) => seen.push(String::from_utf8_lossy(&line).into_owned()),
                    Line::TooLong => seen.push("<too long>".to_owned()),
                    Line::Unfinished => break,
                }
            }
        }
        seen.extend(lines.rest().map(|rest| String::from_utf8_lossy(&rest).into_owned()));
        seen
    }

    #[test]
    fn lines_from_any_chunks() {
        assert_eq!(lines(&["a\nb", "c\n\nd"], 9), ["a", "bc", "", "d"]);
        assert_eq!(lines(&["12", "345", "6", "7\n8\n"], 4), ["<too long>", "8"]);
        assert_eq!(lines(&["12345\n6\n"], 4), ["<too long>", "6"]);
        assert_eq!(lines(&["1\n23456"], 4), ["1", "<too long>"]);
        assert_eq!(lines(&["1234\n"], 4), ["1234"]);
    }

    #[test]
    fn answers_keep_their_text() {
        let text = r#"{"content":[],"x":1.0,"id":9007199254740993}"#;
        let line = format!(r#"{{"jsonrpc":"2.0","id":"7","result": {text}}}"#);
        let Some(JsonRpcMessage::Response(response)) = read_message(line.as_bytes(), true) else { panic!("no answer") };
        assert_eq!(raw_result(response.result).as_deref(), Some(text));
        let broken = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xFF\"}";
        assert!(matches!(read_message(broken, true), Some(JsonRpcMessage::Response(_))));
    }

    #[test]
    fn what_is_no_message() {
        for line in ["{\"half\":", "{}", "{\"id\":{}}", "{\"result\":1}"] {
            assert!(read_message(line.as_bytes(), true).is_none(), "{line}");
        }
        for line in [r#"{"id":1,"error":"plain"}"#, r#"{"id":1,"error":{"code":-1}}"#] {
            assert!(matches!(read_message(line.as_bytes(), true), Some(JsonRpcMessage::Error(_))), "{line}");
        }
    }
}
