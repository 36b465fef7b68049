//! What an isolate rehearses with before it gets a job: an empty module and ports that lead nowhere.

use std::rc::Rc;
use std::sync::Arc;

use deno_core::ModuleSpecifier;
use mcpx_ops::interface::{
    ArtifactFailure, Artifacts, Lifecycle, LocalBoxFuture, LogLevel, NewArtifact, Output, RunPorts, Stream, ToolCall,
    ToolFailure, ToolReply, Tools,
};

use super::program::Program;

/// URL of the rehearsal. No script can import it: its scheme is none that the loader resolves.
pub(super) fn module() -> ModuleSpecifier {
    ModuleSpecifier::parse("mcpx:warm-up").expect("it is a URL because it has a scheme and a path")
}

/// Touches what nearly every script touches.
pub(super) fn program() -> Arc<Program> {
    let code = "export default async () => { await null; return [1, { a: 'b' }] }";
    Arc::new(Program { code: code.into(), source_map: None })
}

/// Ports that take everything and keep nothing.
pub(super) fn ports() -> RunPorts {
    let nowhere = Rc::new(Nowhere);
    RunPorts { output: nowhere.clone(), tools: nowhere.clone(), artifacts: nowhere.clone(), lifecycle: nowhere }
}

struct Nowhere;

impl Output for Nowhere {
    fn write(&self, _stream: Stream, _bytes: &[u8]) {}
    fn log(&self, _level: LogLevel, _message: &str, _attrs: Option<&str>) {}
    fn emit(&self, _json: &str) {}
    fn result(&self, _json: &str) {}
    fn failing(&self, _kind: &str) {}
}

impl Tools for Nowhere {
    fn namespaces(&self) -> String {
        "[]".to_owned()
    }

    fn tools(&self, _namespace: &str) -> Option<String> {
        None
    }

    fn search(&self, _query: &str, _limit: u32) -> String {
        "[]".to_owned()
    }

    fn call(&self, call: ToolCall) -> LocalBoxFuture<Result<ToolReply, ToolFailure>> {
        let failure =
            ToolFailure { kind: "internal", server: call.server, tool: call.tool, message: "no run".to_owned() };
        Box::pin(std::future::ready(Err(failure)))
    }

    fn cancel(&self, _call_id: u32) {}
}

impl Artifacts for Nowhere {
    fn put(&self, _new: NewArtifact) -> LocalBoxFuture<Result<String, ArtifactFailure>> {
        Box::pin(std::future::ready(Err(ArtifactFailure { kind: "internal", message: "no run".to_owned() })))
    }
}

impl Lifecycle for Nowhere {
    fn exit(&self, _code: i32) {}
}
