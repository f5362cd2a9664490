//! `tidegate simulate downstream`: how a queue finds out what its downstream sustains.
//!
//! The real state machine calls modelled downstreams (`model`), and so do three other rules (`rules`): the queue's
//! earlier one, AIMD as in TCP, and a fixed rate. Steady cases are measured from the 31st second on.

pub(super) mod model;
mod rules;

use std::collections::VecDeque;
use std::io::Write;

use clap::Args;
use serde::Serialize;
use tidegate_core::time::{Millis, Timestamp};

use self::model::{Answer, Capacity, Model};
use self::rules::{Adaptive, Caller, Windowed};
use super::report::{write_json_lines, write_table};

/// Time that is not measured: the capacity is not known yet.
const WARM_UP: u64 = 30;
/// How often callers look: every hundredth of a second.
const TICK: u64 = 10;
/// A downstream is overloaded in a second in which it rejects a larger share of the calls.
const OVERLOADED: f64 = 0.15;
/// All clocks begin at a whole hour.
const START: Timestamp = Timestamp(1_800_000_000_000);

#[derive(Debug, Args)]
pub(super) struct DownstreamArgs {
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// Only cases of this name: aligned, sliding, step_down, step_up, retry_after, tenant_quotas.
    #[arg(long)]
    case: Option<String>,
}

/// How calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    Adaptive,
    Old,
    Aimd,
    Fixed,
}

const RULES: [Rule; 4] = [Rule::Adaptive, Rule::Old, Rule::Aimd, Rule::Fixed];

#[derive(Debug, Clone)]
struct Case {
    name: &'static str,
    configured: f64,
    capacity: Capacity,
    /// When the capacity changes, in seconds.
    step_at: Option<u64>,
    answer: Millis,
    groups: &'static [&'static str],
    seconds: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    rule: Rule,
    case: &'static str,
    configured_per_sec: f64,
    sustains_per_sec: f64,
    answer_seconds: f64,
    calls_per_success: f64,
    unused_share: f64,
    overload_seconds: Option<u64>,
    recovery_seconds: Option<u64>,
    other_groups_share: Option<f64>,
}

/// Calls of one second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    calls: u64,
    successes: u64,
    /// Successes of groups other than the first.
    of_others: u64,
    capacity: f64,
}

pub(super) fn run(args: &DownstreamArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let wanted = |case: &Case| args.case.as_deref().is_none_or(|name| name == case.name);
    let cases: Vec<Case> = cases().into_iter().filter(wanted).collect();
    anyhow::ensure!(
        !cases.is_empty(),
        "--case {}: there are aligned, sliding, step_down, step_up, retry_after and tenant_quotas",
        args.case.as_deref().unwrap_or_default()
    );
    let mut rows = Vec::new();
    for case in &cases {
        for rule in RULES {
            rows.push(simulate(rule, case)?);
        }
    }
    if args.json {
        return write_json_lines(&rows, out);
    }
    print(&rows, out)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let steady = |name, configured, capacity, answer| Case {
        name,
        configured,
        capacity,
        step_at: None,
        answer: Millis(answer),
        groups: &["A"],
        seconds: 150,
    };
    for (configured, shares) in [
        (10_000.0, &[0.001, 0.01, 0.1][..]),
        (1_000.0, &[0.1, 0.5, 0.8, 1.0][..]),
    ] {
        for share in shares {
            for answer in [0, 100, 1_000, 5_000] {
                let per_sec = configured * share;
                cases.push(steady("aligned", configured, Capacity::aligned(per_sec), answer));
                cases.push(steady("sliding", configured, Capacity::sliding(per_sec), answer));
            }
        }
    }
    for answer in [0, 100] {
        for (name, before, after) in [
            ("step_down", 100.0, 30.0),
            ("step_up", 30.0, 100.0),
            ("step_up", 10.0, 100.0),
        ] {
            cases.push(Case {
                step_at: Some(90),
                ..steady(name, 10_000.0, Capacity::step(before, after, 90), answer)
            });
        }
    }
    for answer in [0, 1_000] {
        cases.push(steady(
            "retry_after",
            10_000.0,
            Capacity::quota(500, Millis(10_000)),
            answer,
        ));
    }
    cases.push(Case {
        groups: &["A", "B", "C", "D"],
        ..steady("tenant_quotas", 400.0, Capacity::tenant(10.0, 400.0), 100)
    });
    cases
}

fn simulate(rule: Rule, case: &Case) -> anyhow::Result<Row> {
    let mut caller: Box<dyn Caller> = match rule {
        Rule::Adaptive => Box::new(Adaptive::new(case.configured, case.groups)?),
        Rule::Old => Box::new(Windowed::old(case.configured, case.groups)),
        Rule::Aimd => Box::new(Windowed::aimd(case.configured, case.groups)),
        Rule::Fixed => Box::new(Windowed::fixed(case.configured, case.groups)),
    };
    let seconds = drive(&mut *caller, case)?;
    Ok(figures(rule, case, &seconds))
}

/// Calls the downstream for the length of the case.
fn drive(caller: &mut dyn Caller, case: &Case) -> anyhow::Result<Vec<Second>> {
    let mut model = Model::new(case.capacity.clone(), START);
    let mut answers: VecDeque<(Timestamp, rules::Call, Answer)> = VecDeque::new();
    let mut seconds = vec![Second::default(); case.seconds as usize];
    for tick in 0..case.seconds * 1_000 / TICK {
        let now = START + Millis(tick * TICK);
        let index = (tick * TICK / 1_000) as usize;
        seconds[index].capacity = case.capacity.per_second(Millis(tick * TICK));
        loop {
            while let Some(&(at, call, answer)) = answers.front()
                && at <= now
            {
                answers.pop_front();
                caller.answered(call, answer, now)?;
            }
            // With answers at once, a caller knows each before it makes many more calls.
            let most = if case.answer.0 == 0 { 10 } else { 1_000 };
            let calls = caller.start(most, now)?;
            if calls.is_empty() {
                break;
            }
            for call in calls {
                let answer = model.call(call.group, now);
                let second = &mut seconds[index];
                second.calls += 1;
                if answer == Answer::Success {
                    second.successes += 1;
                    second.of_others += u64::from(call.group > 0);
                }
                answers.push_back((now + case.answer, call, answer));
            }
        }
    }
    Ok(seconds)
}

fn figures(rule: Rule, case: &Case, seconds: &[Second]) -> Row {
    // After a step the new capacity is what counts.
    let from = case.step_at.map_or(WARM_UP, |step| step + WARM_UP) as usize;
    let measured = &seconds[from.min(seconds.len())..];
    let sum = |of: fn(&Second) -> f64| measured.iter().map(of).sum::<f64>();
    let (calls, successes) = (
        sum(|second| second.calls as f64),
        sum(|second| second.successes as f64),
    );
    let capacity = sum(|second| second.capacity).min(case.configured * measured.len() as f64);
    let after_step = case.step_at.map(|step| &seconds[step as usize..]);
    let overloaded =
        |second: &Second| (second.calls - second.successes) as f64 > OVERLOADED * second.calls as f64;
    let used = |second: &Second| second.successes as f64 >= 0.9 * second.capacity;
    let down = case.name == "step_down";
    let share = case.configured / case.groups.len() as f64 * (case.groups.len() - 1) as f64;
    Row {
        rule,
        case: case.name,
        configured_per_sec: case.configured,
        sustains_per_sec: seconds.last().map_or(0.0, |second| second.capacity),
        answer_seconds: case.answer.as_secs_f64(),
        calls_per_success: round(calls / successes.max(1.0)),
        unused_share: round((1.0 - successes / capacity).max(0.0)),
        overload_seconds: after_step
            .filter(|_| down)
            .map(|after| within(after, |second| !overloaded(second))),
        recovery_seconds: after_step.filter(|_| !down).map(|after| within(after, used)),
        other_groups_share: (case.groups.len() > 1).then(|| {
            round((sum(|second| second.of_others as f64) / (share * measured.len() as f64)).min(1.0))
        }),
    }
}

/// After how many seconds this holds for the first time; all of them if it never does.
fn within(seconds: &[Second], holds: impl Fn(&Second) -> bool) -> u64 {
    seconds.iter().position(holds).unwrap_or(seconds.len()) as u64
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn print(rows: &[Row], out: &mut impl Write) -> anyhow::Result<()> {
    let mut lines = vec![
        [
            "case",
            "rule",
            "configured/s",
            "sustains/s",
            "answers",
            "calls per success",
            "unused",
            "notes",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for row in rows {
        let note = |text: &str, value: Option<u64>| match value {
            None => String::new(),
            Some(seconds) => format!("{text} {seconds} s"),
        };
        let mut notes =
            note("overloaded for", row.overload_seconds) + &note("recovered after", row.recovery_seconds);
        if let Some(share) = row.other_groups_share {
            notes = format!("other groups keep {:.0} %", share * 100.0);
        }
        lines.push(vec![
            row.case.to_owned(),
            format!("{:?}", row.rule).to_lowercase(),
            row.configured_per_sec.to_string(),
            row.sustains_per_sec.to_string(),
            format!("{} s", row.answer_seconds),
            format!("{:.2}", row.calls_per_success),
            format!("{:.1} %", row.unused_share * 100.0),
            notes,
        ]);
    }
    write_table(&lines, 2, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adaptive(name: &str, keep: impl Fn(&Case) -> bool) -> Vec<Row> {
        let wanted = cases().into_iter().filter(|case| case.name == name && keep(case));
        wanted
            .map(|case| simulate(Rule::Adaptive, &case).unwrap())
            .collect()
    }

    #[test]
    fn a_tenth_of_a_percent_is_found_and_used() {
        for row in adaptive("aligned", |case| case.capacity.per_second(Millis(0)) == 10.0) {
            assert!(row.calls_per_success <= 1.15, "{row:?}");
            assert!(row.unused_share <= 0.08, "{row:?}");
        }
    }

    #[test]
    fn a_tenant_over_its_quota_slows_nobody_else() {
        for row in adaptive("tenant_quotas", |_| true) {
            assert!(row.other_groups_share >= Some(0.95), "{row:?}");
            assert!(row.calls_per_success <= 1.15, "{row:?}");
        }
    }

    #[test]
    fn steps_are_followed() {
        for row in adaptive("step_down", |_| true) {
            assert!(row.overload_seconds <= Some(2), "{row:?}");
        }
        for row in adaptive("step_up", |_| true) {
            assert!(row.recovery_seconds <= Some(20), "{row:?}");
        }
    }

    #[test]
    fn the_other_rules_are_as_bad_as_they_were() {
        let case = cases().into_iter().find(|case| case.name == "aligned").unwrap();
        let old = simulate(Rule::Old, &case).unwrap();
        assert!(old.calls_per_success > 50.0, "{old:?}");
    }
}
