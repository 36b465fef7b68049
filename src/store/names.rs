//! Names and media types of artifacts: what a caller gives becomes something safe as a file name and as a header.
//!
//! Owns the rules of the contract's section 8.3. Does not touch a disk and does not know collisions: two artifacts may
//! share a name. Invariant: a sanitized name is never empty, never a path, and ASCII. Lengths are bytes.

/// What a name becomes when nothing of it is usable.
pub const FALLBACK_NAME: &str = "artifact";

const OCTET_STREAM: &str = "application/octet-stream";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// Longest `type/subtype` taken from a caller, in bytes.
const ESSENCE_MAX: usize = 128;

/// Longest media type with its parameters taken from a caller, in bytes.
const MIME_MAX: usize = 1024;

/// Makes a name safe: the last path component (of `/` and `\`), `[A-Za-z0-9.\-_+]` kept, spaces to `-`, anything else
/// to `_`, leading and trailing dots dropped, at most `max` bytes.
///
/// The extension survives the cut unless it is longer than half of `max`. An empty result becomes `artifact`. A `max`
/// of 0 counts as 1, because no name is worse than a long one.
pub fn sanitize_name(name: &str, max: usize) -> String {
    let last = name.trim().rsplit(['/', '\\']).next().unwrap_or_default();
    let mapped: String = last
        .chars()
        .map(|c| match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '-' | '_' | '+' => c,
            ' ' => '-',
            _ => '_',
        })
        .collect();
    let trimmed = mapped.trim_matches('.');
    shorten(if trimmed.is_empty() { FALLBACK_NAME } else { trimmed }, max.max(1))
}

/// `name` is ASCII and does not begin with a dot, so that any cut is at a character and leaves something.
fn shorten(name: &str, max: usize) -> String {
    if name.len() <= max {
        return name.to_owned();
    }
    let extension = name.rfind('.').map_or("", |dot| &name[dot..]);
    if extension.len() > max / 2 {
        return name[..max].trim_end_matches('.').to_owned();
    }
    format!("{}{extension}", &name[..max - extension.len()])
}

/// The media type of an artifact: the explicit one, unless it says nothing (`application/octet-stream`, malformed, or
/// unfit for a header), else the one of the extension, else `application/octet-stream`. Text types get
/// `; charset=utf-8`, since the store's own text is UTF-8.
pub fn mime_for(name: &str, explicit: Option<&str>) -> String {
    if let Some(explicit) = explicit.map(str::trim).filter(|mime| tells_something(mime)) {
        return explicit.to_owned();
    }
    // The registry knows `.ts` as an MPEG transport stream; what scripts write under that name is TypeScript.
    if name.rsplit_once('.').is_some_and(|(_, extension)| matches!(extension, "ts" | "mts" | "cts" | "tsx")) {
        return PLAIN_TEXT.to_owned();
    }
    match mime_guess::from_path(name).first_raw() {
        Some(text) if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        Some(other) => other.to_owned(),
        None => OCTET_STREAM.to_owned(),
    }
}

/// Only visible ASCII and spaces: the text goes into a header as it is.
fn tells_something(mime: &str) -> bool {
    let essence = mime.split(';').next().unwrap_or_default().trim_end();
    mime.len() <= MIME_MAX
        && mime.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && essence.len() <= ESSENCE_MAX
        && !essence.contains(' ')
        && essence.split_once('/').is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty())
        && !essence.eq_ignore_ascii_case(OCTET_STREAM)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table() {
        let table = [
            ("shot.png", "shot.png"),
            ("../../etc/passwd", "passwd"),
            ("/etc/passwd", "passwd"),
            ("a/b/c.txt", "c.txt"),
            (r"..\..\windows\system32", "system32"),
            ("..", "artifact"),
            (".", "artifact"),
            ("", "artifact"),
            ("   ", "artifact"),
            ("my shot.png", "my-shot.png"),
            ("weird;|&$name", "weird____name"),
            ("a/", "artifact"),
            ("...hidden...", "hidden"),
            ("日本.png", "__.png"),
            ("a\r\nb", "a__b"),
            ("c++.tar.gz", "c++.tar.gz"),
        ];
        for (given, wanted) in table {
            assert_eq!(sanitize_name(given, 128), wanted, "{given:?}");
        }
    }

    #[test]
    fn a_cut_keeps_the_extension() {
        let long = sanitize_name(&format!("{}.png", "a".repeat(400)), 255);
        assert_eq!(long.len(), 255);
        assert!(long.ends_with("a.png"));
        assert_eq!(sanitize_name(&format!("a.{}", "b".repeat(20)), 10), "a.bbbbbbbb");
        assert_eq!(sanitize_name("abc.tar", 4), "abc");
        assert_eq!(sanitize_name("abc", 0), "a");
        assert_eq!(sanitize_name("..", 3), "art");
    }

    proptest! {
        #[test]
        fn always_a_safe_name(name in "\\PC{0,200}|[./\\\\ a\u{0}-\u{1f}]{0,40}|[a-c. /]{0,300}", max in 1_usize..300) {
            let safe = sanitize_name(&name, max);
            prop_assert!(!safe.is_empty());
            prop_assert!(safe.len() <= max);
            prop_assert!(safe.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b)));
            prop_assert!(!safe.starts_with('.') && !safe.ends_with('.'));
            prop_assert_eq!(sanitize_name(&safe, max), safe.clone(), "a second pass changes nothing");
        }

        #[test]
        fn a_fitting_extension_is_kept(stem in "[a-z]{1,300}", extension in "[a-z0-9]{1,8}", max in 20_usize..255) {
            let wanted = format!(".{extension}");
            let safe = sanitize_name(&format!("{stem}{wanted}"), max);
            prop_assert!(safe.ends_with(&wanted));
        }
    }

    #[test]
    fn media_types() {
        let table = [
            ("a.png", None, "image/png"),
            ("greeting.txt", None, "text/plain; charset=utf-8"),
            ("page.HTML", None, "text/html; charset=utf-8"),
            ("x.unknown-extension", None, OCTET_STREAM),
            ("noextension", None, OCTET_STREAM),
            ("main.ts", None, PLAIN_TEXT),
            ("a.png", Some("image/webp"), "image/webp"),
            ("a.png", Some("application/octet-stream"), "image/png"),
            ("a.png", Some("Application/Octet-Stream; x=1"), "image/png"),
            ("a.png", Some("text/x; charset=latin1"), "text/x; charset=latin1"),
            ("a.png", Some("text/html\r\nSet-Cookie: a=b"), "image/png"),
            ("a.png", Some("nonsense"), "image/png"),
            ("a.png", Some("/"), "image/png"),
            ("a", Some(""), OCTET_STREAM),
        ];
        for (name, explicit, wanted) in table {
            assert_eq!(mime_for(name, explicit), wanted, "{name} {explicit:?}");
        }
    }
}
