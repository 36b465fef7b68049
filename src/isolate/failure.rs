//! From what V8 and deno_core report to the error a caller sees: kind, name, message, and the position in the author's source.

use deno_core::error::{CoreError, CoreErrorKind, JsError};
use deno_error::JsErrorClass;

use crate::error::ErrorKind;
use crate::run::frame::RunError;

/// The failure of a run. `known` is the kind that our own JavaScript or the module loader has recorded, if any.
pub(super) fn run_error(error: CoreError, known: Option<ErrorKind>) -> RunError {
    match *error.0 {
        CoreErrorKind::Js(js) => from_js(&js, known),
        other => {
            let kind = known.or_else(|| kind_of_class(&other.get_class())).unwrap_or(ErrorKind::ScriptError);
            let mut error = RunError::plain(kind, other.get_message());
            error.name = other.get_class().into_owned();
            error
        }
    }
}

/// The kinds that an error's class implies by itself.
fn kind_of_class(class: &str) -> Option<ErrorKind> {
    match class {
        "NotCapable" => Some(ErrorKind::PermissionDenied),
        "ToolError" => Some(ErrorKind::ToolError),
        _ => None,
    }
}

/// An error that JavaScript threw, with source maps applied by deno_core.
pub(super) fn from_js(js: &JsError, known: Option<ErrorKind>) -> RunError {
    let name = js.name.clone().filter(|name| !name.is_empty());
    let kind = known.or_else(|| kind_of_class(name.as_deref()?)).unwrap_or(ErrorKind::ScriptError);
    let message = js.message.clone().unwrap_or_else(|| {
        // Something that is no Error was thrown: V8's own text, less the introduction it gives every uncaught value.
        let text = js.exception_message.as_str();
        text.trim_start_matches("Uncaught ").trim_start_matches("(in promise) ").to_owned()
    });
    let message = if kind == ErrorKind::PermissionDenied { with_permissions(&message) } else { message };
    let own = |file: &str| file.starts_with("file:") || file.starts_with("data:");
    let frame = js.frames.iter().find(|frame| frame.file_name.as_deref().is_some_and(own));
    let number = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
    RunError {
        kind,
        name: name.unwrap_or_else(|| "Error".to_owned()),
        message,
        stack: js.stack.as_deref().map(own_stack),
        line: frame.and_then(|frame| number(frame.line_number)),
        column: frame.and_then(|frame| number(frame.column_number)),
    }
}

/// Deno's advice names flags of its own command line; ours says which text of `--permissions` would allow it.
fn with_permissions(message: &str) -> String {
    const ADVICE: &str = ", run again with the --allow-";
    let Some((what, advice)) = message.split_once(ADVICE) else { return message.to_owned() };
    let resource = advice.split_whitespace().next().unwrap_or_default();
    let entry = what.split('"').nth(1).map(|entry| format!("={entry}")).unwrap_or_default();
    format!("{what}; --permissions \"workspace,allow-{resource}{entry}\" (options.permissions) would allow it")
}

/// The stack without the frames of our own JavaScript.
fn own_stack(stack: &str) -> String {
    let lines: Vec<&str> =
        stack.lines().filter(|line| !line.contains("ext:mcpx/") && !line.contains("ext:core/")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::with_permissions;

    #[test]
    fn a_denial_says_what_would_allow_it() {
        let said = with_permissions("Requires read access to \"/a/b\", run again with the --allow-read flag");
        let advice = "--permissions \"workspace,allow-read=/a/b\" (options.permissions) would allow it";
        assert_eq!(said, format!("Requires read access to \"/a/b\"; {advice}"));
        assert_eq!(with_permissions("no"), "no");
    }
}
