//! What the tests are made of: places, daemons, command lines, requests.

mod cli;
mod daemon;
mod fake;
mod frames;
mod http;
mod place;
mod wait;

pub(crate) use cli::{Running, Said};
pub(crate) use daemon::{Daemon, LOCAL_HEADER, failure_of, result_of};
pub(crate) use fake::{echoing, spec};
pub(crate) use frames::{Frames, words};
pub(crate) use http::{Client, Opened};
pub(crate) use place::{Place, signal};
pub(crate) use wait::{wait_for, wait_until};

/// SHA-256 as 64 hex digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
