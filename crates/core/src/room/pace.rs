//! How fast people are admitted and how fast they give up, from counts that only grow.
//!
//! The admission rate counts only the time in which somebody waited and the room was open. While nobody waits,
//! admissions show the arrival rate, and a pause shows nothing.
//!
//! Every process measures for itself: nothing of this is stored.

use std::collections::VecDeque;

use super::command::{Counts, RoomView, Status};
use crate::time::{Millis, Timestamp};

/// Older samples are ignored.
const WINDOW: Millis = Millis(5 * 60_000);
/// Limit: the minimum distance of kept samples; closer ones are merged into the last.
const SAMPLE: Millis = Millis(1_000);
/// Enough admissions to measure the pace: older ones would only hide a change of it.
const ENOUGH: u64 = 200;

/// Counts at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Timestamp,
    admitted: u64,
    /// People who left, or were lost, while waiting.
    gone: u64,
    /// People times milliseconds waited, since the first sample.
    waited: f64,
    line: Line,
}

/// Admissions and time while the queue moved, since the first sample.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    ms: u64,
    /// The part of it since the last admission.
    still: u64,
    admitted: u64,
}

impl Line {
    /// Limits are per second, so people are admitted together, and the next ones up to a second later. A second
    /// without admissions is part of an unfinished turn and belongs to those admitted at its end.
    fn turns(self) -> u64 {
        self.ms - self.still.min(SAMPLE.0)
    }
}

/// The last sample, however close.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Timestamp,
    admitted: u64,
    waiting: u64,
    /// The room was admitting people, if there were any.
    open: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Pace {
    samples: VecDeque<Sample>,
    last: Option<Look>,
    waited: f64,
    line: Line,
}

/// The rates of the recent past.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Admissions counted: the more, the more certain.
    pub admitted: u64,
    /// Admissions per millisecond, while somebody waited.
    pub per_ms: f64,
    /// The chance per millisecond that a waiting person gives up.
    pub gone_per_ms: f64,
}

impl Pace {
    pub fn look(&mut self, view: &RoomView) {
        let open = view.status == Status::Open && view.opens_at.is_none_or(|at| at <= view.now);
        self.add(view.now, view.counts, view.waiting(), open);
    }

    /// Adds a sample of the room. Ignores samples not later than the last.
    fn add(&mut self, at: Timestamp, counts: Counts, waiting: u64, open: bool) {
        if let Some(last) = self.last {
            if at <= last.at {
                return;
            }
            let span = at.since(last.at).0;
            self.waited += last.waiting as f64 * span as f64;
            if last.open && last.waiting > 0 {
                let admitted = counts.admitted.saturating_sub(last.admitted);
                self.line.ms += span;
                self.line.admitted += admitted;
                self.line.still = if admitted > 0 { 0 } else { self.line.still + span };
            }
        }
        self.last = Some(Look {
            at,
            admitted: counts.admitted,
            waiting,
            open,
        });
        let sample = Sample {
            at,
            admitted: counts.admitted,
            gone: counts.left + counts.lost,
            waited: self.waited,
            line: self.line,
        };
        if self
            .samples
            .back()
            .is_some_and(|last| last.admitted > sample.admitted || last.gone > sample.gone)
        {
            // Another room of the same name.
            self.samples.clear();
        }
        // The last one stays open until it is a second after the one before.
        let [.., before, _] = self.samples.make_contiguous() else {
            return self.samples.push_back(sample);
        };
        if at.since(before.at) < SAMPLE {
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
        while self
            .samples
            .get(1)
            .is_some_and(|second| at.since(second.at) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// None until a person who waited was admitted.
    pub fn rates(&self) -> Option<Rates> {
        let last = self.samples.back()?;
        let from = self.since(|sample| last.line.admitted - sample.line.admitted)?;
        let admitted = last.line.admitted - from.line.admitted;
        let span = last.line.turns().saturating_sub(from.line.turns()) as f64;
        if admitted == 0 || span == 0.0 {
            return None;
        }
        let (first, waited) = (self.samples.front()?, last.waited);
        let people = waited - first.waited;
        Some(Rates {
            admitted,
            per_ms: admitted as f64 / span,
            gone_per_ms: match people > 0.0 {
                true => (last.gone - first.gone) as f64 / people,
                false => 0.0,
            },
        })
    }

    /// Admissions per millisecond, whether anybody waited or not. None until somebody was admitted.
    pub fn lately(&self) -> Option<f64> {
        let last = self.samples.back()?;
        let from = self.since(|sample| last.admitted - sample.admitted)?;
        let (admitted, span) = (last.admitted - from.admitted, last.at.since(from.at).0);
        (admitted > 0 && span > 0).then(|| admitted as f64 / span as f64)
    }

    /// The latest sample with enough admissions since, or the first one.
    fn since(&self, admitted: impl Fn(&Sample) -> u64) -> Option<&Sample> {
        let enough = self
            .samples
            .iter()
            .rev()
            .find(|sample| admitted(sample) >= ENOUGH);
        enough.or(self.samples.front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples once a second for this many seconds; the room admits ten people between two samples if `moves`.
    fn watch(
        pace: &mut Pace,
        from: u64,
        seconds: u64,
        admitted: &mut u64,
        waiting: u64,
        (open, moves): (bool, bool),
    ) {
        for second in from..from + seconds {
            let counts = Counts {
                admitted: *admitted,
                ..Counts::default()
            };
            pace.add(Timestamp(second * 1_000), counts, waiting, open);
            *admitted += if moves { 10 } else { 0 };
        }
    }

    fn per_second(pace: &Pace) -> f64 {
        (pace.rates().unwrap().per_ms * 1_000.0).round()
    }

    #[test]
    fn a_rush_got_the_pace_of_the_quiet_time_before_it() {
        let (mut pace, mut admitted) = (Pace::default(), 0);
        watch(&mut pace, 0, 200, &mut admitted, 0, (true, false));
        assert_eq!(pace.rates(), None);
        // A few join and are admitted at once: that is the arrival rate.
        watch(&mut pace, 200, 20, &mut admitted, 0, (true, true));
        assert_eq!(pace.rates(), None);
        assert_eq!(pace.lately().map(|per_ms| (per_ms * 1_000.0).round()), Some(1.0));
        watch(&mut pace, 220, 3, &mut admitted, 500, (true, true));
        assert_eq!(per_second(&pace), 10.0);
    }

    #[test]
    fn a_pause_made_the_line_look_slow() {
        let (mut pace, mut admitted) = (Pace::default(), 0);
        watch(&mut pace, 0, 5, &mut admitted, 500, (true, true));
        assert_eq!(per_second(&pace), 10.0);
        watch(&mut pace, 5, 60, &mut admitted, 500, (false, false));
        assert_eq!(per_second(&pace), 10.0, "as it was before");
        watch(&mut pace, 65, 5, &mut admitted, 500, (true, true));
        assert_eq!(per_second(&pace), 10.0);
    }

    #[test]
    fn between_two_turns_the_line_looked_slower_than_it_was() {
        let mut pace = Pace::default();
        // Ten at once, every second; a sample right after, and one in the middle.
        for turn in 0..3u64 {
            for (at, admitted) in [(turn * 1_000, turn * 10), (turn * 1_000 + 700, turn * 10)] {
                let counts = Counts {
                    admitted,
                    ..Counts::default()
                };
                pace.add(Timestamp(at), counts, 500, true);
                if turn > 0 {
                    assert_eq!(per_second(&pace), 10.0, "at {at}");
                }
            }
        }
        // Nobody any more: that is not a turn.
        let counts = Counts {
            admitted: 20,
            ..Counts::default()
        };
        pace.add(Timestamp(7_000), counts, 500, true);
        assert!(per_second(&pace) < 5.0);
    }
}
