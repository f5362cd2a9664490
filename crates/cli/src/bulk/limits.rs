//! `tidegate limits`: shows the rates, and changes them at run time.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::{Args, Subcommand};
use tidegate_client::{Limits, Nullable, PatchLimits};

use crate::remote::{Remote, WhyArg};
use crate::table::{Table, details, number};

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the current rates, and who changed them
    Show,
    /// Change rates at once; a restart keeps them
    Set {
        /// Starts per second over the whole system
        #[arg(long, value_name = "N")]
        rps: Option<f64>,
        /// Starts per second of one queue; may be given several times
        #[arg(long = "queue", value_name = "QUEUE=N", value_parser = queue_rate)]
        queues: Vec<(String, f64)>,
        #[command(flatten)]
        why: WhyArg,
    },
    /// Reset rates to the configuration
    Reset {
        /// Only the rate of this queue; may be given several times
        #[arg(long = "queue", value_name = "QUEUE")]
        queues: Vec<String>,
        /// The rate of the whole system and those of all queues
        #[arg(long, conflicts_with = "queues")]
        all: bool,
        #[command(flatten)]
        why: WhyArg,
    },
}

/// Splits at the last `=`: a queue's name may contain one.
fn queue_rate(text: &str) -> Result<(String, f64), String> {
    let split = text.rsplit_once('=');
    let rate = split.and_then(|(queue, rate)| Some((queue.to_owned(), rate.trim().parse().ok()?)));
    rate.ok_or_else(|| "write it like mail=50".to_owned())
}

pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let patch = match &args.what {
            What::Show => return remote.print(&client.limits().await?, text),
            What::Set { rps, queues, why } => {
                if rps.is_none() && queues.is_empty() {
                    bail!("nothing to change: give --rps, or --queue");
                }
                PatchLimits {
                    global_rps: rps.map_or(Nullable::Absent, Nullable::Value),
                    queues: queues
                        .iter()
                        .map(|(queue, rps)| (queue.clone(), Some(*rps)))
                        .collect(),
                    why: why.why.clone(),
                }
            }
            What::Reset { queues, all, why } => {
                let mut reset: BTreeMap<_, _> = queues.iter().map(|queue| (queue.clone(), None)).collect();
                if *all {
                    let changed = client.limits().await?.queues;
                    reset.extend(changed.into_iter().map(|changed| (changed.queue, None)));
                }
                PatchLimits {
                    global_rps: match queues.is_empty() {
                        true => Nullable::Null,
                        false => Nullable::Absent,
                    },
                    queues: reset,
                    why: why.why.clone(),
                }
            }
        };
        remote.print(&client.patch_limits(&patch).await?, text)
    })
}

fn text(limits: &Limits) -> String {
    let mut lines = vec![
        ("starts per second", number(limits.global_rps)),
        ("configured", number(limits.configured_global_rps)),
        ("starts per window", limits.limit_per_window.to_string()),
        ("window", format!("{} ms", limits.window_ms)),
    ];
    let queues = limits.queues.iter();
    lines.extend(queues.map(|queue| ("queue", format!("{}: {}", queue.queue, number(queue.rps)))));
    let mut text = details(&lines);
    if !limits.changes.is_empty() {
        let mut table = Table::new(&["CHANGED", "BY", "QUEUE", ">FROM", ">TO", "WHY"]);
        for change in limits.changes.iter().rev() {
            table.row(vec![
                change.at.to_string(),
                change.by.clone(),
                change.queue.clone().unwrap_or_default(),
                number(change.from_rps),
                number(change.to_rps),
                change.why.clone(),
            ]);
        }
        text = text + "\n" + &table.text();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_and_its_rate_split_at_the_last_equals_sign() {
        assert_eq!(queue_rate("a=b=2.5").unwrap(), ("a=b".to_owned(), 2.5));
        for wrong in ["mail", "mail=", "mail=fast"] {
            assert_eq!(queue_rate(wrong).unwrap_err(), "write it like mail=50");
        }
    }
}
