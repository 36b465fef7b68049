//! Asking a server for its tools, at start and whenever they change.
//!
//! Owns paging with its limits, and the one task per connection that lists again. Invariant: a listing ends, whatever
//! cursors the server sends; a table that is published is complete.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, ListToolsRequest, PaginatedRequestParams};
use rmcp::service::{Peer, ServiceError};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::catalog::{ToolTable, read_page};
use super::wire::raw_result;

/// Pages that one listing reads at most.
const MAX_PAGES: usize = 200;

/// Tools that one table holds at most.
const MAX_TOOLS: usize = 10_000;

/// The newest known tools of one server; outlives its connections.
#[derive(Debug, Default)]
pub(super) struct KnownTools(RwLock<Option<Arc<ToolTable>>>);

impl KnownTools {
    pub(super) fn get(&self) -> Option<Arc<ToolTable>> {
        // A poisoned lock guards a complete table all the same: it is replaced as a whole.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, table: ToolTable) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(table));
    }
}

/// Why there is no listing.
#[derive(Debug)]
pub(super) enum ListFault {
    /// The session is over.
    Gone,
    /// The server refused.
    Refused(ErrorData),
    /// The answer is no page of tools.
    Malformed(String),
}

/// Reads all pages.
///
/// # Errors
/// The session ended, or the server answered with an error or with something else than tools.
pub(super) async fn list_tools(peer: &Peer<RoleClient>, server: &str) -> Result<ToolTable, ListFault> {
    let (mut tools, mut unreadable) = (Vec::new(), Vec::new());
    let (mut cursor, mut seen) = (None::<String>, HashSet::new());
    for _ in 0..MAX_PAGES {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        let answer = match peer.send_request(ClientRequest::ListToolsRequest(request)).await {
            Ok(answer) => raw_result(answer).ok_or(ListFault::Malformed("an unexpected message".to_owned()))?,
            // A server without tools need not know the method.
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND && tools.is_empty() => {
                break;
            }
            Err(ServiceError::McpError(error)) => return Err(ListFault::Refused(error)),
            Err(_) => return Err(ListFault::Gone),
        };
        let page = read_page(&answer).map_err(|error| ListFault::Malformed(error.to_string()))?;
        tools.extend(page.tools);
        unreadable.extend(page.unreadable);
        let Some(next) = page.next_cursor else { break };
        if !seen.insert(next.clone()) {
            tracing::warn!(server, "the tool list repeats a cursor; listing stops here");
            break;
        }
        if tools.len() >= MAX_TOOLS {
            break;
        }
        cursor = Some(next);
    }
    if cursor.is_some() || tools.len() >= MAX_TOOLS {
        tracing::warn!(server, tools = tools.len(), "the tool list is too long; the rest is left out");
        tools.truncate(MAX_TOOLS);
    }
    for sentence in &unreadable {
        tracing::warn!(server, "{sentence}");
    }
    Ok(ToolTable::new(tools, unreadable))
}

/// A request to list again; `done` is answered after a listing that began later than the request.
#[derive(Debug)]
pub(super) struct Relist {
    pub(super) done: Option<oneshot::Sender<()>>,
}

/// The task that lists again. Ends with the connection. `limit` bounds one listing.
pub(super) async fn keep_fresh(
    peer: Peer<RoleClient>,
    server: String,
    known: Arc<KnownTools>,
    mut requests: mpsc::UnboundedReceiver<Relist>,
    limit: Duration,
    closing: CancellationToken,
) {
    let work = async {
        while let Some(first) = requests.recv().await {
            let mut waiting: Vec<_> = first.done.into_iter().collect();
            while let Ok(more) = requests.try_recv() {
                waiting.extend(more.done);
            }
            match tokio::time::timeout(limit, list_tools(&peer, &server)).await {
                Ok(Ok(table)) => known.set(table),
                Ok(Err(fault)) => tracing::warn!(server, ?fault, "listing the tools again failed; the old list stays"),
                Err(_) => tracing::warn!(server, ?limit, "listing the tools again took too long; the old list stays"),
            }
            for done in waiting {
                // Whoever asked may have given up.
                let _ = done.send(());
            }
        }
    };
    tokio::select! {
        () = closing.cancelled() => {}
        () = work => {}
    }
}
