//! `POST /v1/exec`: a request becomes a run, its frames become one of three answers (SPEC 5.1).
//!
//! Dropping the answer's body drops the frames, and with them the run: a client that goes away stops it.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::{self, Stream};
use http_body_util::StreamBody;
use hyper::body::Frame as BodyFrame;
use serde_json::{Value, json};

use super::body::{parse, read};
use super::error::ApiError;
use super::{AppState, rendered};
use crate::api::{ExecRequest, LOCAL_HEADER};
use crate::error::{ErrorKind, PublicError};
use crate::id::RunId;
use crate::run::frame::Frame;
use crate::run::sink::FrameStream;
use crate::run::spec::{Caller, RunSpec};
use crate::run::{Run, fold};

/// Pause after which an event stream sends a comment, so that nobody in between takes it for dead.
const PING: Duration = Duration::from_secs(15);

pub(super) async fn exec(State(state): State<AppState>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let bytes = read(&headers, body, state.settings.http_body_limit).await?;
    let request: ExecRequest = parse(&bytes)?;
    drop(bytes);
    let output = request.options.output.clone();
    let spec = RunSpec::from_request(request, caller(&headers, &state), &state.settings)?;
    let run = state.runs.start(spec).await?;
    Ok(match output.as_deref() {
        Some("text") => text(run),
        Some("stream") => stream_of(run, &headers),
        _ => Json(fold(run.id.as_str(), run.frames).await).into_response(),
    })
}

pub(super) async fn cancel(State(state): State<AppState>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let known = id.parse::<RunId>().is_ok_and(|id| state.runs.cancel(&id));
    if known {
        Ok(Json(json!({"runId": id, "cancelled": true})))
    } else {
        Err(PublicError::new(ErrorKind::NotFound, format!("there is no run {id:?} that could be cancelled")).into())
    }
}

/// A caller that can name the record's start has read the record, and so shares our file system.
pub(super) fn caller(headers: &HeaderMap<HeaderValue>, state: &AppState) -> Caller {
    let proof = headers.get(LOCAL_HEADER).and_then(|value| value.to_str().ok());
    Caller { local: proof.is_some_and(|proof| proof == state.record.started_at) }
}

fn frames_of(frames: FrameStream) -> impl Stream<Item = Frame> {
    stream::unfold(frames, |mut frames| async move { frames.next().await.map(|frame| (frame, frames)) })
}

/// `stream`: NDJSON for those who ask for it, else server-sent events.
fn stream_of(run: Run, headers: &HeaderMap<HeaderValue>) -> Response {
    use futures::StreamExt as _;
    let accepts = |media: &str| {
        let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        accept
            .flat_map(|value| value.split(','))
            .any(|entry| entry.split(';').next().is_some_and(|name| name.trim() == media))
    };
    if accepts("multipart/mixed") {
        let message =
            "multipart/mixed is not supported in this version; ask for application/x-ndjson or text/event-stream";
        return ApiError(PublicError::unsupported(message)).into_response();
    }
    if accepts("application/x-ndjson") {
        let lines = frames_of(run.frames).map(|frame| Ok::<_, Infallible>(Bytes::from(json_line(&frame) + "\n")));
        return with_type("application/x-ndjson", Body::from_stream(lines));
    }
    let events = stream::unfold((run.frames, 0u64), |(mut frames, sequence)| async move {
        match tokio::time::timeout(PING, frames.next()).await {
            Err(_) => Some((": ping\n\n".to_owned(), (frames, sequence))),
            Ok(None) => None,
            Ok(Some(frame)) => {
                let event = format!("id: {sequence}\nevent: {}\ndata: {}\n\n", frame.word(), json_line(&frame));
                Some((event, (frames, sequence + 1)))
            }
        }
    });
    let events = events.map(|event| Ok::<_, Infallible>(Bytes::from(event)));
    with_type("text/event-stream", Body::from_stream(events))
}

fn json_line(frame: &Frame) -> String {
    // Frames are made of strings, numbers and JSON texts; they always serialise.
    serde_json::to_string(frame).unwrap_or_default()
}

/// `text`: what the script prints, then its value; exit code and error as trailers.
fn text(run: Run) -> Response {
    use futures::StreamExt as _;
    let mut error = None;
    let frames = frames_of(run.frames).filter_map(move |frame| {
        let body = match frame {
            Frame::Stdout { text } => Some(BodyFrame::data(Bytes::from(text))),
            Frame::Result { value } => Some(BodyFrame::data(Bytes::from(rendered(&value) + "\n"))),
            Frame::Error { error: failed } => {
                error = Some(format!("{}: {}: {}", failed.kind, failed.name, failed.message));
                None
            }
            Frame::End(end) => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-mcpx-exit-code", HeaderValue::from(end.exit_code));
                let said = error.take().map(|error| error.replace(|c: char| c.is_control(), " "));
                if let Some(Ok(value)) = said.map(|said| HeaderValue::from_bytes(said.as_bytes())) {
                    trailers.insert("x-mcpx-error", value);
                }
                Some(BodyFrame::trailers(trailers))
            }
            _ => None,
        };
        std::future::ready(body.map(Ok::<_, Infallible>))
    });
    let mut response = with_type("text/plain; charset=utf-8", Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(header::TRAILER, HeaderValue::from_static("x-mcpx-exit-code, x-mcpx-error"));
    response
}

fn with_type(media: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
