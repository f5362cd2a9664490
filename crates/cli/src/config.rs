//! `tidegate config`: checks the settings, or prints the effective ones.

use std::io::Write;

use clap::{Args, Subcommand};

use super::settings::SettingsArgs;

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the settings: print `ok`, or what is wrong
    Check {
        #[command(flatten)]
        settings: SettingsArgs,
        /// One JSON object: `ok`, and `error` if something is wrong
        #[arg(long)]
        json: bool,
    },
    /// Print the effective settings and where each comes from, with secrets hidden
    Show {
        #[command(flatten)]
        settings: SettingsArgs,
        /// One JSON object: `config`, and `from` with the source of every setting that is not a default
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: &ConfigArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match &args.command {
        ConfigCommand::Check { settings, json } => {
            let checked = settings.load();
            if *json {
                let error = checked.as_ref().err().map(ToString::to_string);
                let shown = serde_json::json!({"ok": error.is_none(), "error": error});
                writeln!(out, "{shown}")?;
            } else if checked.is_ok() {
                writeln!(out, "ok")?;
            }
            checked?;
        }
        ConfigCommand::Show { settings, json } => {
            let loaded = settings.load()?;
            if *json {
                let shown = serde_json::json!({"config": loaded.config, "from": loaded.from});
                writeln!(out, "{shown}")?;
            } else {
                write!(out, "{}", loaded.to_toml())?;
            }
        }
    }
    Ok(())
}
