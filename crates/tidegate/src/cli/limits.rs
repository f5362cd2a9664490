//! `tidegate limits`: show the rates, change them at run time.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::{Args, Subcommand};
use tidegate_client::{Limits, PatchLimits};

use super::remote::{Remote, WhyArg};
use super::table::{Table, details, number};

#[derive(Debug, Args)]
pub(super) struct LimitsArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The rates as they hold now, and who changed them
    Show,
    /// Change rates at once, until they are changed again; a restart keeps them
    Set {
        /// Starts per second over the whole system
        #[arg(long, value_name = "N")]
        rps: Option<f64>,
        /// Starts per second of one lane; may be given several times
        #[arg(long = "lane", value_name = "LANE=N", value_parser = lane_rate)]
        lanes: Vec<(String, f64)>,
        #[command(flatten)]
        why: WhyArg,
    },
    /// Go back to what the configuration says
    Reset {
        /// Only the rate of this lane; may be given several times
        #[arg(long = "lane", value_name = "LANE")]
        lanes: Vec<String>,
        /// The rate of the whole system and those of all lanes
        #[arg(long, conflicts_with = "lanes")]
        all: bool,
        #[command(flatten)]
        why: WhyArg,
    },
}

/// A lane's name may have `=` in it, its rate cannot.
fn lane_rate(text: &str) -> Result<(String, f64), String> {
    let split = text.rsplit_once('=');
    let rate = split.and_then(|(lane, rate)| Some((lane.to_owned(), rate.trim().parse().ok()?)));
    rate.ok_or_else(|| "write it like mail=50".to_owned())
}

pub(super) fn run(args: &LimitsArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let patch = match &args.what {
            What::Show => return remote.print(&client.limits().await?, text),
            What::Set { rps, lanes, why } => {
                if rps.is_none() && lanes.is_empty() {
                    bail!("nothing to change: give --rps, or --lane");
                }
                PatchLimits {
                    global_rps: rps.map(Some),
                    lanes: lanes
                        .iter()
                        .map(|(lane, rps)| (lane.clone(), Some(*rps)))
                        .collect(),
                    why: why.why.clone(),
                }
            }
            What::Reset { lanes, all, why } => {
                let mut reset: BTreeMap<_, _> = lanes.iter().map(|lane| (lane.clone(), None)).collect();
                if *all {
                    let changed = client.limits().await?.lanes;
                    reset.extend(changed.into_iter().map(|changed| (changed.lane, None)));
                }
                PatchLimits {
                    global_rps: lanes.is_empty().then_some(None),
                    lanes: reset,
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
    let lanes = limits.lanes.iter();
    lines.extend(lanes.map(|lane| ("lane", format!("{}: {}", lane.lane, number(lane.rps)))));
    let mut text = details(&lines);
    if !limits.changes.is_empty() {
        let mut table = Table::new(&["CHANGED", "BY", "LANE", ">FROM", ">TO", "WHY"]);
        for change in limits.changes.iter().rev() {
            table.row(vec![
                change.at.to_string(),
                change.by.clone(),
                change.lane.clone().unwrap_or_default(),
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
    fn a_lane_and_its_rate_are_told_apart_at_the_last_sign() {
        assert_eq!(lane_rate("a=b=2.5").unwrap(), ("a=b".to_owned(), 2.5));
        for wrong in ["mail", "mail=", "mail=fast"] {
            assert_eq!(lane_rate(wrong).unwrap_err(), "write it like mail=50");
        }
    }
}
