//! `tidegate jobs`: lists jobs, and commands on all that match a filter.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate_client::{
    ChangedJobs, Client, DroppedJobs, JobCommand, JobName, JobPriority, JobSelection, JobState, Time,
};

use super::group::{ListArgs, ROWS};
use crate::dead_items::confirm;
use crate::exit::Reported;
use crate::remote::{Remote, WhyArg, say};
use crate::table::{Table, maybe, visible, word};

/// Skipped jobs that a report names.
const MAX_ERRORS: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List jobs, batch by batch in the order of arrival
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Cancel jobs; running ones end with their run
    Cancel {
        #[command(flatten)]
        which: Selection,
        /// Cancel every job without asking
        #[arg(long)]
        yes: bool,
    },
    /// Start delayed jobs early, within the limits
    RunNow(Selection),
    /// Let jobs start no earlier than a point in time
    Reschedule {
        /// The earliest start, like 2026-03-01T09:30:00Z
        run_at: Time,
        #[command(flatten)]
        which: Selection,
    },
    /// Give jobs another priority
    Reprioritise {
        #[arg(value_enum)]
        priority: PriorityArg,
        #[command(flatten)]
        which: Selection,
    },
    /// Delete finished jobs by age
    DropFinished {
        /// Jobs that finished longer ago than this, in seconds
        #[arg(long, value_name = "SECONDS")]
        older_than_sec: u64,
        #[command(flatten)]
        why: WhyArg,
    },
}

#[derive(Debug, Args)]
struct Filter {
    /// Only of this group
    #[arg(long)]
    group: Option<String>,
    /// Only of this batch of --group
    #[arg(long, requires = "group")]
    batch: Option<String>,
    /// Only of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only in this state
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    /// Only accepted at this time or later
    #[arg(long, value_name = "TIME")]
    created_after: Option<Time>,
    /// Only accepted before this time
    #[arg(long, value_name = "TIME")]
    created_before: Option<Time>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StateArg {
    Waiting,
    Ready,
    Running,
    Delayed,
    Completed,
    Dead,
}

impl From<StateArg> for JobState {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Waiting => Self::Waiting,
            StateArg::Ready => Self::Ready,
            StateArg::Running => Self::Running,
            StateArg::Delayed => Self::Delayed,
            StateArg::Completed => Self::Completed,
            StateArg::Dead => Self::Dead,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum PriorityArg {
    High,
    Normal,
    Low,
}

impl From<PriorityArg> for JobPriority {
    fn from(priority: PriorityArg) -> Self {
        match priority {
            PriorityArg::High => Self::High,
            PriorityArg::Normal => Self::Normal,
            PriorityArg::Low => Self::Low,
        }
    }
}

impl Filter {
    fn select(&self) -> JobSelection {
        JobSelection {
            group: self.group.clone(),
            batch: self.batch.clone(),
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            state: self.state.map(Into::into),
            created_after: self.created_after,
            created_before: self.created_before,
            ..JobSelection::default()
        }
    }
}

#[derive(Debug, Args)]
struct Selection {
    #[command(flatten)]
    filter: Filter,
    /// Only this job of --group; may be given several times
    #[arg(
        long = "job", value_name = "ID", requires = "group",
        conflicts_with_all = ["batch", "queue", "kind", "state", "created_after", "created_before"]
    )]
    jobs: Vec<String>,
    /// Every job
    #[arg(
        long,
        conflicts_with_all = ["group", "batch", "queue", "kind", "state", "created_after", "created_before", "jobs"]
    )]
    all: bool,
    #[command(flatten)]
    why: WhyArg,
}

impl Selection {
    fn selected(&self) -> anyhow::Result<JobSelection> {
        let mut select = self.filter.select();
        if !self.all && select == JobSelection::default() {
            bail!(
                "nothing is selected: give --group, --queue, --type, --state, --created-after, --created-before, or --all"
            );
        }
        if !self.jobs.is_empty() {
            let group = select.group.take().unwrap_or_default();
            let name = |id: &String| JobName {
                group: group.clone(),
                id: id.clone(),
            };
            select.jobs = Some(self.jobs.iter().map(name).collect());
        }
        select.all = self.all;
        select.why.clone_from(&self.why.why);
        Ok(select)
    }
}

pub(crate) fn run(args: &JobsArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::List { filter, list } => self::list(remote, &client, filter, list).await,
            What::Cancel { which, yes } => {
                if which.all && !yes {
                    confirm("cancel every job", client.url())?;
                }
                change(remote, &client, JobCommand::Cancel, which, "cancelled").await
            }
            What::RunNow(which) => {
                change(
                    remote,
                    &client,
                    JobCommand::RunNow,
                    which,
                    "waiting for their turn",
                )
                .await
            }
            What::Reschedule { run_at, which } => {
                let command = JobCommand::Reschedule(*run_at);
                change(remote, &client, command, which, "rescheduled").await
            }
            What::Reprioritise { priority, which } => {
                let command = JobCommand::Reprioritise((*priority).into());
                change(remote, &client, command, which, "reprioritised").await
            }
            What::DropFinished { older_than_sec, why } => {
                drop_finished(remote, &client, *older_than_sec, why.why.as_deref()).await
            }
        }
    })
}

async fn list(remote: &Remote, client: &Client, filter: &Filter, list: &ListArgs) -> anyhow::Result<()> {
    let jobs = client.all_jobs(&filter.select()).take(list.most());
    let mut rows = jobs.ready_chunks(ROWS);
    while let Some(jobs) = rows.next().await {
        let mut table = Table::new(&[
            "GROUP",
            "BATCH",
            "JOB",
            "TYPE",
            "PRIORITY",
            "STATE",
            ">ATTEMPTS",
            "CREATED",
            "WORKER",
        ]);
        for job in jobs {
            let job = job?;
            if remote.json {
                remote.print(&job, |_| String::new())?;
                continue;
            }
            table.row(vec![
                job.group,
                job.batch,
                job.id,
                job.kind,
                word(job.priority),
                word(job.state),
                job.attempts.to_string(),
                job.created_at.to_string(),
                maybe(job.worker),
            ]);
        }
        if !table.is_empty() {
            say(&table.text())?;
        }
    }
    Ok(())
}

/// Repeats the command until no job is left, however many there are.
async fn change(
    remote: &Remote,
    client: &Client,
    command: JobCommand,
    which: &Selection,
    done: &str,
) -> anyhow::Result<()> {
    let (mut select, mut whole) = (which.selected()?, ChangedJobs::default());
    let progress = progress();
    loop {
        let one = client.change_jobs(command, &select).await?;
        whole.handled += one.handled;
        whole.skipped += one.skipped;
        let missing = MAX_ERRORS.saturating_sub(whole.errors.len());
        whole.errors.extend(one.errors.into_iter().take(missing));
        progress.set_position(whole.handled);
        progress.set_message(format!("{done}, {} skipped", whole.skipped));
        select.cursor = one.next;
        if select.cursor.is_none() {
            break;
        }
    }
    progress.finish_and_clear();
    remote.print(&whole, |whole| {
        format!("{} {done}, {} skipped\n", whole.handled, whole.skipped)
    })?;
    if whole.skipped == 0 {
        return Ok(());
    }
    for skipped in &whole.errors {
        let name = format!("{}/{}", visible(&skipped.item.group), visible(&skipped.item.id));
        eprintln!(
            "tidegate: {name}: {} ({})",
            visible(&skipped.detail),
            skipped.code
        );
    }
    Err(Reported.into())
}

async fn drop_finished(
    remote: &Remote,
    client: &Client,
    older_than_sec: u64,
    why: Option<&str>,
) -> anyhow::Result<()> {
    let (older_than, mut whole) = (Duration::from_secs(older_than_sec), DroppedJobs::default());
    let progress = progress();
    loop {
        let one = client.drop_finished(older_than, why).await?;
        whole.jobs += one.jobs;
        whole.batches += one.batches;
        whole.groups += one.groups;
        progress.set_position(whole.jobs);
        progress.set_message("deleted");
        if !one.more {
            break;
        }
    }
    progress.finish_and_clear();
    remote.print(&whole, |whole| {
        format!(
            "{} jobs, {} batches, {} groups deleted\n",
            whole.jobs, whole.batches, whole.groups
        )
    })
}

/// Counts on a terminal only: nobody knows how many jobs match.
fn progress() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{spinner} {pos:>10} {msg} {elapsed:>4}");
    ProgressBar::with_draw_target(None, target).with_style(style.expect("a constant template"))
}
