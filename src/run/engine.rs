//! The engine behind a run. There is one today, isolates in this process; the choice and the common contract live here, so that
//! nothing else in `run` knows which it is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::error::{ErrorKind, PublicError};
use crate::isolate::{
    IsolatePool, Job, ModuleSpecifier, PARSE_STACK, Program, Report, Role, SCRIPT_NAME, Spare, Transpiler,
};

use super::frame::RunError;
use super::spec::{RunSpec, Script};

/// A script with its language taken out: ready for an isolate.
pub(super) struct Prepared {
    pub(super) main: ModuleSpecifier,
    pub(super) program: Arc<Program>,
    pub(super) carried: HashMap<ModuleSpecifier, String>,
}

/// Isolates in this process.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) pool: IsolatePool,
    pub(super) transpiler: Transpiler,
}

/// Why a script did not get ready.
pub(super) enum PrepareError {
    /// The run starts and fails with this.
    Script(RunError),
    /// The run does not start.
    Request(PublicError),
}

impl Engine {
    /// Reads, parses and strips the script.
    pub(super) async fn prepare(&self, spec: &RunSpec, cwd: &Path) -> Result<Prepared, PrepareError> {
        let (main, text) = match &spec.script {
            Script::Text(text) => (url(&cwd.join(SCRIPT_NAME))?, text.clone()),
            Script::File(path) => {
                let (main, file) = (url(path)?, path.clone());
                let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(&file)).await;
                let text = text.map_err(|_| lost())?.map_err(|error| unreadable(path, &error))?;
                (main, text)
            }
        };
        let mut carried = HashMap::new();
        for (specifier, text) in &spec.modules {
            let at = main.join(specifier).map_err(|error| {
                PrepareError::Request(PublicError::bad_request(format!(
                    "modules: {specifier:?} is no relative specifier: {error}"
                )))
            })?;
            carried.insert(at, text.clone());
        }
        let name = main.path_segments().and_then(Iterator::last).unwrap_or(SCRIPT_NAME).to_owned();
        let program = match self.transpiler.cached(&text, &name, Role::Script) {
            Some(program) => program,
            None => self.parse(text, name).await?.map_err(PrepareError::Script)?,
        };
        Ok(Prepared { main, program, carried })
    }

    /// Parses on a thread whose stack the parser's recursion cannot exhaust.
    async fn parse(&self, text: String, name: String) -> Result<Result<Arc<Program>, RunError>, PrepareError> {
        let (done, parsed) = tokio::sync::oneshot::channel();
        let transpiler = self.transpiler.clone();
        std::thread::Builder::new()
            .name("mcpx-parse".to_owned())
            .stack_size(PARSE_STACK)
            .spawn(move || {
                // Nobody may wait any more; then the program is in the cache at least.
                let _ = done.send(transpiler.program(&text, &name, Role::Script));
            })
            .map_err(|_| lost())?;
        parsed.await.map_err(|_| lost())
    }

    /// A bootstrapped isolate.
    pub(super) async fn checkout(&self) -> Result<Spare, RunError> {
        self.pool.checkout().await.map_err(|error| RunError::plain(ErrorKind::Internal, error.to_string()))
    }
}

/// Gives the job to the isolate, or to nobody when its thread has died.
pub(super) fn give(spare: Spare, job: Job, report: Report) -> bool {
    spare.give(job, report).is_ok()
}

fn url(path: &Path) -> Result<ModuleSpecifier, PrepareError> {
    ModuleSpecifier::from_file_path(path).map_err(|()| {
        PrepareError::Request(PublicError::bad_request(format!("{} is not an absolute path", path.display())))
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> PrepareError {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::BadRequest,
    };
    PrepareError::Request(PublicError::new(kind, format!("cannot read the script {}: {error}", path.display())))
}

fn lost() -> PrepareError {
    PrepareError::Request(PublicError::new(ErrorKind::Internal, "the parser's thread ended without an answer"))
}
