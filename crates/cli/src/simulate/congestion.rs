//! `simulate congestion`: 15,000 jobs of three customers at 30 starts per second, under five policies.
//!
//! `fixed`, `formula` and `formula-no-recheck` are the naive design, which backs off job by job ([`job_backoff`]).
//! `hold-job` and `hold-group` are the queue with `backpressure.hold` set so. In every scenario somebody always
//! waits, and under fair shares 15,000 jobs start: the ideal is 500 s. (Where a customer leaves, a policy that has
//! served it less by then has fewer jobs to start.)

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate_core::bulk::config::{BackpressureConfig, BulkConfig, Hold};
use tidegate_core::time::{Millis, Timestamp};

use super::job_backoff::{self, Backoff, Rate, Release};
use super::queue::Queue;
use super::report::{bar, write_json_lines, write_table};
use super::tally::Tally;
use super::{Customer, ideal, never_over, ticks};

const WINDOW: Millis = Millis(1_000);
const LIMIT: u64 = 30;

#[derive(Debug, Args)]
pub(super) struct CongestionArgs {
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// Who sends how much, and when.
    #[arg(long, value_enum, default_value_t)]
    scenario: Scenario,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Scenario {
    /// Three customers with 5,000 jobs each.
    #[default]
    Even,
    /// 12,000, 2,000 and 1,000 jobs.
    Uneven,
    /// A and B with 6,000 jobs each; C joins after 100 s with 6,500; B cancels the rest after 200 s.
    JoinLeave,
}

impl Scenario {
    fn customers(self) -> [Customer; 3] {
        match self {
            Scenario::Even => ["A", "B", "C"].map(|name| Customer::new(name, 5_000)),
            Scenario::Uneven => [
                Customer::new("A", 12_000),
                Customer::new("B", 2_000),
                Customer::new("C", 1_000),
            ],
            // Shared fairly, B starts 15/s × 100 s + 10/s × 100 s = 2,500 jobs before it leaves: with A's
            // 6,000 and C's 6,500 these are 15,000 again.
            Scenario::JoinLeave => [
                Customer::new("A", 6_000),
                Customer {
                    leaves: Some(Millis::from_secs(200)),
                    ..Customer::new("B", 6_000)
                },
                Customer {
                    joins: Millis::from_secs(100),
                    ..Customer::new("C", 6_500)
                },
            ],
        }
    }

    fn description(self) -> &'static str {
        match self {
            Scenario::Even => "3 customers with 5,000 jobs each",
            Scenario::Uneven => "3 customers with 12,000, 2,000 and 1,000 jobs",
            Scenario::JoinLeave => "A and B with 6,000 jobs, C with 6,500 from 100 s on; B cancels at 200 s",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Policy {
    Fixed,
    Formula,
    FormulaNoRecheck,
    HoldJob,
    HoldGroup,
}

impl Policy {
    const ALL: [Policy; 5] = [
        Policy::Fixed,
        Policy::Formula,
        Policy::FormulaNoRecheck,
        Policy::HoldJob,
        Policy::HoldGroup,
    ];

    fn name(self) -> &'static str {
        match self {
            Policy::Fixed => "fixed",
            Policy::Formula => "formula",
            Policy::FormulaNoRecheck => "formula-no-recheck",
            Policy::HoldJob => "hold-job",
            Policy::HoldGroup => "hold-group",
        }
    }

    fn simulate(self, customers: &[Customer]) -> anyhow::Result<Tally> {
        let naive = |backoff, release| {
            let rate = Rate {
                per_window: LIMIT,
                window: WINDOW,
            };
            job_backoff::simulate(customers, rate, backoff, release)
        };
        match self {
            Policy::Fixed => naive(Backoff::Fixed, Release::Rechecked),
            Policy::Formula => naive(Backoff::Formula, Release::Rechecked),
            Policy::FormulaNoRecheck => naive(Backoff::Formula, Release::Unchecked),
            Policy::HoldJob => hold(customers, Hold::Job),
            Policy::HoldGroup => hold(customers, Hold::Group),
        }
    }
}

/// The result of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    policy: Policy,
    seconds: f64,
    ideal_seconds: f64,
    /// Over all jobs that were enqueued.
    throttles_per_job: f64,
    max_started_per_window: u64,
    limit: u64,
}

pub(super) fn run(args: &CongestionArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let rows = rows(args.scenario)?;
    if args.json {
        return write_json_lines(&rows, out);
    }
    writeln!(
        out,
        "{}, {LIMIT} starts per second.\n\
         Rechecking costs throttles or time, not rechecking breaks the limit; holding does neither.\n",
        args.scenario.description()
    )?;
    let longest = rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let heads = [
        "policy",
        "seconds",
        "ideal",
        "throttles/job",
        "most/window",
        "limit",
        "",
    ];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        vec![
            row.policy.name().to_owned(),
            format!("{:.0}", row.seconds),
            format!("{:.0}", row.ideal_seconds),
            format!("{:.2}", row.throttles_per_job),
            row.max_started_per_window.to_string(),
            row.limit.to_string(),
            format!(
                "{} {:.2}× the ideal",
                bar(row.seconds, longest),
                row.seconds / row.ideal_seconds
            ),
        ]
    }));
    write_table(&lines, 1, out)
}

fn rows(scenario: Scenario) -> anyhow::Result<Vec<Row>> {
    let customers = scenario.customers();
    let rate = LIMIT as f64 / WINDOW.as_secs_f64();
    let ideal_seconds = ideal::finish_seconds(&customers, rate)
        .into_iter()
        .fold(0.0, f64::max);
    let jobs: u64 = customers.iter().map(|customer| customer.jobs).sum();
    let row = |policy: Policy| {
        let tally = policy.simulate(&customers)?;
        Ok(Row {
            policy,
            seconds: tally.elapsed().as_secs_f64(),
            ideal_seconds,
            throttles_per_job: (tally.throttles as f64 / jobs as f64 * 1000.0).round() / 1000.0,
            max_started_per_window: tally.max_per_window(),
            limit: LIMIT,
        })
    };
    Policy::ALL.into_iter().map(row).collect()
}

/// The real queue, polled at its fetch interval; the polls meet every edge of a window.
fn hold(customers: &[Customer], hold: Hold) -> anyhow::Result<Tally> {
    let config = BulkConfig {
        backpressure: BackpressureConfig {
            global_rps: (LIMIT as f64 / WINDOW.as_secs_f64()).into(),
            rate_limit_window_sec: WINDOW.as_secs_f64(),
            hold,
            ..Default::default()
        },
        ..Default::default()
    };
    let interval = config.worker_pool.fetch_interval_ms;
    let mut queue = Queue::new(config)?;
    let mut tally = Tally::new(WINDOW);
    let last_join = customers.iter().map(|customer| customer.joins).max();
    for elapsed in ticks(interval) {
        let now = Timestamp(0) + elapsed;
        for customer in customers {
            if customer.joins == elapsed {
                queue.enqueue(customer.name, customer.jobs, now)?;
            }
            if customer.leaves == Some(elapsed) {
                queue.cancel(customer.name, now)?;
            }
        }
        let denied = queue.run_instant_workers(now, |_| tally.start(now));
        tally.throttles += denied;
        if Some(elapsed) >= last_join && queue.is_idle(now)? {
            return Ok(tally);
        }
    }
    never_over()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rows: &[Row], policy: Policy) -> &Row {
        rows.iter().find(|row| row.policy == policy).unwrap()
    }

    #[test]
    fn both_holds_are_ideal_within_one_percent_and_never_over_the_limit() {
        for &scenario in Scenario::value_variants() {
            let rows = rows(scenario).unwrap();
            for policy in [Policy::HoldJob, Policy::HoldGroup] {
                let row = row(&rows, policy);
                assert_eq!(row.ideal_seconds, 500.0, "{scenario:?}");
                assert!(row.seconds <= 505.0, "{scenario:?} {row:?}");
                assert!(row.throttles_per_job <= 1.0, "{scenario:?} {row:?}");
                assert!(row.max_started_per_window <= LIMIT, "{scenario:?} {row:?}");
            }
        }
    }

    #[test]
    fn a_held_group_throttles_nothing_and_a_held_job_at_most_once() {
        let rows = rows(Scenario::Even).unwrap();
        assert_eq!(row(&rows, Policy::HoldGroup).throttles_per_job, 0.0);
        let once = row(&rows, Policy::HoldJob).throttles_per_job;
        assert!((0.9..=1.0).contains(&once), "{once}");
    }

    #[test]
    fn every_job_starts_once() {
        for &scenario in Scenario::value_variants() {
            let customers = scenario.customers();
            for hold_mode in [Hold::Job, Hold::Group] {
                assert_eq!(
                    hold(&customers, hold_mode).unwrap().started(),
                    15_000,
                    "{scenario:?}"
                );
            }
        }
        for policy in [Policy::Fixed, Policy::Formula, Policy::FormulaNoRecheck] {
            let tally = policy.simulate(&Scenario::Even.customers()).unwrap();
            assert_eq!(tally.started(), 15_000, "{policy:?}");
        }
    }

    #[test]
    fn the_naive_design_spins_or_exceeds_the_limit() {
        let rows = rows(Scenario::Even).unwrap();
        let formula = row(&rows, Policy::Formula);
        assert!((2_000.0..3_000.0).contains(&formula.seconds), "{formula:?}");
        assert!((6.0..8.0).contains(&formula.throttles_per_job), "{formula:?}");
        let unchecked = row(&rows, Policy::FormulaNoRecheck);
        assert!(unchecked.max_started_per_window > 6 * LIMIT, "{unchecked:?}");
    }
}
