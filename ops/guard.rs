//! Replacements for built-in ops whose effect would leave the run: exit, abort, signals, process-wide settings.
//!
//! Owns the list. `extension!` applies [`replace`] to every op of every extension, at snapshot time and at run time alike, so the
//! two agree. What has a meaning for a single run (exit, abort, killing oneself) gets it; the rest is refused with the reason.

use deno_core::{OpDecl, OpState, op2};
use deno_permissions::PermissionsContainer;

use crate::env;
use crate::error::OpError;
use crate::output::ports;

/// Exit code of a process that ended by signal `number`, as a shell reports it.
const fn signal_exit_code(number: i32) -> i32 {
    128 + number
}

/// What deno_os keeps the exit code in is set by JavaScript just before; we read it through the op that sets it.
#[op2(fast)]
fn op_exit(state: &mut OpState) -> Result<(), OpError> {
    let code = state.try_borrow::<ExitCodeCell>().map_or(0, |cell| cell.0.get());
    ports(state)?.lifecycle.exit(code);
    Ok(())
}

/// The exit code that a run has asked for (`Deno.exitCode`, `process.exitCode`, `Deno.exit(n)`). Shared with the host.
#[derive(Debug, Clone, Default)]
pub struct ExitCodeCell(pub std::rc::Rc<std::cell::Cell<i32>>);

#[op2(fast)]
fn op_set_exit_code(state: &mut OpState, #[smi] code: i32) {
    if let Some(cell) = state.try_borrow::<ExitCodeCell>() {
        cell.0.set(code);
    }
}

#[op2(fast)]
#[smi]
fn op_get_exit_code(state: &mut OpState) -> i32 {
    state.try_borrow::<ExitCodeCell>().map_or(0, |cell| cell.0.get())
}

#[op2(fast)]
fn op_process_abort(state: &mut OpState) -> Result<(), OpError> {
    ports(state)?.lifecycle.exit(signal_exit_code(libc::SIGABRT));
    Ok(())
}

/// Sends a signal: to ourselves it ends the run, to the daemon's family never, to others with the run permission.
fn send_signal(state: &mut OpState, pid: i32, signal: i32, api: &'static str) -> Result<i32, OpError> {
    let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    // SAFETY: getppid has no preconditions and cannot fail.
    let parent = unsafe { libc::getppid() };
    if pid == own {
        if signal != 0 {
            ports(state)?.lifecycle.exit(signal_exit_code(signal));
        }
        return Ok(0);
    }
    // Zero and negative numbers name process groups, ours among them.
    if pid <= 0 || pid == parent {
        return Err(OpError::Refused { what: api, why: "it would signal the daemon's own process group or parent" });
    }
    state.try_borrow_mut::<PermissionsContainer>().ok_or(OpError::NoRun)?.check_run_all(api)?;
    // SAFETY: kill takes two integers and touches no memory of ours.
    if unsafe { libc::kill(pid, signal) } == 0 {
        return Ok(0);
    }
    let error = std::io::Error::last_os_error();
    Ok(-error.raw_os_error().unwrap_or(libc::EINVAL))
}

#[op2(fast)]
fn op_node_process_kill(state: &mut OpState, #[smi] pid: i32, #[smi] signal: i32) -> Result<i32, OpError> {
    send_signal(state, pid, signal, "process.kill")
}

/// `Deno.kill`: the signal is a name or a number.
#[op2(nofast)]
fn op_kill(
    state: &mut OpState,
    #[smi] pid: i32,
    #[string] signal: String,
    #[string] _api_name: String,
) -> Result<(), OpError> {
    let number = signal.parse::<i32>().ok().or_else(|| signal_number(&signal));
    let number = number.ok_or(OpError::Refused { what: "Deno.kill", why: "the signal's name is unknown" })?;
    match send_signal(state, pid, number, "Deno.kill")? {
        0 => Ok(()),
        negative => Err(std::io::Error::from_raw_os_error(-negative).into()),
    }
}

fn signal_number(name: &str) -> Option<i32> {
    Some(match name {
        "SIGHUP" => libc::SIGHUP,
        "SIGINT" => libc::SIGINT,
        "SIGQUIT" => libc::SIGQUIT,
        "SIGABRT" => libc::SIGABRT,
        "SIGKILL" => libc::SIGKILL,
        "SIGUSR1" => libc::SIGUSR1,
        "SIGUSR2" => libc::SIGUSR2,
        "SIGPIPE" => libc::SIGPIPE,
        "SIGALRM" => libc::SIGALRM,
        "SIGTERM" => libc::SIGTERM,
        "SIGCHLD" => libc::SIGCHLD,
        "SIGCONT" => libc::SIGCONT,
        "SIGSTOP" => libc::SIGSTOP,
        "SIGTSTP" => libc::SIGTSTP,
        _ => return None,
    })
}

/// An op that says no. JavaScript may call it with any arguments.
macro_rules! refused {
    ($($op:ident: $what:literal, $why:literal;)*) => {
        $(
            #[op2(nofast)]
            fn $op() -> Result<(), OpError> {
                Err(OpError::Refused { what: $what, why: $why })
            }
        )*

        fn refuse(op: &OpDecl) -> Option<OpDecl> {
            match op.name {
                $(stringify!($op) => Some($op()),)*
                _ => None,
            }
        }
    };
}

refused! {
    op_signal_bind: "a signal listener", "signals belong to the daemon; use the global `signal` to learn of a stop";
    op_create_worker: "Worker", "a run has one isolate";
    op_read_line_prompt: "prompt()", "there is no terminal on this side";
    op_set_raw: "Deno.stdin.setRaw()", "there is no terminal on this side";
    op_inspector_open: "the inspector", "it would open a port of the daemon";
    op_v8_set_flags_from_string: "v8.setFlagsFromString()", "V8 flags are the whole process's";
    op_v8_set_heap_snapshot_near_heap_limit: "v8.setHeapSnapshotNearHeapLimit()", "it would displace the heap limit";
    op_v8_take_heap_snapshot: "a heap snapshot", "its size is outside the run's limits";
    op_node_process_set_title: "process.title", "the title is the daemon's";
    op_node_process_setegid: "process.setegid()", "identity is the daemon's";
    op_node_process_seteuid: "process.seteuid()", "identity is the daemon's";
    op_node_process_setgid: "process.setgid()", "identity is the daemon's";
    op_node_process_setuid: "process.setuid()", "identity is the daemon's";
    op_node_os_set_priority: "os.setPriority()", "priority is the daemon's";
}

/// Middleware over every op of the runtime: the replacement where there is one, else the op as it is.
pub(crate) fn replace(op: OpDecl) -> OpDecl {
    match op.name {
        "op_env" => env::op_env(),
        "op_get_env" => env::op_get_env(),
        "op_get_env_no_permission_check" => env::op_get_env_no_permission_check(),
        "op_set_env" => env::op_set_env(),
        "op_delete_env" => env::op_delete_env(),
        "op_exit" => op_exit(),
        "op_set_exit_code" => op_set_exit_code(),
        "op_get_exit_code" => op_get_exit_code(),
        "op_process_abort" => op_process_abort(),
        "op_node_process_kill" => op_node_process_kill(),
        "op_kill" => op_kill(),
        _ => refuse(&op).unwrap_or(op),
    }
}
