//! What the visitors noted, and what follows from it: was a limit broken, was the order kept, was anybody lost.
//!
//! Who was let in when is told by the passes, in the store's time. When a slot was given back, or somebody was away, is
//! noted by the visitor before it says so or after it heard so, whichever is to the room's favour: what is found here
//! was wrong for certain.

use tidegate_client::EtaRange;
use tidegate_core::time::{Millis, Timestamp};

const SECOND: Millis = Millis(1_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Was let in, and bought.
    Bought,
    /// Left before it was let in.
    Left,
    /// Was told that everything is sold.
    SoldOut,
    /// Was let in, and the pass was refused.
    Refused,
    /// Has heard nothing final.
    Lost,
}

/// One visitor.
#[derive(Debug, Clone)]
pub(super) struct Story {
    pub(super) number: u64,
    /// Came after the doors opened.
    pub(super) late: bool,
    /// Smaller came first.
    pub(super) rank: u64,
    /// Let in, and when that was heard.
    pub(super) granted: Option<Timestamp>,
    pub(super) heard: Option<Timestamp>,
    /// From then on somebody else may have the slot.
    pub(super) slot_until: Option<Timestamp>,
    pub(super) away: Option<(Timestamp, Timestamp)>,
    /// Left after this last word, or was told that the line is over.
    pub(super) gone: Option<Timestamp>,
    pub(super) end: End,
    /// Whoever was away: came back to its place.
    pub(super) kept: Option<bool>,
    /// Whoever opened a second tab: it took over, at the same place, and the first one heard of it.
    pub(super) took_over: Option<bool>,
    /// Waiting times as they were shown, and when.
    pub(super) etas: Vec<(Timestamp, EtaRange)>,
}

impl Story {
    pub(super) fn new(number: u64, late: bool, rank: u64) -> Self {
        Self {
            number,
            late,
            rank,
            granted: None,
            heard: None,
            slot_until: None,
            away: None,
            gone: None,
            end: End::Lost,
            kept: None,
            took_over: None,
            etas: Vec::new(),
        }
    }

    /// Stood in line at that moment, and was there.
    fn stands(&self, at: Timestamp) -> bool {
        let ended = [self.granted, self.gone].into_iter().flatten().min();
        let away = self.away.is_some_and(|(from, to)| from <= at && at <= to);
        !away && ended.is_none_or(|ended| ended > at)
    }
}

fn admissions(stories: &[Story]) -> Vec<Timestamp> {
    let mut all: Vec<Timestamp> = stories.iter().filter_map(|story| story.granted).collect();
    all.sort_unstable();
    all
}

/// Most people who had a slot at one moment.
pub(super) fn most_inside(stories: &[Story]) -> u64 {
    // At one moment the slots that come back are counted first.
    let mut turns: Vec<(Timestamp, bool)> = Vec::new();
    for story in stories {
        turns.extend(story.granted.map(|at| (at, true)));
        let back = story.slot_until.filter(|_| story.granted.is_some());
        turns.extend(back.map(|at| (at, false)));
    }
    turns.sort_unstable();
    let (mut inside, mut most) = (0u64, 0);
    for (_, enters) in turns {
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
pub(super) fn busiest_second(stories: &[Story]) -> u64 {
    let all = admissions(stories);
    let within = |from: usize| {
        all[from..]
            .iter()
            .take_while(|at| at.since(all[from]) < SECOND)
            .count()
    };
    (0..all.len()).map(within).max().unwrap_or(0) as u64
}

/// People who were let in while somebody who had come before them stood in line.
pub(super) fn out_of_order(stories: &[Story]) -> u64 {
    let overtakes = |one: &&Story| {
        let passed = |at| {
            stories
                .iter()
                .any(|other| other.rank < one.rank && other.stands(at))
        };
        one.granted.is_some_and(passed)
    };
    stories.iter().filter(overtakes).count() as u64
}

/// A waiting time that was shown, and how long it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct PresentedPass {
    eta: EtaRange,
    truth: Millis,
}

impl PresentedPass {
    pub(super) fn error(&self) -> Millis {
        Millis(self.eta.likely_ms.abs_diff(self.truth.0))
    }

    pub(super) fn holds(&self) -> bool {
        (self.eta.low_ms..=self.eta.high_ms).contains(&self.truth.0)
    }

    /// The same for whoever reads whole seconds.
    pub(super) fn holds_in_seconds(&self) -> bool {
        let low = self.eta.low_ms / SECOND.0 * SECOND.0;
        let high = self.eta.high_ms.div_ceil(SECOND.0) * SECOND.0;
        (low..=high).contains(&self.truth.0)
    }
}

/// Everything that was shown to those who were let in. Whoever was away made its own time longer.
pub(super) fn shown(stories: &[Story]) -> Vec<PresentedPass> {
    let there = stories.iter().filter(|story| story.away.is_none());
    let shown = there.flat_map(|story| {
        let times = story.etas.iter().zip(std::iter::repeat(story.granted));
        times.filter_map(|((at, eta), granted)| {
            Some(PresentedPass {
                eta: *eta,
                truth: granted?.since(*at),
            })
        })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Let in at one moment, out at another.
    fn visit(rank: u64, granted: u64, until: u64) -> Story {
        Story {
            granted: Some(Timestamp(granted)),
            slot_until: Some(Timestamp(until)),
            end: End::Bought,
            ..Story::new(rank, false, rank)
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
        let people: Vec<Story> = times.iter().map(|&at| visit(at, at, at)).collect();
        assert_eq!(busiest_second(&people), 4);
        assert_eq!(busiest_second(&[]), 0);
    }

    #[test]
    fn overtaking_is_found_and_absence_is_excepted() {
        let order = [visit(1, 10, 20), visit(2, 10, 20), visit(3, 30, 40)];
        assert_eq!(out_of_order(&order), 0);
        let jumped = [visit(1, 30, 40), visit(2, 10, 20), visit(3, 20, 40)];
        assert_eq!(out_of_order(&jumped), 2);

        let mut absent = visit(1, 30, 40);
        absent.away = Some((Timestamp(5), Timestamp(15)));
        let passed = [absent.clone(), visit(2, 10, 20)];
        assert_eq!(out_of_order(&passed), 0);
        assert_eq!(out_of_order(&[absent, visit(2, 16, 20)]), 1);

        let mut left = Story::new(1, false, 1);
        left.gone = Some(Timestamp(10));
        assert_eq!(out_of_order(&[left.clone(), visit(2, 10, 20)]), 0);
        assert_eq!(out_of_order(&[left, visit(2, 9, 20)]), 1);
        // Nobody ever let it in.
        assert_eq!(out_of_order(&[Story::new(1, false, 1), visit(2, 9, 20)]), 1);
    }

    #[test]
    fn shown_times_are_held_against_what_came() {
        let eta = EtaRange {
            low_ms: 1_800,
            likely_ms: 2_000,
            high_ms: 2_250,
        };
        let mut one = visit(1, 4_000, 5_000);
        // It took 2.2, 2.9, 3.1 and 0.9 s.
        one.etas = [1_800, 1_100, 900, 3_100].map(|at| (Timestamp(at), eta)).to_vec();
        let mut away = one.clone();
        away.away = Some((Timestamp(0), Timestamp(1)));
        let mut waits = Story::new(3, false, 3);
        waits.etas = one.etas.clone();
        let seen = shown(&[one, away, waits]);
        let errors: Vec<u64> = seen.iter().map(|shown| shown.error().0).collect();
        assert_eq!(errors, [200, 900, 1_100, 1_100]);
        let held: Vec<bool> = seen.iter().map(PresentedPass::holds).collect();
        assert_eq!(held, [true, false, false, false]);
        let held: Vec<bool> = seen.iter().map(PresentedPass::holds_in_seconds).collect();
        assert_eq!(held, [true, true, false, false]);
    }
}
