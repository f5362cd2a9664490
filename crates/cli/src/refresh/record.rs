//! `tidegate record`: reads a record, requests a refresh, follows a record until it is fresh.

use clap::{Args, Subcommand};
use futures_util::StreamExt;
use tidegate_client::{Client, Freshness, Record, RefreshRequested, UpdateState};

use crate::exit::{Absent, Reported};
use crate::remote::Remote;
use crate::table::{details, maybe, word};

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Read the stored record at once, however old; requests a refresh if it is stale or missing
    Get { source: String, key: String },
    /// Request a refresh, even of a fresh record
    Refresh {
        source: String,
        key: String,
        /// Wait for the refresh, and print the record
        #[arg(long)]
        wait: bool,
    },
    /// Print every change until the record is fresh or known not to exist
    Follow { source: String, key: String },
}

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
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
                    return remote.print(&requested, request_text);
                }
                // A refresh that finished a moment ago has no version: no other follows.
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
    last.ok_or_else(|| anyhow::anyhow!("the service sent no state of {source}/{key}"))
}

/// Fails for a record that does not exist; the command has already printed that.
fn found(record: &Record) -> anyhow::Result<()> {
    match record.freshness {
        Freshness::NotFound => Err(Absent.into()),
        _ => Ok(()),
    }
}

/// The same for a finished refresh, which may have failed.
fn ended(record: &Record) -> anyhow::Result<()> {
    match record.state {
        UpdateState::Failed if record.freshness != Freshness::NotFound => Err(Reported.into()),
        _ => found(record),
    }
}

fn request_text(requested: &RefreshRequested) -> String {
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
