//! Figures of the refresh scene, as JSON and as a report. Calls are as the provider counted them.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::super::report::grouped;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct RefreshFigures {
    pub(super) seconds: f64,
    /// Calls that the provider allows in any second, and the rate of the budget.
    pub(super) limit_per_second: u64,
    pub(super) rate_per_second: u64,
    pub(super) calls: u64,
    /// Most calls that arrived within any sliding second.
    pub(super) max_calls_in_a_second: u64,
    /// Calls that arrived over the limit.
    pub(super) over_limit: u64,
    /// Reads over HTTP, and how long they took.
    pub(super) reads: u64,
    pub(super) read_p50_ms: f64,
    pub(super) read_p95_ms: f64,
    /// Users who read a stale record, and those whose record was fresh in the end.
    pub(super) high_stale: u64,
    pub(super) high_refreshed: u64,
    /// From the read until the record was fresh.
    pub(super) high_p50_seconds: f64,
    pub(super) high_p95_seconds: f64,
    /// Stale records that nobody read, and those refreshed meanwhile.
    pub(super) low_stale: u64,
    pub(super) low_refreshed: u64,
    /// Readers at once who all found one record stale, and the calls made for it.
    pub(super) readers_of_one: u64,
    pub(super) calls_for_one: u64,
}

impl RefreshFigures {
    pub(in super::super) fn report(&self, colours: bool) -> String {
        let paint = |code: &str, text: String| match colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text,
        };
        let good = |yes: bool| if yes { "32" } else { "31" };
        let mut out = String::new();
        // Writing to a String cannot fail.
        let mut line = |text: String| writeln!(out, "{}", text.trim_end()).expect("a String takes all");
        let row =
            |cells: [&str; 4]| format!("{:<10}{:>10}{:>14}{:>14}", cells[0], cells[1], cells[2], cells[3]);
        line(paint("1", row(["priority", "stale", "refreshed", "fresh, p95"])));
        let high = (grouped(self.high_stale), grouped(self.high_refreshed));
        let after = format!("{:.2} s", self.high_p95_seconds);
        line(row(["HIGH", &high.0, &high.1, &after]));
        let low = (grouped(self.low_stale), grouped(self.low_refreshed));
        line(row(["LOW", &low.0, &low.1, "–"]));
        line(String::new());
        let busiest = format!(
            "{} calls of {} allowed, in any sliding second",
            self.max_calls_in_a_second, self.limit_per_second
        );
        let reads = format!(
            "{} over HTTP, p95 {:.1} ms",
            grouped(self.reads),
            self.read_p95_ms
        );
        let one = format!(
            "{} readers at once, {}",
            grouped(self.readers_of_one),
            many(self.calls_for_one, "call")
        );
        for (name, value, code) in [
            ("busiest second", busiest, good(self.over_limit == 0)),
            ("reads", reads, "0"),
            ("one stale record", one, good(self.calls_for_one == 1)),
        ] {
            line(format!("{name:<20}{}", paint(code, value)));
        }
        line(String::new());
        line(self.sentences());
        out
    }

    fn sentences(&self) -> String {
        let limit = match self.over_limit {
            0 => "The provider's limit held in every second.".to_owned(),
            over => format!(
                "The provider's limit did NOT hold: {} over it.",
                many(over, "call")
            ),
        };
        let missed = match self.high_stale - self.high_refreshed {
            0 => String::new(),
            missed => format!("\n{} did NOT get a fresh record in time.", many(missed, "user")),
        };
        format!(
            "{} users read stale records during a flood of {} refreshes: each got the stored record at once,\n\
             and a fresh one after {:.2} s (p95).{missed}\n{limit}",
            grouped(self.high_stale),
            grouped(self.low_stale),
            self.high_p95_seconds,
        )
    }
}

fn many(count: u64, what: &str) -> String {
    match count {
        1 => format!("one {what}"),
        count => format!("{} {what}s", grouped(count)),
    }
}

/// The nearest-rank percentile; zero without values.
pub(in super::super) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let mut times: Vec<Duration> = (1..=40).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut times, 50), Duration::from_millis(20));
        assert_eq!(percentile(&mut times, 95), Duration::from_millis(38));
        assert_eq!(percentile(&mut times[..1], 95), Duration::from_millis(1));
        assert_eq!(percentile(&mut [], 95), Duration::ZERO);
    }

    #[test]
    fn calls_over_the_limit_and_records_that_stay_stale_are_not_hidden() {
        let figures = RefreshFigures {
            seconds: 5.0,
            limit_per_second: 200,
            rate_per_second: 160,
            calls: 900,
            max_calls_in_a_second: 203,
            over_limit: 3,
            reads: 3_000,
            read_p50_ms: 0.5,
            read_p95_ms: 1.0,
            high_stale: 200,
            high_refreshed: 198,
            high_p50_seconds: 0.1,
            high_p95_seconds: 0.2,
            low_stale: 1_000,
            low_refreshed: 500,
            readers_of_one: 1_000,
            calls_for_one: 2,
        };
        let report = figures.report(false);
        assert!(report.contains("did NOT hold: 3 calls over it"), "{report}");
        assert!(report.contains("2 users did NOT"), "{report}");
        assert!(report.contains("1,000 readers at once, 2 calls"), "{report}");
        assert!(!report.contains('\x1b'), "{report}");
        assert!(figures.report(true).contains("\x1b[31m203"), "{report}");
    }
}
