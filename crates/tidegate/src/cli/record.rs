//! `tidegate record`: read a record, ask for a refresh of it, follow it until it is fresh.

use clap::{Args, Subcommand};
use futures_util::StreamExt;
use tidegate_client::{Client, Freshness, Record, RefreshRequested, UpdateState};

use super::exit::{Absent, Reported};
use super::remote::Remote;
use super::table::{details, maybe, word};

#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The stored answer at once, however old; asks for a refresh if it is stale or missing
    Get { source: String, key: String },
    /// Ask for a refresh, also of what is fresh
    Refresh {
        source: String,
        key: String,
        /// Wait until it is done, and print the record
        #[arg(long)]
        wait: bool,
    },
    /// Every change, until the record is fresh or known to be absent
    Follow { source: String, key: String },
}

pub(super) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::Get { source, key } => {
                let record = client.record(source, key).await?;
                remote.print(&record, text)?;
                found(&record)
            }
            What::Refresh { source, key, wait } => {
                let requested = client.refresh_record(source, key).await?;
                if !wait {
                    return remote.print(&requested, asked);
                }
                // One that was finished a moment ago has no version: nothing else comes.
                let record = last(&client, source, key, requested.version).await?;
                remote.print(&record, text)?;
                ended(&record)
            }
            What::Follow { source, key } => {
                let mut events = client.follow_record(source, key, None);
                let mut last = None;
                while let Some(record) = events.next().await {
                    let record = record?;
                    remote.print(&record, line)?;
                    last = Some(record);
                }
                last.as_ref().map_or(Ok(()), ended)
            }
        }
    })
}

async fn last(client: &Client, source: &str, key: &str, version: Option<u64>) -> anyhow::Result<Record> {
    let mut events = client.follow_record(source, key, version);
    let mut last = None;
    while let Some(record) = events.next().await {
        last = Some(record?);
    }
    last.ok_or_else(|| anyhow::anyhow!("nothing was heard of {source}/{key}"))
}

/// A record that does not exist is told, and the exit code says so.
fn found(record: &Record) -> anyhow::Result<()> {
    match record.freshness {
        Freshness::NotFound => Err(Absent.into()),
        _ => Ok(()),
    }
}

/// The same for a refresh that was waited for, which may have been given up.
fn ended(record: &Record) -> anyhow::Result<()> {
    match record.state {
        UpdateState::Failed if record.freshness != Freshness::NotFound => Err(Reported.into()),
        _ => found(record),
    }
}

fn asked(requested: &RefreshRequested) -> String {
    details(&[
        ("source", requested.source.clone()),
        ("key", requested.key.clone()),
        ("outcome", word(requested.outcome)),
        ("version", maybe(requested.version)),
        ("requested", requested.requested_at.to_string()),
    ])
}

fn line(record: &Record) -> String {
    let checked = maybe(record.last_checked_at);
    let queued = if record.update_queued { "queued" } else { "" };
    format!("{:<11} {checked:<24} {queued}\n", word(record.freshness))
}

fn text(record: &Record) -> String {
    let why = record.why.as_ref().map(|hold| {
        let until = hold
            .until
            .map(|until| format!(", until {until}"))
            .unwrap_or_default();
        format!("{}: {}{until}", word(hold.code), hold.detail)
    });
    details(&[
        ("source", record.source.clone()),
        ("key", record.key.clone()),
        ("freshness", word(record.freshness)),
        ("state", word(record.state)),
        ("tier", word(record.tier)),
        ("last updated", maybe(record.last_updated_at)),
        ("last checked", maybe(record.last_checked_at)),
        ("refresh queued", record.update_queued.to_string()),
        ("estimated wait ms", maybe(record.estimated_wait_ms)),
        ("version", maybe(record.version)),
        ("why", maybe(why)),
        ("snapshot", maybe(record.snapshot.as_ref().map(|raw| raw.get()))),
    ])
}
