//! `tidegate config`: checks the settings, prints the effective ones, and changes those that the processes of a store share.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use tidegate_server::config::{Config, StoreKind};
use tidegate_server::redis_options;
use tidegate_store::bulk::{Difference, RedisBulkOptions, RedisBulkStore, SettingsChange};

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
    /// Print the settings of the store on Redis, which all its processes share, and who changed them
    Store {
        #[command(flatten)]
        settings: SettingsArgs,
        /// One JSON object: `config` and `changes`
        #[arg(long)]
        json: bool,
    },
    /// Make these settings those of the store on Redis, for all its processes; then restart them one by one
    Apply {
        #[command(flatten)]
        settings: SettingsArgs,
        /// Who changes them; the user's name if absent
        #[arg(long)]
        by: Option<String>,
        /// Why; the store remembers it with the change
        #[arg(long, default_value = "")]
        why: String,
        /// One JSON object: `changed`
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
        ConfigCommand::Store { settings, json } => {
            let options = of_redis(&settings.load()?.config)?;
            let stored = runtime()?.block_on(RedisBulkStore::settings_of(&options))?;
            let stored =
                stored.with_context(|| format!("no store has the key prefix {:?}", options.prefix))?;
            if *json {
                let shown = serde_json::json!({"config": stored.config, "changes": stored.changes});
                writeln!(out, "{shown}")?;
                return Ok(());
            }
            write!(out, "{}", toml::to_string(&stored.config)?)?;
            for change in &stored.changes {
                let SettingsChange { at, by, why, fields } = change;
                writeln!(
                    out,
                    "\n# {} by {by}: {why}",
                    tidegate_core::refresh::iso8601::format(*at)
                )?;
                for Difference { field, stored, here } in fields {
                    writeln!(out, "# {field}: {stored} -> {here}")?;
                }
            }
        }
        ConfigCommand::Apply {
            settings,
            by,
            why,
            json,
        } => {
            let options = of_redis(&settings.load()?.config)?;
            let by = by
                .clone()
                .or_else(|| std::env::var("USER").ok())
                .unwrap_or_default();
            let changed = runtime()?.block_on(RedisBulkStore::replace_settings(options, &by, why))?;
            if *json {
                writeln!(out, "{}", serde_json::json!({"changed": changed}))?;
                return Ok(());
            }
            for Difference { field, stored, here } in &changed {
                writeln!(out, "{field}: {stored} -> {here}")?;
            }
            match changed.len() {
                0 => writeln!(out, "the store has these settings already")?,
                _ => writeln!(out, "Restart the other processes with the same settings.")?,
            }
        }
    }
    Ok(())
}

fn of_redis(config: &Config) -> anyhow::Result<RedisBulkOptions> {
    anyhow::ensure!(
        config.store.kind == StoreKind::Redis,
        "store.kind is \"embedded\": one process uses such a store, with the settings it was started with"
    );
    Ok(redis_options(config))
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
