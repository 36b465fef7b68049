//! Dispatch of the client commands, and those about the daemon itself: `daemon --detached`, `status`, `stop`.

use std::process::ExitCode;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::args::{Command, DaemonArgs, Place};
use super::client::Client;
use super::output::{CliError, answer, say};
use super::{Setup, artifact, exec, tools};
use crate::daemon::{self, StartError};
use crate::error::ErrorKind;
use crate::paths::Environment;

/// Idle time after which a daemon that nobody started on purpose ends.
const AUTOSTART_IDLE_EXIT: &str = "--daemon-idle-exit=4h";

pub(super) async fn run(command: Command, place: &Place, env: Environment) -> Result<ExitCode, CliError> {
    let setup = Setup::load(place, &env)?;
    let json = place.json;
    match command {
        Command::Daemon(args) => detach(&setup, place, &args).await,
        Command::Run(args) => exec::run(connect(&setup, place).await?, args, &env, json).await,
        Command::Exec(args) => exec::exec(connect(&setup, place).await?, args, &env, json).await,
        Command::Call(args) => tools::call(connect(&setup, place).await?, args, json).await,
        Command::Ls(args) => tools::ls(connect(&setup, place).await?, args, json).await,
        Command::Artifact(command) => artifact::run(connect(&setup, place).await?, command, json).await,
        Command::Status => status(&setup, json).await,
        Command::Stop => stop(&setup, json).await,
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self::from_chain(ErrorKind::Internal, &error)
    }
}

/// Arguments that lead another process to the same configuration and socket.
fn place_args(setup: &Setup, place: &Place) -> Vec<String> {
    let mut args = Vec::new();
    if let Some(config) = &place.config {
        args.extend(["--config".to_owned(), config.display().to_string()]);
    }
    if place.socket.is_some() {
        args.extend(["--socket".to_owned(), setup.paths.socket.display().to_string()]);
    }
    args
}

/// A client of this configuration's daemon, which is started when there is none. The daemon is known to answer: one that is
/// suspended, or dies at this moment, is found out before anything is asked of it.
async fn connect(setup: &Setup, place: &Place) -> Result<Client, CliError> {
    let mut args = place_args(setup, place);
    args.push(AUTOSTART_IDLE_EXIT.to_owned());
    let mut attempts = ATTEMPTS;
    loop {
        let connected = daemon::connect_or_start(&setup.paths, &args).await?;
        let mut client = Client::new(connected, &setup.paths).await?;
        match client.greet().await {
            Ok(()) => return Ok(client),
            // The connection broke: the daemon has just ended, and its socket refuses in a moment.
            Err(error) if error.kind == ErrorKind::Interrupted && attempts > 0 => attempts -= 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How often a connection may break before the daemon counts as broken itself.
const ATTEMPTS: u32 = 50;

/// `mcpx daemon --detached`
async fn detach(setup: &Setup, place: &Place, args: &DaemonArgs) -> Result<ExitCode, CliError> {
    if daemon::connect_running(&setup.paths).await?.is_some() {
        return Err(CliError::new(ErrorKind::Internal, "another daemon serves this configuration; see mcpx status"));
    }
    let mut daemon_args = place_args(setup, place);
    daemon_args.extend(args.settings.to_args());
    if !args.settings.0.contains_key("daemon.idleExit") {
        daemon_args.push(AUTOSTART_IDLE_EXIT.to_owned());
    }
    let connected = daemon::connect_or_start(&setup.paths, &daemon_args).await?;
    Client::new(connected, &setup.paths).await?.greet().await?;
    say(&format!("mcpx: the daemon listens on {}", setup.paths.socket.display()));
    Ok(ExitCode::SUCCESS)
}

/// The running daemon's client, or `None`.
async fn running(setup: &Setup) -> Result<Option<Client>, CliError> {
    match daemon::connect_running(&setup.paths).await? {
        None => Ok(None),
        Some(connected) => {
            let mut client = Client::new(connected, &setup.paths).await?;
            client.greet().await?;
            Ok(Some(client))
        }
    }
}

async fn status(setup: &Setup, as_json: bool) -> Result<ExitCode, CliError> {
    let paths = &setup.paths;
    let status = match running(setup).await? {
        Some(mut client) => client.json(Method::GET, "/v1/status", None).await?,
        None => json!({
            "running": false, "socket": paths.socket, "record": paths.record, "state": paths.state, "store": paths.store,
            "log": paths.log, "config": setup.config.sources(),
        }),
    };
    if as_json {
        answer(&(serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"));
    } else {
        answer(&lines(&status, ""));
    }
    Ok(ExitCode::SUCCESS)
}

/// A document as indented `name: value` lines.
fn lines(value: &Value, indent: &str) -> String {
    let mut out = String::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => out += &format!("{indent}{name}:\n{}", lines(value, &format!("{indent}  "))),
            Value::Array(items) if items.iter().any(Value::is_object) => {
                out += &format!("{indent}{name}:\n");
                for item in items {
                    let words: Vec<String> =
                        item.as_object().into_iter().flatten().map(|(_, value)| word(value)).collect();
                    out += &format!("{indent}  {}\n", words.join("  "));
                }
            }
            Value::Array(items) => {
                out += &format!("{indent}{name}: {}\n", items.iter().map(word).collect::<Vec<_>>().join(", "));
            }
            other => out += &format!("{indent}{name}: {}\n", word(other)),
        }
    }
    out
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// How long `stop` waits for the daemon to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(15);

async fn stop(setup: &Setup, as_json: bool) -> Result<ExitCode, CliError> {
    let Some(mut client) = running(setup).await? else {
        if as_json {
            answer("{\"status\": \"not running\"}\n");
        } else {
            say("mcpx: no daemon runs for this configuration");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let answered = client.json(Method::POST, "/v1/shutdown", None).await?;
    drop(client);
    let gone = async {
        while setup.paths.socket.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(GONE_WITHIN, gone).await.is_err() {
        let message = format!("the daemon is still stopping after {GONE_WITHIN:?}; see {}", setup.paths.log.display());
        return Err(CliError::new(ErrorKind::Timeout, message));
    }
    if as_json {
        answer(&(json!({"status": "stopped", "pid": answered["pid"]}).to_string() + "\n"));
    } else {
        say(&format!("mcpx: daemon {} stopped", answered["pid"]));
    }
    Ok(ExitCode::SUCCESS)
}
