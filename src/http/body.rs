//! Request bodies: read up to the limit, and parsed with errors that name the field.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::error::{ErrorKind, PublicError};

/// How much of a body that is over the limit is still read and thrown away, as a multiple of the limit: a client that is told
/// "too large" only after it has sent everything hears the answer, one that never stops is cut off.
const DRAIN: u64 = 4;

/// Reads a whole body.
///
/// # Errors
/// `too_large` naming the limit; `bad_request` when the connection breaks.
pub(super) async fn read(headers: &HeaderMap<HeaderValue>, mut body: Body, limit: u64) -> Result<Bytes, PublicError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let mut seen = 0u64;
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| PublicError::bad_request(format!("the request's body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len() as u64;
        if seen > limit.saturating_mul(DRAIN) {
            break;
        }
        if seen <= limit && announced.is_none_or(|length| length <= limit) {
            bytes.extend_from_slice(&data);
        }
    }
    let size = announced.unwrap_or(seen).max(seen);
    if size > limit { Err(too_large(size, limit)) } else { Ok(bytes.freeze()) }
}

/// The answer to a body over the limit.
pub(super) fn too_large(size: u64, limit: u64) -> PublicError {
    PublicError::new(
        ErrorKind::TooLarge,
        format!("the request's body is {size} bytes, over the {limit} byte limit (http.bodyLimit)"),
    )
}

/// Parses JSON.
///
/// # Errors
/// `bad_request` that names the field and, for an unknown one, lists those that are known.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PublicError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        match problem.classify() {
            serde_json::error::Category::Data if path != "." => PublicError::bad_request(format!("{path}: {problem}")),
            serde_json::error::Category::Data => PublicError::bad_request(problem.to_string()),
            _ => PublicError::bad_request(format!("the body is not valid JSON: {problem}")),
        }
    })?;
    deserializer.end().map_err(|error| PublicError::bad_request(format!("the body is not valid JSON: {error}")))?;
    Ok(parsed)
}
