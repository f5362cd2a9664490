//! `tidegate watch`: live progress of an action, of a group's actions, or of the whole system.

mod bars;

use std::collections::HashMap;

use clap::Args;
use futures_util::{StreamExt, stream};
use tidegate_client::{Action, ActionStatus, Client, Group, Stats};

use self::bars::{Bar, Bars};
use super::exit::Told;
use super::remote::{Remote, say};
use super::table::{number, span, visible, word};

/// Limit: actions that are followed at once, each by a stream of its own.
const MAX_FOLLOWED: usize = 50;
/// Limit: groups shown beside the whole system, and those looked at to find them.
const MAX_GROUPS: usize = 15;
const LOOKED_AT: u32 = 200;

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    remote: Remote,
    /// The whole system if absent
    group: Option<String>,
    /// All actions of the group if absent
    action: Option<String>,
}

pub(super) fn run(args: &WatchArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        match (&args.group, &args.action) {
            (None, _) => system(remote, &client).await,
            (Some(group), Some(action)) => actions(remote, &client, group, vec![action.clone()]).await,
            (Some(group), None) => {
                let mut names = client.group(group).await?.actions;
                if names.len() > MAX_FOLLOWED {
                    // The latest stand last.
                    let left_out = names.len() - MAX_FOLLOWED;
                    eprintln!(
                        "The group has {} actions; the oldest {left_out} are left out.",
                        names.len()
                    );
                    names.drain(..left_out);
                }
                actions(remote, &client, group, names).await
            }
        }
    })
}

/// Until all of them are decided.
async fn actions(remote: &Remote, client: &Client, group: &str, names: Vec<String>) -> anyhow::Result<()> {
    let mut bars = Bars::new(remote.json);
    let follow = names.iter().map(|name| client.follow_action(group, name));
    let mut events = stream::select_all(follow.collect::<Vec<_>>());
    let mut failed = false;
    while let Some(action) = events.next().await {
        let action = action?;
        failed |= action.status == ActionStatus::Failed;
        if remote.json {
            remote.print(&action, |_| String::new())?;
        } else if !bars.show(&action.id, &bar_of_action(&action)) {
            say(&line_of_action(&action))?;
        }
    }
    bars.close();
    if failed {
        eprintln!("tidegate: an action of group {} FAILED", visible(group));
        return Err(Told.into());
    }
    Ok(())
}

fn bar_of_action(action: &Action) -> Bar {
    let counts = action.counts;
    Bar {
        done: counts.success + counts.failed,
        total: counts.total,
        text: state_of_action(action),
    }
}

fn line_of_action(action: &Action) -> String {
    let counts = action.counts;
    format!(
        "{}: {} of {}, {}\n",
        visible(&action.id),
        counts.success + counts.failed,
        counts.total,
        state_of_action(action)
    )
}

fn state_of_action(action: &Action) -> String {
    let mut parts = vec![word(action.status)];
    if action.counts.failed > 0 {
        parts.push(format!("{} failed", action.counts.failed));
    }
    if action.paused {
        parts.push("paused".into());
    }
    if !action.status.is_finished() && !action.sealed {
        parts.push("open".into());
    }
    let left = action.counts.total > action.counts.success + action.counts.failed;
    if left && !action.paused {
        parts.push(format!("{} left", span(action.estimate.estimated_seconds)));
    }
    parts.join(", ")
}

/// Until somebody stops it.
async fn system(remote: &Remote, client: &Client) -> anyhow::Result<()> {
    let mut bars = Bars::new(remote.json);
    let mut events = client.follow_stats();
    // How much each group had when its bar began: finished jobs are forgotten after a while.
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
        // A key for some groups, or a service that is busy: the headline goes on without them.
        let Ok(page) = client.groups(None, Some(LOOKED_AT)).await else {
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
                text: format!("{} left", span(group.estimate.estimated_seconds)),
            };
            bars.show(&group.id, &bar);
        }
    }
    bars.close();
    Ok(())
}

fn headline(stats: &Stats) -> String {
    let counts = stats.counts;
    let away = if stats.store.available {
        ""
    } else {
        ", the store is away"
    };
    format!(
        "{}/s of {}: {} waiting, {} ready, {} leased, {} delayed, {} dead, {} groups{away}",
        number(stats.start_rate),
        number(stats.global_rps),
        counts.waiting,
        counts.ready,
        counts.leased,
        counts.delayed,
        counts.dead,
        stats.active_groups
    )
}
