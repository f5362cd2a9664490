//! `tidegate dead`: lists, replays and purges dead jobs.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use futures_util::StreamExt;
use tidegate_client::{Client, DeadFilter, DeadSelection, DeathReason, JobName};

use super::group::{ListArgs, ROWS};
use super::job;
use crate::dead_items::{confirm, report};
use crate::remote::{Remote, WhyArg, say};
use crate::table::{Table, maybe, visible, word};

#[derive(Debug, Args)]
pub(crate) struct DeadArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List dead jobs with their reasons, those that died last first
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Run dead jobs again, with all their attempts
    Replay(Selection),
    /// Delete dead jobs for good
    Purge {
        #[command(flatten)]
        which: Selection,
        /// Delete every dead job without asking
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct Filter {
    /// Only of this group
    #[arg(long)]
    group: Option<String>,
    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only with this reason
    #[arg(long, value_enum)]
    reason: Option<ReasonArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReasonArg {
    Failed,
    AttemptsUsedUp,
    Expired,
    Cancelled,
}

impl From<ReasonArg> for DeathReason {
    fn from(reason: ReasonArg) -> Self {
        match reason {
            ReasonArg::Failed => Self::Failed,
            ReasonArg::AttemptsUsedUp => Self::AttemptsUsedUp,
            ReasonArg::Expired => Self::Expired,
            ReasonArg::Cancelled => Self::Cancelled,
        }
    }
}

#[derive(Debug, Args)]
struct Selection {
    #[command(flatten)]
    filter: Filter,
    /// Only this job of --group; may be given several times
    #[arg(long = "job", value_name = "ID", requires = "group", conflicts_with_all = ["kind", "reason"])]
    jobs: Vec<String>,
    /// Every dead job
    #[arg(long, conflicts_with_all = ["group", "kind", "reason", "jobs"])]
    all: bool,
    #[command(flatten)]
    why: WhyArg,
}

impl Selection {
    fn selected(&self) -> anyhow::Result<DeadSelection> {
        let filter = &self.filter;
        if !self.all && filter.group.is_none() && filter.kind.is_none() && filter.reason.is_none() {
            bail!("nothing is selected: give --group, --type, --reason, or --all");
        }
        let jobs = self.jobs.iter().map(|id| JobName {
            group: filter.group.clone().unwrap_or_default(),
            id: id.clone(),
        });
        let named = !self.jobs.is_empty();
        Ok(DeadSelection {
            jobs: named.then(|| jobs.collect()),
            group: filter.group.clone().filter(|_| !named),
            kind: filter.kind.clone(),
            reason: filter.reason.map(Into::into),
            all: self.all,
            why: self.why.why.clone(),
        })
    }
}

pub(crate) fn run(args: &DeadArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::List { filter, list } => self::list(remote, &client, filter, list).await,
            What::Replay(which) => {
                let outcome = client.replay_dead(&which.selected()?).await?;
                report(remote, &outcome, "replayed", name)
            }
            What::Purge { which, yes } => {
                let selected = which.selected()?;
                if selected.all && !yes {
                    confirm("delete every dead job", client.url())?;
                }
                report(remote, &client.purge_dead(&selected).await?, "purged", name)
            }
        }
    })
}

fn name(job: &JobName) -> String {
    format!("{}/{}", visible(&job.group), visible(&job.id))
}

async fn list(remote: &Remote, client: &Client, filter: &Filter, list: &ListArgs) -> anyhow::Result<()> {
    let filter = DeadFilter {
        group: filter.group.clone(),
        kind: filter.kind.clone(),
        reason: filter.reason.map(Into::into),
    };
    let mut rows = client.all_dead(&filter).take(list.most()).ready_chunks(ROWS);
    while let Some(jobs) = rows.next().await {
        let mut table = Table::new(&["GROUP", "JOB", "TYPE", "REASON", ">ATTEMPTS", "DIED", "ERROR"]);
        for job in jobs {
            let job = job?;
            if remote.json {
                remote.print(&job, |_| String::new())?;
                continue;
            }
            let error = job::outcome(&job);
            table.row(vec![
                job.group,
                job.id,
                job.kind,
                word(job.death_reason),
                job.attempts.to_string(),
                maybe(job.finished_at),
                error,
            ]);
        }
        if !table.is_empty() {
            say(&table.text())?;
        }
    }
    Ok(())
}
