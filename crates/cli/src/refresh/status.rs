//! `tidegate refresh`: status of the refresh module.

use clap::{Args, Subcommand};
use tidegate_client::{LagState, RefreshOverview};

use super::dead_letters;
use crate::remote::{Remote, WhyArg};
use crate::table::{Table, details, maybe, number, word};

#[derive(Debug, Args)]
pub(crate) struct RefreshArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show budgets, lag, circuit breakers, freshness and counters
    Status,
    /// Release a budget: call a provider again before its Retry-After has passed
    Release {
        /// The target whose budget it is
        target: String,
        #[command(flatten)]
        why: WhyArg,
    },
    /// Dead letters: list, show, replay, purge
    Dead {
        #[command(subcommand)]
        what: dead_letters::Dead,
    },
}

pub(crate) fn run(args: &RefreshArgs) -> anyhow::Result<()> {
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
            What::Dead { what } => dead_letters::run(remote, &client, what).await,
        }
    })
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
        (
            "roles",
            view.roles
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        ),
        (
            "store",
            if view.store_available {
                "available"
            } else {
                "unavailable"
            }
            .to_owned(),
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
        "{} waiting{oldest}, {} done per second",
        lag.records,
        number(lag.rate)
    )
}
