//! `tidegate archive`: archives history, lists the archive, restores from it. It reads the settings itself; the
//! service may run meanwhile.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_client::Time;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_server::refresh::open_archive;
use tidegate_snapshots::archive::{Archive, ArchiveStep, RestoreFilter};

use crate::remote::say;
use crate::settings::SettingsArgs;

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// JSON, one value per line, instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Archive all history that is old enough, as the daily run does
    Run,
    /// List the objects of the archive by tier, source and day
    List(Filter),
    /// Restore history into the database for a while; the archive keeps its copy
    Restore {
        #[command(flatten)]
        filter: Filter,
        /// Only this record
        #[arg(long, requires = "source")]
        key: Option<String>,
        /// Days to keep the rows in the database
        #[arg(long, value_name = "DAYS", default_value_t = 7)]
        keep: u32,
    },
}

#[derive(Debug, Args)]
struct Filter {
    /// Only this source
    #[arg(long)]
    source: Option<String>,
    /// Only rows replaced at or after this time, like 2026-03-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<Time>,
    /// Only rows replaced before this time
    #[arg(long, value_name = "TIME")]
    before: Option<Time>,
}

impl Filter {
    fn filter(&self, key: Option<&str>) -> anyhow::Result<RestoreFilter> {
        let everything = RestoreFilter::default();
        Ok(RestoreFilter {
            source: self.source.as_deref().map(SourceId::new).transpose()?,
            key: key.map(RecordKey::new).transpose()?,
            from: self.from.map_or(everything.from, |at| Timestamp(at.0)),
            before: self.before.map_or(everything.before, |at| Timestamp(at.0)),
        })
    }
}

pub(crate) fn run(args: &ArchiveArgs) -> anyhow::Result<()> {
    let config = args.settings.load()?.config;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        let archive = open_archive(&config).await?;
        act(args, &archive).await
    });
    // Do not wait for a database connection that does not close.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn act(args: &ArchiveArgs, archive: &Archive) -> anyhow::Result<()> {
    let now = SystemClock.now();
    match &args.what {
        What::Run => {
            let report = archive.run(now, &|step| print_step(args.json, &step)).await?;
            let (rows, objects, bytes) = (report.rows, report.objects, report.bytes);
            let (moved, dropped) = (report.moved, report.dropped);
            match args.json {
                true => say(&format!(
                    "{}\n",
                    json!({"rows": rows, "objects": objects, "bytes": bytes, "moved": moved, "dropped": dropped})
                )),
                false => say(&format!(
                    "{rows} rows in {objects} objects of {bytes} bytes, {moved} objects moved on, {dropped} restored rows dropped\n"
                )),
            }
        }
        What::List(filter) => {
            for object in archive.objects(&filter.filter(None)?).await? {
                match args.json {
                    true => say(&format!("{}\n", json!({"object": object})))?,
                    false => say(&format!("{object}\n"))?,
                }
            }
            Ok(())
        }
        What::Restore { filter, key, keep } => {
            let keep = now + Millis(u64::from(*keep) * 86_400_000);
            let filter = filter.filter(key.as_deref())?;
            let report = archive
                .restore(&filter, keep, &|step| print_step(args.json, &step))
                .await?;
            let (objects, found, restored) = (report.objects, report.found, report.restored);
            match args.json {
                true => say(&format!(
                    "{}\n",
                    json!({"objects": objects, "found": found, "restored": restored})
                )),
                false => say(&format!(
                    "restored {restored} of {found} rows from {objects} objects\n"
                )),
            }
        }
    }
}

/// Prints progress, except with --json.
fn print_step(json: bool, step: &ArchiveStep) {
    if json {
        return;
    }
    match step {
        ArchiveStep::Stored { object, rows, bytes } => eprintln!("{object}: {rows} rows, {bytes} bytes"),
        ArchiveStep::Moved { from, to } => eprintln!("{from} → {to}"),
        ArchiveStep::Dropped { rows } => eprintln!("{rows} restored rows dropped"),
        ArchiveStep::Restored { object, rows } => eprintln!("{object}: {rows} rows restored"),
    }
}
