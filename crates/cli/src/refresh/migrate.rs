//! `tidegate migrate`: migrates the snapshot database, before the processes that use it start.

use clap::Args;
use serde_json::json;
use tidegate_snapshots::SCHEMA_VERSION;

use crate::remote::say;
use crate::settings::SettingsArgs;

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MigrateArgs) -> anyhow::Result<()> {
    let config = args.settings.load()?.config;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(tidegate_server::refresh::migrate(&config))?;
    match args.json {
        true => say(&format!("{}\n", json!({ "schema": SCHEMA_VERSION }))),
        false => say(&format!(
            "{} has schema {SCHEMA_VERSION}\n",
            config.refresh.snapshots.url
        )),
    }
}
