//! The commands. All of them but `daemon` are clients of the HTTP API: they start no V8 and stay light.

mod args;
mod artifact;
mod client;
mod control;
mod exec;
mod output;
mod tools;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;

use crate::config::{Config, LoadOptions};
use crate::daemon::{self, DaemonOptions};
use crate::error::ErrorKind;
use crate::isolate::Platform;
use crate::paths::{Environment, Paths};
use crate::settings::{Layers, Settings};

use args::{Cli, Command, DaemonArgs};
use output::CliError;

/// Runs the command line to its exit code. Call it on the main thread, before any other thread exists: `daemon` starts V8 here.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help on stdout and mistakes on stderr, with its suggestions.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let env = Environment::of_process();
    match dispatch(cli, env) {
        Ok(code) => code,
        Err(error) => output::report(&error),
    }
}

fn dispatch(cli: Cli, env: Environment) -> Result<ExitCode, CliError> {
    match cli.command {
        Command::Daemon(args) if !args.detached => serve(&cli.place, &args, env),
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let result = runtime.block_on(control::run(command, &cli.place, env));
            // A read of standard input may still be blocked; it must not hold the process.
            runtime.shutdown_background();
            result
        }
    }
}

/// The configuration, its settings and where its daemon is, for whichever command.
struct Setup {
    config: Config,
    paths: Paths,
}

impl Setup {
    fn load(place: &args::Place, env: &Environment) -> Result<Self, CliError> {
        let cwd = std::env::current_dir()?;
        let explicit = place.config.clone().or_else(|| env.get("MCPX_CONFIG").map(Into::into));
        let config = Config::load(&LoadOptions {
            explicit: explicit.map(|path| cwd.join(path)),
            home: env.home(),
            xdg_config_home: env.xdg_config_home(),
            cwd: cwd.clone(),
            env: &env.0,
        })
        .map_err(|error| CliError::new(ErrorKind::BadRequest, error.to_string()))?;
        let socket = place.socket.as_ref().map(|path| cwd.join(path));
        let paths = Paths::resolve(env, &config.key(), socket.as_deref())
            .map_err(|error| CliError::new(ErrorKind::BadRequest, error.to_string()))?;
        Ok(Self { config, paths })
    }

    fn settings(&self, flags: &args::SettingFlags, env: &Environment) -> Result<Settings, CliError> {
        let mut file = BTreeMap::new();
        flatten("", self.config.settings_json(), &mut file);
        let layers = Layers { file, env: env.0.clone(), flag: flags.0.clone() };
        Settings::resolve(&layers).map_err(|error| CliError::new(ErrorKind::BadRequest, error.to_string()))
    }
}

/// Settings of a file as dotted names, whether they are written so or as objects in objects.
fn flatten(prefix: &str, object: &serde_json::Map<String, serde_json::Value>, into: &mut BTreeMap<String, String>) {
    for (name, value) in object {
        let name = format!("{prefix}{name}");
        match value {
            serde_json::Value::Object(inner) => flatten(&format!("{name}."), inner, into),
            serde_json::Value::String(text) => drop(into.insert(name, text.clone())),
            other => drop(into.insert(name, other.to_string())),
        }
    }
}

/// `mcpx daemon` in this process.
fn serve(place: &args::Place, args: &DaemonArgs, env: Environment) -> Result<ExitCode, CliError> {
    let internal = |error: &dyn std::fmt::Display| CliError::new(ErrorKind::Internal, error.to_string());
    // First of all, while this is the only thread: the process keeps none of the variables that scripts must not see, and V8 wants
    // to be started before any other thread exists.
    env.scrub_process();
    let platform = Platform::init().map_err(|error| internal(&error))?;
    let setup = Setup::load(place, &env)?;
    let settings = Arc::new(setup.settings(&args.settings, &env)?);
    start_logging(&env);
    // The isolates need the cores; what happens here is short. On two cores a second worker only means that a call's steps wake
    // one another across threads: with it a tool call cost 158 us more than a bare client's, without it 55 us.
    let workers = (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().thread_name("mcpx").build()?;
    let options = DaemonOptions { platform, env, config: setup.config, settings, paths: setup.paths };
    let result = runtime.block_on(daemon::run(options));
    runtime.shutdown_background();
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(CliError::from_chain(ErrorKind::Internal, &error)),
    }
}

fn start_logging(env: &Environment) {
    let filter = env.get("MCPX_LOG").unwrap_or("info,rmcp=warn");
    let filter =
        tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}
