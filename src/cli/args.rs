//! The command line's grammar.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, FromArgMatches, Parser, Subcommand};

use crate::settings::{SettingRow, TABLE};

/// Runs scripts next to the MCP servers they call.
#[derive(Debug, Parser)]
#[command(name = "mcpx", version, disable_help_subcommand = true, propagate_version = true)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Which configuration and daemon.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// Configuration file to use instead of those that are found
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Where the daemon's socket is
    #[arg(long, global = true, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve in the foreground, or start the daemon in the background
    Daemon(DaemonArgs),
    /// Run a script file
    Run(RunArgs),
    /// Run a snippet; - reads it from standard input
    Exec(ExecArgs),
    /// Call one tool: namespace.tool and its arguments as JSON, k=v or k:=json
    Call(CallArgs),
    /// List the servers and their tools
    Ls(LsArgs),
    /// Artifacts in the store
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// What the daemon is doing, and where its files are
    Status,
    /// Stop the daemon
    Stop,
}

#[derive(Debug, Args)]
pub(super) struct DaemonArgs {
    /// Start in the background, with an idle exit of 4h, and return when it answers
    #[arg(long)]
    pub(super) detached: bool,
    #[command(flatten)]
    pub(super) settings: SettingFlags,
}

/// What shapes a run, for `run` and `exec` alike.
#[derive(Debug, Args)]
pub(super) struct RunOptions {
    /// Own time of the script, such as 30s; none by default
    #[arg(long, value_name = "DURATION")]
    pub(super) timeout: Option<String>,
    /// What the script may reach, such as workspace, none, "readnet,allow-run=git"
    #[arg(long, value_name = "PERMISSIONS")]
    pub(super) permissions: Option<String>,
    /// Exported function to call with the arguments, instead of the default export
    #[arg(long, value_name = "NAME")]
    pub(super) export: Option<String>,
    /// Namespaces the script may see; may be repeated
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) ns: Vec<String>,
    /// Environment variable for the script, K=V; may be repeated
    #[arg(long = "env", value_name = "K=V")]
    pub(super) env: Vec<String>,
    /// Label for the artifacts
    #[arg(long, value_name = "NAME")]
    pub(super) session: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) options: RunOptions,
    /// The script
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    pub(super) options: RunOptions,
    /// The snippet; several words are joined with spaces
    #[arg(required = true, value_name = "SOURCE")]
    pub(super) source: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// namespace.tool, or server.tool by their own names
    #[arg(value_name = "NS.TOOL")]
    pub(super) tool: String,
    /// One JSON object, or any number of k=v (text) and k:=json
    pub(super) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Namespace or server to list
    pub(super) ns: Option<String>,
    /// With the tools' descriptions
    #[arg(short, long)]
    pub(super) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum ArtifactCommand {
    /// List, newest first
    List {
        /// Only those of one run
        #[arg(long)]
        run: Option<String>,
        /// At most so many
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Fetch one; without -o it goes to standard output
    Get {
        id: String,
        /// File to write; nothing is ever overwritten
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Store a file
    Put {
        file: PathBuf,
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        mime: Option<String>,
        /// Time to live, such as 1h
        #[arg(long)]
        ttl: Option<String>,
    },
    /// Remove one
    Delete { id: String },
}

/// One flag for every setting of the table, made from the table.
#[derive(Debug, Clone, Default)]
pub(super) struct SettingFlags(pub(super) BTreeMap<String, String>);

fn flag_of(row: &'static SettingRow) -> Arg {
    let help = format!("{} [default: {}] [env: {}]", row.doc.trim(), row.default, row.env());
    Arg::new(row.name).long(row.flag()).value_name(row.unit.to_uppercase()).help(help).help_heading("Settings")
}

impl Args for SettingFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(TABLE.iter().map(flag_of))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |row: &SettingRow| Some((row.name.to_owned(), matches.get_one::<String>(row.name)?.clone()));
        Ok(Self(TABLE.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl SettingFlags {
    /// The flags again, for a daemon that is started in the background.
    pub(super) fn to_args(&self) -> Vec<String> {
        let flag = |name: &str| TABLE.iter().find(|row| row.name == name).map(SettingRow::flag);
        self.0.iter().filter_map(|(name, value)| Some(format!("--{}={value}", flag(name)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_of_a_script_are_its_own() {
        let cli = Cli::parse_from(["mcpx", "run", "--timeout", "1s", "x.ts", "--flag", "-x", "a"]);
        let Command::Run(run) = cli.command else { panic!("run") };
        assert_eq!(run.options.timeout.as_deref(), Some("1s"));
        assert_eq!(run.args, ["--flag", "-x", "a"]);
    }

    #[test]
    fn settings_are_flags_of_the_daemon() {
        let cli = Cli::parse_from(["mcpx", "daemon", "--exec-warm", "1", "--exec-timeout=5s"]);
        let Command::Daemon(daemon) = cli.command else { panic!("daemon") };
        assert_eq!(daemon.settings.to_args(), ["--exec-timeout=5s", "--exec-warm=1"]);
    }
}
