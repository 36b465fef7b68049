//! Identifiers of things that live as long as the daemon or shorter. (An artifact's id belongs to the store.)

use std::fmt;
use std::str::FromStr;

/// Names one run: `run-` and 16 hex digits when we choose it, 16..64 of `[A-Za-z0-9_-]` when the caller does (SPEC 5).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunId(String);

/// A text that is no run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run id has 16 to 64 characters of A-Z, a-z, 0-9, _ and -; {0:?} has not")]
pub struct RunIdError(String);

impl RunId {
    /// A fresh one, of 64 random bits.
    pub fn random() -> Self {
        Self(format!("run-{:016x}", rand::random::<u64>()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, RunIdError> {
        let fits = (16..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if fits { Ok(Self(text.to_owned())) } else { Err(RunIdError(text.to_owned())) }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::RunId;

    #[test]
    fn run_ids_of_callers() {
        let id = RunId::random();
        assert_eq!(id.as_str().parse::<RunId>().as_ref(), Ok(&id));
        for text in ["", "short", "has space in it....", &"x".repeat(65), "ünïcödé-run-id-0"] {
            assert!(text.parse::<RunId>().is_err(), "{text:?}");
        }
    }
}
