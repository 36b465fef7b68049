//! `${VAR}` and `${VAR:-default}` in config values.
//!
//! Owns the syntax alone. The variables come from the caller, never from the process, so that a reload and a test see
//! exactly what they were given.

use std::collections::BTreeMap;

/// A variable without a value and without a default.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {0} is not set; set it, or write ${{{0}:-default}}")]
pub(super) struct MissingVariable(pub(super) String);

/// Replaces every `${VAR}` and `${VAR:-default}` in `text`. The default stands in for a variable that is unset or
/// empty, as in a shell. What only looks similar (`$VAR`, `${`, `${not a name}`) stays as it is. Values are not
/// expanded again.
///
/// # Errors
/// The first variable that has neither a value nor a default.
pub(super) fn expand(text: &str, env: &BTreeMap<String, String>) -> Result<String, MissingVariable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = from.find('}') else { break };
        let inner = from.get(2..end).unwrap_or_default();
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if is_name(name) {
            match (env.get(name), default) {
                (Some(value), Some(default)) if value.is_empty() => out.push_str(default),
                (Some(value), _) => out.push_str(value),
                (None, Some(default)) => out.push_str(default),
                (None, None) => return Err(MissingVariable(name.to_owned())),
            }
            rest = from.get(end + 1..).unwrap_or_default();
        } else {
            out.push_str("${");
            rest = from.get(2..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::{MissingVariable, expand};
    use std::collections::BTreeMap;

    #[test]
    fn variables_defaults_and_lookalikes() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("EMPTY".to_owned(), String::new())]);
        for (text, want) in [
            ("x${A}y${A}", "x1y1"),
            ("${A:-2}", "1"),
            ("${B:-2}", "2"),
            ("${B:-}", ""),
            ("${EMPTY}", ""),
            ("${EMPTY:-d}", "d"),
            ("$A ${ ${a b} ${1}", "$A ${ ${a b} ${1}"),
            ("${A", "${A"),
            ("é${A}é", "é1é"),
            ("${B:-http://h:1}", "http://h:1"),
        ] {
            assert_eq!(expand(text, &env).as_deref(), Ok(want), "{text}");
        }
        assert_eq!(expand("a ${NOPE}", &env), Err(MissingVariable("NOPE".to_owned())));
    }
}
