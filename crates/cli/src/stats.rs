//! `tidegate stats`: current counts and rates of the whole system.

use clap::Args;
use tidegate_client::Stats;

use super::remote::Remote;
use super::table::{Table, details, maybe, number};

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    remote: Remote,
}

pub(super) fn run(args: &StatsArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move { remote.print(&client.stats().await?, text) })
}

fn text(stats: &Stats) -> String {
    let counts = stats.counts;
    let unavailable = stats
        .store
        .unavailable_since
        .map(|since| format!("unavailable since {since}"));
    let oldest = stats.oldest_wait.as_ref();
    let summary = details(&[
        ("at", stats.at.to_string()),
        (
            "store",
            format!(
                "{} {}",
                stats.store.backend,
                unavailable.as_deref().unwrap_or("available")
            ),
        ),
        (
            "starts per second",
            format!("{} of {}", number(stats.start_rate), number(stats.global_rps)),
        ),
        (
            "most in a window",
            format!("{} of {}", stats.most_started_per_window, stats.limit_per_window),
        ),
        (
            "groups",
            format!("{}, {} active", stats.groups, stats.active_groups),
        ),
        ("waiting", counts.waiting.to_string()),
        ("ready", counts.ready.to_string()),
        ("running", counts.running.to_string()),
        ("delayed", counts.delayed.to_string()),
        ("completed", counts.completed.to_string()),
        ("dead", counts.dead.to_string()),
        (
            "oldest wait",
            maybe(oldest.map(|oldest| format!("{}, since {}", oldest.group, oldest.since))),
        ),
        ("version", stats.version.clone()),
    ]);
    let mut queues = Table::new(&[
        "QUEUE", ">RATE", ">OF", ">RUNNING", ">WAITING", ">DELAYED", "OLDEST", ">READY", ">GROUPS",
        ">PUSHING", ">PULLING",
    ]);
    for queue in &stats.queues {
        queues.row(vec![
            queue.id.clone(),
            number(queue.rps),
            number(queue.configured_rps),
            match queue.max_running {
                Some(most) => format!("{} of {most}", queue.running),
                None => queue.running.to_string(),
            },
            queue.waiting.to_string(),
            queue.delayed.to_string(),
            maybe(queue.oldest_waiting_since),
            queue.ready.to_string(),
            queue.groups_waiting.to_string(),
            queue.workers.push_busy.to_string(),
            queue.workers.pull_waiting.to_string(),
        ]);
    }
    if queues.is_empty() {
        return summary;
    }
    summary + "\n" + &queues.text()
}
