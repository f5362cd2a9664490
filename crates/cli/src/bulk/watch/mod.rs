//! `tidegate watch`: live progress of a batch, of a group's batches, or of the whole system.

mod bars;

use std::collections::HashMap;

use clap::Args;
use futures_util::{StreamExt, stream};
use tidegate_client::{Batch, BatchStatus, Client, Estimate, Group, Stats};

use self::bars::{Bar, Bars};
use crate::exit::Reported;
use crate::remote::{Remote, say};
use crate::table::{number, range, visible, word};

/// Limit: batches followed at once, each with its own stream.
const MAX_FOLLOWED: usize = 50;
/// Limit: groups shown below the headline, and groups listed to find them.
const MAX_GROUPS: usize = 15;
const MAX_LISTED: u32 = 200;

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    remote: Remote,
    /// The whole system if absent
    group: Option<String>,
    /// All batches of the group if absent
    batch: Option<String>,
}

pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match (&args.group, &args.batch) {
            (None, _) => system(remote, &client).await,
            (Some(group), Some(batch)) => batches(remote, &client, group, vec![batch.clone()]).await,
            (Some(group), None) => {
                let mut names = client.group(group).await?.batches;
                if names.len() > MAX_FOLLOWED {
                    // The latest are last.
                    let left_out = names.len() - MAX_FOLLOWED;
                    eprintln!(
                        "The group has {} batches; the oldest {left_out} are left out.",
                        names.len()
                    );
                    names.drain(..left_out);
                }
                batches(remote, &client, group, names).await
            }
        }
    })
}

/// Follows batches until all have completed.
async fn batches(remote: &Remote, client: &Client, group: &str, names: Vec<String>) -> anyhow::Result<()> {
    let mut bars = Bars::new(remote.json);
    let follow = names.iter().map(|name| client.follow_batch(group, name));
    let mut events = stream::select_all(follow.collect::<Vec<_>>());
    let mut failed = None;
    while let Some(batch) = events.next().await {
        let batch = batch?;
        if matches!(batch.status, BatchStatus::Failed | BatchStatus::Cancelled) {
            failed = Some(batch.status);
        }
        if remote.json {
            remote.print(&batch, |_| String::new())?;
        } else if !bars.show(&batch.id, &bar_of_batch(&batch)) {
            say(&line_of_batch(&batch))?;
        }
    }
    bars.close();
    if let Some(status) = failed {
        eprintln!("tidegate: a batch of group {} {}", visible(group), word(status));
        return Err(Reported.into());
    }
    Ok(())
}

fn bar_of_batch(batch: &Batch) -> Bar {
    let counts = batch.counts;
    Bar {
        done: counts.success + counts.failed,
        total: counts.total,
        text: state_of_batch(batch),
    }
}

fn line_of_batch(batch: &Batch) -> String {
    let counts = batch.counts;
    format!(
        "{}: {} of {}, {}\n",
        visible(&batch.id),
        counts.success + counts.failed,
        counts.total,
        state_of_batch(batch)
    )
}

fn state_of_batch(batch: &Batch) -> String {
    let mut parts = vec![word(batch.status)];
    if batch.counts.failed > 0 {
        parts.push(format!("{} failed", batch.counts.failed));
    }
    if !batch.status.is_finished() && !batch.sealed {
        parts.push("open".into());
    }
    let left = batch.counts.total > batch.counts.success + batch.counts.failed;
    if left && batch.status != BatchStatus::Paused && !batch.status.is_finished() {
        parts.push(time_left(&batch.estimate));
    }
    parts.join(", ")
}

fn time_left(estimate: &Estimate) -> String {
    match estimate.unknown {
        None => format!("{} left", range(estimate)),
        Some(_) => range(estimate),
    }
}

/// Follows the whole system until interrupted.
async fn system(remote: &Remote, client: &Client) -> anyhow::Result<()> {
    let mut bars = Bars::new(remote.json);
    let mut events = client.follow_stats();
    // The most unfinished jobs of each group since its bar began: finished jobs expire.
    let mut most: HashMap<String, u64> = HashMap::new();
    while let Some(stats) = events.next().await {
        let stats = stats?;
        if remote.json {
            remote.print(&stats, |_| String::new())?;
            continue;
        }
        if !bars.headline(&headline(&stats)) {
            say(&format!("{} {}\n", stats.at, headline(&stats)))?;
            continue;
        }
        // The key may be limited to some groups, or the service busy: then show the headline alone.
        let Ok(page) = client.groups(None, Some(MAX_LISTED)).await else {
            continue;
        };
        let mut groups: Vec<Group> = page.items.into_iter().filter(|group| group.active).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.counts.unfinished()));
        groups.truncate(MAX_GROUPS);
        most.retain(|name, _| groups.iter().any(|group| group.id == *name));
        bars.keep(|name| groups.iter().any(|group| group.id == name));
        for group in groups {
            let left = group.counts.unfinished();
            let most = most.entry(group.id.clone()).or_insert(left);
            *most = left.max(*most);
            let bar = Bar {
                done: *most - left,
                total: *most,
                text: time_left(&group.estimate),
            };
            bars.show(&group.id, &bar);
        }
    }
    bars.close();
    Ok(())
}

fn headline(stats: &Stats) -> String {
    let counts = stats.counts;
    let unavailable = if stats.store.available {
        ""
    } else {
        ", the store is unavailable"
    };
    format!(
        "{}/s of {}: {} waiting, {} ready, {} running, {} delayed, {} dead, {} groups{unavailable}",
        number(stats.start_rate),
        number(stats.global_rps),
        counts.waiting,
        counts.ready,
        counts.running,
        counts.delayed,
        counts.dead,
        stats.active_groups
    )
}
