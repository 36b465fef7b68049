//! The child process of a stdio server, with everything it started.
//!
//! Owns the process group: starting it, draining its standard error, killing and reaping it. Does not own the protocol
//! on its other two streams. Invariant: when [`Child`] is gone, so is the whole group (a process that leaves the group
//! by `setsid` is out of reach). Runs on the daemon's runtime.

use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::Evidence;
use super::transcript::Transcript;
use crate::config::StdioSpec;

/// How long the rest of standard error may take to arrive after the group is dead.
const STDERR_GRACE: Duration = Duration::from_millis(200);

/// A running child, leader of its own process group.
#[derive(Debug)]
pub(super) struct Child {
    leader: tokio::process::Child,
    group: Group,
    stderr: JoinHandle<()>,
    transcript: Arc<Transcript>,
}

/// The other two streams of a child.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

impl Child {
    /// Starts what `stdio` says, with `base_env` and then the entry's own variables as its whole environment.
    ///
    /// # Errors
    /// The program cannot be run, or the working folder cannot be entered.
    pub(super) fn spawn(
        stdio: &StdioSpec,
        base_env: &BTreeMap<String, String>,
        transcript: Arc<Transcript>,
    ) -> std::io::Result<(Self, Pipes)> {
        let mut leader = Command::new(&stdio.command)
            .args(&stdio.args)
            .env_clear()
            .envs(base_env)
            .envs(&stdio.env)
            .current_dir(&stdio.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Group(leader.id().and_then(|id| libc::pid_t::try_from(id).ok()));
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (leader.stdin.take(), leader.stdout.take(), leader.stderr.take())
        else {
            return Err(std::io::Error::other("the child has no pipes"));
        };
        let stderr = tokio::spawn(drain(stderr, Arc::clone(&transcript)));
        Ok((Self { leader, group, stderr, transcript }, Pipes { stdin, stdout }))
    }

    /// Waits for the leader to end, reaps it and kills what it left behind; `None` if its status cannot be learned.
    /// What the group wrote before stays readable. May be called again.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost when the future is dropped.
    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        let status = self.leader.wait().await;
        self.group.kill();
        status.ok()
    }

    /// Asks the group to end (SIGTERM).
    pub(super) fn terminate(&self) {
        self.group.signal(libc::SIGTERM);
    }

    /// Ends it: gives the leader `grace` to end by itself, kills what is left of the group, reaps the leader. Returns
    /// the status if the leader ended by itself, and what the child had said.
    pub(super) async fn finish(mut self, grace: Duration) -> (Option<ExitStatus>, Evidence) {
        let status = timeout(grace, self.wait()).await.ok().flatten();
        self.group.kill();
        // After SIGKILL this is prompt; an error means that there is nothing to reap.
        let _ = self.leader.wait().await;
        if timeout(STDERR_GRACE, &mut self.stderr).await.is_err() {
            self.stderr.abort();
        }
        (status, self.transcript.evidence())
    }
}

/// The process group; killed on drop. `None` once it is killed: its id may then become somebody else's.
#[derive(Debug)]
struct Group(Option<libc::pid_t>);

impl Group {
    fn signal(&self, signal: libc::c_int) {
        // 0 and 1 would mean our own group and everybody.
        let Some(id) = self.0.filter(|id| *id > 1) else { return };
        // SAFETY: killpg takes two integers and touches no memory of ours. The id cannot belong to a stranger while the
        // leader is not reaped; when it is, `Child::wait` kills the group at once, before ids can come round, and
        // forgets the id.
        let _ = unsafe { libc::killpg(id, signal) };
    }

    fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads standard error to its end, so that a chatty server never blocks on a full pipe.
async fn drain(mut stderr: ChildStderr, transcript: Arc<Transcript>) {
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(count) = stderr.read(&mut chunk).await
        && count > 0
    {
        transcript.stderr(chunk.get(..count).unwrap_or_default());
    }
}
