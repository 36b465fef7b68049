//! `/v1/artifacts`: store, list, read and delete.
//!
//! Reading the store blocks, so it happens on the blocking pool, chunk by chunk: a body is never in memory as a whole.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AppState;
use super::body::too_large;
use super::error::ApiError;
use crate::error::{ErrorKind, PublicError};
use crate::run::ports::{log_store_error, store_error_kind, wire_artifact};
use crate::settings::parse_duration;
use crate::store::{ArtifactId, ArtifactMeta, BodyReader, Cursor, ListQuery, NewArtifact, StoreError};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UploadQuery {
    name: Option<String>,
    mime: Option<String>,
    run: Option<String>,
    session: Option<String>,
    ttl: Option<String>,
}

/// Stores the request's body. 201 is sent after the commit.
pub(super) async fn upload(
    State(state): State<AppState>,
    query: Result<Query<UploadQuery>, QueryRejection>,
    headers: HeaderMap,
    mut body: Body,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| PublicError::bad_request(error.body_text()))?;
    let limit = state.settings.http_body_limit.max(state.settings.artifacts_max_bytes);
    if let Some(length) = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
    {
        let most = state.settings.artifacts_max_bytes;
        if length > most {
            return Err(failed(StoreError::TooLarge { size: length, limit: most }));
        }
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mime = match query.mime {
        Some(mime) => Some(checked_mime(mime)?),
        // A form type is what tools send when they are told nothing.
        None => content_type.filter(|mime| *mime != "application/x-www-form-urlencoded").map(str::to_owned),
    };
    let ttl = match query.ttl.as_deref() {
        None => Some(state.settings.artifacts_ttl).filter(|ttl| !ttl.is_zero()),
        Some(text) => Some(ttl_of(text)?),
    };
    let described =
        NewArtifact { name: query.name.unwrap_or_default(), mime, ttl, run: query.run, session: query.session };
    let mut upload = state.store.begin();
    let mut seen = 0u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| PublicError::bad_request(format!("the upload broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len() as u64;
        if seen > limit {
            return Err(too_large(seen, limit).into());
        }
        upload.write(data).await.map_err(failed)?;
    }
    let meta = upload.finish(described).await.map_err(failed)?;
    let location = HeaderValue::from_str(&format!("/v1/artifacts/{}", meta.id));
    let mut response = (StatusCode::CREATED, Json(described_as_json(&meta))).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

fn ttl_of(text: &str) -> Result<Duration, PublicError> {
    let ttl = parse_duration(text).map_err(|problem| PublicError::bad_request(format!("ttl {text:?}: {problem}")))?;
    if ttl < Duration::from_millis(1) {
        return Err(PublicError::bad_request(format!("ttl {text:?}: an artifact lives at least 1ms")));
    }
    Ok(ttl)
}

fn checked_mime(mime: String) -> Result<String, PublicError> {
    if mime.is_empty() || mime.chars().any(|c| c.is_control() || !c.is_ascii()) {
        return Err(PublicError::bad_request(format!("mime {mime:?} is no media type")));
    }
    Ok(mime)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    run: Option<String>,
    session: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists, newest first.
pub(super) async fn list(
    State(state): State<AppState>,
    query: Result<Query<ListParams>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(query) = query.map_err(|error| PublicError::bad_request(error.body_text()))?;
    let most = state.settings.artifacts_list_limit;
    let limit = query.limit.unwrap_or(most);
    if limit == 0 || limit > most {
        return Err(
            PublicError::bad_request(format!("limit must be 1 to {most} (artifacts.listLimit), not {limit}")).into()
        );
    }
    let before = match query.cursor {
        None => None,
        Some(text) => {
            Some(text.parse::<Cursor>().map_err(|error| PublicError::bad_request(format!("cursor: {error}")))?)
        }
    };
    let asked = ListQuery { run: query.run, session: query.session, limit, before };
    let store = state.store.clone();
    let page = blocking(move || store.list(&asked)).await?.map_err(failed)?;
    let artifacts: Vec<Value> = page.artifacts.iter().map(described_as_json).collect();
    let mut answer = json!({"artifacts": artifacts});
    if let Some(next) = page.next {
        answer["cursor"] = json!(next.to_string());
    }
    Ok(Json(answer))
}

/// The bytes of one artifact.
pub(super) async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let found = match id.parse::<ArtifactId>() {
        Ok(parsed) => {
            let store = state.store.clone();
            blocking(move || store.open_body(&parsed)).await?.map_err(failed)?
        }
        Err(_) => None,
    };
    let (meta, body) = found.ok_or_else(|| missing(&id))?;
    let etag = format!("\"{}\"", meta.sha256_hex());
    let unchanged = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim().trim_start_matches("W/") == etag || tag.trim() == "*");
    let mut response = if unchanged {
        StatusCode::NOT_MODIFIED.into_response()
    } else if method == Method::HEAD {
        Response::new(Body::empty())
    } else {
        Response::new(stream_of(body))
    };
    let size = meta.size.to_string();
    let disposition = disposition(&meta.name);
    let sha256 = meta.sha256_hex();
    let fields = [
        (header::CONTENT_TYPE, meta.mime.as_str()),
        (header::CONTENT_LENGTH, if unchanged { "" } else { &size }),
        (header::ETAG, &etag),
        (header::CONTENT_DISPOSITION, &disposition),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "sandbox"),
        (header::HeaderName::from_static("x-mcpx-sha256"), &sha256),
    ];
    for (name, value) in fields {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

/// A stored name is ASCII and safe as it is (SPEC 8.3).
fn disposition(name: &str) -> String {
    format!("attachment; filename=\"{name}\"")
}

/// The body, one chunk row after the other.
fn stream_of(body: BodyReader) -> Body {
    let size = body.size();
    let chunks = body.chunks(0..size);
    Body::from_stream(stream::unfold(Some(chunks), |chunks| async move {
        let mut chunks = chunks?;
        let read = tokio::task::spawn_blocking(move || {
            let chunk = chunks.next();
            (chunk, chunks)
        });
        match read.await {
            Ok((Some(Ok(chunk)), rest)) => Some((Ok::<Bytes, std::io::Error>(chunk), Some(rest))),
            // The connection breaks: the client sees fewer bytes than it was promised, never wrong ones.
            Ok((Some(Err(error)), _)) => {
                tracing::error!("reading an artifact: {error}");
                Some((Err(std::io::Error::other(error)), None))
            }
            Ok((None, _)) => None,
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    }))
}

/// Removes one artifact.
pub(super) async fn delete(State(state): State<AppState>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let parsed = id.parse::<ArtifactId>().map_err(|_| missing(&id))?;
    if state.store.delete(&parsed).await.map_err(failed)? {
        Ok(Json(json!({"deleted": id})))
    } else {
        Err(missing(&id))
    }
}

fn described_as_json(meta: &ArtifactMeta) -> Value {
    let mut described = serde_json::to_value(wire_artifact(meta)).unwrap_or_default();
    let time =
        |ms: u64| humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + Duration::from_millis(ms)).to_string();
    described["createdAt"] = json!(time(meta.created_ms));
    for (name, value) in
        [("expiresAt", meta.expires_ms.map(time)), ("run", meta.run.clone()), ("session", meta.session.clone())]
    {
        if let Some(value) = value {
            described[name] = json!(value);
        }
    }
    described
}

fn missing(id: &str) -> ApiError {
    ApiError(PublicError::new(ErrorKind::NotFound, format!("no artifact {id}; it may have expired")))
}

fn failed(error: StoreError) -> ApiError {
    log_store_error(&error);
    ApiError(PublicError::new(store_error_kind(&error), error.to_string()))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| ApiError(PublicError::new(ErrorKind::Internal, "a read of the store was abandoned")))
}
