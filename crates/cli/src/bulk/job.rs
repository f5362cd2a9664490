//! `tidegate job`: shows one job, and commands on it.

use clap::{Args, Subcommand};
use tidegate_client::{Client, Job, JobCommand, JobRun, Time};

use super::jobs::PriorityArg;
use crate::remote::{Remote, WhyArg};
use crate::table::{Table, details, maybe, word};

#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show one job with all its details
    Show { group: String, job: String },
    /// Run a dead job again, with all its attempts
    Replay(Name),
    /// Cancel a job; a running one ends with its run
    Cancel(Name),
    /// Start a delayed job early, within the limits
    RunNow(Name),
    /// Let a job start no earlier than a point in time
    Reschedule {
        #[command(flatten)]
        name: Name,
        /// The earliest start, like 2026-03-01T09:30:00Z
        run_at: Time,
    },
    /// Give a job another priority
    Reprioritise {
        #[command(flatten)]
        name: Name,
        #[arg(value_enum)]
        priority: PriorityArg,
    },
}

#[derive(Debug, Args)]
struct Name {
    group: String,
    job: String,
    #[command(flatten)]
    why: WhyArg,
}

impl Name {
    async fn change(&self, client: &Client, command: JobCommand) -> anyhow::Result<Job> {
        let why = self.why.why.as_deref();
        Ok(client.change_job(&self.group, &self.job, command, why).await?)
    }
}

pub(crate) fn run(args: &JobArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let job = match &args.what {
            What::Show { group, job } => client.job(group, job).await?,
            What::Replay(name) => {
                let why = name.why.why.as_deref();
                client.replay_job(&name.group, &name.job, why).await?
            }
            What::Cancel(name) => name.change(&client, JobCommand::Cancel).await?,
            What::RunNow(name) => name.change(&client, JobCommand::RunNow).await?,
            What::Reschedule { name, run_at } => {
                name.change(&client, JobCommand::Reschedule(*run_at)).await?
            }
            What::Reprioritise { name, priority } => {
                let command = JobCommand::Reprioritise((*priority).into());
                name.change(&client, command).await?
            }
        };
        remote.print(&job, text)
    })
}

/// The result or the error, in one cell.
pub(crate) fn outcome(job: &Job) -> String {
    match (&job.result, &job.error) {
        (Some(result), _) => result.get().to_owned(),
        (None, Some(error)) => error.clone(),
        (None, None) => String::new(),
    }
}

fn text(job: &Job) -> String {
    let progress = job.progress.as_ref();
    let progress = progress.map(|progress| format!("{} % {}", progress.percent, progress.text));
    let state = match job.cancelled {
        true => format!("{}, cancelled: ends with this run", word(job.state)),
        false => word(job.state),
    };
    let text = details(&[
        ("group", job.group.clone()),
        ("batch", job.batch.clone()),
        ("job", job.id.clone()),
        ("type", job.kind.clone()),
        ("queue", job.queue.clone()),
        ("priority", word(job.priority)),
        ("state", state),
        ("attempts", format!("{} of {}", job.attempts, job.max_attempts)),
        ("runs", job.runs.to_string()),
        ("throttles", job.throttles.to_string()),
        ("created", job.created_at.to_string()),
        ("started", maybe(job.started_at)),
        ("worker", maybe(job.worker.as_deref())),
        ("progress", maybe(progress.as_deref().map(str::trim))),
        ("delayed until", maybe(job.delayed_until)),
        ("delayed because", word(job.delay_reason)),
        ("lease ends", maybe(job.deadline)),
        ("dead because", word(job.death_reason)),
        ("finished", maybe(job.finished_at)),
        ("payload", job.payload.get().to_owned()),
        ("result", maybe(job.result.as_ref().map(|result| result.get()))),
        ("error", maybe(job.error.as_deref())),
    ]);
    if job.history.is_empty() {
        return text;
    }
    text + "\n" + &history(&job.history)
}

fn history(runs: &[JobRun]) -> String {
    let mut table = Table::new(&[">RUN", "STARTED", "ENDED", "WORKER", "OUTCOME", "ERROR"]);
    for run in runs {
        table.row(vec![
            run.number.to_string(),
            maybe(run.started_at),
            maybe(run.ended_at),
            run.worker.clone(),
            run.outcome.map_or_else(|| "running".to_owned(), word),
            maybe(run.error.as_deref()),
        ]);
    }
    table.text()
}
