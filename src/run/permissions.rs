//! What a run may reach: the profiles and the composition grammar of SPEC 6.1, as a value that knows no V8.
//!
//! An allow-list that turns out empty grants nothing. That is why a grant is an enum and not an optional list: deno_permissions
//! reads `Some(vec![])` as "everything".

use std::fmt::Write as _;
use std::path::Path;

use crate::error::PublicError;

/// How much of one resource is granted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Grant {
    #[default]
    None,
    All,
    /// Only these; never empty by construction.
    Only(Entries),
}

/// A list with at least one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries(Vec<String>);

impl Entries {
    /// `None` for an empty list.
    pub fn new(entries: Vec<String>) -> Option<Self> {
        (!entries.is_empty()).then_some(Self(entries))
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

impl Grant {
    fn widen(&mut self, more: Self) {
        *self = match (std::mem::take(self), more) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, other) | (other, Self::None) => other,
            (Self::Only(mut mine), Self::Only(more)) => {
                mine.0.extend(more.0);
                Self::Only(mine)
            }
        };
    }
}

/// The resources that can be granted, in the order they are echoed.
const RESOURCES: [&str; 7] = ["read", "write", "net", "env", "run", "sys", "ffi"];

/// Profile names of SPEC 6.1.
const PROFILES: [&str; 7] = ["workspace", "none", "strict", "net", "read", "readnet", "all"];

/// One resource: what is allowed, less what is denied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    pub allow: Grant,
    pub deny: Grant,
}

/// The permissions of a run before paths are resolved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermissionSet {
    rules: [Rule; RESOURCES.len()],
    /// Whether the profile `workspace` is part of it: its folders are known only when the run is placed.
    workspace: bool,
}

impl PermissionSet {
    /// The default profile.
    pub fn workspace() -> Self {
        let mut set = Self::default();
        set.add_profile("workspace");
        set
    }

    /// Parses `"readnet,allow-run=git,npm"`: profiles and Deno's own flag names, separated by commas. An entry that is neither,
    /// behind a flag with a list, belongs to that list.
    ///
    /// # Errors
    /// `bad_request` that names the unknown word and lists the known ones, or the flag whose list is empty.
    pub fn parse(text: &str) -> Result<Self, PublicError> {
        let mut set = Self::default();
        let mut list: Option<(&str, Vec<String>)> = None;
        for entry in text.split(',').map(str::trim) {
            let word = entry.strip_prefix("--").unwrap_or(entry);
            if PROFILES.contains(&word) {
                set.close(list.take())?;
                set.add_profile(word);
            } else if let Some((flag, value)) = flag_of(word) {
                set.close(list.take())?;
                match value {
                    None => set.apply(flag, Grant::All),
                    Some(first) => list = Some((flag, vec![first.to_owned()])),
                }
            } else if let Some((_, entries)) = &mut list {
                entries.push(entry.to_owned());
            } else {
                return Err(PublicError::bad_request(format!(
                    "options.permissions: unknown word {entry:?}; known are {} and allow-X, deny-X with X one of {}",
                    PROFILES.join(", "),
                    RESOURCES.join(", ")
                )));
            }
        }
        set.close(list.take())?;
        Ok(set)
    }

    fn close(&mut self, list: Option<(&str, Vec<String>)>) -> Result<(), PublicError> {
        let Some((flag, entries)) = list else { return Ok(()) };
        if entries.iter().any(String::is_empty) {
            return Err(PublicError::bad_request(format!(
                "options.permissions: {flag}= has an empty entry; leave {flag} out to grant nothing, or write it without = for all"
            )));
        }
        if let Some(entries) = Entries::new(entries) {
            self.apply(flag, Grant::Only(entries));
        }
        Ok(())
    }

    fn apply(&mut self, flag: &str, grant: Grant) {
        let (side, resource) = flag.split_once('-').unwrap_or((flag, ""));
        if let Some(at) = RESOURCES.iter().position(|known| *known == resource) {
            let rule = &mut self.rules[at];
            if side == "allow" { rule.allow.widen(grant) } else { rule.deny.widen(grant) }
        }
    }

    fn add_profile(&mut self, profile: &str) {
        let resources: &[&str] = match profile {
            "workspace" => {
                self.workspace = true;
                &["net"]
            }
            "net" => &["net"],
            "read" => &["read"],
            "readnet" => &["read", "net"],
            "all" => &RESOURCES,
            _ => &[],
        };
        for resource in resources {
            self.apply(&format!("allow-{resource}"), Grant::All);
        }
    }

    /// The rules of a run that is placed: with the workspace's folders, and with what no run may touch.
    pub fn placed(&self, place: &Place<'_>) -> PlacedPermissions {
        let mut rules = self.rules.clone();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut allow = |resource: &str, paths: Vec<String>| {
            if let (Some(at), Some(entries)) =
                (RESOURCES.iter().position(|known| *known == resource), Entries::new(paths))
            {
                rules[at].allow.widen(Grant::Only(entries));
            }
        };
        if self.workspace {
            let mut own = vec![text(place.cwd), text(place.temp)];
            // A run without a folder of its caller's stands in its temp folder.
            own.dedup();
            allow("write", own.clone());
            allow("read", own.into_iter().chain(place.script_folder.map(text)).collect());
        }
        let effective = describe(&rules);
        let forbidden: Vec<String> = place.forbidden.iter().map(|path| text(path)).collect();
        for resource in ["read", "write"] {
            if let (Some(at), Some(entries)) =
                (RESOURCES.iter().position(|known| *known == resource), Entries::new(forbidden.clone()))
            {
                rules[at].deny.widen(Grant::Only(entries));
            }
        }
        PlacedPermissions { rules, effective }
    }
}

/// Where a run stands in the file system.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub cwd: &'a Path,
    /// The run's private temp folder.
    pub temp: &'a Path,
    /// Folder of the script's file, for a run that has one.
    pub script_folder: Option<&'a Path>,
    /// What no run may touch, whatever it was granted: state, socket, the daemon's `/proc`.
    pub forbidden: &'a [std::path::PathBuf],
}

/// Rules with every path known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedPermissions {
    rules: [Rule; RESOURCES.len()],
    /// As the frame `start` echoes it: a text that `--permissions` takes.
    pub effective: String,
}

impl PlacedPermissions {
    /// The rule of one of `read`, `write`, `net`, `env`, `run`, `sys`, `ffi`.
    pub fn rule(&self, resource: &str) -> Rule {
        RESOURCES.iter().position(|known| *known == resource).map(|at| self.rules[at].clone()).unwrap_or_default()
    }
}

fn flag_of(word: &str) -> Option<(&str, Option<&str>)> {
    let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
    let (side, resource) = flag.split_once('-')?;
    (matches!(side, "allow" | "deny") && RESOURCES.contains(&resource)).then_some((flag, value))
}

fn describe(rules: &[Rule]) -> String {
    let mut text = String::from("none");
    for (resource, rule) in RESOURCES.iter().zip(rules) {
        for (side, grant) in [("allow", &rule.allow), ("deny", &rule.deny)] {
            // Writing to a String cannot fail.
            let _ = match grant {
                Grant::None => Ok(()),
                Grant::All => write!(text, ",{side}-{resource}"),
                Grant::Only(entries) => write!(text, ",{side}-{resource}={}", entries.as_slice().join(",")),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective(text: &str) -> String {
        let place = Place {
            cwd: Path::new("/w"),
            temp: Path::new("/t"),
            script_folder: Some(Path::new("/s")),
            forbidden: &["/state".into()],
        };
        PermissionSet::parse(text).expect("it parses").placed(&place).effective
    }

    #[test]
    fn profiles_and_flags() {
        for (text, expected) in [
            ("none", "none"),
            ("strict", "none"),
            ("workspace", "none,allow-read=/w,/t,/s,allow-write=/w,/t,allow-net"),
            ("readnet,allow-run=git", "none,allow-read,allow-net,allow-run=git"),
            (
                "none,--allow-net=a.example:443,b.example,deny-net=c",
                "none,allow-net=a.example:443,b.example,deny-net=c",
            ),
            ("none, allow-read=a, read", "none,allow-read"),
        ] {
            assert_eq!(effective(text), expected, "{text}");
        }
        // What is echoed can be said again and means the same.
        let again = effective(&effective("workspace"));
        assert_eq!(again, effective("workspace"));
    }

    #[test]
    fn empty_lists_and_typos_are_refused() {
        for text in ["raednet", "", "none,allow-read=", "none,allow-read=a,,b, ", "none,allow-everything", "none,=x"] {
            let error = PermissionSet::parse(text).expect_err(text);
            assert_eq!(error.kind, crate::error::ErrorKind::BadRequest);
            assert!(error.message.starts_with("options.permissions: "), "{}", error.message);
        }
    }

    #[test]
    fn what_is_forbidden_is_denied_even_with_all() {
        let place =
            Place { cwd: Path::new("/w"), temp: Path::new("/t"), script_folder: None, forbidden: &["/state".into()] };
        let placed = PermissionSet::parse("all").expect("it parses").placed(&place);
        for resource in ["read", "write"] {
            let rule = placed.rule(resource);
            assert_eq!(rule.allow, Grant::All);
            assert!(matches!(rule.deny, Grant::Only(entries) if entries.as_slice() == ["/state"]));
        }
    }
}
