//! `ArtifactId`: the random handle of an artifact, and its only spelling.
//!
//! Owns parsing and printing. Does not own uniqueness: 128 random bits do. An id is never derived from the content, so
//! that knowing bytes does not give access to them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::TryRng;
use rand::rngs::SysRng;

use super::error::StoreError;

const PREFIX: &str = "art-";

/// A handle: `art-` and 32 lower-case hex digits, 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArtifactId([u8; 16]);

/// The text is not an artifact id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an artifact id: it is \"art-\" and 32 lower-case hex digits")]
pub struct BadArtifactId;

impl ArtifactId {
    /// A new id from the operating system's random source.
    ///
    /// # Errors
    /// `StoreError::Random` when the system has none to give.
    pub fn random() -> Result<Self, StoreError> {
        let mut bytes = [0; 16];
        SysRng.try_fill_bytes(&mut bytes).map_err(|error| StoreError::Random(Arc::new(error)))?;
        Ok(Self(bytes))
    }

    pub(super) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ArtifactId {
    type Err = BadArtifactId;

    fn from_str(text: &str) -> Result<Self, BadArtifactId> {
        let digits = text.strip_prefix(PREFIX).ok_or(BadArtifactId)?.as_bytes();
        let mut bytes = [0; 16];
        if digits.len() != 2 * bytes.len() {
            return Err(BadArtifactId);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

/// Upper case is refused: one artifact has one spelling, so that a text comparison of URIs is enough.
fn hex_digit(digit: u8) -> Result<u8, BadArtifactId> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(BadArtifactId),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses() {
        let id = ArtifactId::random().expect("the test machine has a random source");
        assert_eq!(id.to_string().len(), 36);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(id, ArtifactId::random().expect("the test machine has a random source"));
    }

    #[test]
    fn refuses_anything_else() {
        let good = format!("art-{}", "0a".repeat(16));
        assert!(good.parse::<ArtifactId>().is_ok());
        let bad = [
            String::new(),
            "art-".into(),
            good[..35].into(),
            format!("{good}0"),
            good.to_uppercase(),
            good.replace("0a", "0A"),
            good.replacen("art-", "art_", 1),
            format!(" {}", &good[..35]),
            good.replacen("0a", "/a", 1),
            format!("art-{}", "é".repeat(16)),
        ];
        for text in bad {
            assert_eq!(text.parse::<ArtifactId>(), Err(BadArtifactId), "{text}");
        }
    }
}
