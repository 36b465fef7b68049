//! `ls` and `call`.

use std::process::ExitCode;

use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::{CallArgs, LsArgs};
use super::client::Client;
use super::output::{CliError, answer, say};
use crate::error::ErrorKind;

/// `mcpx ls [NS] [-v]`
pub(super) async fn ls(mut client: Client, args: LsArgs, as_json: bool) -> Result<ExitCode, CliError> {
    let query = args.ns.map(|ns| format!("?ns={}", encoded(&ns))).unwrap_or_default();
    let listed = client.json(Method::GET, &format!("/v1/tools{query}"), None).await?;
    if as_json {
        answer(&(serde_json::to_string_pretty(&listed).unwrap_or_default() + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let servers = listed["servers"].as_array().cloned().unwrap_or_default();
    if servers.is_empty() {
        say("mcpx: no MCP servers are configured; put them into .mcp.json under \"mcpServers\"");
    }
    for server in servers {
        let name = server["name"].as_str().unwrap_or_default();
        let namespace = server["namespace"].as_str().unwrap_or(name);
        if let Some(message) = server["error"]["message"].as_str() {
            answer(&format!("{namespace}: not available\n"));
            say(&format!("mcpx: {message}"));
            continue;
        }
        for tool in server["tools"].as_array().into_iter().flatten() {
            let ident = tool["ident"].as_str().unwrap_or_default();
            let description = tool["description"].as_str().unwrap_or_default();
            let first = description.lines().next().unwrap_or_default();
            let text = if args.verbose && !first.is_empty() { format!("  {first}") } else { String::new() };
            answer(&format!("{namespace}.{ident}{text}\n"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `mcpx call ns.tool ARGS...`; an answer with `isError` exits 1.
pub(super) async fn call(mut client: Client, args: CallArgs, as_json: bool) -> Result<ExitCode, CliError> {
    let Some((server, tool)) = args.tool.split_once('.') else {
        let message = format!("{:?}: expected namespace.tool", args.tool);
        return Err(CliError::new(ErrorKind::BadRequest, message));
    };
    let body = json!({"server": server, "tool": tool, "args": arguments(&args.args)?});
    let reply = client.json(Method::POST, "/v1/call", Some(body)).await?;
    let result = &reply["result"];
    let failed = result["isError"] == json!(true);
    if as_json {
        answer(&(serde_json::to_string_pretty(&reply).unwrap_or_default() + "\n"));
    } else {
        let shown = shown(result);
        if failed { say(&shown) } else { answer(&(shown + "\n")) }
    }
    if failed {
        say(&format!("mcpx: {}.{} reported an error (isError)", reply["server"].as_str().unwrap_or(server), tool));
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// Structured content, else the texts, else the content blocks.
fn shown(result: &Value) -> String {
    if !result["structuredContent"].is_null() {
        return serde_json::to_string_pretty(&result["structuredContent"]).unwrap_or_default();
    }
    let blocks = result["content"].as_array().cloned().unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    if texts.is_empty() { serde_json::to_string_pretty(&blocks).unwrap_or_default() } else { texts.join("\n") }
}

fn arguments(words: &[String]) -> Result<Value, CliError> {
    let wrong = |message: String| CliError::new(ErrorKind::BadRequest, message);
    if let [only] = words
        && only.trim_start().starts_with('{')
    {
        return serde_json::from_str(only).map_err(|error| wrong(format!("the arguments are not JSON: {error}")));
    }
    let mut object = Map::new();
    for word in words {
        // `k:=json` before `k=v`, because the former contains the latter's sign.
        let (name, value) = match (word.split_once(":="), word.split_once('=')) {
            (Some((name, text)), _) if !name.contains('=') => {
                let value =
                    serde_json::from_str(text).map_err(|error| wrong(format!("{word:?}: not JSON: {error}")))?;
                (name, value)
            }
            (_, Some((name, text))) => (name, Value::String(text.to_owned())),
            _ => return Err(wrong(format!("{word:?}: expected a JSON object, k=v or k:=json"))),
        };
        object.insert(name.to_owned(), value);
    }
    Ok(Value::Object(object))
}

/// A text as one component of a URL.
pub(super) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_in_three_forms() {
        let parse = |words: &[&str]| arguments(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok();
        assert_eq!(parse(&[]), Some(json!({})));
        assert_eq!(parse(&["{\"a\": [1]}"]), Some(json!({"a": [1]})));
        assert_eq!(
            parse(&["a=1", "b:=2", "c=x:=y", "d:=\"s\""]),
            Some(json!({"a": "1", "b": 2, "c": "x:=y", "d": "s"}))
        );
        assert_eq!(parse(&["{"]), None);
        assert_eq!(parse(&["a"]), None);
        assert_eq!(parse(&["a:=x"]), None);
    }

    #[test]
    fn components_of_urls() {
        assert_eq!(encoded("a b/ü.x"), "a%20b%2F%C3%BC.x");
    }
}
