//! Ops of the generated clients: which namespaces there are, what is known of their tools, and the call itself.
//!
//! Arguments and results cross as JSON text: V8's own parser and serialiser are faster than walking values through the binding,
//! and the text is what the server gets and gave.

use std::cell::RefCell;
use std::rc::Rc;

use deno_core::{OpState, op2};

use crate::error::OpError;
use crate::interface::{ToolCall, ToolNaming};
use crate::output::ports;

#[op2]
#[string]
pub(crate) fn op_mcpx_namespaces(state: &mut OpState) -> Result<String, OpError> {
    Ok(ports(state)?.tools.namespaces())
}

#[op2]
#[string]
pub(crate) fn op_mcpx_tools(state: &mut OpState, #[string] namespace: &str) -> Result<Option<String>, OpError> {
    Ok(ports(state)?.tools.tools(namespace))
}

#[op2]
#[string]
pub(crate) fn op_mcpx_search(state: &mut OpState, #[string] query: &str, #[smi] limit: u32) -> Result<String, OpError> {
    Ok(ports(state)?.tools.search(query, limit))
}

/// One call; resolves with `[server, tool, result]`, the names as the server knows them and the whole result as JSON text.
#[op2]
pub(crate) async fn op_mcpx_tool_call(
    state: Rc<RefCell<OpState>>,
    #[string] server: String,
    #[string] tool: String,
    by_wire_name: bool,
    #[string] args: String,
    timeout_ms: f64,
    #[smi] call_id: u32,
) -> Result<Vec<String>, OpError> {
    let tools = ports(&state.borrow())?.tools;
    let naming = if by_wire_name { ToolNaming::Wire } else { ToolNaming::Identifier };
    // JavaScript passes NaN for "not given"; a comparison with NaN is false.
    let timeout_ms = (timeout_ms > 0.0).then_some(timeout_ms as u64);
    let reply = tools.call(ToolCall { server, tool, naming, args, timeout_ms, call_id }).await?;
    Ok(vec![reply.server, reply.tool, reply.result])
}

#[op2(fast)]
pub(crate) fn op_mcpx_tool_cancel(state: &mut OpState, #[smi] call_id: u32) -> Result<(), OpError> {
    ports(state)?.tools.cancel(call_id);
    Ok(())
}
