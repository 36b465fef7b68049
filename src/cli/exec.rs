//! `run` and `exec`: a local run. The daemon gets the script's path or text with the caller's folder and environment; its frames
//! are shown as they arrive.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Read as _};
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;

use super::args::{ExecArgs, RunArgs, RunOptions};
use super::client::{Client, broken, failure};
use super::output::{CliError, answer, aside, say, script_failed};
use crate::api::{ExecDocument, ExecOptions, ExecRequest, LogRecord};
use crate::error::ErrorKind;
use crate::http::rendered;
use crate::paths::Environment;
use crate::run::frame::{End, Frame};

/// `mcpx run FILE ARGS...`
pub(super) async fn run(client: Client, args: RunArgs, env: &Environment, json: bool) -> Result<ExitCode, CliError> {
    let cwd = std::env::current_dir()?;
    let file = cwd.join(&args.file);
    let options = ExecOptions { args: Some(args.args), ..options(args.options, env)? };
    let request = ExecRequest { file: Some(text(&file)?), options, ..ExecRequest::default() };
    execute(client, request, json).await
}

/// `mcpx exec SOURCE...`
pub(super) async fn exec(client: Client, args: ExecArgs, env: &Environment, json: bool) -> Result<ExitCode, CliError> {
    let from_stdin = args.source.len() == 1 && args.source[0] == "-";
    let source = if from_stdin { std::io::read_to_string(std::io::stdin())? } else { args.source.join(" ") };
    let mut options = options(args.options, env)?;
    if from_stdin {
        options.stdin = None;
    }
    execute(client, ExecRequest { source: Some(source), options, ..ExecRequest::default() }, json).await
}

fn text(path: &std::path::Path) -> Result<String, CliError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| CliError::new(ErrorKind::BadRequest, format!("{} is not UTF-8", path.display())))
}

/// A local run has the caller's folder and environment, and no time limit of its own.
fn options(options: RunOptions, env: &Environment) -> Result<ExecOptions, CliError> {
    let mut variables: BTreeMap<String, String> = env.0.clone();
    for entry in &options.env {
        let Some((name, value)) = entry.split_once('=') else {
            return Err(CliError::new(ErrorKind::BadRequest, format!("--env {entry:?}: expected K=V")));
        };
        variables.insert(name.to_owned(), value.to_owned());
    }
    Ok(ExecOptions {
        timeout: Some(options.timeout.unwrap_or_else(|| "0s".to_owned())),
        permissions: options.permissions,
        export: options.export,
        ns: (!options.ns.is_empty()).then_some(options.ns),
        session: options.session,
        cwd: Some(text(&std::env::current_dir()?)?),
        env: Some(variables),
        stdin: redirected_stdin()?,
        output: Some("stream".to_owned()),
        ..ExecOptions::default()
    })
}

/// Standard input when it is a file. (A pipe may never end, and a terminal is somebody typing: neither is waited for.)
fn redirected_stdin() -> std::io::Result<Option<String>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    // SAFETY: the descriptor is open for the call, and `stat` is a plain structure that fstat fills.
    let is_file = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(stdin.as_raw_fd(), &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    };
    if !is_file {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    stdin.lock().read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

async fn execute(mut client: Client, request: ExecRequest, json: bool) -> Result<ExitCode, CliError> {
    let body = serde_json::to_vec(&request).map_err(|error| CliError::new(ErrorKind::Internal, error.to_string()))?;
    let headers = [("content-type", "application/json"), ("accept", "application/x-ndjson")];
    let response = client.send(Method::POST, "/v1/exec", &headers, Bytes::from(body), Some(Client::patience())).await?;
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let bytes = body.collect().await.map_err(broken)?.to_bytes();
        return Err(failure(head.status, &bytes));
    }
    let mut show = Show { json, document: ExecDocument::default(), end: None };
    tokio::select! {
        shown = show.all(body) => shown?,
        _ = tokio::signal::ctrl_c() => {
            // Leaving drops the connection, which stops the run.
            say("mcpx: interrupted");
            return Ok(ExitCode::from(130));
        }
    }
    let Some(end) = show.end.take() else {
        return Err(CliError::new(ErrorKind::Interrupted, "the daemon went away before the script ended"));
    };
    if json {
        let document = serde_json::to_string_pretty(&show.document);
        answer(&(document.map_err(|error| CliError::new(ErrorKind::Internal, error.to_string()))? + "\n"));
    }
    Ok(ExitCode::from(u8::try_from(end.exit_code & 0xFF).unwrap_or(1)))
}

/// Shows frames, or collects them for `--json`.
struct Show {
    json: bool,
    document: ExecDocument,
    end: Option<End>,
}

impl Show {
    async fn all(&mut self, body: Incoming) -> Result<(), CliError> {
        let mut pieces = body.into_data_stream();
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(piece) = pieces.next().await {
            buffer.extend_from_slice(&piece.map_err(broken)?);
            let mut at = 0;
            while let Some(length) = buffer[at..].iter().position(|byte| *byte == b'\n') {
                let frame = Frame::from_json(&buffer[at..at + length])
                    .map_err(|error| CliError::new(ErrorKind::Internal, format!("an odd frame: {error}")))?;
                if let Some(frame) = frame {
                    self.one(frame);
                }
                at += length + 1;
            }
            buffer.drain(..at);
        }
        Ok(())
    }

    fn one(&mut self, frame: Frame) {
        match frame {
            Frame::Start { run_id, runtime, .. } => {
                self.document.run_id = run_id;
                self.document.runtime = runtime;
            }
            Frame::Stdout { text } if self.json => self.document.stdout.push_str(&text),
            Frame::Stdout { text } => answer(&text),
            Frame::Stderr { text } if self.json => self.document.stderr.push_str(&text),
            Frame::Stderr { text } => aside(&text),
            Frame::Log { level, message, attrs } if self.json => {
                self.document.logs.push(LogRecord { level, message, attrs });
            }
            Frame::Log { level, message, attrs } => {
                let attrs = attrs.map(|attrs| format!("  {}", attrs.get())).unwrap_or_default();
                say(&format!("{level}: {message}{attrs}"));
            }
            Frame::Emit { value } if self.json => self.document.emits.push(value),
            Frame::Emit { value } => answer(&format!("{}\n", value.get())),
            Frame::Artifact { artifact } => {
                if !self.json {
                    let line =
                        format!("{}  {}  {} bytes  {}", artifact.name, artifact.mime, artifact.size, artifact.uri);
                    say(&format!("mcpx: artifact {line}"));
                }
                self.document.artifacts.push(artifact);
            }
            Frame::Result { value } => {
                if !self.json {
                    answer(&(rendered(&value) + "\n"));
                }
                self.document.result = Some(value);
            }
            Frame::Error { error } => {
                if !self.json {
                    script_failed(&error);
                }
                self.document.error = Some(error);
            }
            Frame::End(end) => {
                self.document.exit_code = end.exit_code;
                self.document.duration_ms = end.duration_ms;
                self.document.timed_out = end.timed_out;
                self.document.truncated = end.truncated;
                self.document.retired = end.retired;
                self.document.timings = end.timings;
                self.end = Some(end);
            }
        }
    }
}
