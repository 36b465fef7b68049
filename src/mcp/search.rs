//! Finding tools by words.
//!
//! Owns the ranking. It looks only at tables that are already known: no server is started, nothing waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::catalog::{Tool, ToolTable};

/// One found tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchHit {
    /// `namespace.identifier`.
    pub name: String,
    pub description: String,
    /// Higher is better; comparable within one search only.
    pub score: f64,
}

/// The tools that fit `query` best, at most `limit`, the best first and ties by name. `tables` are pairs of namespace
/// and tools. Words of the query count 4 in a tool's name or namespace, 2 in a parameter's name, 1 in its description;
/// half for the beginning of a word. An empty query lists everything.
#[must_use]
pub fn search(tables: &[(String, Arc<ToolTable>)], query: &str, limit: usize) -> Vec<SearchHit> {
    let wanted: BTreeSet<String> = words(query).collect();
    let mut hits = Vec::new();
    for (namespace, table) in tables {
        let shared: BTreeSet<&str> = table.collisions().iter().map(|c| c.ident.as_str()).collect();
        for tool in table.tools().iter().filter(|tool| !shared.contains(tool.ident.as_str())) {
            let score = score(&wanted, namespace, tool);
            if score > 0.0 || wanted.is_empty() {
                let description = tool.description.clone().unwrap_or_default();
                hits.push(SearchHit { name: format!("{namespace}.{}", tool.ident), description, score });
            }
        }
    }
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.name.cmp(&b.name)));
    hits.truncate(limit);
    hits
}

fn score(wanted: &BTreeSet<String>, namespace: &str, tool: &Tool) -> f64 {
    let name: BTreeSet<String> = words(namespace).chain(words(&tool.name)).collect();
    let parameters: BTreeSet<String> = parameter_names(tool).iter().flat_map(|name| words(name)).collect();
    let description: BTreeSet<String> = words(tool.description.as_deref().unwrap_or_default()).collect();
    let fields = [(name, 4.0), (parameters, 2.0), (description, 1.0)];
    wanted.iter().map(|word| fields.iter().map(|(have, weight)| weight * likeness(word, have)).sum::<f64>()).sum()
}

fn likeness(word: &str, have: &BTreeSet<String>) -> f64 {
    if have.contains(word) {
        1.0
    } else if word.len() > 2 && have.range(word.to_owned()..).next().is_some_and(|next| next.starts_with(word)) {
        0.5
    } else {
        0.0
    }
}

fn parameter_names(tool: &Tool) -> Vec<String> {
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

/// Lower-case words; `camelCase` and `snake_case` fall apart.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(text.len() + 8);
    let mut after_lower = false;
    for c in text.chars() {
        if c.is_uppercase() && after_lower {
            spaced.push(' ');
        }
        after_lower = c.is_lowercase() || c.is_numeric();
        spaced.extend(c.to_lowercase());
    }
    let split: Vec<_> =
        spaced.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    split.into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::catalog::read_page;
    use super::*;

    #[test]
    fn names_beat_parameters_beat_descriptions() {
        let page = read_page(
            r#"{"tools":[{"name":"takeScreenshot","description":"of a page","inputSchema":{}},
                {"name":"open","description":"make a screenshot, too","inputSchema":{}},
                {"name":"click","inputSchema":{"properties":{"screenshot":{}}}},
                {"name":"a-b","description":"screenshot","inputSchema":{}},{"name":"a.b","inputSchema":{}},
                {"name":"other","inputSchema":true}]}"#,
        )
        .expect("the page is right");
        let tables = [("web".to_owned(), Arc::new(ToolTable::new(page.tools, page.unreadable)))];
        let names =
            |query: &str, limit| search(&tables, query, limit).into_iter().map(|hit| hit.name).collect::<Vec<_>>();
        assert_eq!(names("screenshot", 9), ["web.takeScreenshot", "web.click", "web.open"]);
        assert_eq!(names("SCREEN", 1), ["web.takeScreenshot"]);
        assert_eq!(names("", 9).len(), 4);
        assert!(names("nothing here", 9).is_empty());
    }
}
