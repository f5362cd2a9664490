//! `tidegate refresh dead`: lists, shows, replays and purges dead letters.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use futures_util::StreamExt;
use tidegate_client::{
    Client, DeadLetter, DeadLetterFilter, DeadLetterName, DeadLetterSelection, FailureReason,
};

use crate::bulk::group::{ListArgs, ROWS};
use crate::dead_items::{confirm, report};
use crate::remote::{Remote, WhyArg, say};
use crate::table::{Table, details, maybe, visible, word};

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List dead letters by partition, oldest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// Include dead letters that were replayed or purged
        #[arg(long)]
        handled: bool,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show one dead letter with all its details
    Show { position: String },
    /// Request a refresh of their records again
    Replay(Selection),
    /// Mark dead letters as handled without a replay
    Purge {
        #[command(flatten)]
        which: Selection,
        /// Purge every dead letter without asking
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only this source
    #[arg(long)]
    source: Option<String>,
    /// Only with this reason
    #[arg(long, value_enum)]
    reason: Option<ReasonArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ReasonArg {
    #[value(name = "api-5xx")]
    Api5xx,
    #[value(name = "api-4xx")]
    Api4xx,
    ParseError,
    TooLarge,
    Timeout,
    Redirected,
    UnknownSource,
}

impl From<ReasonArg> for FailureReason {
    fn from(reason: ReasonArg) -> Self {
        match reason {
            ReasonArg::Api5xx => Self::Api5xx,
            ReasonArg::Api4xx => Self::Api4xx,
            ReasonArg::ParseError => Self::ParseError,
            ReasonArg::TooLarge => Self::TooLarge,
            ReasonArg::Timeout => Self::Timeout,
            ReasonArg::Redirected => Self::Redirected,
            ReasonArg::UnknownSource => Self::UnknownSource,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    filter: Filter,
    /// Only the dead letter at this position; may be given several times
    #[arg(long = "at", value_name = "POSITION", conflicts_with_all = ["source", "reason"])]
    positions: Vec<String>,
    /// Every dead letter
    #[arg(long, conflicts_with_all = ["source", "reason", "positions"])]
    all: bool,
    #[command(flatten)]
    why: WhyArg,
}

impl Selection {
    fn selected(&self) -> anyhow::Result<DeadLetterSelection> {
        let filter = &self.filter;
        let named = !self.positions.is_empty();
        if !self.all && !named && filter.source.is_none() && filter.reason.is_none() {
            bail!("nothing is selected: give --at, --source, --reason, or --all");
        }
        Ok(DeadLetterSelection {
            positions: named.then(|| self.positions.clone()),
            source: filter.source.clone(),
            reason: filter.reason.map(Into::into),
            all: self.all,
            why: self.why.why.clone(),
        })
    }
}

pub(crate) async fn run(remote: &Remote, client: &Client, what: &Dead) -> anyhow::Result<()> {
    match what {
        Dead::List {
            filter,
            handled,
            list,
        } => self::list(remote, client, filter, *handled, list).await,
        Dead::Show { position } => remote.print(&client.dead_letter(position).await?, dead_letter),
        Dead::Replay(which) => {
            let outcome = client.replay_dead_letters(&which.selected()?).await?;
            report(remote, &outcome, "replayed", name)
        }
        Dead::Purge { which, yes } => {
            let selected = which.selected()?;
            if selected.all && !yes {
                confirm("purge every dead letter", client.url())?;
            }
            report(
                remote,
                &client.purge_dead_letters(&selected).await?,
                "purged",
                name,
            )
        }
    }
}

fn name(dead_letter: &DeadLetterName) -> String {
    visible(&dead_letter.position)
}

async fn list(
    remote: &Remote,
    client: &Client,
    filter: &Filter,
    handled: bool,
    list: &ListArgs,
) -> anyhow::Result<()> {
    let filter = DeadLetterFilter {
        source: filter.source.clone(),
        reason: filter.reason.map(Into::into),
        handled,
    };
    let dead_letters = client.all_dead_letters(&filter).take(list.most());
    let mut rows = dead_letters.ready_chunks(ROWS);
    while let Some(dead_letters) = rows.next().await {
        let heads = [
            "POSITION", "SOURCE", "KEY", "REASON", ">RETRIES", "FAILED", "HANDLED", "ERROR",
        ];
        let mut table = Table::new(&heads);
        for dead_letter in dead_letters {
            let dead_letter = dead_letter?;
            if remote.json {
                remote.print(&dead_letter, |_| String::new())?;
                continue;
            }
            table.row(vec![
                dead_letter.position,
                maybe(dead_letter.source),
                maybe(dead_letter.key),
                word(dead_letter.failure_reason),
                dead_letter.retry_count.to_string(),
                maybe(dead_letter.failed_at),
                word(dead_letter.handled.map(|handled| handled.how)),
                maybe(dead_letter.error_message),
            ]);
        }
        if !table.is_empty() {
            say(&table.text())?;
        }
    }
    Ok(())
}

fn dead_letter(dead_letter: &DeadLetter) -> String {
    let handled = dead_letter.handled.as_ref();
    let handled = handled.map(|handled| format!("{} by {} at {}", word(handled.how), handled.by, handled.at));
    let event = dead_letter
        .original_event
        .as_ref()
        .map(|raw| raw.get().to_owned());
    details(&[
        ("position", dead_letter.position.clone()),
        ("source", maybe(dead_letter.source.as_deref())),
        ("key", maybe(dead_letter.key.as_deref())),
        ("reason", word(dead_letter.failure_reason)),
        ("error", maybe(dead_letter.error_message.as_deref())),
        ("causes", dead_letter.stack_trace.join(" ← ")),
        ("retries", dead_letter.retry_count.to_string()),
        ("failed", maybe(dead_letter.failed_at)),
        ("worker", maybe(dead_letter.worker_id.as_deref())),
        ("handled", maybe(handled)),
        ("event", maybe(event)),
        ("raw", maybe(dead_letter.raw_event.as_deref())),
    ])
}
