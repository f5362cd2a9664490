//! How fast people are let in and how fast they give up, from counts that only grow.
//!
//! Every process watches for itself: nothing of this is stored.

use std::collections::VecDeque;

use super::command::{Counts, RoomView};
use crate::time::{Millis, Timestamp};

/// Nothing older is looked at.
const WINDOW: Millis = Millis(5 * 60_000);
/// Limit: samples that are kept; closer ones are folded into the last.
const SAMPLE: Millis = Millis(1_000);
/// So many admissions are enough to tell the pace: older ones would only hide a change of it.
const ENOUGH: u64 = 200;

/// Counts at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Timestamp,
    admitted: u64,
    /// Who left, or was lost, while waiting.
    gone: u64,
    /// People times milliseconds waited, since the first sample.
    waited: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Pace {
    samples: VecDeque<Sample>,
    /// The last look, however close: how many waited, and when that was.
    last: Option<(Timestamp, u64)>,
    waited: f64,
}

/// What the recent past tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Admissions that were counted: the more, the surer.
    pub admitted: u64,
    /// Admissions per millisecond.
    pub per_ms: f64,
    /// The chance per millisecond that somebody who waits gives up.
    pub gone_per_ms: f64,
}

impl Pace {
    pub fn look(&mut self, view: &RoomView) {
        self.add(view.now, view.counts, view.waiting());
    }

    /// Takes in a look at the room. Looks that are not later than the last are ignored.
    pub fn add(&mut self, at: Timestamp, counts: Counts, waiting: u64) {
        if let Some((last, waited)) = self.last {
            if at <= last {
                return;
            }
            self.waited += waited as f64 * at.since(last).0 as f64;
        }
        self.last = Some((at, waiting));
        let sample = Sample {
            at,
            admitted: counts.admitted,
            gone: counts.left + counts.lost,
            waited: self.waited,
        };
        if self
            .samples
            .back()
            .is_some_and(|last| last.admitted > sample.admitted || last.gone > sample.gone)
        {
            // Another room of the same name.
            self.samples.clear();
        }
        // The last one stays open until it is a second apart from the one before.
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

    /// None until somebody was let in.
    pub fn rates(&self) -> Option<Rates> {
        let last = self.samples.back()?;
        let from = self
            .samples
            .iter()
            .rev()
            .find(|sample| last.admitted - sample.admitted >= ENOUGH)
            .or(self.samples.front())?;
        let (admitted, span) = (last.admitted - from.admitted, last.at.since(from.at).0 as f64);
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
}
