//! `tidegate group`: list, show, pause, resume, cancel, weight, limit.

use clap::{Args, Subcommand};
use futures_util::StreamExt;
use tidegate_client::{Client, Group, Limit, OwnLimits, PatchGroup, Rate};

use crate::remote::{Remote, WhyArg, say};
use crate::table::{Table, details, maybe, number, range};

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all groups in order of creation
    List(ListArgs),
    /// Show one group with its rate window and congestion
    Show { group: String },
    /// Pause a group: its waiting jobs do not start, its running jobs continue
    Pause(Named),
    /// Resume a paused group
    Resume(Named),
    /// Cancel every job of a group that is not running
    Cancel(Named),
    /// Change a group's share of the rate relative to other groups
    Weight {
        group: String,
        /// 2 is twice as much as 1; from 0.015625 to 64
        weight: f64,
        #[command(flatten)]
        why: WhyArg,
    },
    /// Limit a group over all queues, or in one queue; what is left out is not limited
    Limit {
        group: String,
        /// The queue; without one, the limit holds over all queues
        #[arg(long, value_name = "QUEUE")]
        queue: Option<String>,
        /// Starts, like 10/s, 30/min, 500/h or 10000/day
        #[arg(long, value_name = "RATE")]
        rate: Option<String>,
        /// Jobs running at once
        #[arg(long, value_name = "N")]
        max_running: Option<u32>,
        #[command(flatten)]
        why: WhyArg,
    },
    /// Clear a group's congestion statistics
    ResetStats(Named),
}

#[derive(Debug, Args)]
struct Named {
    group: String,
    #[command(flatten)]
    why: WhyArg,
}

/// How many rows a listing prints.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Maximum number of rows
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
    /// All rows
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

impl ListArgs {
    pub(crate) fn most(&self) -> usize {
        if self.all { usize::MAX } else { self.limit as usize }
    }
}

/// Limit: rows that are aligned together, so that a long listing is printed while it arrives.
pub(crate) const ROWS: usize = 1_000;

pub(crate) fn run(args: &GroupArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match &args.what {
            What::List(list) => self::list(remote, &client, list).await,
            What::Show { group } => show(remote, &client, group).await,
            What::Pause(on) => {
                let group = client.pause_group(&on.group, on.why.why.as_deref()).await?;
                remote.print(&group, text)
            }
            What::Resume(on) => {
                let group = client.resume_group(&on.group, on.why.why.as_deref()).await?;
                remote.print(&group, text)
            }
            What::Cancel(on) => {
                let done = client.cancel_group(&on.group, on.why.why.as_deref()).await?;
                remote.print(&done, |done| {
                    format!("{} cancelled, {} still running\n", done.cancelled, done.running)
                })
            }
            What::Weight { group, weight, why } => {
                let patch = PatchGroup {
                    weight: Some(*weight),
                    why: why.why.clone(),
                    ..PatchGroup::default()
                };
                remote.print(&client.patch_group(group, &patch).await?, text)
            }
            What::Limit {
                group,
                queue,
                rate,
                max_running,
                why,
            } => {
                let limit = Limit {
                    rate: rate.clone().map(Rate),
                    max_running: *max_running,
                };
                // The other limits of the group stay.
                let mut limits = match client.group(group).await {
                    Ok(group) => group.limits,
                    Err(error) if error.code() == Some("unknown_group") => OwnLimits::default(),
                    Err(error) => return Err(error.into()),
                };
                match queue {
                    Some(queue) => {
                        limits.queues.insert(queue.clone(), limit);
                    }
                    None => (limits.rate, limits.max_running) = (limit.rate, limit.max_running),
                }
                let patch = PatchGroup {
                    limits: Some(limits),
                    why: why.why.clone(),
                    ..PatchGroup::default()
                };
                remote.print(&client.patch_group(group, &patch).await?, text)
            }
            What::ResetStats(on) => {
                let group = client.reset_group_stats(&on.group, on.why.why.as_deref()).await?;
                remote.print(&group, text)
            }
        }
    })
}

async fn list(remote: &Remote, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let mut rows = client.all_groups().take(args.most()).ready_chunks(ROWS);
    while let Some(groups) = rows.next().await {
        let mut table = Table::new(&[
            "GROUP",
            ">WEIGHT",
            "STATE",
            ">WAITING",
            ">READY",
            ">RUNNING",
            ">DELAYED",
            ">COMPLETED",
            ">DEAD",
            ">ETA",
        ]);
        for group in groups {
            let group = group?;
            if remote.json {
                remote.print(&group, text)?;
                continue;
            }
            let counts = group.counts;
            let mut row = vec![group.id.clone(), number(group.weight), state(&group).to_owned()];
            let numbers = [
                counts.waiting,
                counts.ready,
                counts.running,
                counts.delayed,
                counts.completed,
                counts.dead,
            ];
            row.extend(numbers.map(|number| number.to_string()));
            row.push(eta(&group));
            table.row(row);
        }
        if !table.is_empty() {
            say(&table.text())?;
        }
    }
    Ok(())
}

fn state(group: &Group) -> &'static str {
    match group {
        Group { paused: true, .. } => "paused",
        Group { held: true, .. } => "held",
        Group { active: true, .. } => "active",
        _ => "idle",
    }
}

fn eta(group: &Group) -> String {
    if group.active {
        range(&group.estimate)
    } else {
        String::new()
    }
}

fn limit(limit: &Limit) -> String {
    let rate = limit.rate.as_ref().map(Rate::to_string);
    let running = limit.max_running.map(|most| format!("at most {most} running"));
    let parts: Vec<String> = rate.into_iter().chain(running).collect();
    match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(", "),
    }
}

fn text(group: &Group) -> String {
    let counts = group.counts;
    let own = Limit {
        rate: group.limits.rate.clone(),
        max_running: group.limits.max_running,
    };
    let mut lines = vec![
        ("group", group.id.clone()),
        ("state", state(group).to_owned()),
        ("weight", number(group.weight)),
        ("limit", limit(&own)),
        ("waiting", counts.waiting.to_string()),
        ("ready", counts.ready.to_string()),
        ("running", counts.running.to_string()),
        ("delayed", counts.delayed.to_string()),
        ("completed", counts.completed.to_string()),
        ("dead", counts.dead.to_string()),
        ("next waits since", maybe(group.waiting_since)),
        ("done in about", eta(group)),
        ("batches", group.batches.join(" ")),
    ];
    let queues = group.limits.queues.iter();
    lines.extend(queues.map(|(queue, of_queue)| ("in queue", format!("{queue}: {}", limit(of_queue)))));
    details(&lines)
}

async fn show(remote: &Remote, client: &Client, group: &str) -> anyhow::Result<()> {
    let seen = client.group(group).await?;
    if remote.json {
        return remote.print(&seen, text);
    }
    let (limits, congestion) = (
        client.group_limits(group).await?,
        client.group_congestion(group).await?,
    );
    let window = details(&[
        ("started in window", limits.group_count.to_string()),
        ("share of window", limits.per_group_limit.to_string()),
        ("window ends", limits.window_ends.to_string()),
        ("congestion", crate::table::word(congestion.congestion_level)),
        ("throttles", congestion.total_throttle_count.to_string()),
        ("next backoff", format!("{} ms", congestion.current_backoff_ms)),
    ]);
    say(&(text(&seen) + &window))
}
