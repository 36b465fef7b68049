//! The environment variables of a run: a map of its own in place of the process's.
//!
//! Owns the map and the ops that replace deno_os's. Reading and writing it needs no permission, because it holds nothing but what
//! the caller gave (SPEC 6.1); the daemon's own environment is out of reach.

use std::collections::{BTreeMap, HashMap};

use deno_core::{OpState, op2};

use crate::error::OpError;

/// The variables of one run. The host puts it into the isolate's `OpState` when the job arrives.
#[derive(Debug, Clone, Default)]
pub struct RunEnv(pub BTreeMap<String, String>);

fn check_name(name: &str) -> Result<(), OpError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(OpError::EnvName(name.to_owned()));
    }
    Ok(())
}

fn lookup(state: &OpState, name: &str) -> Result<Option<String>, OpError> {
    check_name(name)?;
    Ok(state.try_borrow::<RunEnv>().and_then(|env| env.0.get(name).cloned()))
}

#[op2]
#[serde]
pub(crate) fn op_env(state: &mut OpState) -> HashMap<String, String> {
    state.try_borrow::<RunEnv>().map(|env| env.0.clone().into_iter().collect()).unwrap_or_default()
}

#[op2]
#[string]
pub(crate) fn op_get_env(state: &mut OpState, #[string] name: &str) -> Result<Option<String>, OpError> {
    lookup(state, name)
}

#[op2]
#[string]
pub(crate) fn op_get_env_no_permission_check(
    state: &mut OpState,
    #[string] name: &str,
) -> Result<Option<String>, OpError> {
    lookup(state, name)
}

#[op2(fast)]
pub(crate) fn op_set_env(state: &mut OpState, #[string] name: &str, #[string] value: &str) -> Result<(), OpError> {
    check_name(name)?;
    if value.contains('\0') {
        return Err(OpError::EnvValue);
    }
    if let Some(env) = state.try_borrow_mut::<RunEnv>() {
        env.0.insert(name.to_owned(), value.to_owned());
    }
    Ok(())
}

#[op2(fast)]
pub(crate) fn op_delete_env(state: &mut OpState, #[string] name: &str) -> Result<(), OpError> {
    check_name(name)?;
    if let Some(env) = state.try_borrow_mut::<RunEnv>() {
        env.0.remove(name);
    }
    Ok(())
}
