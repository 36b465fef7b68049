//! From a run's placed permissions to deno_permissions' container.
//!
//! The container is made on the isolate's thread, whose working directory is the run's: relative paths in the rules resolve there.

use std::sync::Arc;

use deno_runtime::deno_permissions::{
    Permissions, PermissionsContainer, PermissionsFromOptionsError, PermissionsOptions,
    RuntimePermissionDescriptorParser,
};
use sys_traits::impls::RealSys;

use crate::run::permissions::{Grant, PlacedPermissions};

/// `None` grants nothing, an empty list grants everything: deno_permissions' convention.
fn as_option(grant: &Grant) -> Option<Vec<String>> {
    match grant {
        Grant::None => None,
        Grant::All => Some(Vec::new()),
        Grant::Only(entries) => Some(entries.as_slice().to_vec()),
    }
}

fn parser() -> Arc<RuntimePermissionDescriptorParser<RealSys>> {
    Arc::new(RuntimePermissionDescriptorParser::new(RealSys))
}

/// A container that grants nothing and never prompts: for an isolate that waits for its job.
pub(super) fn nothing() -> PermissionsContainer {
    PermissionsContainer::new(parser(), Permissions::none_without_prompt())
}

/// The container of a run.
///
/// # Errors
/// An entry that deno_permissions does not understand (a host, a path).
pub(super) fn container(placed: &PlacedPermissions) -> Result<PermissionsContainer, PermissionsFromOptionsError> {
    let [read, write, net, run, sys, ffi] = ["read", "write", "net", "run", "sys", "ffi"].map(|name| placed.rule(name));
    let options = PermissionsOptions {
        allow_read: as_option(&read.allow),
        deny_read: as_option(&read.deny),
        allow_write: as_option(&write.allow),
        deny_write: as_option(&write.deny),
        allow_net: as_option(&net.allow),
        deny_net: as_option(&net.deny),
        allow_run: as_option(&run.allow),
        deny_run: as_option(&run.deny),
        allow_sys: as_option(&sys.allow),
        deny_sys: as_option(&sys.deny),
        allow_ffi: as_option(&ffi.allow),
        deny_ffi: as_option(&ffi.deny),
        // The environment is the run's own map; reading it is always allowed.
        allow_env: Some(Vec::new()),
        prompt: false,
        ..PermissionsOptions::default()
    };
    let parser = parser();
    let permissions = Permissions::from_options(&*parser, &options)?;
    Ok(PermissionsContainer::new(parser, permissions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_grants_in_denos_convention() {
        let entries = crate::run::permissions::Entries::new(vec!["/a".to_owned()]).expect("not empty");
        assert_eq!(as_option(&Grant::None), None);
        assert_eq!(as_option(&Grant::All), Some(vec![]));
        assert_eq!(as_option(&Grant::Only(entries)), Some(vec!["/a".to_owned()]));
    }
}
