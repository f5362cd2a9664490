//! Figures of the room scene, as JSON and as a report.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::super::refresh::percentile;
use super::super::report::grouped;
use super::visit_log::{self, End, ShownEta, VisitLog};
use super::{INSIDE, PER_SECOND, SEATS};

/// Visitors who joined before the doors opened, or those who joined after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Crowd {
    pub(super) joined: u64,
    pub(super) admitted: u64,
    /// Left while they waited.
    pub(super) left: u64,
    /// Got the event that the seats are sold out.
    pub(super) sold_out: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct RoomFigures {
    pub(super) seconds: f64,
    pub(super) early: Crowd,
    pub(super) late: Crowd,
    pub(super) seats: u64,
    pub(super) bought: u64,
    pub(super) inside_limit: u64,
    /// Most people inside at once, including those on their way in.
    pub(super) max_inside: u64,
    pub(super) per_second_limit: u64,
    /// Most admissions within any sliding second.
    pub(super) max_admitted_in_a_second: u64,
    /// Admitted while a connected visitor who had joined earlier still waited.
    pub(super) out_of_order: u64,
    /// Visitors without a final event, and visitors whose pass was refused.
    pub(super) lost: u64,
    pub(super) passes_refused: u64,
    /// Visitors who lost their connection and reconnected, and those of them who kept their ticket.
    pub(super) reconnected: u64,
    pub(super) kept_ticket: u64,
    /// Visitors who opened a second tab, and those whose tab took over from the first.
    pub(super) second_tabs: u64,
    pub(super) took_over: u64,
    /// Wait estimates that were shown, the median error of the likely wait, and how many ranges contained the actual one:
    /// to the millisecond, and rounded to whole seconds.
    pub(super) etas_shown: u64,
    pub(super) eta_median_error_seconds: f64,
    pub(super) eta_held_percent: f64,
    pub(super) eta_held_in_seconds_percent: f64,
    /// From the admission until the visitor received the event.
    pub(super) notified_p50_ms: u64,
    pub(super) notified_p95_ms: u64,
}

fn crowd(logs: &[VisitLog], late: bool) -> Crowd {
    let mut crowd = Crowd::default();
    for log in logs.iter().filter(|log| log.late == late) {
        crowd.joined += 1;
        match (log.granted, log.end) {
            (Some(_), _) => crowd.admitted += 1,
            (None, End::Left) => crowd.left += 1,
            (None, End::SoldOut) => crowd.sold_out += 1,
            (None, _) => {}
        }
    }
    crowd
}

fn count(logs: &[VisitLog], is: impl Fn(&VisitLog) -> bool) -> u64 {
    logs.iter().filter(|log| is(log)).count() as u64
}

impl RoomFigures {
    pub(super) fn of(logs: &[VisitLog], seconds: Duration) -> Self {
        let shown = visit_log::shown_etas(logs);
        let mut errors: Vec<Duration> = shown.iter().map(|shown| shown.error().into()).collect();
        let percent = |holds: fn(&ShownEta) -> bool| {
            let held = shown.iter().filter(|shown| holds(shown)).count();
            tenths(100.0 * held as f64 / shown.len().max(1) as f64)
        };
        let notified = logs
            .iter()
            .filter_map(|log| Some(log.notified?.since(log.granted?)));
        let mut notified: Vec<Duration> = notified.map(Duration::from).collect();
        Self {
            seconds: tenths(seconds.as_secs_f64()),
            early: crowd(logs, false),
            late: crowd(logs, true),
            seats: SEATS,
            bought: count(logs, |log| log.end == End::Bought),
            inside_limit: INSIDE,
            max_inside: visit_log::most_inside(logs),
            per_second_limit: PER_SECOND,
            max_admitted_in_a_second: visit_log::busiest_second(logs),
            out_of_order: visit_log::out_of_order(logs),
            lost: count(logs, |log| log.end == End::Lost),
            passes_refused: count(logs, |log| log.end == End::Refused),
            reconnected: count(logs, |log| log.kept.is_some()),
            kept_ticket: count(logs, |log| log.kept == Some(true)),
            second_tabs: count(logs, |log| log.took_over.is_some()),
            took_over: count(logs, |log| log.took_over == Some(true)),
            etas_shown: shown.len() as u64,
            eta_median_error_seconds: percentile(&mut errors, 50).as_millis() as f64 / 1_000.0,
            eta_held_percent: percent(ShownEta::holds),
            eta_held_in_seconds_percent: percent(ShownEta::holds_in_seconds),
            notified_p50_ms: percentile(&mut notified, 50).as_millis() as u64,
            notified_p95_ms: percentile(&mut notified, 95).as_millis() as u64,
        }
    }

    pub(in super::super) fn report(&self, colours: bool) -> String {
        let paint = |code: &str, text: String| match colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text,
        };
        let good = |yes: bool| if yes { "32" } else { "31" };
        let mut out = String::new();
        // Writing to a String cannot fail.
        let mut line = |text: String| writeln!(out, "{}", text.trim_end()).expect("a String takes all");
        let row = |name: &str, cells: [String; 4]| {
            let [joined, admitted, left, sold_out] = cells;
            format!("{name:<14}{joined:>6}{admitted:>10}{left:>8}{sold_out:>10}")
        };
        line(paint(
            "1",
            row(
                "people",
                ["joined", "let in", "left", "sold out"].map(str::to_owned),
            ),
        ));
        for (name, crowd) in [("before doors", self.early), ("late", self.late)] {
            let cells = [crowd.joined, crowd.admitted, crowd.left, crowd.sold_out];
            line(row(name, cells.map(grouped)));
        }
        line(String::new());
        let of = |count: u64, all: u64, what: &str| format!("{} of {} {what}", grouped(count), grouped(all));
        for (name, value, code) in [
            (
                "most inside",
                of(self.max_inside, self.inside_limit, "allowed, at any moment"),
                good(self.max_inside <= self.inside_limit),
            ),
            (
                "busiest second",
                of(
                    self.max_admitted_in_a_second,
                    self.per_second_limit,
                    "allowed, in any sliding second",
                ),
                good(self.max_admitted_in_a_second <= self.per_second_limit),
            ),
            (
                "seats",
                of(self.bought, self.seats, "sold"),
                good(self.bought <= self.seats),
            ),
            (
                "out of order",
                of(self.out_of_order, self.admitted(), "let in"),
                good(self.out_of_order == 0),
            ),
            (
                "reconnected",
                of(self.kept_ticket, self.reconnected, "kept their ticket"),
                good(self.kept_ticket == self.reconnected),
            ),
            (
                "second tab",
                of(self.took_over, self.second_tabs, "took over the ticket"),
                good(self.took_over == self.second_tabs),
            ),
            (
                "wait estimate",
                format!(
                    "{:.1} s off (median of {}); the range held in {:.0} %, read in whole seconds {:.0} %",
                    self.eta_median_error_seconds,
                    grouped(self.etas_shown),
                    self.eta_held_percent,
                    self.eta_held_in_seconds_percent
                ),
                "0",
            ),
            (
                "admission event",
                format!("after {} ms (p95)", grouped(self.notified_p95_ms)),
                "0",
            ),
        ] {
            line(format!("{name:<22}{}", paint(code, value)));
        }
        line(String::new());
        line(self.sentences());
        out
    }

    fn admitted(&self) -> u64 {
        self.early.admitted + self.late.admitted
    }

    fn sentences(&self) -> String {
        let within = self.max_inside <= self.inside_limit
            && self.max_admitted_in_a_second <= self.per_second_limit
            && self.bought <= self.seats;
        let order = match self.out_of_order {
            0 => "strictly in order".to_owned(),
            jumped => format!("NOT in order ({} too early)", people(jumped)),
        };
        let limits = match within {
            true => "every limit held",
            false => "a limit did NOT hold",
        };
        let lost = match self.lost {
            0 => "Nobody was lost".to_owned(),
            lost => format!("{} got LOST", people(lost)),
        };
        let tickets = match self.reconnected - self.kept_ticket {
            0 => format!("all {} who reconnected kept their ticket", self.reconnected),
            lost => format!("{} did NOT keep the ticket", people(lost)),
        };
        let refused = match self.passes_refused {
            0 => String::new(),
            refused => format!("\n{} got in, and got REFUSED at the shop.", people(refused)),
        };
        let tabs = match self.second_tabs - self.took_over {
            0 => String::new(),
            stuck => format!("\n{} did NOT get the ticket in a second tab.", people(stuck)),
        };
        format!(
            "{} people wanted one of {} seats: they were let in {order}, and {limits}.\n\
             {lost}, and {tickets}.{refused}{tabs}",
            grouped(self.early.joined + self.late.joined),
            grouped(self.seats),
        )
    }
}

fn people(count: u64) -> String {
    match count {
        1 => "one person".to_owned(),
        count => format!("{} people", grouped(count)),
    }
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Timestamp;

    use super::*;

    fn good() -> RoomFigures {
        RoomFigures {
            seconds: 10.0,
            early: Crowd {
                joined: 220,
                admitted: 200,
                left: 20,
                sold_out: 0,
            },
            late: Crowd {
                joined: 80,
                admitted: 30,
                left: 5,
                sold_out: 45,
            },
            seats: 230,
            bought: 230,
            inside_limit: 40,
            max_inside: 40,
            per_second_limit: 30,
            max_admitted_in_a_second: 30,
            out_of_order: 0,
            lost: 0,
            passes_refused: 0,
            reconnected: 20,
            kept_ticket: 20,
            second_tabs: 10,
            took_over: 10,
            etas_shown: 1_500,
            eta_median_error_seconds: 0.4,
            eta_held_percent: 85.0,
            eta_held_in_seconds_percent: 95.0,
            notified_p50_ms: 20,
            notified_p95_ms: 60,
        }
    }

    #[test]
    fn kept_promises_are_reported_without_a_warning() {
        let report = good().report(false);
        for text in [
            "strictly in order",
            "every limit held",
            "Nobody was lost",
            "all 20 who",
        ] {
            assert!(report.contains(text), "{text}: {report}");
        }
        for warning in ["NOT", "LOST", "REFUSED", "\x1b"] {
            assert!(!report.contains(warning), "{warning}: {report}");
        }
        assert!(!good().report(true).contains("\x1b[31m"));
    }

    #[test]
    fn broken_limits_lost_people_and_lost_tickets_are_not_hidden() {
        for limit in [
            RoomFigures {
                max_inside: 41,
                ..good()
            },
            RoomFigures {
                max_admitted_in_a_second: 31,
                ..good()
            },
            RoomFigures {
                bought: 231,
                ..good()
            },
        ] {
            let report = limit.report(true);
            assert!(report.contains("a limit did NOT hold"), "{report}");
            assert_eq!(report.matches("\x1b[31m").count(), 1, "{report}");
        }
        let figures = RoomFigures {
            out_of_order: 2,
            lost: 1,
            passes_refused: 3,
            kept_ticket: 16,
            took_over: 9,
            ..good()
        };
        let report = figures.report(false);
        for text in [
            "NOT in order (2 people too early)",
            "one person got LOST",
            "3 people got in, and got REFUSED",
            "4 people did NOT keep the ticket",
            "one person did NOT get the ticket in a second tab",
        ] {
            assert!(report.contains(text), "{text}: {report}");
        }
    }

    #[test]
    fn everybody_is_counted_once() {
        let log = |number: u64, late: bool, end: End, granted: Option<u64>| VisitLog {
            end,
            granted: granted.map(Timestamp),
            notified: granted.map(|at| Timestamp(at + 40)),
            ..VisitLog::new(number, late, number)
        };
        let logs = [
            log(1, false, End::Bought, Some(1_000)),
            log(2, false, End::Left, None),
            // Let in as it left.
            log(3, false, End::Left, Some(1_000)),
            log(4, true, End::SoldOut, None),
            log(5, true, End::Lost, None),
            log(6, true, End::Refused, Some(1_500)),
        ];
        let figures = RoomFigures::of(&logs, Duration::from_secs(1));
        let crowd = |joined, admitted, left, sold_out| Crowd {
            joined,
            admitted,
            left,
            sold_out,
        };
        assert_eq!(figures.early, crowd(3, 2, 1, 0));
        assert_eq!(figures.late, crowd(3, 1, 0, 1));
        assert_eq!((figures.bought, figures.lost, figures.passes_refused), (1, 1, 1));
        assert_eq!(
            (figures.notified_p95_ms, figures.max_admitted_in_a_second),
            (40, 3)
        );
    }
}
