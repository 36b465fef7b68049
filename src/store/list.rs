//! Lists of artifacts, newest first, page by page.
//!
//! Owns the query, the page and the cursor. Does not read bodies. Order is the order of the commits, so that two
//! artifacts of one millisecond have a fixed place. Blocks, like everything in `reader.rs`.

use std::fmt;
use std::str::FromStr;

use super::artifact::ArtifactMeta;
use super::error::StoreError;
use super::handle::Store;
use super::id::ArtifactId;
use super::record::decode_artifact;
use super::tables::{ARTIFACTS, Listing, ORDER, order_key, sequence_of};

/// Which artifacts to list. Both labels given means both must match.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only artifacts of this run.
    pub run: Option<String>,
    /// Only artifacts of this session.
    pub session: Option<String>,
    /// Most artifacts on the page.
    pub limit: usize,
    /// Where the page before ended.
    pub before: Option<Cursor>,
}

/// One page of a list, newest first.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The artifacts.
    pub artifacts: Vec<ArtifactMeta>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<Cursor>,
}

/// A place in the list. It stays valid while artifacts come and go, and says nothing about any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u64);

/// The text is not a cursor of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list cursor: pass on the one of the page before as it is")]
pub struct BadCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        // The number parser takes a sign, which no cursor has.
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadCursor);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| BadCursor)
    }
}

impl Store {
    /// The artifacts that match, newest first. Expired and damaged ones are left out. Blocks.
    ///
    /// # Errors
    /// `Read` and `DamagedFile` if the file cannot be read.
    pub fn list(&self, query: &ListQuery) -> Result<ListPage, StoreError> {
        let listing = match (&query.run, &query.session) {
            (Some(run), _) => Listing::Run(run),
            (None, Some(session)) => Listing::Session(session),
            (None, None) => Listing::All,
        };
        let end = query.before.map_or(u64::MAX, |Cursor(sequence)| sequence);
        let (first, end) = (order_key(listing, 0), order_key(listing, end));
        let now_ms = self.options().clock.now_ms();
        self.read(|txn| {
            let artifacts = txn.open_table(ARTIFACTS)?;
            let mut page = ListPage::default();
            let mut last = None;
            for row in txn.open_table(ORDER)?.range::<&[u8]>(&first[..]..&end[..])?.rev() {
                let (key, id) = row?;
                let id = ArtifactId::from_bytes(*id.value());
                let Some(record) = artifacts.get(id.as_bytes())?.and_then(|row| decode_artifact(id, row.value()))
                else {
                    continue;
                };
                let meta = record.meta;
                let wanted = !meta.is_expired(now_ms)
                    && query.run.as_ref().is_none_or(|run| meta.run.as_ref() == Some(run))
                    && query.session.as_ref().is_none_or(|session| meta.session.as_ref() == Some(session));
                if !wanted {
                    continue;
                }
                if page.artifacts.len() == query.limit {
                    page.next = last.map(Cursor);
                    break;
                }
                last = sequence_of(key.value());
                page.artifacts.push(meta);
            }
            Ok(page)
        })
    }
}
