//! Makes the V8 start-up snapshot (deno_runtime's extensions and ours, with all their JavaScript evaluated) and the table of the
//! lazily loaded sources that are not in it. Nothing else happens here.

#![expect(clippy::disallowed_methods, reason = "cargo talks to build scripts through environment variables")]

use std::collections::HashSet;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use deno_runtime::deno_core::{ModuleCodeString, ModuleName, v8, wrap_lazy_ext_script};
use deno_runtime::ops::bootstrap::SnapshotOptions;
use deno_runtime::snapshot::{LazyExtensionFile, LazyExtensionFileKind, create_runtime_snapshot};
use deno_runtime::transpile::maybe_transpile_source;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=js");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let options = SnapshotOptions {
        ts_version: "n/a".to_owned(),
        v8_version: v8::VERSION_STRING,
        target: std::env::var("TARGET")?,
    };
    let made = create_runtime_snapshot(out.join("MCPX_SNAPSHOT.bin"), options, vec![mcpx_ops::mcpx::lazy_init()]);

    let consumed: HashSet<&str> = made.consumed_lazy_specifiers.iter().map(String::as_str).collect();
    let folder = out.join("residual");
    std::fs::create_dir_all(&folder)?;
    let (mut scripts, mut modules) = (Vec::new(), Vec::new());
    for file in &made.lazy_extension_files {
        if consumed.contains(file.specifier.as_str()) {
            continue;
        }
        println!("cargo::rerun-if-changed={}", file.path.display());
        let path = write_residual(&folder, file)?;
        match file.kind {
            LazyExtensionFileKind::Js => scripts.push((file.specifier.as_str(), path)),
            LazyExtensionFileKind::Esm => modules.push((file.specifier.as_str(), path)),
        }
    }
    let mut tables = String::new();
    write_table(&mut tables, "RESIDUAL_LAZY_JS", &mut scripts)?;
    write_table(&mut tables, "RESIDUAL_LAZY_ESM", &mut modules)?;
    std::fs::write(out.join("residual.rs"), tables)?;
    Ok(())
}

/// Writes one lazily loaded source in the form in which the runtime takes it: plain JavaScript, scripts wrapped as a function
/// body, ASCII only (deno_core hands it to V8 as an external one-byte string).
fn write_residual(folder: &Path, file: &LazyExtensionFile) -> Result<PathBuf, Box<dyn Error>> {
    let source = std::fs::read_to_string(&file.path)?;
    let name = ModuleName::from(file.specifier.clone());
    let (code, _source_map) = maybe_transpile_source(name, ModuleCodeString::from(source))?;
    let code = match file.kind {
        LazyExtensionFileKind::Js => wrap_lazy_ext_script(code.as_str()).to_string(),
        LazyExtensionFileKind::Esm => code.as_str().to_owned(),
    };
    if !code.is_ascii() || !file.specifier.is_ascii() {
        return Err(format!("{} is not ASCII", file.specifier).into());
    }
    let file_name: String = file.specifier.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let path = folder.join(file_name + ".js");
    std::fs::write(&path, code)?;
    Ok(path)
}

fn write_table(out: &mut String, name: &str, entries: &mut [(&str, PathBuf)]) -> Result<(), std::fmt::Error> {
    entries.sort();
    writeln!(out, "pub(crate) static {name}: &[(&str, &str)] = &[")?;
    for (specifier, path) in entries {
        writeln!(out, "    ({specifier:?}, include_str!({path:?})),")?;
    }
    writeln!(out, "];")
}
