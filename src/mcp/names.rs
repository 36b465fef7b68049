//! Identifiers for tools and servers (SPEC 4.3).
//!
//! Owns the rule that makes a JavaScript identifier of any name, the names that are taken, and what becomes of two
//! names that make the same identifier. Pure: no server, no state. Wire names never change; an identifier is only
//! another way to say one.

use std::collections::BTreeMap;

/// Words that JavaScript reserves somewhere, sorted.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do", "else",
    "enum", "export", "extends", "false", "finally", "for", "function", "if", "implements", "import", "in",
    "instanceof", "interface", "let", "new", "null", "package", "private", "protected", "public", "return", "static",
    "super", "switch", "this", "throw", "true", "try", "typeof", "var", "void", "while", "with", "yield",
];

/// Names that exist in a script before any server is looked at: those of SPEC 4.2, of the language, of the web
/// platform, of Deno and of node. Sorted. A namespace never takes one of them.
#[rustfmt::skip]
const GLOBALS: &[&str] = &[
    "AbortController", "AbortSignal", "AggregateError", "Array", "ArrayBuffer", "AsyncDisposableStack",
    "AsyncIterator", "Atomics", "BigInt", "BigInt64Array", "BigUint64Array", "Blob", "Boolean", "BroadcastChannel",
    "Buffer", "ByteLengthQueuingStrategy", "Cache", "CacheStorage", "CloseEvent", "CompressionStream",
    "CountQueuingStrategy", "Crypto", "CryptoKey", "CustomEvent", "DOMException", "DataView", "Date",
    "DecompressionStream", "DedicatedWorkerGlobalScope", "Deno", "DisposableStack", "Error", "ErrorEvent",
    "EvalError", "Event", "EventSource", "EventTarget", "File", "FileReader", "FinalizationRegistry", "Float16Array",
    "Float32Array", "Float64Array", "FormData", "Function", "GPU", "Headers", "ImageBitmap", "ImageData", "Infinity",
    "Int16Array", "Int32Array", "Int8Array", "Intl", "Iterator", "JSON", "Map", "Math", "MessageChannel",
    "MessageEvent", "MessagePort", "NaN", "Navigator", "Notification", "Number", "Object", "Performance",
    "PerformanceEntry", "PerformanceMark", "PerformanceMeasure", "PerformanceObserver",
    "PerformanceObserverEntryList", "PerformanceResourceTiming", "ProgressEvent", "Promise", "PromiseRejectionEvent",
    "Proxy", "QuotaExceededError", "RangeError", "ReadableByteStreamController", "ReadableStream",
    "ReadableStreamBYOBReader", "ReadableStreamBYOBRequest", "ReadableStreamDefaultController",
    "ReadableStreamDefaultReader", "ReferenceError", "Reflect", "RegExp", "Request", "Response", "Set",
    "SharedArrayBuffer", "Storage", "String", "SubtleCrypto", "SuppressedError", "Symbol", "SyntaxError", "Temporal",
    "TextDecoder", "TextDecoderStream", "TextEncoder", "TextEncoderStream", "ToolError", "TransformStream",
    "TransformStreamDefaultController", "TypeError", "URIError", "URL", "URLPattern", "URLSearchParams",
    "Uint16Array", "Uint32Array", "Uint8Array", "Uint8ClampedArray", "WeakMap", "WeakRef", "WeakSet", "WebAssembly",
    "WebSocket", "WebSocketError", "WebSocketStream", "WebTransport", "Window", "Worker", "WorkerGlobalScope",
    "WorkerLocation", "WorkerNavigator", "WritableStream", "WritableStreamDefaultController",
    "WritableStreamDefaultWriter", "__defineGetter__", "__defineSetter__", "__dirname", "__filename",
    "__lookupGetter__", "__lookupSetter__", "__proto__", "addEventListener", "alert", "args", "arguments", "artifact",
    "async", "atob", "btoa", "caches", "call", "cancelAnimationFrame", "clearImmediate", "clearInterval",
    "clearTimeout", "close", "closed", "confirm", "console", "constructor", "createImageBitmap", "crypto",
    "decodeURI", "decodeURIComponent", "describe", "dispatchEvent", "emit", "encodeURI", "encodeURIComponent",
    "escape", "eval", "exports", "fetch", "getParent", "getPrompt", "global", "globalThis", "hasOwnProperty", "input",
    "isFinite", "isNaN", "isPrototypeOf", "listResources", "localStorage", "location", "log", "module", "name",
    "navigator", "onbeforeunload", "onerror", "onload", "onmessage", "onunhandledrejection", "onunload", "parseFloat",
    "parseInt", "performance", "postMessage", "process", "prompt", "propertyIsEnumerable", "queueMicrotask",
    "readResource", "removeEventListener", "reportError", "requestAnimationFrame", "require", "search", "self",
    "sessionStorage", "setImmediate", "setInterval", "setTimeout", "signal", "structuredClone", "toLocaleString",
    "toString", "tools", "undefined", "unescape", "valueOf", "window",
];

/// The identifier of a tool: every character outside `[A-Za-z0-9_]` becomes `_`, a leading digit gets `_` in front, a
/// reserved word gets `_` behind. Never empty.
#[must_use]
pub fn identifier(name: &str) -> String {
    let mut ident = String::with_capacity(name.len() + 1);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        ident.push('_');
    }
    ident.extend(name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
    if is_reserved(&ident) {
        ident.push('_');
    }
    ident
}

/// The identifier of a server: as [`identifier`], with `_` behind until it is no global of a script.
#[must_use]
pub fn namespace(server: &str) -> String {
    let mut ident = identifier(server);
    while is_global(&ident) {
        ident.push('_');
    }
    ident
}

fn is_reserved(word: &str) -> bool {
    RESERVED.binary_search(&word).is_ok()
}

fn is_global(word: &str) -> bool {
    GLOBALS.binary_search(&word).is_ok()
}

/// Why a configured namespace cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceFault {
    #[error("is not an identifier; use letters, digits and _, and no digit first")]
    NotAnIdentifier,
    #[error("is a reserved word or a name that scripts already have; pick another")]
    Taken,
}

/// Checks a namespace that somebody chose. A chosen one is never altered in silence.
///
/// # Errors
/// It is no identifier, or taken.
pub fn check_namespace(word: &str) -> Result<(), NamespaceFault> {
    if is_reserved(word) || is_global(word) {
        Err(NamespaceFault::Taken)
    } else if identifier(word) != word {
        Err(NamespaceFault::NotAnIdentifier)
    } else {
        Ok(())
    }
}

/// An identifier that several names make; none of them is bound to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    pub ident: String,
    /// The names, in their order of appearance.
    pub names: Vec<String>,
}

/// The collisions among `(identifier, name)` pairs, sorted by identifier.
pub fn collisions<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Collision> {
    let mut by_ident: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (ident, name) in pairs {
        by_ident.entry(ident).or_default().push(name);
    }
    by_ident
        .into_iter()
        .filter(|(_, names)| names.len() > 1)
        .map(|(ident, names)| Collision {
            ident: ident.to_owned(),
            names: names.into_iter().map(str::to_owned).collect(),
        })
        .collect()
}

/// The known word most like `word`, if any is alike enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this, a suggestion is more often noise than help.
    const ALIKE: f64 = 0.75;
    let folded = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_for_binary_search() {
        assert!(RESERVED.is_sorted() && GLOBALS.is_sorted());
    }

    #[test]
    fn tool_identifiers() {
        for (name, want) in [
            ("take_screenshot", "take_screenshot"),
            ("fancy-name", "fancy_name"),
            ("9lives", "_9lives"),
            ("a.b", "a_b"),
            ("delete", "delete_"),
            ("class", "class_"),
            ("deleted", "deleted"),
            ("await", "await_"),
            ("2fa", "_2fa"),
            ("日本", "__"),
            ("a$b", "a_b"),
            ("", "_"),
            ("console", "console"),
            ("Ünder score", "_nder_score"),
        ] {
            assert_eq!(identifier(name), want, "{name}");
        }
    }

    #[test]
    fn namespaces_stay_clear_of_globals() {
        for (server, want) in [
            // Modules of node are no globals.
            ("fs", "fs"),
            ("path", "path"),
            ("http", "http"),
            ("my-box", "my_box"),
            ("console", "console_"),
            ("Deno", "Deno_"),
            ("args", "args_"),
            ("undefined", "undefined_"),
            ("eval", "eval_"),
            ("delete", "delete_"),
            ("fetch", "fetch_"),
            ("tools", "tools_"),
            ("github", "github"),
            ("__proto__", "__proto___"),
        ] {
            assert_eq!(namespace(server), want, "{server}");
        }
    }

    #[test]
    fn every_global_of_the_contract_is_taken() {
        for word in
            "tools call readResource listResources getPrompt artifact input emit log search describe ToolError args \
            signal Deno console fetch process Buffer globalThis undefined eval Object"
                .split_whitespace()
        {
            assert_eq!(check_namespace(word), Err(NamespaceFault::Taken), "{word}");
        }
        assert_eq!(check_namespace("a-b"), Err(NamespaceFault::NotAnIdentifier));
        assert_eq!(check_namespace(""), Err(NamespaceFault::NotAnIdentifier));
        assert_eq!(check_namespace("box"), Ok(()));
    }

    #[test]
    fn collisions_name_everybody() {
        let names = ["get-item", "get_item", "other", "delete", "delete_"];
        let idents: Vec<_> = names.iter().map(|name| identifier(name)).collect();
        let found = collisions(idents.iter().map(String::as_str).zip(names));
        let want = [("delete_", ["delete", "delete_"]), ("get_item", ["get-item", "get_item"])];
        assert_eq!(found.len(), 2);
        for (collision, (ident, names)) in found.iter().zip(want) {
            assert_eq!(
                (collision.ident.as_str(), collision.names.as_slice()),
                (ident, names.map(str::to_owned).as_slice())
            );
        }
    }

    #[test]
    fn typos_find_their_word() {
        assert_eq!(nearest("ecoh", ["slow", "echo"]), Some("echo"));
        assert_eq!(nearest("GitHub", ["github", "gitlab"]), Some("github"));
        assert_eq!(nearest("zzz", ["slow", "echo"]), None);
    }
}
