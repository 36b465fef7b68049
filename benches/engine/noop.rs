//! An MCP server over stdio that does nothing: this executable with a flag. The cheapest possible other end of a tool call.

use std::io::{BufRead as _, Write as _};

/// Makes this executable the server.
pub(crate) const FLAG: &str = "--noop-server";

/// Serves until standard input ends.
pub(crate) fn serve() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let message: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let Some(id) = message.get("id") else { continue };
        let result = match message["method"].as_str() {
            Some("initialize") => {
                r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"noop","version":"0"}}"#
            }
            Some("tools/list") => r#"{"tools":[{"name":"noop","inputSchema":{"type":"object"}}]}"#,
            _ => r#"{"content":[{"type":"text","text":"ok"}],"structuredContent":{"ok":true}}"#,
        };
        let answered = writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).and_then(|()| out.flush());
        if answered.is_err() {
            return;
        }
    }
}
