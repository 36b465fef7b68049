//! `mcpx artifact list|get|put|delete`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::Value;

use super::args::ArtifactCommand;
use super::client::{Client, broken, checked, failure};
use super::output::{CliError, answer, bytes, say};
use super::tools::encoded;
use crate::error::ErrorKind;

pub(super) async fn run(mut client: Client, command: ArtifactCommand, as_json: bool) -> Result<ExitCode, CliError> {
    match command {
        ArtifactCommand::List { run, limit } => list(client, run, limit, as_json).await,
        ArtifactCommand::Get { id, output } => get(client, &id, output).await,
        ArtifactCommand::Put { file, name, mime, ttl } => put(client, &file, name, mime, ttl, as_json).await,
        ArtifactCommand::Delete { id } => {
            let deleted = client.json(Method::DELETE, &format!("/v1/artifacts/{}", encoded(&id)), None).await?;
            if as_json {
                answer(&format!("{deleted}\n"))
            } else {
                say(&format!("mcpx: {id} is deleted"))
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(
    mut client: Client,
    run: Option<String>,
    limit: Option<usize>,
    as_json: bool,
) -> Result<ExitCode, CliError> {
    let mut query = Vec::new();
    query.extend(run.map(|run| format!("run={}", encoded(&run))));
    query.extend(limit.map(|limit| format!("limit={limit}")));
    let listed = client.json(Method::GET, &format!("/v1/artifacts?{}", query.join("&")), None).await?;
    if as_json {
        answer(&(serde_json::to_string_pretty(&listed).unwrap_or_default() + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    for artifact in listed["artifacts"].as_array().into_iter().flatten() {
        let text = |name: &str| artifact[name].as_str().unwrap_or_default().to_owned();
        let line = [text("id"), text("createdAt"), artifact["size"].to_string(), text("mime"), text("name")];
        answer(&(line.join("  ") + "\n"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(mut client: Client, id: &str, output: Option<PathBuf>) -> Result<ExitCode, CliError> {
    let path = format!("/v1/artifacts/{}", encoded(id));
    let response = client.send(Method::GET, &path, &[], Bytes::new(), Some(Client::patience())).await?;
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let bytes = body.collect().await.map_err(broken)?.to_bytes();
        return Err(failure(head.status, &bytes));
    }
    let mut pieces = body.into_data_stream();
    let Some(path) = output else {
        while let Some(piece) = pieces.next().await {
            bytes(&piece.map_err(broken)?);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let mut partial = Partial::beside(&path)?;
    while let Some(piece) = pieces.next().await {
        partial.file.write_all(&piece.map_err(broken)?)?;
    }
    partial.keep(&path)?;
    say(&format!("mcpx: wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// A file that is being written under a temporary name. Unless it is kept, it is removed.
struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    fn beside(target: &Path) -> io::Result<Self> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:08x}.part", rand::random::<u32>()));
        let path = target.with_file_name(name);
        Ok(Self { file: File::create_new(&path)?, path })
    }

    /// Gives the file its name, if nothing has that name: a link fails where a rename would overwrite.
    fn keep(self, target: &Path) -> Result<(), CliError> {
        self.file.sync_all()?;
        std::fs::hard_link(&self.path, target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                CliError::new(ErrorKind::BadRequest, format!("{} exists and is not overwritten", target.display()))
            }
            _ => error.into(),
        })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // What cannot be removed is named so that nobody takes it for the whole.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn put(
    mut client: Client,
    file: &Path,
    name: Option<String>,
    mime: Option<String>,
    ttl: Option<String>,
    as_json: bool,
) -> Result<ExitCode, CliError> {
    let name = name.unwrap_or_else(|| file.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let bytes = std::fs::read(file)
        .map_err(|error| CliError::new(ErrorKind::BadRequest, format!("cannot read {}: {error}", file.display())))?;
    let mut query = vec![format!("name={}", encoded(&name))];
    query.extend(mime.map(|mime| format!("mime={}", encoded(&mime))));
    query.extend(ttl.map(|ttl| format!("ttl={}", encoded(&ttl))));
    let path = format!("/v1/artifacts?{}", query.join("&"));
    let response = client.send(Method::POST, &path, &[], Bytes::from(bytes), None).await?;
    let (_, body) = checked(response).await?;
    let stored: Value = serde_json::from_slice(&body).unwrap_or_default();
    if as_json {
        answer(&format!("{stored}\n"))
    } else {
        answer(&format!("{}\n", stored["id"].as_str().unwrap_or_default()))
    }
    Ok(ExitCode::SUCCESS)
}
