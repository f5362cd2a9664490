//! `tidegate simulate estimates`: whether estimates come true.
//!
//! The real state machine runs in virtual time (`world`). Every two seconds each group is asked when its jobs are finished;
//! at the end the answers are compared with what happened. The first minute does not count, nor do answers from before
//! the last change that nobody could foresee: an arrival, a pause, a downstream that sustains less.

mod world;

use std::io::Write;

use clap::Args;
use serde::Serialize;
use tidegate_core::bulk::Priority;
use tidegate_core::time::Millis;

use self::world::{Sample, World};
use super::downstream::model::Capacity;
use super::report::{write_json_lines, write_table};

/// Time that is not measured (s).
const WARM_UP: u64 = 60;

#[derive(Debug, Args)]
pub(super) struct EstimatesArgs {
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// Only cases of this name: slow_queue, low_priority, weights, single_worker, cuts, newcomer, schedules, pause.
    #[arg(long)]
    case: Option<String>,
}

/// Jobs that arrive.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    group: &'static str,
    weight: f64,
    priority: Priority,
    jobs: u64,
    /// When they arrive (s).
    at: u64,
    /// They are due evenly between these times (s).
    due: Option<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Case {
    name: &'static str,
    /// Starts per second of the queue; the default of the whole system if absent.
    rps: Option<f64>,
    workers: u32,
    /// The shortest and the longest run.
    run: (Millis, Millis),
    capacity: Option<Capacity>,
    arrivals: Vec<Arrival>,
    /// A group that is paused, from and until when (s).
    pause: Option<(&'static str, u64, u64)>,
    /// Answers from before this time (s) could not know what comes.
    known_from: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    /// Answers that were compared.
    estimates: usize,
    /// The share of ranges that held.
    held_share: f64,
    /// The width of a range, relative to its middle.
    median_width: f64,
    /// The distance of the middle from what happened, relative to what happened.
    median_error: f64,
}

pub(super) fn run(args: &EstimatesArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let rows = rows(args.case.as_deref())?;
    if args.json {
        return write_json_lines(&rows, out);
    }
    print(&rows, out)
}

/// The cases of this name, or all of them, one row per name.
fn rows(wanted: Option<&str>) -> anyhow::Result<Vec<Row>> {
    let mut samples: Vec<(&'static str, Vec<Sample>)> = Vec::new();
    for case in cases() {
        if wanted.is_some_and(|name| name != case.name) {
            continue;
        }
        let of_case = World::new(&case)?.run(&case)?;
        match samples.iter_mut().find(|(name, _)| *name == case.name) {
            Some((_, all)) => all.extend(of_case),
            None => samples.push((case.name, of_case)),
        }
    }
    anyhow::ensure!(
        !samples.is_empty(),
        "--case {}: there are slow_queue, low_priority, weights, single_worker, cuts, newcomer, schedules and pause",
        wanted.unwrap_or_default()
    );
    Ok(samples
        .iter()
        .map(|(name, samples)| figures(name, samples))
        .collect())
}

fn cases() -> Vec<Case> {
    let arrival = |group, jobs, at| Arrival {
        group,
        weight: 1.0,
        priority: Priority::Normal,
        jobs,
        at,
        due: None,
    };
    let case = |name, rps, arrivals| Case {
        name,
        rps,
        workers: 100,
        run: (Millis(20), Millis(400)),
        capacity: None,
        arrivals,
        pause: None,
        known_from: 0,
    };
    let weighted = |group, jobs, weight| Arrival {
        weight,
        ..arrival(group, jobs, 0)
    };
    let of_priority = |group, jobs, at, priority| Arrival {
        priority,
        ..arrival(group, jobs, at)
    };
    let slow = |rps, a, b| {
        case(
            "slow_queue",
            Some(rps),
            vec![arrival("A", a, 0), arrival("B", b, 0)],
        )
    };
    let single = |workers, shortest, longest, a, b| Case {
        workers,
        run: (Millis(shortest), Millis(longest)),
        ..case(
            "single_worker",
            None,
            vec![arrival("A", a, 0), arrival("B", b, 0)],
        )
    };
    let cut = |capacity, known_from, a, b| Case {
        capacity: Some(capacity),
        known_from,
        ..case(
            "cuts",
            Some(1_000.0),
            vec![arrival("A", a, 0), arrival("B", b, 0)],
        )
    };
    // A job of the urgent kind arrives every second or so.
    let mut trickle = vec![of_priority("B", 2_000, 0, Priority::Low)];
    trickle.extend((0..240).map(|second| of_priority("A", 8, second, Priority::High)));
    vec![
        slow(5.0, 1_200, 800),
        slow(0.5, 150, 100),
        slow(40.0, 9_000, 3_000),
        case(
            "low_priority",
            Some(20.0),
            vec![
                of_priority("A", 4_000, 0, Priority::High),
                of_priority("B", 1_500, 0, Priority::Low),
            ],
        ),
        Case {
            known_from: 0,
            ..case("low_priority", Some(20.0), trickle)
        },
        case(
            "low_priority",
            Some(10.0),
            vec![
                of_priority("A", 1_500, 0, Priority::High),
                of_priority("B", 700, 0, Priority::Normal),
                of_priority("C", 500, 0, Priority::Low),
            ],
        ),
        case(
            "weights",
            Some(20.0),
            vec![
                weighted("A", 2_000, 1.0),
                weighted("B", 2_000, 2.0),
                weighted("C", 2_000, 4.0),
            ],
        ),
        case(
            "weights",
            Some(10.0),
            vec![
                weighted("A", 500, 1.0),
                weighted("B", 2_000, 0.5),
                weighted("C", 3_000, 3.0),
            ],
        ),
        single(1, 500, 1_500, 300, 200),
        single(1, 3_000, 9_000, 60, 40),
        single(4, 100, 2_000, 700, 900),
        cut(Capacity::aligned(20.0), 0, 3_000, 3_000),
        cut(Capacity::sliding(50.0), 0, 8_000, 4_000),
        cut(Capacity::step(40.0, 15.0, 120), 120, 4_000, 4_000),
        Case {
            known_from: 90,
            ..case(
                "newcomer",
                Some(20.0),
                vec![arrival("A", 5_000, 0), arrival("B", 1_500, 90)],
            )
        },
        Case {
            known_from: 120,
            ..case(
                "newcomer",
                Some(40.0),
                vec![
                    arrival("A", 9_000, 0),
                    arrival("B", 9_000, 0),
                    arrival("C", 2_000, 120),
                ],
            )
        },
        case(
            "schedules",
            Some(10.0),
            vec![
                Arrival {
                    due: Some((60, 600)),
                    ..arrival("A", 2_000, 0)
                },
                Arrival {
                    due: Some((480, 480)),
                    ..arrival("B", 900, 0)
                },
            ],
        ),
        case(
            "schedules",
            Some(20.0),
            vec![
                Arrival {
                    due: Some((300, 300)),
                    ..arrival("A", 2_000, 0)
                },
                arrival("B", 3_000, 0),
            ],
        ),
        Case {
            pause: Some(("A", 80, 140)),
            known_from: 140,
            ..case(
                "pause",
                Some(10.0),
                vec![arrival("A", 2_000, 0), arrival("B", 2_500, 0)],
            )
        },
    ]
}

fn figures(case: &'static str, samples: &[Sample]) -> Row {
    let share = |part: usize| part as f64 / samples.len().max(1) as f64;
    let held = samples.iter().filter(|sample| sample.held()).count();
    Row {
        case,
        estimates: samples.len(),
        held_share: round(share(held)),
        median_width: round(median(samples.iter().map(Sample::width))),
        median_error: round(median(samples.iter().map(Sample::error))),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn print(rows: &[Row], out: &mut impl Write) -> anyhow::Result<()> {
    let head = ["case", "estimates", "held", "median width", "median error", ""];
    let mut lines = vec![head.map(String::from).to_vec()];
    for row in rows {
        lines.push(vec![
            row.case.to_owned(),
            row.estimates.to_string(),
            format!("{:.1} %", row.held_share * 100.0),
            format!("{:.1} %", row.median_width * 100.0),
            format!("{:.1} %", row.median_error * 100.0),
            String::new(),
        ]);
    }
    write_table(&lines, 1, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_and_are_narrow() {
        let rows = rows(None).unwrap();
        assert_eq!(rows.len(), 8);
        for row in rows {
            assert!(row.estimates >= 100, "{row:?}");
            assert!(row.held_share >= 0.85, "{row:?}");
            assert!(row.median_width <= 0.3, "{row:?}");
            assert!(row.median_error <= 0.1, "{row:?}");
        }
    }
}
