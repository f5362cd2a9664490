//! `tidegate job`: shows or replays one job.

use clap::{Args, Subcommand};
use tidegate_client::Job;

use crate::remote::{Remote, WhyArg};
use crate::table::{details, maybe, word};

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
    Replay {
        group: String,
        job: String,
        #[command(flatten)]
        why: WhyArg,
    },
}

pub(crate) fn run(args: &JobArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let job = match &args.what {
            What::Show { group, job } => client.job(group, job).await?,
            What::Replay { group, job, why } => client.replay_job(group, job, why.why.as_deref()).await?,
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
    details(&[
        ("group", job.group.clone()),
        ("batch", job.batch.clone()),
        ("job", job.id.clone()),
        ("type", job.kind.clone()),
        ("queue", job.queue.clone()),
        ("priority", word(job.priority)),
        ("state", word(job.state)),
        ("attempts", format!("{} of {}", job.attempts, job.max_attempts)),
        ("runs", job.runs.to_string()),
        ("throttles", job.throttles.to_string()),
        ("delayed until", maybe(job.delayed_until)),
        ("delayed because", word(job.delay_reason)),
        ("lease ends", maybe(job.deadline)),
        ("dead because", word(job.death_reason)),
        ("finished", maybe(job.finished_at)),
        ("payload", job.payload.get().to_owned()),
        ("result", maybe(job.result.as_ref().map(|result| result.get()))),
        ("error", maybe(job.error.as_deref())),
    ])
}
