//! A small HTTP/1.1 client over a unix socket, which can also be rude: break off, say something wrong, not read on.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::wait::PATIENCE;

/// Where to send requests, and the headers that each of them carries.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    socket: PathBuf,
    headers: Vec<(String, String)>,
}

/// A request that is being put together.
#[derive(Debug)]
pub(crate) struct Request {
    socket: PathBuf,
    head: String,
    body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), headers: Vec::new() }
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn request(&self, method: &str, target: &str) -> Request {
        let head = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        let request = Request { socket: self.socket.clone(), head, body: Vec::new() };
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.request("GET", target).send()
    }

    pub(crate) fn delete(&self, target: &str) -> Answer {
        self.request("DELETE", target).send()
    }

    pub(crate) fn post(&self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", target).body(body).send()
    }

    /// A connection as it is, for requests that are none.
    pub(crate) fn connect(&self) -> UnixStream {
        connect(&self.socket)
    }
}

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl Request {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_owned();
        let length = self.body.len();
        self.header("content-length", &length.to_string())
    }

    /// Sends it and reads the head of the answer.
    pub(crate) fn open(self) -> Opened {
        let mut stream = connect(&self.socket);
        // Whoever refuses a body may stop reading it; the answer tells.
        let _ = stream.write_all(format!("{}\r\n", self.head).as_bytes()).and_then(|()| stream.write_all(&self.body));
        Opened::read(stream, self.head.starts_with("HEAD"))
    }

    /// Sends it and reads the whole answer.
    pub(crate) fn send(self) -> Answer {
        self.open().rest()
    }
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy)]
enum Framing {
    Left(u64),
    Chunked,
    UntilClose,
}

/// An answer whose body has not been read yet. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    trailers: Vec<(String, String)>,
    stream: BufReader<UnixStream>,
    framing: Framing,
}

impl Opened {
    /// Reads an answer's head from a connection on which a request was sent.
    pub(crate) fn read(stream: UnixStream, is_head: bool) -> Self {
        let mut stream = BufReader::new(stream);
        let line = line_of(&mut stream);
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not an answer: {line:?}"));
        let headers = fields_of(&mut stream);
        let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let framing = match (value("content-length"), value("transfer-encoding")) {
            _ if is_head || matches!(status, 204 | 304) => Framing::Left(0),
            (Some(length), _) => Framing::Left(length.parse().unwrap()),
            (None, Some("chunked")) => Framing::Chunked,
            (None, _) => Framing::UntilClose,
        };
        Self { status, headers, trailers: Vec::new(), stream, framing }
    }

    /// The next piece of the body; `None` at its end. Fails when the connection breaks before that.
    pub(crate) fn piece(&mut self) -> Option<Vec<u8>> {
        self.try_piece().unwrap_or_else(|error| panic!("the answer broke off: {error}"))
    }

    /// [`Opened::piece`] for an answer that may break off.
    pub(crate) fn try_piece(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        match &mut self.framing {
            Framing::Left(0) => Ok(None),
            Framing::Left(left) => {
                let mut piece = vec![0; usize::try_from(*left).unwrap().min(64 << 10)];
                let read = self.stream.read(&mut piece)?;
                if read == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                *left -= read as u64;
                piece.truncate(read);
                Ok(Some(piece))
            }
            Framing::Chunked => {
                let mut line = String::new();
                if self.stream.read_line(&mut line)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                let length = u64::from_str_radix(line.trim(), 16).unwrap_or_else(|_| panic!("not a chunk: {line:?}"));
                if length == 0 {
                    self.trailers = fields_of(&mut self.stream);
                    self.framing = Framing::Left(0);
                    return Ok(None);
                }
                let mut piece = vec![0; usize::try_from(length).unwrap() + 2];
                self.stream.read_exact(&mut piece)?;
                piece.truncate(piece.len() - 2);
                Ok(Some(piece))
            }
            Framing::UntilClose => {
                let mut piece = vec![0; 64 << 10];
                let read = self.stream.read(&mut piece)?;
                piece.truncate(read);
                Ok((read > 0).then_some(piece))
            }
        }
    }

    /// The rest of the answer.
    pub(crate) fn rest(mut self) -> Answer {
        let mut body = Vec::new();
        while let Some(piece) = self.piece() {
            body.extend(piece);
        }
        Answer { status: self.status, headers: self.headers, body, trailers: self.trailers }
    }
}

fn line_of(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap_or_else(|error| panic!("no answer: {error}"));
    assert!(line.ends_with("\r\n"), "the connection ended in {line:?}");
    line.trim_end().to_owned()
}

fn fields_of(stream: &mut BufReader<UnixStream>) -> Vec<(String, String)> {
    let lines = std::iter::from_fn(|| Some(line_of(stream)).filter(|line| !line.is_empty()));
    lines
        .map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())).unwrap())
        .collect()
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The error that a refusal describes: its kind and its message.
    #[track_caller]
    pub(crate) fn refusal(&self) -> (String, String) {
        assert!(self.status >= 400, "{}: {}", self.status, self.text());
        let error = &self.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_else(|| panic!("no {name}: {error}")).to_owned();
        (text("kind"), text("message"))
    }
}
