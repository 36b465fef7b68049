//! Ops behind `artifact()`: one for each form in which the bytes arrive.
//!
//! The bytes are copied once, from V8's memory into a buffer that the store takes over; base64 of MCP content items is decoded
//! here, so that JavaScript never holds a second copy.

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use deno_core::{OpState, op2};
use deno_permissions::{OpenAccessKind, PermissionsContainer};

use crate::error::OpError;
use crate::interface::{ArtifactBody, NewArtifact};
use crate::output::ports;

async fn put(
    state: Rc<RefCell<OpState>>,
    name: String,
    mime: Option<String>,
    ttl_ms: f64,
    body: ArtifactBody,
) -> Result<String, OpError> {
    let artifacts = ports(&state.borrow())?.artifacts;
    // JavaScript passes NaN for "not given"; a comparison with NaN is false.
    let ttl_ms = (ttl_ms > 0.0).then_some(ttl_ms as u64);
    Ok(artifacts.put(NewArtifact { name, mime, ttl_ms, body }).await?)
}

/// Stores bytes; resolves with the metadata as JSON text.
#[op2]
#[string]
pub(crate) async fn op_mcpx_artifact_bytes(
    state: Rc<RefCell<OpState>>,
    #[string] name: String,
    #[string] mime: Option<String>,
    ttl_ms: f64,
    #[buffer(copy)] bytes: Vec<u8>,
) -> Result<String, OpError> {
    put(state, name, mime, ttl_ms, ArtifactBody::Bytes(bytes)).await
}

/// Stores a string as UTF-8.
#[op2]
#[string]
pub(crate) async fn op_mcpx_artifact_text(
    state: Rc<RefCell<OpState>>,
    #[string] name: String,
    #[string] mime: Option<String>,
    ttl_ms: f64,
    #[string] text: String,
) -> Result<String, OpError> {
    put(state, name, mime, ttl_ms, ArtifactBody::Bytes(text.into_bytes())).await
}

/// Stores the bytes that a base64 text stands for.
#[op2]
#[string]
pub(crate) async fn op_mcpx_artifact_base64(
    state: Rc<RefCell<OpState>>,
    #[string] name: String,
    #[string] mime: Option<String>,
    ttl_ms: f64,
    #[string] base64: String,
) -> Result<String, OpError> {
    let bytes = decode_base64(&base64)?;
    put(state, name, mime, ttl_ms, ArtifactBody::Bytes(bytes)).await
}

/// Stores a file that the run may read. The permission is checked before the first await, so that a refusal is immediate.
#[op2]
#[string]
pub(crate) async fn op_mcpx_artifact_path(
    state: Rc<RefCell<OpState>>,
    #[string] name: String,
    #[string] mime: Option<String>,
    ttl_ms: f64,
    #[string] path: String,
) -> Result<String, OpError> {
    let path = readable(&state.borrow(), &path)?;
    put(state, name, mime, ttl_ms, ArtifactBody::Path(path)).await
}

/// The path to read, checked against the run's read permission (SPEC 6.1) and made absolute on this thread, whose working
/// directory is the run's.
fn readable(state: &OpState, path: &str) -> Result<PathBuf, OpError> {
    let permissions = state.try_borrow::<PermissionsContainer>().ok_or(OpError::NoRun)?;
    let checked = permissions.check_open(Cow::Borrowed(Path::new(path)), OpenAccessKind::Read, Some("artifact()"))?;
    Ok(std::path::absolute(&*checked)?)
}

/// Decodes standard base64, padded or not, white space ignored, as MCP servers send it.
fn decode_base64(text: &str) -> Result<Vec<u8>, OpError> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let mut buffer: u32 = 0;
    let mut bits = 0u32;
    let mut padding = false;
    for &byte in text.as_bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                padding = true;
                continue;
            }
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            _ => return Err(OpError::NotBase64),
        };
        if padding {
            return Err(OpError::NotBase64);
        }
        buffer = (buffer << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
            buffer &= (1 << bits) - 1;
        }
    }
    // A single left-over character carries six bits: no byte can end there.
    if bits == 6 { Err(OpError::NotBase64) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::decode_base64;

    #[test]
    fn base64_in_the_forms_servers_send() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("aGk=", b"hi"),
            ("aGk", b"hi"),
            ("aG\nk=", b"hi"),
            ("_-8=", &[255, 239]),
            ("AAAA", &[0, 0, 0]),
        ] {
            assert_eq!(decode_base64(text).ok().as_deref(), Some(bytes), "{text:?}");
        }
        for text in ["a", "aGk=a", "a*b=", "aaaaa"] {
            assert!(decode_base64(text).is_err(), "{text:?}");
        }
    }
}
