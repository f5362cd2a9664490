//! What every visitor recorded, and what follows from it: was a limit broken, was the order kept, was anybody lost.
//!
//! A pass says when its visitor was let in, by the store's clock. Visitors record themselves when they give a slot back
//! and when they are disconnected: before the request or after the answer, whichever favours the room. So every
//! violation that is found here is certain.

use tidegate_client::EtaRange;
use tidegate_core::time::{Millis, Timestamp};

const SECOND: Millis = Millis(1_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Was let in, and bought.
    Bought,
    /// Left before it was let in.
    Left,
    /// Got the event that the seats are sold out.
    SoldOut,
    /// Was let in, and the pass was refused.
    Refused,
    /// Got no final event.
    Lost,
}

/// The record of one visitor.
#[derive(Debug, Clone)]
pub(super) struct VisitLog {
    pub(super) number: u64,
    /// Joined after the doors opened.
    pub(super) late: bool,
    /// The order of joining.
    pub(super) rank: u64,
    /// When it was let in, and when it received the event.
    pub(super) granted: Option<Timestamp>,
    pub(super) notified: Option<Timestamp>,
    /// From then on somebody else may have the slot.
    pub(super) slot_until: Option<Timestamp>,
    pub(super) disconnected: Option<(Timestamp, Timestamp)>,
    /// The time of its last event before it left, or when its stream was closed.
    pub(super) gone: Option<Timestamp>,
    pub(super) end: End,
    /// Whether a reconnected visitor kept its ticket.
    pub(super) kept: Option<bool>,
    /// Whether a second tab took over at the same position, and the first one received the event.
    pub(super) took_over: Option<bool>,
    /// Wait estimates that were shown, and when.
    pub(super) etas: Vec<(Timestamp, EtaRange)>,
}

impl VisitLog {
    pub(super) fn new(number: u64, late: bool, rank: u64) -> Self {
        Self {
            number,
            late,
            rank,
            granted: None,
            notified: None,
            slot_until: None,
            disconnected: None,
            gone: None,
            end: End::Lost,
            kept: None,
            took_over: None,
            etas: Vec::new(),
        }
    }

    /// Was waiting and connected at that moment.
    fn waits(&self, at: Timestamp) -> bool {
        let ended = [self.granted, self.gone].into_iter().flatten().min();
        let disconnected = self.disconnected.is_some_and(|(from, to)| from <= at && at <= to);
        !disconnected && ended.is_none_or(|ended| ended > at)
    }
}

fn admissions(logs: &[VisitLog]) -> Vec<Timestamp> {
    let mut all: Vec<Timestamp> = logs.iter().filter_map(|log| log.granted).collect();
    all.sort_unstable();
    all
}

/// Most people who had a slot at one moment.
pub(super) fn most_inside(logs: &[VisitLog]) -> u64 {
    // At the same moment, slots that are given back count first.
    let mut changes: Vec<(Timestamp, bool)> = Vec::new();
    for log in logs {
        changes.extend(log.granted.map(|at| (at, true)));
        let back = log.slot_until.filter(|_| log.granted.is_some());
        changes.extend(back.map(|at| (at, false)));
    }
    changes.sort_unstable();
    let (mut inside, mut most) = (0u64, 0);
    for (_, enters) in changes {
        inside = if enters {
            inside + 1
        } else {
            inside.saturating_sub(1)
        };
        most = most.max(inside);
    }
    most
}

/// Most people who were let in within any sliding second.
pub(super) fn busiest_second(logs: &[VisitLog]) -> u64 {
    let all = admissions(logs);
    let within = |from: usize| {
        all[from..]
            .iter()
            .take_while(|at| at.since(all[from]) < SECOND)
            .count()
    };
    (0..all.len()).map(within).max().unwrap_or(0) as u64
}

/// People who were let in while a visitor who had joined earlier was waiting.
pub(super) fn out_of_order(logs: &[VisitLog]) -> u64 {
    let overtakes = |one: &&VisitLog| {
        let passed = |at| logs.iter().any(|other| other.rank < one.rank && other.waits(at));
        one.granted.is_some_and(passed)
    };
    logs.iter().filter(overtakes).count() as u64
}

/// A wait estimate that was shown, and the actual wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownEta {
    eta: EtaRange,
    actual: Millis,
}

impl ShownEta {
    pub(super) fn error(&self) -> Millis {
        Millis(self.eta.likely_ms.abs_diff(self.actual.0))
    }

    pub(super) fn holds(&self) -> bool {
        (self.eta.low_ms..=self.eta.high_ms).contains(&self.actual.0)
    }

    /// The same, rounded to whole seconds.
    pub(super) fn holds_in_seconds(&self) -> bool {
        let low = self.eta.low_ms / SECOND.0 * SECOND.0;
        let high = self.eta.high_ms.div_ceil(SECOND.0) * SECOND.0;
        (low..=high).contains(&self.actual.0)
    }
}

/// All estimates of visitors who were let in, except those who were disconnected: that made their wait longer.
pub(super) fn shown_etas(logs: &[VisitLog]) -> Vec<ShownEta> {
    let connected = logs.iter().filter(|log| log.disconnected.is_none());
    let shown = connected.flat_map(|log| {
        let times = log.etas.iter().zip(std::iter::repeat(log.granted));
        times.filter_map(|((at, eta), granted)| {
            Some(ShownEta {
                eta: *eta,
                actual: granted?.since(*at),
            })
        })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Let in at one moment, out at another.
    fn visit(rank: u64, granted: u64, until: u64) -> VisitLog {
        VisitLog {
            granted: Some(Timestamp(granted)),
            slot_until: Some(Timestamp(until)),
            end: End::Bought,
            ..VisitLog::new(rank, false, rank)
        }
    }

    #[test]
    fn a_slot_that_comes_back_is_free_at_that_moment() {
        let handed_on = [visit(1, 0, 500), visit(2, 100, 900), visit(3, 500, 800)];
        assert_eq!(most_inside(&handed_on), 2);
        let too_early = [visit(1, 0, 500), visit(2, 100, 900), visit(3, 499, 800)];
        assert_eq!(most_inside(&too_early), 3);
        let mut never_back = visit(1, 0, 0);
        never_back.slot_until = None;
        assert_eq!(most_inside(&[never_back, visit(2, 10, 20)]), 2);
        assert_eq!(most_inside(&[]), 0);
    }

    #[test]
    fn a_second_slides() {
        let times = [0, 900, 1_000, 1_100, 1_899, 1_900, 3_000];
        let people: Vec<VisitLog> = times.iter().map(|&at| visit(at, at, at)).collect();
        assert_eq!(busiest_second(&people), 4);
        assert_eq!(busiest_second(&[]), 0);
    }

    #[test]
    fn overtaking_is_found_and_a_disconnected_visitor_may_be_overtaken() {
        let order = [visit(1, 10, 20), visit(2, 10, 20), visit(3, 30, 40)];
        assert_eq!(out_of_order(&order), 0);
        let jumped = [visit(1, 30, 40), visit(2, 10, 20), visit(3, 20, 40)];
        assert_eq!(out_of_order(&jumped), 2);

        let mut dropped = visit(1, 30, 40);
        dropped.disconnected = Some((Timestamp(5), Timestamp(15)));
        let passed = [dropped.clone(), visit(2, 10, 20)];
        assert_eq!(out_of_order(&passed), 0);
        assert_eq!(out_of_order(&[dropped, visit(2, 16, 20)]), 1);

        let mut left = VisitLog::new(1, false, 1);
        left.gone = Some(Timestamp(10));
        assert_eq!(out_of_order(&[left.clone(), visit(2, 10, 20)]), 0);
        assert_eq!(out_of_order(&[left, visit(2, 9, 20)]), 1);
        // It was never let in.
        assert_eq!(out_of_order(&[VisitLog::new(1, false, 1), visit(2, 9, 20)]), 1);
    }

    #[test]
    fn shown_estimates_are_compared_with_the_actual_wait() {
        let eta = EtaRange {
            low_ms: 1_800,
            likely_ms: 2_000,
            high_ms: 2_250,
        };
        let mut one = visit(1, 4_000, 5_000);
        // It took 2.2, 2.9, 3.1 and 0.9 s.
        one.etas = [1_800, 1_100, 900, 3_100].map(|at| (Timestamp(at), eta)).to_vec();
        let mut dropped = one.clone();
        dropped.disconnected = Some((Timestamp(0), Timestamp(1)));
        let mut waits = VisitLog::new(3, false, 3);
        waits.etas = one.etas.clone();
        let seen = shown_etas(&[one, dropped, waits]);
        let errors: Vec<u64> = seen.iter().map(|shown| shown.error().0).collect();
        assert_eq!(errors, [200, 900, 1_100, 1_100]);
        let held: Vec<bool> = seen.iter().map(ShownEta::holds).collect();
        assert_eq!(held, [true, false, false, false]);
        let held: Vec<bool> = seen.iter().map(ShownEta::holds_in_seconds).collect();
        assert_eq!(held, [true, true, false, false]);
    }
}
