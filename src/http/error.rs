//! An error as an HTTP answer: the kind's status, `{error: {kind, message}}`, and for a full queue when to come back.

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::{ErrorKind, PublicError};

/// What a handler fails with.
#[derive(Debug)]
pub(super) struct ApiError(pub(super) PublicError);

impl From<PublicError> for ApiError {
    fn from(error: PublicError) -> Self {
        Self(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let PublicError { kind, message } = self.0;
        let status = StatusCode::from_u16(kind.row().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = Json(json!({"error": {"kind": kind, "message": message}}));
        let mut response = (status, body).into_response();
        if kind == ErrorKind::QueueFull {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// 404 for a path that is not in the API.
pub(super) async fn no_such_route(uri: Uri) -> ApiError {
    ApiError(PublicError::new(ErrorKind::NotFound, format!("there is no {}", uri.path())))
}

/// 405 for a path that is, with another method.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    let body = Json(json!({"error": {"kind": ErrorKind::BadRequest, "message": message}}));
    (StatusCode::METHOD_NOT_ALLOWED, body).into_response()
}
