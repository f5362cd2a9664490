//! `tidegate batch`: open, show, seal, pause, resume, cancel, results.

use clap::{Args, Subcommand};
use futures_util::StreamExt;
use tidegate_client::{Batch, Client, OpenBatch};

use super::group::{ListArgs, ROWS};
use super::job;
use crate::remote::{Remote, WhyArg, say};
use crate::table::{Table, details, maybe, range, word};

#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Open a batch, to add jobs to it
    Open(OpenArgs),
    /// Show one batch with its progress and first errors
    Show(Name),
    /// Seal a batch: it takes no more jobs, and can complete
    Seal(Name),
    /// Pause a batch: its waiting jobs do not start
    Pause(Named),
    /// Resume a paused batch
    Resume(Named),
    /// Cancel every job of a batch that is not running
    Cancel(Named),
    /// List the jobs of a batch with their results, in order of submission
    Results {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        list: ListArgs,
    },
}

#[derive(Debug, Args)]
struct Name {
    group: String,
    batch: String,
}

#[derive(Debug, Args)]
struct Named {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    why: WhyArg,
}

#[derive(Debug, Args)]
struct OpenArgs {
    #[command(flatten)]
    name: Name,
    /// The batch is FAILED when at least this share of its jobs failed
    #[arg(long, value_name = "PERCENT")]
    failure_threshold: Option<u32>,
    /// Keep finished jobs until the batch completes
    #[arg(long)]
    keep_results: bool,
    /// Callback to notify when it completes, by its name in the service's configuration
    #[arg(long, value_name = "NAME")]
    callback: Option<String>,
    /// Weight of the group, if this creates it: -1000000 doubles it, 1000000 halves it
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    base_priority: Option<i32>,
}

pub(crate) fn run(args: &BatchArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::Open(open) => {
                let options = OpenBatch {
                    failure_threshold_percent: open.failure_threshold,
                    keep_results: open.keep_results,
                    callback: open.callback.clone(),
                    base_priority: open.base_priority,
                };
                let batch = client
                    .open_batch(&open.name.group, &open.name.batch, &options)
                    .await?;
                remote.print(&batch, text)
            }
            What::Show(name) => remote.print(&client.batch(&name.group, &name.batch).await?, text),
            What::Seal(name) => {
                let sealed = client.seal_batch(&name.group, &name.batch).await?;
                remote.print(&sealed, |sealed| {
                    format!("sealed with {} jobs\n", sealed.total_jobs)
                })
            }
            What::Pause(on) => {
                let why = on.why.why.as_deref();
                let batch = client.pause_batch(&on.name.group, &on.name.batch, why).await?;
                remote.print(&batch, text)
            }
            What::Resume(on) => {
                let why = on.why.why.as_deref();
                let batch = client.resume_batch(&on.name.group, &on.name.batch, why).await?;
                remote.print(&batch, text)
            }
            What::Cancel(on) => {
                let why = on.why.why.as_deref();
                let done = client.cancel_batch(&on.name.group, &on.name.batch, why).await?;
                remote.print(&done, |done| {
                    format!("{} cancelled, {} still running\n", done.cancelled, done.running)
                })
            }
            What::Results { name, list } => results(remote, &client, name, list).await,
        }
    })
}

fn text(batch: &Batch) -> String {
    let counts = batch.counts;
    let mut marks = vec![word(batch.status)];
    let decided = batch.status.is_finished();
    for (mark, is) in [
        ("sealed", batch.sealed),
        ("its group is paused", batch.group_paused && !decided),
        ("cancelled", batch.cancelled && !decided),
    ] {
        if is {
            marks.push(mark.to_owned());
        }
    }
    let left = counts.total.saturating_sub(counts.success + counts.failed);
    let eta = if left > 0 {
        range(&batch.estimate)
    } else {
        String::new()
    };
    let mut lines = vec![
        ("group", batch.group.clone()),
        ("batch", batch.id.clone()),
        ("status", marks.join(", ")),
        ("total", counts.total.to_string()),
        ("success", counts.success.to_string()),
        ("failed", counts.failed.to_string()),
        ("created", batch.created_at.to_string()),
        ("finished", maybe(batch.finished_at)),
        ("done in about", eta),
        ("callback", maybe(batch.callback.as_deref())),
        ("summary", maybe(batch.summary.as_ref())),
    ];
    lines.extend(batch.errors.iter().map(|error| ("error", error.clone())));
    details(&lines)
}

async fn results(remote: &Remote, client: &Client, name: &Name, list: &ListArgs) -> anyhow::Result<()> {
    let jobs = client.all_results(&name.group, &name.batch);
    let mut rows = jobs.take(list.most()).ready_chunks(ROWS);
    while let Some(jobs) = rows.next().await {
        let mut table = Table::new(&["JOB", "TYPE", "STATE", ">ATTEMPTS", "RESULT"]);
        for job in jobs {
            let job = job?;
            if remote.json {
                remote.print(&job, |_| String::new())?;
                continue;
            }
            let result = job::outcome(&job);
            table.row(vec![
                job.id,
                job.kind,
                word(job.state),
                job.attempts.to_string(),
                result,
            ]);
        }
        if !table.is_empty() {
            say(&table.text())?;
        }
    }
    Ok(())
}
