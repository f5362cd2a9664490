//! `tidegate refresh`: the refresh part as a whole, and its dead letters.

use std::io::{BufRead, IsTerminal};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use futures_util::StreamExt;
use tidegate_client::{
    Client, DeadLetter, DeadLetterFilter, DeadLetterSelection, DeadLettersDone, FailureReason, LagState,
    RefreshOverview,
};

use super::exit::Reported;
use super::group::{ListArgs, ROWS};
use super::remote::{Remote, WhyArg, say};
use super::table::{Table, details, maybe, number, visible, word};

#[derive(Debug, Args)]
pub(super) struct RefreshArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Budgets, lag, breakers, freshness, and what was done
    Status,
    /// Call a provider again although it asked to be left alone
    Release {
        /// Whose budget it is
        target: String,
        #[command(flatten)]
        why: WhyArg,
    },
    /// Events that were given up: list, show, replay, purge
    Dead {
        #[command(subcommand)]
        what: Dead,
    },
}

#[derive(Debug, Subcommand)]
enum Dead {
    /// Dead letters, by partition, the oldest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// Also those that were replayed or purged
        #[arg(long)]
        handled: bool,
        #[command(flatten)]
        list: ListArgs,
    },
    /// One dead letter with everything that is kept of it
    Show { position: String },
    /// Ask for their records again
    Replay(Selection),
    /// Put them away
    Purge {
        #[command(flatten)]
        which: Selection,
        /// Do not ask before every dead letter is put away
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct Filter {
    /// Only of this source
    #[arg(long)]
    source: Option<String>,
    /// Only those that failed for this
    #[arg(long, value_enum)]
    reason: Option<ReasonArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReasonArg {
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
struct Selection {
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

pub(super) fn run(args: &RefreshArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::Status => remote.print(&client.refresh_overview().await?, status),
            What::Release { target, why } => {
                let done = client.release_budget(target, why.why.as_deref()).await?;
                remote.print(&done, |done| match done.was_held {
                    true => format!("{} is called again\n", done.target),
                    false => format!("{} was not held\n", done.target),
                })
            }
            What::Dead { what } => dead(remote, &client, what).await,
        }
    })
}

async fn dead(remote: &Remote, client: &Client, what: &Dead) -> anyhow::Result<()> {
    match what {
        Dead::List {
            filter,
            handled,
            list,
        } => self::list(remote, client, filter, *handled, list).await,
        Dead::Show { position } => remote.print(&client.dead_letter(position).await?, dead_letter),
        Dead::Replay(which) => {
            let done = client.replay_dead_letters(&which.selected()?).await?;
            told(remote, &done, "replayed")
        }
        Dead::Purge { which, yes } => {
            let selected = which.selected()?;
            if selected.all && !yes {
                confirm(client.url())?;
            }
            told(remote, &client.purge_dead_letters(&selected).await?, "purged")
        }
    }
}

/// Asks whoever sits at the terminal; a script has to say --yes.
fn confirm(url: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("every dead letter of {url} would be put away; say --yes if that is meant");
    }
    eprint!("Put every dead letter of {url} away? [y/N] ");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was purged");
    }
    Ok(())
}

fn told(remote: &Remote, done: &DeadLettersDone, command: &str) -> anyhow::Result<()> {
    remote.print(done, |done| {
        format!("{} {command}, {} skipped\n", done.dead_letters, done.skipped)
    })?;
    if done.skipped == 0 {
        return Ok(());
    }
    for skipped in done.errors.iter().take(10) {
        let (detail, code) = (visible(&skipped.detail), &skipped.code);
        eprintln!("tidegate: {}: {detail} ({code})", skipped.position);
    }
    Err(Reported.into())
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

fn status(view: &RefreshOverview) -> String {
    let mut budgets = Table::new(&[
        "BUDGET",
        ">RATE",
        ">CALLS/S",
        ">TOKENS",
        ">DAY USED",
        ">DAY LEFT",
        ">LOW LEFT",
        "DAY ENDS",
        "HELD UNTIL",
    ]);
    for budget in &view.budgets {
        let seen = budget.seen.as_ref();
        budgets.row(vec![
            budget.name.clone(),
            budget.rate.to_string(),
            maybe(seen.and_then(|seen| seen.calls_per_second).map(number)),
            maybe(seen.map(|seen| seen.tokens)),
            maybe(seen.map(|seen| seen.day_used)),
            maybe(seen.map(|seen| seen.day_left_high)),
            maybe(seen.map(|seen| seen.day_left_low)),
            maybe(seen.map(|seen| seen.day_ends)),
            maybe(seen.and_then(|seen| seen.hold_until)),
        ]);
    }
    let mut sources = Table::new(&[
        "SOURCE",
        ">FRESH",
        ">STALE",
        ">MISSING",
        ">RETRYING",
        ">FAILED",
        "COUNTED",
    ]);
    for (name, mix) in &view.freshness {
        sources.row(vec![
            name.clone(),
            mix.fresh.to_string(),
            mix.stale.to_string(),
            mix.missing.to_string(),
            mix.retrying.to_string(),
            mix.failed.to_string(),
            mix.counted_at.to_string(),
        ]);
    }
    let done = &view.counters;
    let lines = details(&[
        ("roles", view.roles.join(", ")),
        (
            "store",
            if view.store_available { "there" } else { "away" }.to_owned(),
        ),
        (
            "breakers",
            format!(
                "store {}, database {}",
                word(view.breakers.store),
                word(view.breakers.database)
            ),
        ),
        ("lag high", lag(&view.lag.high)),
        (
            "lag low",
            format!(
                "{}{}",
                lag(&view.lag.low),
                if view.lag.low_paused { ", paused" } else { "" }
            ),
        ),
        ("dead letters", view.lag.dead.to_string()),
        (
            "reads",
            format!("{}, {} from memory", done.reads, done.cache_hits),
        ),
        (
            "refreshes",
            format!("{} changed, {} unchanged", done.updated, done.unchanged),
        ),
        (
            "calls",
            format!("{} high, {} low", done.attempts.high, done.attempts.low),
        ),
    ]);
    let mut text = lines;
    for table in [budgets, sources] {
        if !table.is_empty() {
            text.push('\n');
            text.push_str(&table.text());
        }
    }
    text
}

fn lag(lag: &LagState) -> String {
    let oldest = lag
        .oldest_ms
        .map(|ms| format!(", the oldest for {ms} ms"))
        .unwrap_or_default();
    format!(
        "{} wait{oldest}, {} per second done",
        lag.records,
        number(lag.rate)
    )
}
