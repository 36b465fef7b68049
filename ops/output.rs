//! Ops by which a run says something: emits, log records, its result, the kind of its failure.
//!
//! Text written by `console.log` or `Deno.stdout` does not pass here: it goes to resources 1 and 2, which the host provides.

use deno_core::{OpState, op2};

use crate::error::OpError;
use crate::interface::{LogLevel, RunPorts};

/// The ports of the current run.
///
/// # Errors
/// [`OpError::NoRun`] before the job has arrived.
pub(crate) fn ports(state: &OpState) -> Result<RunPorts, OpError> {
    state.try_borrow::<RunPorts>().cloned().ok_or(OpError::NoRun)
}

#[op2(fast)]
pub(crate) fn op_mcpx_emit(state: &mut OpState, #[string] json: &str) -> Result<(), OpError> {
    ports(state)?.output.emit(json);
    Ok(())
}

#[op2]
pub(crate) fn op_mcpx_log(
    state: &mut OpState,
    #[smi] level: u32,
    #[string] message: &str,
    #[string] attrs: Option<String>,
) -> Result<(), OpError> {
    let level = match level {
        0 => LogLevel::Debug,
        1 => LogLevel::Info,
        2 => LogLevel::Warn,
        _ => LogLevel::Error,
    };
    ports(state)?.output.log(level, message, attrs.as_deref());
    Ok(())
}

#[op2(fast)]
pub(crate) fn op_mcpx_result(state: &mut OpState, #[string] json: &str) -> Result<(), OpError> {
    ports(state)?.output.result(json);
    Ok(())
}

#[op2(fast)]
pub(crate) fn op_mcpx_failing(state: &mut OpState, #[string] kind: &str) -> Result<(), OpError> {
    ports(state)?.output.failing(kind);
    Ok(())
}
