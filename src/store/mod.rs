//! The artifact store: named bodies in one redb file, written by one thread, readable while they are written.
//!
//! Owns the file format, the durability promise (a resolved `put` survives `kill -9`) and the life of every body. Does
//! not own settings, HTTP, quotas or the choice of what becomes an artifact. This is the only module that names redb,
//! and only `writer.rs` begins a write transaction. Needs no tokio runtime: writes are futures over `tokio::sync`,
//! reads block and belong into `spawn_blocking`. Sizes are bytes, times are milliseconds since the Unix epoch.
//!
//! `docs/store.md` describes the layout and the promises in prose.

mod apply;
mod artifact;
mod command;
mod create;
mod error;
mod handle;
mod id;
mod list;
mod names;
mod open;
mod reader;
mod record;
mod shelf;
mod tables;
mod upload;
mod wait;
mod writer;

#[cfg(test)]
mod tests;

pub use artifact::{ArtifactMeta, Clock, NewArtifact, StoreOptions};
pub use error::StoreError;
pub use handle::Store;
pub use id::{ArtifactId, BadArtifactId};
pub use list::{BadCursor, Cursor, ListPage, ListQuery};
pub use names::{FALLBACK_NAME, mime_for, sanitize_name};
pub use reader::{BodyReader, Chunks, StoreStats};
pub use upload::BlobWriter;
