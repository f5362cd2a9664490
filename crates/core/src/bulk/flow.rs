//! A flow: the jobs of one group in one queue at one priority, in the order in which they start.
//!
//! ```text
//!   returned  ->  throttled  ->  fresh
//!   (retries,     (denied by     (first come,
//!    due again)    a window)      first served)
//! ```
//!
//! Also the queue that flows belong to, with its order per priority, its ready queue, its rate and what its downstream sustains.

use super::command::Priority;
use super::estimate::Due;
use super::list::{List, QUEUE, Slot};
use super::order::FairOrder;
use crate::ids::QueueId;
use crate::limits::downstream::Downstream;
use crate::limits::meter::Meter;
use crate::limits::quota::{Limit, Quota};
use crate::limits::rate::Rate;
use crate::limits::throughput::Throughput;
use crate::time::{Millis, Timestamp};

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) group: Slot,
    pub(super) queue: u16,
    pub(super) priority: Priority,
    pub(super) returned: List<QUEUE>,
    pub(super) throttled: List<QUEUE>,
    pub(super) fresh: List<QUEUE>,
    /// Unfinished jobs in any state: the flow exists as long as there are any.
    pub(super) unfinished: u32,
    pub(super) tag: u64,
    /// Its key and sequence in the order, while it is there.
    pub(super) place: Option<(i64, u64)>,
    /// When it became eligible or was last served (`score` policy).
    pub(super) since: Timestamp,
    /// Jobs served since it became eligible (`score` policy).
    pub(super) served: u64,
    /// Its part of the weight of the order, while it is there.
    pub(super) weight: u64,
    /// Its delayed jobs, except those that a window denied.
    pub(super) due: Due,
    pub(super) throughput: Throughput,
}

impl Flow {
    pub(super) fn new(group: Slot, queue: u16, priority: Priority) -> Self {
        Self {
            group,
            queue,
            priority,
            returned: List::default(),
            throttled: List::default(),
            fresh: List::default(),
            unfinished: 0,
            tag: 0,
            place: None,
            since: Timestamp(0),
            served: 0,
            weight: 0,
            due: Due::default(),
            throughput: Throughput::default(),
        }
    }

    pub(super) fn front(&self) -> Option<Slot> {
        self.returned
            .front()
            .or(self.throttled.front())
            .or(self.fresh.front())
    }

    pub(super) fn len(&self) -> u64 {
        u64::from(self.returned.len) + u64::from(self.throttled.len) + u64::from(self.fresh.len)
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: QueueId,
    pub(super) orders: [FairOrder; 3],
    pub(super) credits: PriorityCredits,
    pub(super) ready: List<QUEUE>,
    /// Groups with unfinished jobs in it.
    pub(super) groups: u64,
    /// Its unfinished jobs in any state, and the delayed ones of them.
    pub(super) unfinished: u64,
    pub(super) delayed: u64,
    pub(super) meter: Meter,
    /// Running jobs, and how many there may be.
    pub(super) running: u64,
    pub(super) max_running: Option<u32>,
    /// Starts per second as its limit allows.
    pub(super) rps: f64,
    pub(super) rate: Rate,
    /// The limit of every group in it that has none of its own there.
    pub(super) per_group: Limit,
    pub(super) downstream: Downstream,
    /// Starts of all groups.
    pub(super) throughput: Throughput,
    /// When a worker last asked for its jobs.
    pub(super) asked: Timestamp,
}

impl Queue {
    pub(super) fn set_rate(&mut self, rate: Quota, window: Millis) {
        self.rps = rate.per_second();
        self.rate = rate.in_windows(window);
    }

    /// What was charged in this window.
    pub(super) fn started(&self, window: u64) -> u64 {
        self.meter.turned(Some(self.rate), window).charged(window)
    }

    /// Starts that its rate and its downstream allow in this window.
    pub(super) fn allowed(&self, window: u64, now: Timestamp) -> u64 {
        let own = self.rate.allowed(window);
        let sustained = self.downstream.at(self.rps, now).rate();
        let sustained = sustained.map(|rate| (rate * self.rate.window().0 as f64 / 1_000.0).max(1.0) as u64);
        sustained.map_or(own, |most| most.min(own))
    }

    /// As many of its jobs run as may.
    pub(super) fn is_full(&self) -> bool {
        self.max_running
            .is_some_and(|most| self.running >= u64::from(most))
    }

    /// The share of a window that each of its groups gets if all want more.
    pub(super) fn share(&self) -> u64 {
        let sustained = self.downstream.rate();
        let sustained = sustained.map(|rate| (rate * self.rate.window().0 as f64 / 1_000.0).max(1.0) as u64);
        let limit = sustained.map_or(self.rate.most(), |most| most.min(self.rate.most()));
        (limit / self.groups.max(1)).max(1)
    }

    /// Starts left in this window, by the queue's own rate and what its downstream sustains.
    pub(super) fn room(&mut self, window: u64, now: Timestamp) -> u64 {
        let places = self
            .max_running
            .map_or(u64::MAX, |most| u64::from(most).saturating_sub(self.running));
        let own = self.meter.room(self.rate, window).min(places);
        // Asked in any case: it notes whether it is what keeps jobs waiting.
        let sustained = self.downstream.room(now);
        own.min(sustained)
    }
}

/// Guarantees waiting lower priorities a minimum of picks. Each pick earns every waiting priority its
/// percentage; a priority with 100 credits goes first and spends them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PriorityCredits {
    earned: [u32; 3],
}

const PICK: u32 = 100;

impl PriorityCredits {
    /// The priority of the next pick, given which priorities have waiting jobs.
    pub(super) fn choose(&self, waits: [bool; 3]) -> Option<Priority> {
        let due =
            |priority: &&Priority| waits[**priority as usize] && self.earned[**priority as usize] >= PICK;
        let waiting = |priority: &&Priority| waits[**priority as usize];
        Priority::ALL
            .iter()
            .find(due)
            .or(Priority::ALL.iter().find(waiting))
            .copied()
    }

    /// Records a pick of `priority`.
    pub(super) fn book(&mut self, priority: Priority, waits: [bool; 3], percent: [u32; 3]) {
        for other in Priority::ALL {
            let i = other as usize;
            let earned = if waits[i] {
                (self.earned[i] + percent[i]).min(2 * PICK)
            } else {
                0
            };
            self.earned[i] = if other == priority {
                earned.saturating_sub(PICK)
            } else {
                earned
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(percent: [u32; 3], waits: [bool; 3], n: usize) -> [usize; 3] {
        let mut credits = PriorityCredits::default();
        let mut picked = [0; 3];
        for _ in 0..n {
            let priority = credits.choose(waits).unwrap();
            credits.book(priority, waits, percent);
            picked[priority as usize] += 1;
        }
        picked
    }

    #[test]
    fn waiting_lower_priorities_get_their_minimum() {
        let [high, normal, low] = picks([0, 5, 5], [true; 3], 10_000);
        assert!(normal >= 499 && low >= 499, "{high} {normal} {low}");
        assert!(high >= 8_900, "{high} {normal} {low}");
    }

    #[test]
    fn zero_is_strict_order() {
        assert_eq!(picks([0, 0, 0], [true; 3], 1_000), [1_000, 0, 0]);
    }

    #[test]
    fn an_absent_priority_earns_nothing() {
        assert_eq!(picks([0, 5, 5], [false, true, false], 100), [0, 100, 0]);
    }
}
