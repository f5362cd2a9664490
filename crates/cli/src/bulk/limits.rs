//! `tidegate limits`: shows the limits, and changes them at run time.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::bail;
use clap::{Args, Subcommand};
use tidegate_client::{LimitSetting, Limits, Nullable, PatchLimits, PatchQueueLimits};

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
    /// Show the current limits, and who changed them
    Show,
    /// Change limits at once; a restart keeps them
    Set {
        /// Starts per second over the whole system
        #[arg(long, value_name = "N")]
        rps: Option<f64>,
        /// Starts per second of one queue; may be given several times
        #[arg(long = "queue", value_name = "QUEUE=N", value_parser = of_queue::<f64>)]
        queues: Vec<(String, f64)>,
        /// Jobs of one queue that run at once, over all processes; may be given several times
        #[arg(long = "max-running", value_name = "QUEUE=N", value_parser = of_queue::<u32>)]
        max_running: Vec<(String, u32)>,
        /// Whether queues follow what their downstream sustains
        #[arg(long, value_name = "on|off", value_parser = switch)]
        adaptive: Option<bool>,
        #[command(flatten)]
        why: WhyArg,
    },
    /// Reset limits to the configuration
    Reset {
        /// Only the limits of this queue; may be given several times
        #[arg(long = "queue", value_name = "QUEUE")]
        queues: Vec<String>,
        /// The limits of the whole system and those of all queues
        #[arg(long, conflicts_with = "queues")]
        all: bool,
        #[command(flatten)]
        why: WhyArg,
    },
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

/// Splits at the last `=`: a queue's name may contain one.
fn of_queue<T: FromStr>(text: &str) -> Result<(String, T), String> {
    let split = text.rsplit_once('=');
    let limit = split.and_then(|(queue, limit)| Some((queue.to_owned(), limit.trim().parse().ok()?)));
    limit.ok_or_else(|| "write it like mail=50".to_owned())
}

pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let patch = match &args.what {
            What::Show => return remote.print(&client.limits().await?, text),
            What::Set {
                rps,
                queues,
                max_running,
                adaptive,
                why,
            } => {
                if rps.is_none() && adaptive.is_none() && queues.is_empty() && max_running.is_empty() {
                    bail!("nothing to change: give --rps, --queue, --max-running or --adaptive");
                }
                let mut limits: BTreeMap<String, PatchQueueLimits> = BTreeMap::new();
                for (queue, rps) in queues {
                    limits.entry(queue.clone()).or_default().rps = Nullable::Value(*rps);
                }
                for (queue, most) in max_running {
                    limits.entry(queue.clone()).or_default().max_running = Nullable::Value(*most);
                }
                PatchLimits {
                    global_rps: rps.map_or(Nullable::Absent, Nullable::Value),
                    adaptive: adaptive.map_or(Nullable::Absent, Nullable::Value),
                    queues: limits,
                    why: why.why.clone(),
                }
            }
            What::Reset { queues, all, why } => {
                let mut queues = queues.clone();
                let whole_system = queues.is_empty();
                if *all {
                    let changed = client.limits().await?.queues;
                    queues.extend(changed.into_iter().map(|changed| changed.queue));
                }
                PatchLimits {
                    global_rps: reset_if(whole_system),
                    adaptive: reset_if(whole_system),
                    queues: queues
                        .into_iter()
                        .map(|queue| (queue, PatchQueueLimits::RESET))
                        .collect(),
                    why: why.why.clone(),
                }
            }
        };
        remote.print(&client.patch_limits(&patch).await?, text)
    })
}

fn reset_if<T>(reset: bool) -> Nullable<T> {
    if reset { Nullable::Null } else { Nullable::Absent }
}

fn text(limits: &Limits) -> String {
    let mut lines = vec![
        ("starts per second", number(limits.global_rps)),
        ("configured", number(limits.configured_global_rps)),
        ("starts per window", limits.limit_per_window.to_string()),
        ("window", format!("{} ms", limits.window_ms)),
    ];
    let adaptive = match limits.adaptive {
        true => "on: queues follow what their downstream sustains",
        false => "off",
    };
    lines.push(("adaptive control", adaptive.to_owned()));
    lines.extend(limits.queues.iter().map(|queue| {
        let rate = queue.rps.map(|rps| format!("{} starts per second", number(rps)));
        let most = queue.max_running.map(|most| format!("at most {most} running"));
        let set: Vec<String> = rate.into_iter().chain(most).collect();
        ("queue", format!("{}: {}", queue.queue, set.join(", ")))
    }));
    let mut text = details(&lines);
    if !limits.changes.is_empty() {
        let mut table = Table::new(&["CHANGED", "BY", "QUEUE", "LIMIT", ">FROM", ">TO", "WHY"]);
        for change in limits.changes.iter().rev() {
            table.row(vec![
                change.at.to_string(),
                change.by.clone(),
                change.queue.clone().unwrap_or_default(),
                setting(change.setting).to_owned(),
                value(change.setting, change.from),
                value(change.setting, change.to),
                change.why.clone(),
            ]);
        }
        text = text + "\n" + &table.text();
    }
    text
}

fn setting(setting: LimitSetting) -> &'static str {
    match setting {
        LimitSetting::Rps => "starts per second",
        LimitSetting::MaxRunning => "running at once",
        LimitSetting::Adaptive => "adaptive control",
    }
}

fn value(setting: LimitSetting, value: Option<f64>) -> String {
    match (setting, value) {
        (_, None) => "no limit".to_owned(),
        (LimitSetting::Adaptive, Some(on)) => if on > 0.0 { "on" } else { "off" }.to_owned(),
        (_, Some(value)) => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_and_its_rate_split_at_the_last_equals_sign() {
        assert_eq!(of_queue::<f64>("a=b=2.5").unwrap(), ("a=b".to_owned(), 2.5));
        for wrong in ["mail", "mail=", "mail=fast"] {
            assert_eq!(of_queue::<f64>(wrong).unwrap_err(), "write it like mail=50");
        }
    }
}
