//! The plain types a caller of the store holds: what to store, what is stored, and the options of a store.
//!
//! Owns no behaviour beyond spelling (hex, URI) and the clock. Times are milliseconds since the Unix epoch, sizes
//! bytes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::StoreError;
use super::id::ArtifactId;
use super::names::{mime_for, sanitize_name};
use super::record::LABEL_MAX;

/// Where the store takes the time from; a test gives its own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// A clock that calls `now` for the milliseconds since the Unix epoch.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(|| millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The settings the store needs, and its clock.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Largest body, in bytes (`artifacts.maxBytes`). Over it is an error, never a cut.
    pub max_artifact_bytes: u64,
    /// Longest sanitized name, in bytes (`artifacts.nameMaxLength`).
    pub max_name_bytes: usize,
    /// The source of creation and expiry times.
    pub clock: Clock,
}

impl Default for StoreOptions {
    /// The defaults of the settings table.
    fn default() -> Self {
        Self { max_artifact_bytes: 64 << 20, max_name_bytes: 128, clock: Clock::default() }
    }
}

/// What a caller says about an artifact to be stored. The name is sanitized and the type chosen by the store itself, so
/// that no other name ever gets in.
#[derive(Clone, Debug, Default)]
pub struct NewArtifact {
    /// Any text; see `sanitize_name`.
    pub name: String,
    /// An explicit media type; see `mime_for` for when it wins.
    pub mime: Option<String>,
    /// How long it lives from the moment it is stored; `None` is for ever. Whole milliseconds.
    pub ttl: Option<Duration>,
    /// The run that made it, at most 1024 bytes.
    pub run: Option<String>,
    /// The session it belongs to, at most 1024 bytes.
    pub session: Option<String>,
}

impl NewArtifact {
    /// An artifact with only a name: type by extension, no expiry, no labels.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Checks the labels and settles name and type. `created_ms` and `expires_ms` are left to the writer, which knows
    /// the moment of the commit.
    pub(super) fn prepare(self, options: &StoreOptions, size: u64, sha256: [u8; 32]) -> Result<Prepared, StoreError> {
        self.check_labels()?;
        let name = sanitize_name(&self.name, options.max_name_bytes);
        let mime = mime_for(&name, self.mime.as_deref());
        let meta = ArtifactMeta {
            id: ArtifactId::random()?,
            name,
            mime,
            size,
            sha256,
            created_ms: 0,
            expires_ms: None,
            run: self.run,
            session: self.session,
        };
        Ok(Prepared { meta, ttl_ms: self.ttl.map(millis) })
    }

    pub(super) fn check_labels(&self) -> Result<(), StoreError> {
        for (label, text) in [("run", &self.run), ("session", &self.session)] {
            let bytes = text.as_ref().map_or(0, String::len);
            if bytes > LABEL_MAX {
                return Err(StoreError::LabelTooLong { label, bytes, limit: LABEL_MAX });
            }
        }
        Ok(())
    }
}

/// An artifact that is complete but for the times of its commit.
#[derive(Debug)]
pub(super) struct Prepared {
    meta: ArtifactMeta,
    ttl_ms: Option<u64>,
}

impl Prepared {
    pub(super) fn id(&self) -> ArtifactId {
        self.meta.id
    }

    pub(super) fn stamped(&self, now_ms: u64) -> ArtifactMeta {
        let mut meta = self.meta.clone();
        meta.created_ms = now_ms;
        // 0 is the record's "never", which only a clock at the epoch could reach; one millisecond is as gone as none.
        meta.expires_ms = self.ttl_ms.map(|ttl| now_ms.saturating_add(ttl).max(1));
        meta
    }
}

/// A stored artifact, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactMeta {
    /// The handle.
    pub id: ArtifactId,
    /// A sanitized name, safe as a file name.
    pub name: String,
    /// The media type, safe as a header value.
    pub mime: String,
    /// Bytes of the body.
    pub size: u64,
    /// SHA-256 of the body.
    pub sha256: [u8; 32],
    /// When it was committed, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// The first millisecond in which it no longer exists; `None` is never.
    pub expires_ms: Option<u64>,
    /// The run that made it.
    pub run: Option<String>,
    /// The session it belongs to.
    pub session: Option<String>,
}

impl ArtifactMeta {
    /// `mcpx://artifacts/<id>`.
    pub fn uri(&self) -> String {
        format!("mcpx://artifacts/{}", self.id)
    }

    /// The SHA-256 as 64 lower-case hex digits.
    pub fn sha256_hex(&self) -> String {
        use fmt::Write;
        self.sha256.iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("this cannot fail because a String takes any text");
            text
        })
    }

    /// True from its expiry millisecond on.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires| now_ms >= expires)
    }
}
