//! `simulate fairness`: customers with 100,000, 100 and 50 jobs, all there at once, 1,000 starts per second.
//!
//! `score-literal` and `score` are the naive formula ([`super::score`]); `fair` is the queue with its defaults. The
//! queue's window is 10 ms (10 starts), so that its times are as fine as the others'. With the default of a second,
//! all customers that are done within the first one would look the same.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate_core::bulk::config::{BackpressureConfig, BulkConfig};
use tidegate_core::time::{Millis, Timestamp};

use super::queue::Queue;
use super::report::{bar, write_json_lines, write_table};
use super::score::{self, Sign, Workers};
use super::{Customer, ideal, never_over, slow_workers, ticks};

const CUSTOMERS: [Customer; 3] = [
    Customer::new("A", 100_000),
    Customer::new("B", 100),
    Customer::new("C", 50),
];
const RATE: f64 = 1_000.0;
/// Ten workers that do 1,000 jobs per second need 10 ms for each. [`super::score`] explains how that affects the
/// figures.
const WORKERS: Workers = Workers {
    pace: Millis(1),
    run: Millis(10),
};
const START: Timestamp = Timestamp(0);
const WINDOW: Millis = Millis(10);

#[derive(Debug, Args)]
pub(super) struct FairnessArgs {
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// The load beside the small customers.
    #[arg(long, value_enum, default_value_t)]
    scenario: Scenario,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Scenario {
    /// 100,000, 100 and 50 jobs at once, 1,000 starts per second.
    #[default]
    Burst,
    /// 100,000 jobs on workers that do 100 per second; B submits 5 s later.
    SlowWorkers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Policy {
    ScoreLiteral,
    Score,
    Fair,
}

impl Policy {
    const ALL: [Policy; 3] = [Policy::ScoreLiteral, Policy::Score, Policy::Fair];

    fn name(self) -> &'static str {
        match self {
            Policy::ScoreLiteral => "score-literal",
            Policy::Score => "score",
            Policy::Fair => "fair",
        }
    }

    /// When each customer is done.
    fn simulate(self, customers: &[Customer]) -> anyhow::Result<Vec<Millis>> {
        match self {
            Policy::ScoreLiteral => Ok(score::simulate(customers, WORKERS, Sign::Literal)),
            Policy::Score => Ok(score::simulate(customers, WORKERS, Sign::Corrected)),
            Policy::Fair => fair(customers),
        }
    }
}

/// The result of one customer under one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    policy: Policy,
    customer: &'static str,
    jobs: u64,
    seconds: f64,
    ideal_seconds: f64,
}

pub(super) fn run(args: &FairnessArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.scenario == Scenario::SlowWorkers {
        return slow_workers::run(args.json, out);
    }
    let rows = rows()?;
    if args.json {
        return write_json_lines(&rows, out);
    }
    writeln!(
        out,
        "3 customers with 100,000, 100 and 50 jobs, all at once, 1,000 starts per second.\n\
         By score, the small customers wait for most of the large one; in fair order they do not.\n"
    )?;
    let longest = rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let heads = ["policy", "customer", "jobs", "seconds", "ideal", ""];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        vec![
            row.policy.name().to_owned(),
            row.customer.to_owned(),
            row.jobs.to_string(),
            format!("{:.2}", row.seconds),
            format!("{:.2}", row.ideal_seconds),
            format!(
                "{} {:.2}× the ideal",
                bar(row.seconds, longest),
                row.seconds / row.ideal_seconds
            ),
        ]
    }));
    write_table(&lines, 2, out)
}

fn rows() -> anyhow::Result<Vec<Row>> {
    let ideals = ideal::finish_seconds(&CUSTOMERS, RATE);
    let mut rows = Vec::new();
    for policy in Policy::ALL {
        let finished = policy.simulate(&CUSTOMERS)?;
        for ((customer, finished), ideal_seconds) in CUSTOMERS.iter().zip(finished).zip(&ideals) {
            rows.push(Row {
                policy,
                customer: customer.name,
                jobs: customer.jobs,
                seconds: finished.as_secs_f64(),
                ideal_seconds: *ideal_seconds,
            });
        }
    }
    Ok(rows)
}

/// The real queue. A job is done when the window that it started in is over.
fn fair(customers: &[Customer]) -> anyhow::Result<Vec<Millis>> {
    let window_sec = WINDOW.as_secs_f64();
    let mut queue = Queue::new(BulkConfig {
        backpressure: BackpressureConfig {
            global_rps: RATE.into(),
            rate_limit_window_sec: window_sec,
            ..Default::default()
        },
        ..Default::default()
    })?;
    for customer in customers {
        queue.enqueue(customer.name, customer.jobs, START)?;
    }
    let mut finished = vec![Millis(0); customers.len()];
    for elapsed in ticks(WINDOW) {
        let now = START + elapsed;
        let window_end = (now + WINDOW).since(START);
        queue.run_instant_workers(now, |group| {
            let of_group = customers
                .iter()
                .position(|customer| customer.name == group.as_str());
            if let Some(customer) = of_group {
                finished[customer] = window_end;
            }
        });
        if queue.is_idle(now)? {
            return Ok(finished);
        }
    }
    never_over()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(policy: Policy, customer: &str) -> f64 {
        let rows = rows().unwrap();
        let found = rows
            .iter()
            .find(|row| row.policy == policy && row.customer == customer);
        found.unwrap().seconds
    }

    #[test]
    fn the_fair_order_gives_everyone_nearly_its_ideal() {
        for row in rows().unwrap().iter().filter(|row| row.policy == Policy::Fair) {
            let over = (row.seconds - row.ideal_seconds).abs() / row.ideal_seconds;
            assert!(over <= 0.1, "{row:?}");
        }
    }

    #[test]
    fn the_score_makes_a_hundred_jobs_wait_for_a_hundred_thousand() {
        let literal = seconds(Policy::ScoreLiteral, "B");
        assert!((85.0..95.0).contains(&literal), "{literal}");
        let corrected = seconds(Policy::Score, "B");
        assert!((92.0..100.0).contains(&corrected), "{corrected}");
    }
}
