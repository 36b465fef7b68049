//! The client of the API: one HTTP/1.1 connection over the daemon's unix socket.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::output::CliError;
use crate::api::LOCAL_HEADER;
use crate::daemon::InfoRecord;
use crate::error::ErrorKind;
use crate::paths::Paths;

/// How long a daemon may take for its first answer. One that is suspended accepts connections and never answers.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// A connection to a daemon.
#[derive(Debug)]
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// Proof that we share its file system, for requests that name paths.
    local: Option<String>,
    log: String,
}

impl Client {
    /// Speaks HTTP over a connected socket.
    pub(super) async fn new(
        (stream, record): (tokio::net::UnixStream, Option<InfoRecord>),
        paths: &Paths,
    ) -> Result<Self, CliError> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        Ok(Self { sender, local: record.map(|record| record.started_at), log: paths.log.display().to_string() })
    }

    /// Sends a request and returns the answer's head; `patience` bounds the wait for it.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
        patience: Option<Duration>,
    ) -> Result<Response<Incoming>, CliError> {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some(local) = &self.local {
            request = request.header(LOCAL_HEADER, local);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| CliError::new(ErrorKind::BadRequest, error.to_string()))?;
        let response = self.sender.send_request(request);
        let response = match patience {
            None => response.await,
            Some(patience) => tokio::time::timeout(patience, response).await.map_err(|_| {
                let waited = humantime::format_duration(patience);
                let message =
                    format!("the daemon accepted the connection and did not answer within {waited}; see {}", self.log);
                CliError::new(ErrorKind::Internal, message)
            })?,
        };
        response.map_err(broken)
    }

    /// A request whose answer is one JSON document.
    pub(super) async fn json(&mut self, method: Method, path: &str, body: Option<Value>) -> Result<Value, CliError> {
        let headers: &[_] = if body.is_some() { &[("content-type", "application/json")] } else { &[] };
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let response = self.send(method, path, headers, bytes, None).await?;
        let (_, bytes) = checked(response).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| CliError::new(ErrorKind::Internal, format!("an odd answer: {error}")))
    }

    /// Makes sure that the daemon answers at all.
    pub(super) async fn greet(&mut self) -> Result<(), CliError> {
        let response = self.send(Method::GET, "/v1/health", &[], Bytes::new(), Some(ANSWERS_WITHIN)).await?;
        checked(response).await.map(drop)
    }

    /// How long the head of a streamed answer may take.
    pub(super) const fn patience() -> Duration {
        ANSWERS_WITHIN
    }
}

/// The whole body of a successful answer; a failed one as the error it describes.
pub(super) async fn checked(response: Response<Incoming>) -> Result<(http::response::Parts, Bytes), CliError> {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map_err(broken)?.to_bytes();
    if parts.status.is_success() { Ok((parts, bytes)) } else { Err(failure(parts.status, &bytes)) }
}

/// The error that a failed answer describes.
pub(super) fn failure(status: StatusCode, body: &[u8]) -> CliError {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let kind = parsed["error"]["kind"].as_str().and_then(ErrorKind::from_word).unwrap_or(ErrorKind::Internal);
    let message =
        parsed["error"]["message"].as_str().map_or_else(|| format!("the daemon answered {status}"), str::to_owned);
    CliError::new(kind, message)
}

pub(super) fn broken(error: hyper::Error) -> CliError {
    CliError::from_chain(ErrorKind::Interrupted, &error)
}
