//! What we are to a server: our name, our capabilities, and our answers to its requests.
//!
//! Owns refusals. Sampling, elicitation and roots are not offered (SPEC 7: refused clearly when no client is attached),
//! so a server that asks anyway gets an error that says so, not an empty answer that it might take for consent.

#![expect(
    deprecated,
    reason = "rmcp marks sampling and roots as deprecated by SEP-2577; servers ask for them all the same"
)]

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, CustomRequest, CustomResult,
    ElicitRequestParams, ElicitResult, ErrorCode, ErrorData, Implementation, ListRootsResult, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::mpsc;

use super::listing::Relist;

/// Our side of one connection.
#[derive(Debug)]
pub(super) struct Face {
    pub(super) relist: mpsc::UnboundedSender<Relist>,
}

fn refusal(what: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("mcpx does not offer {what}"), None)
}

impl ClientHandler for Face {
    fn get_info(&self) -> ClientConfig {
        // rmcp's default is the newest revision, which has no handshake; naming it in `initialize` would be a
        // contradiction.
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("mcpx", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        _params: CreateMessageRequestParams,
        _cx: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(refusal("sampling"))
    }

    async fn list_roots(&self, _cx: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(refusal("roots"))
    }

    async fn create_elicitation(
        &self,
        _params: ElicitRequestParams,
        _cx: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(refusal("elicitation"))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _cx: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        Err(refusal(&request.method))
    }

    async fn on_tool_list_changed(&self, _cx: NotificationContext<RoleClient>) {
        // The receiver is gone only when the connection is.
        let _ = self.relist.send(Relist { done: None });
    }
}
