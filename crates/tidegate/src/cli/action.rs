//! `tidegate action`: open, show, seal, pause, resume, cancel, results.

use clap::{Args, Subcommand};
use futures_util::StreamExt;
use tidegate_client::{Action, Client, OpenAction};

use super::group::{ListArgs, ROWS};
use super::job;
use super::remote::{Remote, WhyArg, say};
use super::table::{Table, details, maybe, span, word};

#[derive(Debug, Args)]
pub(super) struct ActionArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Open an action that jobs can be fed to
    Open(OpenArgs),
    /// One action with its progress and its first errors
    Show(Name),
    /// Say that an action takes no more jobs, so that it can complete
    Seal(Name),
    /// Take an action's jobs out of the order
    Pause(Named),
    /// Put them back
    Resume(Named),
    /// End every job of an action that is not running
    Cancel(Named),
    /// An action's jobs with their results, in the order in which they came
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
    action: String,
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
    /// FAILED when at least this share of the jobs failed
    #[arg(long, value_name = "PERCENT")]
    failure_threshold: Option<u32>,
    /// Keep finished jobs until the action is decided
    #[arg(long)]
    keep_results: bool,
    /// Who is told when it is decided: a callback of the service's configuration
    #[arg(long, value_name = "NAME")]
    callback: Option<String>,
    /// Weight of the group, if this creates it: -1000000 doubles it, 1000000 halves it
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    base_priority: Option<i32>,
}

pub(super) fn run(args: &ActionArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::Open(open) => {
                let options = OpenAction {
                    failure_threshold_percent: open.failure_threshold,
                    keep_results: open.keep_results,
                    callback: open.callback.clone(),
                    base_priority: open.base_priority,
                };
                let action = client
                    .open_action(&open.name.group, &open.name.action, &options)
                    .await?;
                remote.print(&action, text)
            }
            What::Show(name) => remote.print(&client.action(&name.group, &name.action).await?, text),
            What::Seal(name) => {
                let sealed = client.seal_action(&name.group, &name.action).await?;
                remote.print(&sealed, |sealed| {
                    format!("sealed with {} jobs\n", sealed.total_jobs)
                })
            }
            What::Pause(on) => {
                let why = on.why.why.as_deref();
                let action = client.pause_action(&on.name.group, &on.name.action, why).await?;
                remote.print(&action, text)
            }
            What::Resume(on) => {
                let why = on.why.why.as_deref();
                let action = client.resume_action(&on.name.group, &on.name.action, why).await?;
                remote.print(&action, text)
            }
            What::Cancel(on) => {
                let why = on.why.why.as_deref();
                let done = client.cancel_action(&on.name.group, &on.name.action, why).await?;
                remote.print(&done, |done| {
                    format!("{} cancelled, {} still running\n", done.cancelled, done.running)
                })
            }
            What::Results { name, list } => results(remote, &client, name, list).await,
        }
    })
}

fn text(action: &Action) -> String {
    let counts = action.counts;
    let mut marks = vec![word(action.status)];
    for (mark, is) in [
        ("sealed", action.sealed),
        ("paused", action.paused),
        ("cancelled", action.cancelled),
    ] {
        if is {
            marks.push(mark.to_owned());
        }
    }
    let left = counts.total.saturating_sub(counts.success + counts.failed);
    let eta = if left > 0 {
        span(action.estimate.estimated_seconds)
    } else {
        String::new()
    };
    let mut lines = vec![
        ("group", action.group.clone()),
        ("action", action.id.clone()),
        ("status", marks.join(", ")),
        ("total", counts.total.to_string()),
        ("success", counts.success.to_string()),
        ("failed", counts.failed.to_string()),
        ("created", action.created_at.to_string()),
        ("finished", maybe(action.finished_at)),
        ("done in about", eta),
        ("callback", maybe(action.callback.as_deref())),
        ("summary", maybe(action.summary.as_ref())),
    ];
    lines.extend(action.errors.iter().map(|error| ("error", error.clone())));
    details(&lines)
}

async fn results(remote: &Remote, client: &Client, name: &Name, list: &ListArgs) -> anyhow::Result<()> {
    let jobs = client.all_results(&name.group, &name.action);
    let mut rows = jobs.take(list.most()).ready_chunks(ROWS);
    while let Some(jobs) = rows.next().await {
        let mut table = Table::new(&["JOB", "TYPE", "PHASE", ">ATTEMPTS", "RESULT"]);
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
                word(job.phase),
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
