//! Specs of the fake MCP server, `fixtures/fake.mjs`.

use serde_json::{Value, json};

/// The entry of a tool that takes any arguments. Without results it echoes them.
pub(crate) fn echoing(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// A server whose tools are those of `results`, and `others`, which echo.
pub(crate) fn spec(results: Value, others: &[&str]) -> Value {
    let names = results.as_object().unwrap().keys().map(String::as_str).chain(others.iter().copied());
    json!({"tools": names.map(echoing).collect::<Vec<_>>(), "results": results})
}
