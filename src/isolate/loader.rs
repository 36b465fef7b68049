//! The closed set of modules that a run can import: its script, the modules that came with the request, files that it may read,
//! `data:` URLs and `node:` built-ins.
//!
//! One loader lives as long as its isolate, because the isolate is made before the job is known; [`Loader::assign`] gives it the
//! job. Sources are loaded synchronously on the isolate's thread.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use deno_core::error::ModuleLoaderError;
use deno_core::{
    ModuleLoadOptions, ModuleLoadReferrer, ModuleLoadResponse, ModuleLoader, ModuleResolveResponse, ModuleSource,
    ModuleSourceCode, ModuleSpecifier, ModuleType, RequestedModuleType, ResolutionKind, resolve_import,
};
use deno_error::{JsErrorBox, JsErrorClass as _};
use deno_runtime::deno_permissions::{OpenAccessKind, PermissionsContainer};

use super::guarded_fs::ForbiddenPaths;
use super::program::{Program, Role, Transpiler};
use crate::error::ErrorKind;
use crate::run::frame::RunError;

/// Failures that are remembered; a script that meets more has other worries.
const MOST_FAILURES: usize = 64;

/// Why a module cannot be had. `kind` reaches JavaScript as the error's `code`.
#[derive(Debug, Clone, thiserror::Error, deno_error::JsError)]
#[class("McpxFailure")]
#[property("code" = self.kind)]
#[error("{message}")]
pub(super) struct LoadError {
    pub(super) kind: &'static str,
    pub(super) message: String,
}

fn fail(kind: ErrorKind, message: String) -> ModuleLoaderError {
    JsErrorBox::from_err(LoadError { kind: kind.word(), message })
}

/// What one run can import besides files and built-ins.
pub(super) struct Modules {
    /// URL of the script.
    pub(super) main: ModuleSpecifier,
    pub(super) program: Arc<Program>,
    /// Modules of the request by URL.
    pub(super) carried: HashMap<ModuleSpecifier, String>,
    pub(super) permissions: PermissionsContainer,
}

/// The loader of one isolate.
pub(super) struct Loader {
    transpiler: Transpiler,
    forbidden: ForbiddenPaths,
    modules: RefCell<Option<Modules>>,
    /// What was loaded, for the source maps.
    loaded: RefCell<HashMap<String, Arc<Program>>>,
    /// The first failure of parsing, whose position V8 does not carry.
    failure: RefCell<Option<RunError>>,
    /// Failures by their message: deno_core makes a new error out of one that a dynamic import meets, and keeps only the text.
    failures: RefCell<Vec<(String, ErrorKind)>>,
}

impl Loader {
    pub(super) fn new(transpiler: Transpiler, forbidden: ForbiddenPaths) -> Self {
        Self {
            transpiler,
            forbidden,
            modules: RefCell::default(),
            loaded: RefCell::default(),
            failure: RefCell::default(),
            failures: RefCell::default(),
        }
    }

    /// Gives the loader its job.
    pub(super) fn assign(&self, modules: Modules) {
        *self.modules.borrow_mut() = Some(modules);
    }

    /// Drops the job and what was loaded for it.
    pub(super) fn forget(&self) {
        *self.modules.borrow_mut() = None;
        self.loaded.borrow_mut().clear();
    }

    /// The failure that kept a static import from loading.
    pub(super) fn take_failure(&self) -> Option<RunError> {
        self.failure.borrow_mut().take()
    }

    /// The kind of a failure of ours that this message, or the beginning of it, is of.
    pub(super) fn kind_of(&self, message: &str) -> Option<ErrorKind> {
        self.failures.borrow().iter().find(|(known, _)| message.starts_with(known)).map(|(_, kind)| *kind)
    }

    /// Remembers a failure before deno_core gets it.
    fn failed<T>(&self, result: Result<T, ModuleLoaderError>) -> Result<T, ModuleLoaderError> {
        let error = match result {
            Err(error) if self.failures.borrow().len() < MOST_FAILURES => error,
            other => return other,
        };
        let code = error.get_additional_properties().find(|(name, _)| name == "code");
        let kind = match code {
            Some((_, code)) => ErrorKind::from_word(&code.to_string()),
            None => (error.get_class() == "NotCapable").then_some(ErrorKind::PermissionDenied),
        };
        if let Some(kind) = kind {
            self.failures.borrow_mut().push((error.get_message().into_owned(), kind));
        }
        Err(error)
    }

    fn source(
        &self,
        specifier: &ModuleSpecifier,
        options: &ModuleLoadOptions,
    ) -> Result<ModuleSource, ModuleLoaderError> {
        let modules = self.modules.borrow();
        let Some(modules) = modules.as_ref() else {
            return Err(fail(ErrorKind::Internal, "the isolate has no run".to_owned()));
        };
        if *specifier == modules.main {
            return Ok(self.javascript(specifier, modules.program.clone()));
        }
        let text = match modules.carried.get(specifier) {
            Some(text) => text.clone(),
            None if specifier.scheme() == "file" => read(specifier, &modules.permissions, &self.forbidden)?,
            None if specifier.scheme() == "data" => data_url(specifier)?,
            None => return Err(no_such_scheme(specifier.as_str())),
        };
        let is_json = specifier.path().ends_with(".json");
        match options.requested_module_type {
            RequestedModuleType::Json => Ok(source(ModuleType::Json, text, specifier)),
            RequestedModuleType::Text => Ok(source(ModuleType::Text, text, specifier)),
            RequestedModuleType::None if is_json => {
                let message = format!("{specifier} is JSON; import it with {{ type: \"json\" }}");
                Err(fail(ErrorKind::TypeError, message))
            }
            RequestedModuleType::None => {
                let name = specifier.path_segments().and_then(Iterator::last).unwrap_or_default().to_owned();
                let program = self.transpiler.program(&text, &name, Role::Import).map_err(|error| {
                    let message = format!("{specifier}: {}", error.message);
                    let kind = error.kind;
                    self.failure.borrow_mut().get_or_insert(RunError { message: message.clone(), ..error });
                    fail(kind, message)
                })?;
                Ok(self.javascript(specifier, program))
            }
            _ => Err(fail(ErrorKind::Unsupported, "this type of import is not supported; use json or text".to_owned())),
        }
    }

    fn javascript(&self, specifier: &ModuleSpecifier, program: Arc<Program>) -> ModuleSource {
        let code = program.code.to_string();
        self.loaded.borrow_mut().insert(specifier.as_str().to_owned(), program);
        source(ModuleType::JavaScript, code, specifier)
    }
}

fn source(module_type: ModuleType, code: String, specifier: &ModuleSpecifier) -> ModuleSource {
    ModuleSource::new(module_type, ModuleSourceCode::String(code.into()), specifier, None)
}

/// Reads a file that the run may read. Errors of the permission keep their own class.
fn read(
    specifier: &ModuleSpecifier,
    permissions: &PermissionsContainer,
    forbidden: &ForbiddenPaths,
) -> Result<String, ModuleLoaderError> {
    let path = specifier
        .to_file_path()
        .map_err(|()| fail(ErrorKind::NotFound, format!("{specifier} is not a path on this machine")))?;
    let checked = permissions
        .check_open(Cow::Borrowed(Path::new(&path)), OpenAccessKind::Read, Some("import"))
        .map_err(JsErrorBox::from_err)?;
    forbidden.follow(&checked).map_err(JsErrorBox::from_err)?;
    std::fs::read_to_string(&*checked).map_err(|error| {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::ScriptError };
        fail(kind, format!("cannot import {}: {error}", path.display()))
    })
}

fn data_url(specifier: &ModuleSpecifier) -> Result<String, ModuleLoaderError> {
    let broken = || fail(ErrorKind::BadRequest, "the data: URL of an import is damaged".to_owned());
    let (head, body) = specifier.path().split_once(',').ok_or_else(broken)?;
    let body = percent_decode(body);
    let bytes = if head.ends_with(";base64") {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.decode(body).map_err(|_| broken())?
    } else {
        body
    };
    String::from_utf8(bytes).map_err(|_| broken())
}

fn percent_decode(text: &str) -> Vec<u8> {
    let hex = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1).copied().and_then(hex).zip(bytes.get(at + 2).copied().and_then(hex));
        match (bytes[at], pair) {
            (b'%', Some((high, low))) => {
                out.push(high << 4 | low);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

fn no_such_scheme(specifier: &str) -> ModuleLoaderError {
    let message = format!(
        "cannot import {specifier}: npm:, jsr: and http(s): imports are not supported yet; what works is node:, data:, \
         relative files that the run may read, and the request's modules"
    );
    fail(ErrorKind::Unsupported, message)
}

impl ModuleLoader for Loader {
    fn resolve(&self, specifier: &str, referrer: &str, _kind: ResolutionKind) -> ModuleResolveResponse {
        self.failed(self.resolved(specifier, referrer))
    }

    fn load(
        &self,
        specifier: &ModuleSpecifier,
        _referrer: Option<&ModuleLoadReferrer>,
        options: ModuleLoadOptions,
    ) -> ModuleLoadResponse {
        ModuleLoadResponse::Sync(self.failed(self.source(specifier, &options)))
    }

    fn get_source_map(&self, file_name: &str) -> Option<Cow<'_, [u8]>> {
        let loaded = self.loaded.borrow();
        loaded.get(file_name)?.source_map.clone().map(Cow::Owned)
    }
}

impl Loader {
    fn resolved(&self, specifier: &str, referrer: &str) -> ModuleResolveResponse {
        let resolved = resolve_import(specifier, referrer).map_err(|error| {
            let message = format!(
                "cannot import {specifier:?}: {error}; what works is node:, data:, relative files and the request's modules"
            );
            fail(ErrorKind::Unsupported, message)
        })?;
        let is_main = self.modules.borrow().as_ref().is_some_and(|modules| modules.main == resolved);
        match resolved.scheme() {
            _ if is_main => Ok(resolved),
            "file" | "data" | "node" | "ext" => Ok(resolved),
            _ => Err(no_such_scheme(specifier)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls() {
        let decode = |text: &str| data_url(&ModuleSpecifier::parse(text).expect("a URL"));
        assert_eq!(decode("data:text/javascript,export%20default%201").ok().as_deref(), Some("export default 1"));
        assert_eq!(decode("data:text/javascript;base64,MSsx").ok().as_deref(), Some("1+1"));
        assert!(decode("data:text/javascript;base64,*").is_err());
        assert!(decode("data:text/javascript").is_err());
    }
}
