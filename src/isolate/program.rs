//! From the author's text to what V8 runs: module or snippet, types stripped, positions kept.
//!
//! Owns the two forms of SPEC 4.1, the TypeScript step (deno_ast) and its cache by content hash. A snippet becomes a module whose
//! default export is an async function around the snippet's statements, the last of them, when it is an expression, returned; the
//! change is made on the syntax tree, so a source map leads every position back to the author's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use deno_ast::swc::ast::{
    ArrowExpr, BlockStmt, BlockStmtOrExpr, ExportDefaultExpr, Expr, Module, ModuleDecl, ModuleItem, ReturnStmt, Stmt,
};
use deno_ast::swc::common::DUMMY_SP;
use deno_ast::swc::parser::error::SyntaxError;
use deno_ast::{
    DecoratorsTranspileOption, EmitOptions, MediaType, ModuleSpecifier, ParseDiagnostic, ParseParams, SourceMapOption,
    TranspileError, TranspileModuleOptions, TranspileOptions,
};
use sha2::{Digest, Sha256};

use crate::error::ErrorKind;
use crate::run::frame::RunError;

/// Name under which a script without a file appears in positions.
pub const SCRIPT_NAME: &str = "script.ts";

/// Deepest nesting of brackets that a source may have. The parser recurses natively; its threads have the stack for this.
const MAX_NESTING: usize = 20_000;

/// Stack of the threads that parse, in bytes (virtual; only what is used is ever backed by memory).
pub const PARSE_STACK: usize = 256 << 20;

/// What a source is asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The script of a run: a module or a snippet, as its text says.
    Script,
    /// Something imported: always a module.
    Import,
}

/// JavaScript ready for V8.
#[derive(Debug)]
pub struct Program {
    pub code: Arc<str>,
    pub source_map: Option<Vec<u8>>,
}

/// Turns sources into programs and remembers them by content. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Transpiler {
    cache: Arc<Mutex<Cache>>,
}

#[derive(Debug, Default)]
struct Cache {
    programs: HashMap<[u8; 32], (Arc<Program>, u64)>,
    /// Grows with every use: the entry with the smallest stamp is the least recently used.
    clock: u64,
    bytes: usize,
}

/// Bytes of programs that are remembered.
const CACHE_BYTES: usize = 32 << 20;

impl Cache {
    fn get(&mut self, key: &[u8; 32]) -> Option<Arc<Program>> {
        self.clock += 1;
        let (program, stamp) = self.programs.get_mut(key)?;
        *stamp = self.clock;
        Some(program.clone())
    }

    fn insert(&mut self, key: [u8; 32], program: Arc<Program>) {
        self.clock += 1;
        let size = |program: &Program| program.code.len() + program.source_map.as_ref().map_or(0, Vec::len) + 128;
        self.bytes += size(&program);
        if let Some((old, _)) = self.programs.insert(key, (program, self.clock)) {
            self.bytes -= size(&old);
        }
        while self.bytes > CACHE_BYTES {
            let Some(oldest) = self.programs.iter().min_by_key(|(_, (_, stamp))| *stamp).map(|(key, _)| *key) else {
                break;
            };
            if let Some((old, _)) = self.programs.remove(&oldest) {
                self.bytes -= size(&old);
            }
        }
    }
}

impl Transpiler {
    /// The program of a source. `file_name` is the last part of the module's URL: it decides the language by its extension and
    /// names the source in positions. Blocking, and recursive: call it on a thread with [`PARSE_STACK`], unless
    /// [`Transpiler::cached`] has the answer.
    ///
    /// # Errors
    /// `syntax_error` with the author's line and column.
    pub fn program(&self, text: &str, file_name: &str, role: Role) -> Result<Arc<Program>, RunError> {
        let key = key(text, file_name, role);
        if let Some(program) = self.lock().get(&key) {
            return Ok(program);
        }
        let program = Arc::new(transpile(text, file_name, role)?);
        self.lock().insert(key, program.clone());
        Ok(program)
    }

    /// The program, when it is remembered. Cheap.
    pub fn cached(&self, text: &str, file_name: &str, role: Role) -> Option<Arc<Program>> {
        self.lock().get(&key(text, file_name, role))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(text: &str, file_name: &str, role: Role) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update([role as u8]);
    hash.update((file_name.len() as u64).to_le_bytes());
    hash.update(file_name);
    hash.update(text);
    hash.finalize().into()
}

fn transpile(text: &str, file_name: &str, role: Role) -> Result<Program, RunError> {
    let text: Arc<str> = text.strip_prefix('\u{FEFF}').unwrap_or(text).into();
    check_nesting(&text)?;
    let base = ModuleSpecifier::parse("file:///").map_err(|error| internal(&error))?;
    let specifier = base.join(file_name).map_err(|error| internal(&error))?;
    let media_type = match MediaType::from_specifier(&specifier) {
        MediaType::Unknown => MediaType::TypeScript,
        known => known,
    };
    let params =
        ParseParams { specifier, text, media_type, capture_tokens: false, scope_analysis: false, maybe_syntax: None };
    let mut snippet = false;
    let parsed = deno_ast::parse_module_with_post_process(params, |module, _| {
        snippet = role == Role::Script && !module.body.iter().any(|item| matches!(item, ModuleItem::ModuleDecl(_)));
        if snippet { as_entry(module) } else { module }
    })
    .map_err(|diagnostic| syntax_error(&diagnostic))?;
    // A `return` outside of a function is what a snippet is about; elsewhere the parser's remark stands.
    let stray = parsed.diagnostics().iter().find(|found| !snippet && found.kind() == &SyntaxError::ReturnNotAllowed);
    if let Some(diagnostic) = stray {
        let mut error = syntax_error(diagnostic);
        "a module has no top-level return; remove the import and export statements, or put the code into the default export"
            .clone_into(&mut error.message);
        return Err(error);
    }
    let emitted = parsed
        .transpile(
            &TranspileOptions { decorators: DecoratorsTranspileOption::Ecma, ..TranspileOptions::default() },
            &TranspileModuleOptions::default(),
            &EmitOptions {
                source_map: SourceMapOption::Separate,
                source_map_base: Some(base),
                inline_sources: false,
                ..EmitOptions::default()
            },
        )
        .map_err(|error| match error {
            TranspileError::ParseErrors(errors) if !errors.0.is_empty() => syntax_error(&errors.0[0]),
            other => RunError::plain(ErrorKind::SyntaxError, other.to_string()),
        })?
        .into_source();
    Ok(Program { code: emitted.text.into(), source_map: emitted.source_map.map(String::into_bytes) })
}

/// A snippet's statements as the body of `export default async () => { ... }`.
fn as_entry(module: Module) -> Module {
    let mut stmts: Vec<Stmt> = module
        .body
        .into_iter()
        .filter_map(|item| if let ModuleItem::Stmt(stmt) = item { Some(stmt) } else { None })
        .collect();
    let last = stmts.iter_mut().rev().find(|stmt| !matches!(stmt, Stmt::Empty(_)));
    if let Some(last) = last
        && let Stmt::Expr(expression) = last
    {
        *last = Stmt::Return(ReturnStmt { span: expression.span, arg: Some(expression.expr.clone()) });
    }
    let body = BlockStmt { span: module.span, stmts, ..BlockStmt::default() };
    let entry = ArrowExpr {
        span: DUMMY_SP,
        is_async: true,
        body: Box::new(BlockStmtOrExpr::BlockStmt(body)),
        ..ArrowExpr::default()
    };
    let export = ExportDefaultExpr { span: DUMMY_SP, expr: Box::new(Expr::Arrow(entry)) };
    Module {
        span: module.span,
        body: vec![ModuleItem::ModuleDecl(ModuleDecl::ExportDefaultExpr(export))],
        shebang: module.shebang,
    }
}

fn syntax_error(diagnostic: &ParseDiagnostic) -> RunError {
    let position = diagnostic.display_position();
    RunError {
        kind: ErrorKind::SyntaxError,
        name: "SyntaxError".to_owned(),
        message: deno_ast::diagnostics::Diagnostic::message(diagnostic).into_owned(),
        stack: None,
        line: u32::try_from(position.line_number).ok(),
        column: u32::try_from(position.column_number).ok(),
    }
}

fn internal(error: &dyn std::error::Error) -> RunError {
    RunError::plain(ErrorKind::Internal, format!("the script's name makes no URL: {error}"))
}

/// Refuses sources whose brackets nest deeper than the parser's stack. Brackets in strings and comments count too: an over-count
/// that no sane source comes near.
fn check_nesting(text: &str) -> Result<(), RunError> {
    let mut depth = 0usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth > MAX_NESTING {
            let message = format!("the source nests brackets deeper than {MAX_NESTING} levels");
            return Err(RunError::plain(ErrorKind::TooLarge, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        transpile(text, SCRIPT_NAME, Role::Script)
            .map_or_else(|error| panic!("{text}: {error:?}"), |made| made.code.to_string())
    }

    #[test]
    fn the_last_expression_of_a_snippet_is_returned() {
        for (text, expected) in [
            ("const dbl = (a) => { return a * 2 }\ndbl(4) // done", "return dbl(4)"),
            ("[1, 2].map((v) => {\n  return v + 1\n});;", "return [\n"),
            ("\"plain\"", "return \"plain\""),
            ("if (1) { return 7 }\n8", "return 8"),
            ("await Promise.resolve(9)", "return await Promise"),
            ("const q: number = 1\nq;\n/* tail */", "return q;"),
        ] {
            let code = code(text);
            assert!(code.starts_with("export default (async ()=>{"), "{code}");
            assert!(code.contains(expected), "{expected} in {code}");
        }
        assert!(!code("const q = 1").contains("return"));
    }

    #[test]
    fn imports_and_exports_make_a_module() {
        assert!(!code("import { a } from './a.ts'; console.log(a)").contains("async ()"));
        assert!(!code("export const x: number = 1").contains("async ()"));
        // Words in strings, comments and properties do not.
        assert!(
            code("// import a from 'b'\nconst o = { import: 1, export: 2 }; `\nexport default 7\n`")
                .contains("async ()")
        );
    }

    #[test]
    fn a_stray_return_in_a_module_is_named_with_its_line() {
        let error = transpile("import a from './a.ts'\n\nreturn a", SCRIPT_NAME, Role::Script).expect_err("no module");
        assert_eq!((error.kind, error.line), (ErrorKind::SyntaxError, Some(3)));
        assert!(error.message.contains("no top-level return"), "{}", error.message);
    }

    #[test]
    fn syntax_errors_have_positions() {
        let error = transpile("const a = 1\nconst b = (", SCRIPT_NAME, Role::Script).expect_err("unfinished");
        assert_eq!(error.line, Some(2));
        let deep = "(".repeat(100_000);
        assert_eq!(
            transpile(&deep, SCRIPT_NAME, Role::Script).map(|_| ()).expect_err("deep").kind,
            ErrorKind::TooLarge
        );
    }

    #[test]
    fn programs_are_remembered_by_content() {
        let transpiler = Transpiler::default();
        let first = transpiler.program("1 + 1", SCRIPT_NAME, Role::Script).expect("it parses");
        let again = transpiler.cached("1 + 1", SCRIPT_NAME, Role::Script).expect("remembered");
        assert!(Arc::ptr_eq(&first, &again));
        assert!(transpiler.cached("1 + 2", SCRIPT_NAME, Role::Script).is_none());
        assert!(transpiler.cached("1 + 1", SCRIPT_NAME, Role::Import).is_none());
    }
}
