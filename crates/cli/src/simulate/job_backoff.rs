//! A model of the naive design's path from fair queue to worker: every denied job backs off on its own.
//!
//! Every 200 ms a fetcher takes up to 50 jobs from the fair queue and asks the limiter: `global_rps` per aligned
//! window over all, `floor(global_rps / active groups)` per group. A denied job goes to non-ready with a backoff.
//! Every 100 ms, before the fetcher, a dispatcher takes up to 100 due jobs out of non-ready, in order of their time.
//! Two variants are modelled: such a job passes the limiter again, or it goes to ready unchecked.
//!
//! The fetch batch decides the figures. If a denied job counted as accepted, the fetch loop would ignore the batch:
//! then everything is in non-ready after one poll, `formula` takes 5,476 s with 17.0 throttles per job, and without
//! the second check 1,000 start in a window. The model keeps to the batch, which gives 2,531 s, 6.7 and 220. The
//! order of fetcher and dispatcher changes nothing.
//!
//! Also assumed in the naive design's favour: groups take turns in the fair queue ([`super::score`] shows its own
//! order), workers need no time, counters are exact, a group is active exactly while it has unfinished jobs, and a
//! group that leaves takes its jobs out of every queue at once.

use std::collections::BTreeMap;

use tidegate_core::time::{Millis, Timestamp};

use super::tally::Tally;
use super::{Customer, never_over, ticks};

const FETCH_INTERVAL: Millis = Millis(200);
const FETCH_BATCH: usize = 50;
const DISPATCH_INTERVAL: Millis = Millis(100);
const DISPATCH_BATCH: usize = 100;
const BASE_BACKOFF: Millis = Millis(1_000);
const MAX_BACKOFF: Millis = Millis(120_000);

/// How long a denied job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backoff {
    Fixed,
    /// `min(max, base + floor(non-ready jobs of the group / speed) × 1 s)`; the job counts itself.
    Formula,
}

/// Whether a job that comes out of non-ready passes the limiter again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    Rechecked,
    Unchecked,
}

/// The rate that the limiter enforces, or would.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) per_window: u64,
    pub(super) window: Millis,
}

#[derive(Debug, Default)]
struct Group {
    fair_queue: u64,
    non_ready: u64,
    started_in_window: u64,
}

impl Group {
    fn is_active(&self) -> bool {
        self.fair_queue + self.non_ready > 0
    }
}

#[derive(Debug)]
struct NaiveQueue {
    rate: Rate,
    backoff: Backoff,
    groups: Vec<Group>,
    /// Groups by due time; the second part keeps the order of arrival.
    non_ready: BTreeMap<(Timestamp, u64), usize>,
    next_entry: u64,
    window: u64,
    started_in_window: u64,
    /// Whose turn it is in the fair queue.
    turn: usize,
    tally: Tally,
}

/// Runs the customers' jobs to the end.
pub(super) fn simulate(
    customers: &[Customer],
    rate: Rate,
    backoff: Backoff,
    release: Release,
) -> anyhow::Result<Tally> {
    let mut model = NaiveQueue {
        rate,
        backoff,
        groups: customers.iter().map(|_| Group::default()).collect(),
        non_ready: BTreeMap::new(),
        next_entry: 0,
        window: 0,
        started_in_window: 0,
        turn: 0,
        tally: Tally::new(rate.window),
    };
    let last_join = customers.iter().map(|customer| customer.joins).max();
    for elapsed in ticks(DISPATCH_INTERVAL) {
        let now = Timestamp(0) + elapsed;
        model.turn_window(now);
        for (group, customer) in customers.iter().enumerate() {
            if customer.joins == elapsed {
                model.groups[group].fair_queue += customer.jobs;
            }
            if customer.leaves == Some(elapsed) {
                model.leave(group);
            }
        }
        model.dispatch(release, now);
        if elapsed.0.is_multiple_of(FETCH_INTERVAL.0) {
            model.fetch(now);
        }
        if Some(elapsed) >= last_join && !model.groups.iter().any(Group::is_active) {
            return Ok(model.tally);
        }
    }
    never_over()
}

impl NaiveQueue {
    fn turn_window(&mut self, now: Timestamp) {
        let window = now.0 / self.rate.window.0;
        if window != self.window {
            self.window = window;
            self.started_in_window = 0;
            self.groups
                .iter_mut()
                .for_each(|group| group.started_in_window = 0);
        }
    }

    fn leave(&mut self, group: usize) {
        self.groups[group].fair_queue = 0;
        self.groups[group].non_ready = 0;
        self.non_ready.retain(|_, of| *of != group);
    }

    /// What a group may start per window.
    fn share(&self) -> u64 {
        let active = self.groups.iter().filter(|group| group.is_active()).count() as u64;
        (self.rate.per_window / active.max(1)).max(1)
    }

    fn fetch(&mut self, now: Timestamp) {
        for _ in 0..FETCH_BATCH {
            let turns = (0..self.groups.len()).map(|ahead| (self.turn + ahead) % self.groups.len());
            let Some(group) = turns.into_iter().find(|&group| self.groups[group].fair_queue > 0) else {
                return;
            };
            self.turn = group + 1;
            let share = self.share();
            self.groups[group].fair_queue -= 1;
            self.check(group, share, now);
        }
    }

    fn dispatch(&mut self, release: Release, now: Timestamp) {
        for _ in 0..DISPATCH_BATCH {
            let Some(entry) = self.non_ready.first_entry().filter(|entry| entry.key().0 <= now) else {
                return;
            };
            let group = entry.remove();
            let share = self.share();
            self.groups[group].non_ready -= 1;
            match release {
                Release::Rechecked => self.check(group, share, now),
                Release::Unchecked => self.tally.start(now),
            }
        }
    }

    /// The limiter: the job starts, or goes to non-ready. `share` was read while the job was still in a queue: in
    /// between, a group must not look finished.
    fn check(&mut self, group: usize, share: u64, now: Timestamp) {
        let entry = &mut self.groups[group];
        if self.started_in_window < self.rate.per_window && entry.started_in_window < share {
            self.started_in_window += 1;
            entry.started_in_window += 1;
            self.tally.start(now);
            return;
        }
        entry.non_ready += 1;
        let wait = match self.backoff {
            Backoff::Fixed => BASE_BACKOFF,
            Backoff::Formula => Millis(BASE_BACKOFF.0 + entry.non_ready / share * 1000).min(MAX_BACKOFF),
        };
        self.non_ready.insert((now + wait, self.next_entry), group);
        self.next_entry += 1;
        self.tally.throttles += 1;
    }
}
