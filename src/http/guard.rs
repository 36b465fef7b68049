//! What every request passes: a web page of somebody else's must not reach the daemon (SPEC 3).

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::AppState;
use super::error::ApiError;
use crate::error::{ErrorKind, PublicError};

pub(super) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    state.activity.touch();
    if !origin_is_ours(request.headers()) {
        let message = "requests of web pages are refused: the Origin header names a foreign site";
        return ApiError(PublicError::new(ErrorKind::PermissionDenied, message)).into_response();
    }
    next.run(request).await
}

/// No `Origin`, or one that is a loopback address by itself. Two of them, or `null`, are foreign.
fn origin_is_ours(headers: &HeaderMap<HeaderValue>) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => origin.to_str().is_ok_and(is_loopback_origin),
        (Some(_), Some(_)) => false,
    }
}

fn is_loopback_origin(origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    if !matches!(scheme, "http" | "https") {
        return false;
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if port.is_empty() || is_port(port) => return host == "::1",
            _ => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) if is_port(&format!(":{port}")) => host,
            Some(_) => return false,
            None => authority,
        },
    };
    let host = host.to_ascii_lowercase();
    matches!(host.trim_end_matches('.'), "localhost" | "127.0.0.1")
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| !digits.is_empty() && digits.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::is_loopback_origin;

    #[test]
    fn whose_origin() {
        for origin in ["http://localhost", "https://127.0.0.1:8443", "http://[::1]:80", "http://LOCALHOST.:1"] {
            assert!(is_loopback_origin(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://127.0.0.1:8080@evil.example",
            "http://evil.example",
            "file://localhost",
            "http://[::1]evil.example",
            "http://localhost:",
        ] {
            assert!(!is_loopback_origin(origin), "{origin}");
        }
    }
}
