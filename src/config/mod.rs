//! MCP server definitions and raw settings, read from the config files of SPEC 11.
//!
//! Owns: where config files are looked for, how they are merged, what an entry of `mcpServers` means, `${VAR}`
//! expansion, and the key that tells one set of files from another. Does not own: what a setting means (the settings
//! module reads [`Config::settings_json`]), how a server is started (`mcp`), or watching files for changes. Reading is
//! synchronous; it happens at start-up and on reload, never per run.

mod entry;
mod error;
mod expand;
mod files;
mod load;
#[cfg(test)]
mod tests;

pub use entry::{ServerSpec, StdioSpec, Transport};
pub use error::ConfigError;
pub use load::{Config, LoadOptions};
