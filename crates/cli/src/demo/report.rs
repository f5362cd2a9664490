//! Figures of the bulk scene, as JSON and as a report.

use std::fmt::Write;

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CustomerFigures {
    pub(super) customer: &'static str,
    pub(super) jobs: u64,
    /// From the submission until the last job was completed, on disk.
    pub(super) seconds: f64,
    /// The same if the rate were a fluid, shared max-min fairly.
    pub(super) ideal_seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) customers: [CustomerFigures; 3],
    pub(super) seconds: f64,
    pub(super) rate: f64,
    pub(super) window_ms: u64,
    pub(super) windows: u64,
    pub(super) limit_per_window: u64,
    pub(super) max_started_per_window: u64,
    /// Jobs of A that were waiting when B and C submitted.
    pub(super) waiting_before_b_and_c: u64,
    pub(super) accepted: u64,
    /// Accepted, and neither completed nor dead at the end.
    pub(super) lost: u64,
    pub(super) throttles_per_job: f64,
}

impl Figures {
    pub(super) fn report(&self, colours: bool) -> String {
        let paint = |code: &str, text: String| match colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text,
        };
        let good = |yes: bool| if yes { "32" } else { "31" };
        let mut out = String::new();
        // Writing to a String cannot fail.
        let mut line = |text: String| writeln!(out, "{}", text.trim_end()).expect("a String takes all");
        let heads = format!(
            "{:<10}{:>10}{:>14}{:>14}",
            "customer", "jobs", "time", "fair ideal"
        );
        line(paint("1", heads));
        for row in &self.customers {
            line(format!(
                "{:<10}{:>10}{:>14}{:>14}",
                row.customer,
                grouped(row.jobs),
                seconds(row.seconds),
                seconds(row.ideal_seconds)
            ));
        }
        line(String::new());
        let starts = format!(
            "{} of {} allowed, in any of {} windows of {} ms",
            self.max_started_per_window,
            self.limit_per_window,
            grouped(self.windows),
            self.window_ms
        );
        let within = self.max_started_per_window <= self.limit_per_window;
        let lost = format!("{} of {} accepted", grouped(self.lost), grouped(self.accepted));
        for (name, value, code) in [
            ("most starts", starts, good(within)),
            ("jobs lost", lost, good(self.lost == 0)),
            ("throttles per job", format!("{:.2}", self.throttles_per_job), "0"),
        ] {
            line(format!("{name:<20}{}", paint(code, value)));
        }
        line(String::new());
        line(self.sentences(within));
        out
    }

    fn sentences(&self, within: bool) -> String {
        let [_, b, c] = &self.customers;
        let one_line = (self.waiting_before_b_and_c + b.jobs) as f64 / self.rate;
        let limit = match within {
            true => "The limit held in every window",
            false => "The limit did NOT hold in every window",
        };
        let lost = match self.lost {
            0 => "no job was lost".to_owned(),
            lost => format!("{} jobs were LOST", grouped(lost)),
        };
        format!(
            "B and C submitted behind {} waiting jobs and were done in {} and {};\n\
             first come, first served, B would have taken {}.\n\
             {limit}, and {lost}.",
            grouped(self.waiting_before_b_and_c),
            seconds(b.seconds),
            seconds(c.seconds),
            seconds(one_line),
        )
    }
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

/// With commas between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let texts = [0, 999, 1_000, 100_150, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "100,150", "1,234,567"]);
    }

    #[test]
    fn a_loss_and_a_breach_are_not_hidden() {
        let row = |customer, jobs| CustomerFigures {
            customer,
            jobs,
            seconds: 1.0,
            ideal_seconds: 1.0,
        };
        let figures = Figures {
            customers: [row("A", 1_000), row("B", 100), row("C", 50)],
            seconds: 1.0,
            rate: 1_000.0,
            window_ms: 20,
            windows: 50,
            limit_per_window: 20,
            max_started_per_window: 21,
            waiting_before_b_and_c: 900,
            accepted: 1_150,
            lost: 3,
            throttles_per_job: 0.0,
        };
        let report = figures.report(false);
        assert!(report.contains("3 jobs were LOST"), "{report}");
        assert!(report.contains("did NOT hold"), "{report}");
        assert!(!report.contains('\x1b'), "{report}");
    }
}
