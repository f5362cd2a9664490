//! `tidegate simulate`: compares the queue with a naive design, in virtual time.
//!
//! Four questions. How long does a flood take under a rate limit (`congestion`)? How does a queue find out what its
//! downstream sustains (`downstream`)? Do estimates come true (`estimates`)? How long does a small customer wait behind a large one (`fairness`, `slow_workers`)? The
//! queue's side is the real state machine of `tidegate-core`, driven as the engine drives it (`queue`). The naive
//! side is a model (`job_backoff`, `score`). Nothing reads a clock or a random number, so every run prints the same.

mod congestion;
mod downstream;
mod estimates;
mod fairness;
pub(super) mod ideal;
mod job_backoff;
mod queue;
mod report;
mod score;
mod slow_workers;
mod tally;

use std::io::Write;

use clap::{Args, Subcommand};
use tidegate_core::time::Millis;

/// Compares the queue with a naive design, in virtual time.
#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    #[command(subcommand)]
    simulation: Simulation,
}

#[derive(Debug, Subcommand)]
enum Simulation {
    /// A flood of jobs under a rate limit: time, throttles, and whether the limit holds.
    Congestion(congestion::CongestionArgs),
    /// A downstream that sustains less than the queue may start: calls, unused capacity, and reaction to changes.
    Downstream(downstream::DownstreamArgs),
    /// Answers to the question when a group is finished, compared with what happens.
    Estimates(estimates::EstimatesArgs),
    /// Small customers beside a very large one: time until each is done.
    Fairness(fairness::FairnessArgs),
}

/// Runs the simulation and writes its report.
pub(super) fn run(args: &SimulateArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match &args.simulation {
        Simulation::Congestion(args) => congestion::run(args, out),
        Simulation::Downstream(args) => downstream::run(args, out),
        Simulation::Estimates(args) => estimates::run(args, out),
        Simulation::Fairness(args) => fairness::run(args, out),
    }
}

/// Time since the start in steps of `interval`, for a day: a run that is not over by then never ends.
fn ticks(interval: Millis) -> impl Iterator<Item = Millis> {
    const DAY: Millis = Millis::from_secs(86_400);
    (0..DAY.0).step_by(interval.0 as usize).map(Millis)
}

fn never_over<T>() -> anyhow::Result<T> {
    anyhow::bail!(
        "some jobs have not started within a simulated day: this is a bug in the queue or in its model"
    )
}

/// A customer of a scenario, and when it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Customer {
    pub(super) name: &'static str,
    pub(super) jobs: u64,
    /// When all its jobs are enqueued, counted from the start.
    pub(super) joins: Millis,
    /// When it cancels what has not started by then.
    pub(super) leaves: Option<Millis>,
}

impl Customer {
    /// There from the start until its last job is done.
    pub(super) const fn new(name: &'static str, jobs: u64) -> Self {
        Self {
            name,
            jobs,
            joins: Millis(0),
            leaves: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn report(words: &str) -> String {
        let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
        let mut out = Vec::new();
        run(&cli.args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn keys(line: &str) -> Vec<String> {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        object.keys().cloned().collect()
    }

    #[test]
    fn machines_get_one_object_per_line() {
        for (words, lines, fields) in [
            (
                "simulate congestion --json",
                5,
                "idealSeconds limit maxStartedPerWindow policy seconds throttlesPerJob",
            ),
            (
                "simulate fairness --json",
                9,
                "customer idealSeconds jobs policy seconds",
            ),
            (
                "simulate estimates --json --case pause",
                1,
                "case estimates held_share median_error median_width",
            ),
            (
                "simulate fairness --json --scenario slow-workers",
                1,
                "bound groups picksBeforeFirstStart policy workerSlots",
            ),
        ] {
            let text = report(words);
            assert_eq!(text.lines().count(), lines, "{words}");
            for line in text.lines() {
                let mut keys = keys(line);
                keys.sort();
                assert_eq!(keys.join(" "), fields, "{words}");
            }
        }
    }

    #[test]
    fn a_run_can_be_repeated_to_the_byte() {
        let words = "simulate congestion --scenario join-leave";
        assert_eq!(report(words), report(words));
    }
}
