//! The tools of one server.
//!
//! Owns the table: reading a page of `tools/list`, binding identifiers, finding a tool, the JSON that scripts get.
//! Schemas stay the text the server sent. Invariant: a table never changes; a new listing makes a new one. A tool that
//! cannot be read costs only itself.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::names::{self, Collision};

/// One tool as its server describes it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The identifier its name makes; bound to this tool only if it is in none of [`ToolTable::collisions`].
    pub ident: String,
    /// Wire name.
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments; `{"type":"object"}` when the server sent none.
    pub input_schema: Box<RawValue>,
    /// JSON Schema of `structuredContent`.
    pub output_schema: Option<Box<RawValue>>,
    /// The whole `annotations` object.
    pub annotations: Option<Box<RawValue>>,
    /// `annotations.destructiveHint`, when it is a boolean.
    pub destructive_hint: Option<bool>,
}

/// All tools of one server, in the order the server lists them.
#[derive(Debug, Default)]
pub struct ToolTable {
    tools: Vec<Tool>,
    collisions: Vec<Collision>,
    unreadable: Vec<String>,
    by_name: HashMap<String, usize>,
    by_ident: HashMap<String, usize>,
    json: String,
}

/// What [`ToolTable::find`] makes of an identifier.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found<'a> {
    Tool(&'a Tool),
    Shared(&'a Collision),
    Nothing,
}

impl ToolTable {
    /// A table of `tools`; of two with one wire name the first counts. `unreadable` says what could not be read.
    pub(super) fn new(listed: Vec<Tool>, unreadable: Vec<String>) -> Self {
        let mut table = Self { unreadable, ..Self::default() };
        for tool in listed {
            if !table.by_name.contains_key(&tool.name) {
                table.by_name.insert(tool.name.clone(), table.tools.len());
                table.tools.push(tool);
            }
        }
        table.collisions = names::collisions(table.tools.iter().map(|tool| (tool.ident.as_str(), tool.name.as_str())));
        for (index, tool) in table.tools.iter().enumerate() {
            if table.collision(&tool.ident).is_none() {
                table.by_ident.insert(tool.ident.clone(), index);
            }
        }
        table.json = table.render();
        table
    }

    /// The tools in listing order, those that share an identifier included.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Identifiers that several tools share, sorted.
    #[must_use]
    pub fn collisions(&self) -> &[Collision] {
        &self.collisions
    }

    /// What the server listed and could not be read, one sentence each.
    #[must_use]
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// The tool with this wire name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).and_then(|index| self.tools.get(*index))
    }

    /// What an identifier stands for.
    pub(super) fn find(&self, ident: &str) -> Found<'_> {
        if let Some(tool) = self.by_ident.get(ident).and_then(|index| self.tools.get(*index)) {
            return Found::Tool(tool);
        }
        self.collision(ident).map_or(Found::Nothing, Found::Shared)
    }

    fn collision(&self, ident: &str) -> Option<&Collision> {
        self.collisions.binary_search_by(|c| c.ident.as_str().cmp(ident)).ok().and_then(|at| self.collisions.get(at))
    }

    /// `{"tools":[{"ident","name","description","inputSchema","outputSchema"?,"annotations"?}],"collisions":[{"ident","names"}]}`.
    /// Tools that share an identifier are under `collisions` only.
    #[must_use]
    pub fn to_json(&self) -> &str {
        &self.json
    }

    fn render(&self) -> String {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ToolJson<'a> {
            ident: &'a str,
            name: &'a str,
            description: &'a str,
            input_schema: &'a RawValue,
            #[serde(skip_serializing_if = "Option::is_none")]
            output_schema: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            annotations: Option<&'a RawValue>,
        }
        #[derive(serde::Serialize)]
        struct CollisionJson<'a> {
            ident: &'a str,
            names: &'a [String],
        }
        #[derive(serde::Serialize)]
        struct TableJson<'a> {
            tools: Vec<ToolJson<'a>>,
            collisions: Vec<CollisionJson<'a>>,
        }
        let bound = self.tools.iter().filter(|tool| self.collision(&tool.ident).is_none());
        let tools = bound.map(|tool| ToolJson {
            ident: &tool.ident,
            name: &tool.name,
            description: tool.description.as_deref().unwrap_or_default(),
            input_schema: &tool.input_schema,
            output_schema: tool.output_schema.as_deref(),
            annotations: tool.annotations.as_deref(),
        });
        let collisions = self.collisions.iter().map(|c| CollisionJson { ident: &c.ident, names: &c.names });
        serde_json::to_string(&TableJson { tools: tools.collect(), collisions: collisions.collect() })
            .expect("strings and raw JSON serialise, because no map has a key that is not a string")
    }
}

/// One page of `tools/list`.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) tools: Vec<Tool>,
    /// What could not be read, one sentence each.
    pub(super) unreadable: Vec<String>,
    /// Where the next page starts; absent or empty at the end.
    pub(super) next_cursor: Option<String>,
}

/// Reads the `result` of one `tools/list` answer.
///
/// # Errors
/// It is no object with an array `tools`.
pub(super) fn read_page(result: &str) -> Result<Page, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        #[serde(borrow)]
        tools: Vec<&'a RawValue>,
        #[serde(default, borrow)]
        next_cursor: Option<&'a RawValue>,
    }
    let page: Wire<'_> = serde_json::from_str(result)?;
    let next_cursor = page.next_cursor.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let (mut tools, mut unreadable) = (Vec::with_capacity(page.tools.len()), Vec::new());
    for (index, raw) in page.tools.into_iter().enumerate() {
        match read_tool(raw.get()) {
            Ok(tool) => tools.push(tool),
            Err(error) => unreadable.push(format!("tool {index} of its page cannot be read: {error}")),
        }
    }
    Ok(Page { tools, unreadable, next_cursor: next_cursor.filter(|cursor| !cursor.is_empty()) })
}

fn read_tool(text: &str) -> Result<Tool, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire {
        name: String,
        #[serde(default)]
        description: Option<Box<RawValue>>,
        #[serde(default)]
        input_schema: Option<Box<RawValue>>,
        #[serde(default)]
        output_schema: Option<Box<RawValue>>,
        #[serde(default)]
        annotations: Option<Box<RawValue>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Hints {
        #[serde(default)]
        destructive_hint: Option<bool>,
    }
    let tool: Wire = serde_json::from_str(text)?;
    let any_object = || RawValue::from_string(r#"{"type":"object"}"#.to_owned());
    let hints = tool.annotations.as_deref().and_then(|raw| serde_json::from_str::<Hints>(raw.get()).ok());
    Ok(Tool {
        ident: names::identifier(&tool.name),
        name: tool.name,
        description: tool.description.and_then(|raw| serde_json::from_str(raw.get()).ok()),
        input_schema: tool.input_schema.map_or_else(any_object, Ok)?,
        output_schema: tool.output_schema,
        annotations: tool.annotations,
        destructive_hint: hints.and_then(|hints| hints.destructive_hint),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(page: &str) -> ToolTable {
        let page = read_page(page).expect("the page is right");
        ToolTable::new(page.tools, page.unreadable)
    }

    #[test]
    fn a_bad_tool_costs_only_itself() {
        let table = table(
            r#"{"tools":[{"name":"b4","inputSchema":{"type":["object","null"],"required":"x"}},{"name":"b5"},{"noname":1},7,
                {"name":"b1","inputSchema":{"properties":{"raw":true,"no":false}},"description":5},
                {"name":"good","inputSchema":{"type":"object","x":9007199254740993},"annotations":{"destructiveHint":true}}]}"#,
        );
        assert_eq!(table.tools().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["b4", "b5", "b1", "good"]);
        assert_eq!(table.unreadable().len(), 2);
        assert_eq!(table.by_name("good").expect("it is there").destructive_hint, Some(true));
        assert!(table.to_json().contains("9007199254740993"), "schemas keep their text");
    }

    #[test]
    fn shared_identifiers_are_bound_to_nobody() {
        let table = table(
            r#"{"tools":[{"name":"read-only","inputSchema":{}},{"name":"read.only","inputSchema":{}},
                {"name":"delete","inputSchema":{}},{"name":"delete","description":"twice","inputSchema":{}}]}"#,
        );
        assert!(matches!(table.find("read_only"), Found::Shared(c) if c.names == ["read-only", "read.only"]));
        assert!(
            matches!(table.find("delete_"), Found::Tool(tool) if tool.name == "delete" && tool.description.is_none())
        );
        assert!(matches!(table.find("delete"), Found::Nothing));
        assert!(table.by_name("read.only").is_some());
        let want = r#"{"tools":[{"ident":"delete_","name":"delete","description":"","inputSchema":{}}],"collisions":[{"ident":"read_only","names":["read-only","read.only"]}]}"#;
        assert_eq!(table.to_json(), want);
    }

    #[test]
    fn cursors() {
        let next = |page: &str| read_page(page).expect("the page is right").next_cursor;
        assert_eq!(next(r#"{"tools":[]}"#), None);
        assert_eq!(next(r#"{"tools":[],"nextCursor":""}"#), None);
        assert_eq!(next(r#"{"tools":[],"nextCursor":null}"#), None);
        assert_eq!(next(r#"{"tools":[],"nextCursor":"p1"}"#).as_deref(), Some("p1"));
        assert!(read_page("[]").is_err() && read_page(r#"{"tools":5}"#).is_err());
    }
}
