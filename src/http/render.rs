//! A run's value as text, the way the CLI and `output: "text"` print it (SPEC 4.1).

use serde_json::Value;
use serde_json::value::RawValue;

/// A string verbatim, anything else as JSON with two spaces. The caller adds the newline.
pub fn rendered(value: &RawValue) -> String {
    match serde_json::from_str::<Value>(value.get()) {
        Ok(Value::String(text)) => text,
        Ok(other) => serde_json::to_string_pretty(&other).unwrap_or_else(|_| value.get().to_owned()),
        Err(_) => value.get().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_text() {
        for (json, text) in [
            ("\"a\\nb\"", "a\nb"),
            ("2", "2"),
            ("{\"a\":[1]}", "{\n  \"a\": [\n    1\n  ]\n}"),
            ("null", "null"),
            ("[]", "[]"),
        ] {
            let value = RawValue::from_string(json.to_owned()).expect("JSON");
            assert_eq!(rendered(&value), text);
        }
    }
}
