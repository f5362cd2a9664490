//! `tidegate limits`: shows the limits, and changes them at run time.

use anyhow::bail;
use clap::{Args, Subcommand};
use tidegate_client::{LimitSetting, Limits, Nullable, PatchLimit, PatchLimits, PatchQueueLimits, Rate};

use crate::remote::{Remote, WhyArg};
use crate::table::{Table, details};

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
        /// The queue; without one, the limits are those of the whole system
        #[arg(long, value_name = "QUEUE")]
        queue: Option<String>,
        /// Starts, like 10/s, 30/min, 500/h or 10000/day
        #[arg(long, value_name = "RATE")]
        rate: Option<String>,
        /// Jobs of the queue that run at once, over all processes
        #[arg(long, value_name = "N", requires = "queue")]
        max_running: Option<u32>,
        /// Starts of every group in the queue that has no limit of its own there
        #[arg(long, value_name = "RATE", requires = "queue")]
        group_rate: Option<String>,
        /// Jobs of every group in the queue that run at once
        #[arg(long, value_name = "N", requires = "queue")]
        group_max_running: Option<u32>,
        /// Whether queues follow what their downstream sustains
        #[arg(long, value_name = "on|off", value_parser = switch, conflicts_with = "queue")]
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

pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let patch = match &args.what {
            What::Show => return remote.print(&client.limits().await?, text),
            What::Set {
                queue,
                rate,
                max_running,
                group_rate,
                group_max_running,
                adaptive,
                why,
            } => {
                let mut patch = PatchLimits {
                    adaptive: given(*adaptive),
                    why: why.why.clone(),
                    ..PatchLimits::default()
                };
                let rate = given(rate.clone().map(Rate));
                match queue {
                    None => patch.rate = rate,
                    Some(queue) => {
                        let limits = PatchQueueLimits {
                            rate,
                            max_running: given(*max_running),
                            per_group: PatchLimit {
                                rate: given(group_rate.clone().map(Rate)),
                                max_running: given(*group_max_running),
                            },
                        };
                        patch.queues.insert(queue.clone(), limits);
                    }
                }
                let nothing = PatchLimits {
                    why: patch.why.clone(),
                    ..PatchLimits::default()
                };
                if patch == nothing || patch.queues.values().any(|set| *set == PatchQueueLimits::default()) {
                    bail!(
                        "nothing to change: give --rate or --adaptive, or --queue with --rate, --max-running, \
                         --group-rate or --group-max-running"
                    );
                }
                patch
            }
            What::Reset { queues, all, why } => {
                let mut queues = queues.clone();
                let whole_system = queues.is_empty();
                if *all {
                    let changed = client.limits().await?.queues;
                    queues.extend(changed.into_iter().map(|changed| changed.queue));
                }
                PatchLimits {
                    rate: reset_if(whole_system),
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

fn given<T>(value: Option<T>) -> Nullable<T> {
    value.map_or(Nullable::Absent, Nullable::Value)
}

fn reset_if<T>(reset: bool) -> Nullable<T> {
    if reset { Nullable::Null } else { Nullable::Absent }
}

fn text(limits: &Limits) -> String {
    let mut lines = vec![
        ("rate", limits.rate.to_string()),
        ("configured", limits.configured_rate.to_string()),
        ("starts per window", limits.limit_per_window.to_string()),
        ("window", format!("{} ms", limits.window_ms)),
    ];
    let adaptive = match limits.adaptive {
        true => "on: queues follow what their downstream sustains",
        false => "off",
    };
    lines.push(("adaptive control", adaptive.to_owned()));
    lines.extend(limits.queues.iter().map(|queue| {
        let each = &queue.per_group;
        let rate = queue.rate.as_ref().map(Rate::to_string);
        let most = queue.max_running.map(|most| format!("at most {most} running"));
        let of_group = each.rate.as_ref().map(|rate| format!("{rate} per group"));
        let running = each
            .max_running
            .map(|most| format!("at most {most} running per group"));
        let set: Vec<String> = [rate, most, of_group, running].into_iter().flatten().collect();
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
                value(change.from.as_deref()),
                value(change.to.as_deref()),
                change.why.clone(),
            ]);
        }
        text = text + "\n" + &table.text();
    }
    text
}

fn setting(setting: LimitSetting) -> &'static str {
    match setting {
        LimitSetting::Rate => "rate",
        LimitSetting::MaxRunning => "running at once",
        LimitSetting::GroupRate => "rate per group",
        LimitSetting::GroupMaxRunning => "running at once per group",
        LimitSetting::Adaptive => "adaptive control",
    }
}

fn value(value: Option<&str>) -> String {
    value.unwrap_or("no limit").to_owned()
}
