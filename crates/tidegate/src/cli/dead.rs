//! `tidegate dead`: list dead jobs, give them another life, forget them.

use std::io::{BufRead, IsTerminal};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use futures_util::StreamExt;
use tidegate_client::{Client, DeadDone, DeadFilter, DeadSelection, DeathReason, JobName};

use super::exit::Reported;
use super::group::{ListArgs, ROWS};
use super::job;
use super::remote::{Remote, WhyArg, say};
use super::table::{Table, maybe, visible, word};

#[derive(Debug, Args)]
pub(super) struct DeadArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Dead jobs with their reasons, those accepted last first
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Give dead jobs another life
    Replay(Selection),
    /// Forget dead jobs
    Purge {
        #[command(flatten)]
        which: Selection,
        /// Do not ask before every dead job is forgotten
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
    /// Only those that died of this
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

pub(super) fn run(args: &DeadArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::List { filter, list } => self::list(remote, &client, filter, list).await,
            What::Replay(which) => {
                let done = client.replay_dead(&which.selected()?).await?;
                told(remote, &done, "replayed")
            }
            What::Purge { which, yes } => {
                let selected = which.selected()?;
                if selected.all && !yes {
                    confirm(client.url())?;
                }
                told(remote, &client.purge_dead(&selected).await?, "purged")
            }
        }
    })
}

/// Asks whoever sits at the terminal; a script has to say --yes.
fn confirm(url: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("every dead job of {url} would be forgotten for good; say --yes if that is meant");
    }
    eprint!("Forget every dead job of {url} for good? [y/N] ");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was purged");
    }
    Ok(())
}

fn told(remote: &Remote, done: &DeadDone, command: &str) -> anyhow::Result<()> {
    remote.print(done, |done| {
        format!("{} {command}, {} skipped\n", done.jobs, done.skipped)
    })?;
    if done.skipped == 0 {
        return Ok(());
    }
    for skipped in done.errors.iter().take(10) {
        let (group, id) = (visible(&skipped.group), visible(&skipped.id));
        eprintln!(
            "tidegate: {group}/{id}: {} ({})",
            visible(&skipped.detail),
            skipped.code
        );
    }
    Err(Reported.into())
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
