//! Where config files are, and reading one.
//!
//! Owns the search order of SPEC 11 and the folders that relative values of a file refer to. Knows nothing of servers.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::load::LoadOptions;

/// The config for the whole machine, asked last.
const SYSTEM: &str = "/etc/mcpx/config.json";

/// Names looked for in the working folder and in each folder above it, the strongest first.
const IN_PROJECT: [&str; 4] = [".config/mcpx/config.json", ".mcpx.json", ".mcpx/config.json", ".mcp.json"];

/// A config file that may exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// Where a server of this file runs when its entry has no `cwd`.
    pub(super) home_folder: PathBuf,
}

/// A config file that was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// Canonical path.
    pub(super) path: PathBuf,
    /// Where a server of this file runs when its entry has no `cwd`.
    pub(super) home_folder: PathBuf,
    pub(super) root: Map<String, Value>,
}

impl ConfigFile {
    /// The folder that relative paths in this file start from.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// Every place a config file may be, nearest first.
pub(super) fn candidates(options: &LoadOptions<'_>) -> Vec<Candidate> {
    if let Some(path) = &options.explicit {
        let path = options.cwd.join(path);
        let home_folder = project_folder(&path);
        return vec![Candidate { path, home_folder }];
    }
    let mut found = Vec::new();
    for folder in options.cwd.ancestors() {
        found.extend(
            IN_PROJECT.iter().map(|name| Candidate { path: folder.join(name), home_folder: folder.to_path_buf() }),
        );
    }
    let home = options.home.as_deref();
    let user_folder = home.unwrap_or(Path::new("/")).to_path_buf();
    let user = |path: PathBuf| Candidate { path, home_folder: user_folder.clone() };
    found.extend(options.xdg_config_home.as_deref().map(|xdg| user(xdg.join("mcpx/config.json"))));
    found.extend(home.map(|home| user(home.join(".config/mcpx/config.json"))));
    found.extend(home.map(|home| user(home.join(".mcpx.json"))));
    found.push(user(PathBuf::from(SYSTEM)));
    found
}

/// The project that a file belongs to: its folder, or the one above `.mcpx/` or `.config/mcpx/`.
fn project_folder(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new("/"));
    for tail in [".config/mcpx", ".mcpx"] {
        if folder.ends_with(tail) {
            let depth = Path::new(tail).components().count();
            return folder.ancestors().nth(depth).unwrap_or(folder).to_path_buf();
        }
    }
    folder.to_path_buf()
}

/// Reads one file; `None` when it does not exist.
///
/// # Errors
/// It cannot be read, is not JSONC (line and column are named), or is not an object.
pub(super) fn read(candidate: &Candidate) -> Result<Option<ConfigFile>, ConfigError> {
    let path = match candidate.path.canonicalize() {
        Ok(path) => path,
        // A file where a folder would have to be (`NotADirectory`) is as good as no file.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        // A folder above the project that we may not look into is no reason to refuse work.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tracing::debug!(path = %candidate.path.display(), %error, "config file is out of reach");
            return Ok(None);
        }
        Err(source) => return Err(ConfigError::Read { path: candidate.path.clone(), source }),
    };
    let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
    let root = parse(&path, text.strip_prefix('\u{feff}').unwrap_or(&text))?;
    Ok(Some(ConfigFile { path, home_folder: candidate.home_folder.clone(), root }))
}

fn parse(path: &Path, text: &str) -> Result<Map<String, Value>, ConfigError> {
    // Comments and trailing commas are JSONC; the parser's other liberties would hide typos.
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
    };
    let value: Value = jsonc_parser::parse_to_serde_value(text, &options).map_err(|error| ConfigError::Syntax {
        path: path.to_path_buf(),
        line: error.line_display(),
        column: error.column_display(),
        message: error.kind().to_string(),
    })?;
    match value {
        Value::Object(root) => Ok(root),
        // An empty file, or one with nothing but comments.
        Value::Null => Ok(Map::new()),
        _ => Err(ConfigError::Shape { path: path.to_path_buf(), message: "a config file is a JSON object".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::project_folder;
    use std::path::Path;

    #[test]
    fn a_file_in_a_dot_folder_belongs_to_the_project_above() {
        for (file, want) in [
            ("/p/.mcp.json", "/p"),
            ("/p/.mcpx/config.json", "/p"),
            ("/p/.config/mcpx/config.json", "/p"),
            ("/p/mcpx/config.json", "/p/mcpx"),
            ("/.mcpx/config.json", "/"),
        ] {
            assert_eq!(project_folder(Path::new(file)), Path::new(want), "{file}");
        }
    }
}
