//! `GET /v1/tools` and `POST /v1/call`: what the servers offer, and one call without a script.

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use futures::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::AppState;
use super::body::{parse, read};
use super::error::ApiError;
use crate::error::{ErrorKind, PublicError};
use crate::mcp::{CallRequest, Naming, ServerState, ServerSummary, Upstreams};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Namespace or server; all when absent.
    ns: Option<String>,
}

/// Lists tools, starting the servers in question side by side. A server that fails has an `error` and costs the others nothing.
pub(super) async fn list(
    State(state): State<AppState>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(query) = query.map_err(|error| PublicError::bad_request(error.body_text()))?;
    let wanted = |server: &ServerSummary| {
        query.ns.as_ref().is_none_or(|ns| *ns == server.name || Some(ns) == server.namespace.as_ref())
    };
    let servers: Vec<_> = state.upstreams.servers().into_iter().filter(wanted).collect();
    if servers.is_empty()
        && let Some(ns) = query.ns
    {
        return Err(PublicError::new(ErrorKind::NotFound, format!("there is no server or namespace {ns:?}")).into());
    }
    let listed = servers.into_iter().map(|server| {
        let upstreams = state.upstreams.clone();
        async move {
            let mut entry = json!({"name": server.name, "namespace": server.namespace});
            match upstreams.tools(&server.name).await {
                Ok(table) => {
                    let table: Value = serde_json::from_str(table.to_json()).unwrap_or_default();
                    entry["tools"] = table["tools"].clone();
                    entry["collisions"] = table["collisions"].clone();
                }
                Err(error) => {
                    entry["tools"] = json!([]);
                    entry["error"] = json!({"kind": error.kind(), "message": error.to_string()});
                }
            }
            entry
        }
    });
    Ok(Json(json!({"servers": join_all(listed).await})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallBody {
    /// Namespace or server name.
    server: String,
    /// Identifier or tool name.
    tool: String,
    args: Option<Box<RawValue>>,
}

/// One call; the whole result comes back as the server gave it.
pub(super) async fn call(
    State(state): State<AppState>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let bytes = read(&headers, body, state.settings.http_body_limit).await?;
    let body: CallBody = parse(&bytes)?;
    // Wire names win: they are what the configuration says.
    let by_wire = state.upstreams.servers().iter().any(|server| server.name == body.server);
    let server = match state.upstreams.server_of(&body.server) {
        Some(server) if !by_wire => server.to_owned(),
        _ => body.server.clone(),
    };
    let exact = state.upstreams.tools(&server).await.is_ok_and(|table| table.by_name(&body.tool).is_some());
    let (server, naming) = match (exact, state.upstreams.namespaces().iter().find(|space| space.server == server)) {
        (false, Some(space)) => (space.ident.clone(), Naming::Identifier),
        _ => (server, Naming::Wire),
    };
    let request = CallRequest {
        server,
        tool: body.tool,
        naming,
        args_json: body.args.map(|args| args.get().to_owned()).unwrap_or_default(),
        timeout: None,
        cancel: CancellationToken::new(),
    };
    let reply = state.upstreams.call(request).await.map_err(|error| {
        let kind = ErrorKind::from_word(error.kind()).unwrap_or(ErrorKind::Internal);
        PublicError::new(kind, error.to_string())
    })?;
    let result: Value = serde_json::from_str(&reply.result_json).unwrap_or_default();
    let duration = u64::try_from(reply.duration.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(json!({"server": reply.server, "tool": reply.tool, "result": result, "durationMs": duration})))
}

/// The servers for `status`.
pub(super) fn summaries(upstreams: &Upstreams) -> Value {
    let entry = |server: ServerSummary| json!({"name": server.name, "namespace": server.namespace, "state": state_word(&server.state)});
    upstreams.servers().into_iter().map(entry).collect()
}

fn state_word(state: &ServerState) -> Value {
    match state {
        ServerState::Idle => json!("idle"),
        ServerState::Starting => json!("starting"),
        ServerState::Ready => json!("ready"),
        ServerState::Failed(error) | ServerState::Unusable(error) => json!(format!("failed: {error}")),
        ServerState::Closed => json!("closed"),
    }
}
