//! What a downstream sustains, found by calling it.
//!
//! Nothing is known at first, and the configured rate holds. A response that says "too much" (a throttle, a timeout, a
//! broken gateway) cuts the rate to what was delivered lately. From there the rate grows: hardly at first, because the
//! capacity is probably still the same, and ever faster the longer no call is rejected.
//!
//! ```text
//!   rate
//!    │ configured ────────────────────────────────────────────
//!    │╲                                                  ╱  the capacity has risen
//!    │ ╲                                              ╱
//!    │  ╲      ╱│      ╱│      ╱│      ╱│         ╱
//!    │   ╲___╱  │___╱   │___╱   │___╱   │____╱
//!    │    delivered
//!    └───────────────────────────────────────────────── time
//! ```
//!
//! - Responses to calls that started before the last cut cut nothing: they say what was known already.
//! - Time is measured in round trips, so that a slow downstream is not overrun while its answers are on the way.
//! - The rate grows only while it is what keeps calls waiting.
//! - Retry-After, or a downstream that delivers nothing at all, holds every call; then a single one probes.
//!
//! All numbers are products and sums of doubles, so that the scripts of a Redis store compute exactly the same.

use crate::time::{Millis, Timestamp};

/// A cut leaves this share of what was delivered.
const KEPT: f64 = 0.98;
/// A cut is at least this deep, unless one came just before.
const STEP: f64 = 0.97;
/// Cuts within this time go no deeper than what was delivered.
const SETTLING: f64 = 1_000.0;
/// So long a cut is measured: answers to calls from before it deepen it to what was delivered meanwhile.
const MEASURING: f64 = 1_500.0;
/// The first cut leaves at least this many calls per second: fewer were perhaps not asked for.
const LEAST_KNOWN: f64 = 1.0;
/// The slowest rate: one call per minute.
const SLOWEST: f64 = 1.0 / 60.0;
/// A unit of growth lasts at least this long (ms), a round trip, and this many calls.
const GROWTH: f64 = 1_000.0;
const GROWTH_CALLS: f64 = 64.0;
/// From here on the last limit lies far behind.
const FAR: f64 = 2.0;
/// But the calls of a slow downstream are not waited for longer than this (ms).
const GROWTH_MOST: f64 = 120_000.0;
/// A cut is over when the rate has outgrown the configured one by so much.
const LIFTED: f64 = 1.5;
/// Where growth begins when a cut was a guess: fast at once.
const GUESSED: f64 = 3.0;
/// Calls may start so far ahead of an even spacing (ms).
const BURST: f64 = 100.0;
/// Deliveries are counted in three parts; each lasts at least so long (ms) and has at least so many.
const PART: f64 = 500.0;
const PART_CALLS: u64 = 3;
/// Fewer deliveries than this measure a rate badly.
const FEW: u64 = 30;
/// Deliveries from before an idle time of this length (ms), or of so many mean gaps, say nothing.
const IDLE: f64 = 2_000.0;
const IDLE_GAPS: f64 = 8.0;
/// A longer round trip (ms) is a long job or a clock that was set: it says nothing about the downstream.
const LONGEST_TRIP: f64 = 60_000.0;
/// Two holds belong to one quota if they are at most so many of their lengths apart.
const CYCLES: f64 = 10.0;
/// The first and the longest hold of a downstream that delivers nothing (ms).
const FIRST_HOLD: f64 = 1_000.0;
const LONGEST_HOLD: f64 = 60_000.0;

/// How a downstream is called: as fast as configured, or as fast as it turned out to sustain.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Downstream {
    /// Calls per second after the last cut; none if no cut is in effect.
    cut: Option<f64>,
    cut_at: f64,
    /// How far the rate has grown since the cut, in units of growth.
    growth: f64,
    grown_at: f64,
    /// The rate keeps calls waiting.
    limiting: bool,
    /// An even spacing would have the next call start here.
    next: f64,
    hold: Hold,
    /// When the last Retry-After was over, and deliveries since then.
    cycle_since: f64,
    cycle_count: u64,
    /// How long the quota's period is, as far as is known (ms): within one, growth would only spend it sooner.
    cycle: f64,
    delivered: Delivered,
    /// The mean time to an answer (ms).
    round_trip: f64,
}

/// Whether calls are held, and what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Hold {
    #[default]
    None,
    /// Nothing starts before this time; then one call probes. The second number is how long it lasted (ms).
    Until(f64, f64),
    /// The probe started at this time and has not been answered.
    Probing(f64, f64),
}

/// Deliveries lately: when each part began, and how many there were in it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Delivered {
    since: [f64; 3],
    count: [u64; 3],
    rejected: [u64; 3],
    last: f64,
}

impl Delivered {
    fn total(&self) -> u64 {
        self.count[0] + self.count[1] + self.count[2]
    }

    /// An answer at `now` to a call that started at `started`.
    fn answer(&mut self, started: f64, now: f64) {
        let total = self.total();
        let gap = match total {
            0 => 0.0,
            total => (self.last - self.since[0]) / total as f64 * IDLE_GAPS,
        };
        if started - self.last > gap.max(IDLE) {
            self.since = [now; 3];
            self.count = [0; 3];
            self.rejected = [0; 3];
        }
        self.last = now;
        if self.count[2] >= PART_CALLS && now - self.since[2] >= PART {
            self.since = [self.since[1], self.since[2], now];
            self.count = [self.count[1], self.count[2], 0];
            self.rejected = [self.rejected[1], self.rejected[2], 0];
        }
    }

    /// The share of calls that were delivered.
    fn share(&self) -> f64 {
        let total = self.total() as f64;
        total / (total + (self.rejected[0] + self.rejected[1] + self.rejected[2]) as f64).max(1.0)
    }

    /// Deliveries per second.
    fn rate(&self, now: f64) -> f64 {
        self.total() as f64 * 1_000.0 / (now - self.since[0]).max(1_000.0)
    }
}

/// How much the rate has grown after so many units of growth.
fn grown(units: f64) -> f64 {
    1.0 + 0.02 * units + 0.02 * units * units * units
}

impl Downstream {
    /// Calls per second that the downstream sustains as far as is known; none if nothing was cut.
    pub fn rate(&self) -> Option<f64> {
        self.cut.map(|cut| cut * grown(self.growth))
    }

    /// The mean time to an answer (ms).
    pub fn round_trip(&self) -> f64 {
        self.round_trip
    }

    /// When the rate was last cut.
    pub fn cut_at(&self) -> Option<Timestamp> {
        (self.cut_at > 0.0).then_some(Timestamp(self.cut_at as u64))
    }

    /// Calls are held until then.
    pub fn held_until(&self) -> Option<Timestamp> {
        match self.hold {
            Hold::Until(until, _) => Some(Timestamp(until as u64)),
            _ => None,
        }
    }

    /// One call probes, and the others wait for its answer.
    pub fn is_probing(&self) -> bool {
        matches!(self.hold, Hold::Probing(..))
    }

    /// Nothing is known that would slow down calls.
    pub fn is_free(&self) -> bool {
        self.cut.is_none() && self.hold == Hold::None
    }

    /// Lets the rate grow up to `now`. Without a cut left below `configured`, the downstream is free again.
    pub fn advance(&mut self, configured: f64, now: Timestamp) {
        let now = now.0 as f64;
        let Some(rate) = self.rate() else { return };
        if self.limiting && self.hold == Hold::None {
            let mut calls = GROWTH_CALLS / (1.0 + self.growth);
            if self.growth >= FAR {
                calls /= 1.0 + self.growth;
            }
            let unit = GROWTH
                .max(self.round_trip)
                .max(self.cycle)
                .max((calls * 1_000.0 / rate).min(GROWTH_MOST));
            // What a cut achieved is known after a round trip; and calls that nobody asked for are no sign of strength.
            let since = self.grown_at.max(self.cut_at + self.round_trip);
            self.growth += (now - since).clamp(0.0, unit) / unit;
        }
        self.grown_at = now;
        self.limiting = false;
        if rate >= configured * LIFTED {
            self.cut = None;
            self.cycle = 0.0;
        }
    }

    /// How many calls may start now. Call [`Downstream::advance`] before.
    pub fn room(&mut self, now: Timestamp) -> u64 {
        let now = now.0 as f64;
        let room = match self.hold {
            Hold::Until(until, _) => u64::from(now >= until),
            Hold::Probing(..) => 0,
            Hold::None => match self.rate() {
                None => return u64::MAX,
                Some(rate) => {
                    let spacing = 1_000.0 / rate;
                    let ahead = now + BURST.max(spacing) - self.next;
                    (ahead / spacing).clamp(0.0, 1e15) as u64
                }
            },
        };
        self.limiting |= room == 0;
        room
    }

    /// Counts calls that start.
    pub fn start(&mut self, calls: u64, now: Timestamp) {
        let now = now.0 as f64;
        if let Hold::Until(_, length) = self.hold {
            self.hold = Hold::Probing(now, length);
        }
        if let Some(rate) = self.rate() {
            self.next = self.next.max(now) + calls as f64 * 1_000.0 / rate;
        }
    }

    /// A started call was not made: its start is returned.
    pub fn release(&mut self) {
        if let Hold::Probing(at, length) = self.hold {
            self.hold = Hold::Until(at, length);
        }
        if let Some(rate) = self.rate() {
            self.next -= 1_000.0 / rate;
        }
    }

    /// When the next call may start, if none may now. Never earlier than a hundredth of a second from now, unless a
    /// hold ends: who waits longer loses nothing.
    pub fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let at = now.0 as f64;
        let next = match (self.hold, self.rate()) {
            (Hold::Until(until, _), _) => until,
            // The answer, or the end of the lease, tells more.
            (Hold::Probing(..), _) => at + 1_000.0,
            (Hold::None, Some(rate)) => {
                (self.next - BURST.max(1_000.0 / rate) + 1_000.0 / rate).max(at + 10.0)
            }
            (Hold::None, None) => return None,
        };
        Some(Timestamp((next.ceil() as u64).max(now.0)))
    }

    /// The downstream delivered: the call that started at `started` was answered at `now`.
    pub fn answered(&mut self, started: Timestamp, now: Timestamp) {
        let (started, now) = (started.0 as f64, now.0 as f64);
        self.delivered.answer(started, now);
        self.delivered.count[2] += 1;
        self.cycle_count += 1;
        self.round_trip += ((now - started).min(LONGEST_TRIP) - self.round_trip) / 8.0;
        if let Hold::Probing(at, _) = self.hold
            && started >= at
        {
            self.hold = Hold::None;
            self.next = now + self.rate().map_or(0.0, |rate| BURST.max(1_000.0 / rate));
            self.grown_at = now;
        }
    }

    /// The call that started at `started` ended without an answer. If it was the probe, another one may start.
    pub fn lost(&mut self, started: Timestamp, now: Timestamp) {
        if let Hold::Probing(at, length) = self.hold
            && started.0 as f64 >= at
        {
            self.hold = Hold::Until(now.0 as f64, length);
        }
    }

    /// The rate at which calls start while so many are under way, each for as long as this one.
    pub fn guess(running: u64, started: Timestamp, now: Timestamp) -> f64 {
        let rate = running.max(1) as f64 * 1_000.0 / (now.since(started).0.max(1)) as f64;
        rate.max(2.0 * LEAST_KNOWN)
    }

    /// As it will be at `now`, if nothing happens before.
    pub fn at(&self, configured: f64, now: Timestamp) -> Self {
        let mut downstream = self.clone();
        downstream.advance(configured, now);
        downstream
    }

    /// The downstream is overloaded, says the answer to a call that started at `started`. Returns whether that slowed
    /// down calls.
    pub fn overloaded(
        &mut self,
        started: Timestamp,
        retry_after: Option<Millis>,
        configured: f64,
        now: Timestamp,
    ) -> bool {
        let (started, now) = (started.0 as f64, now.0 as f64);
        self.delivered.answer(started, now);
        self.round_trip += ((now - started).min(LONGEST_TRIP) - self.round_trip) / 8.0;
        let probe = match self.hold {
            Hold::Probing(at, length) if started >= at => Some(length),
            _ => None,
        };
        let mut sustained = None;
        if let Some(after) = retry_after {
            let until = now + after.0 as f64;
            let longer = matches!(self.hold, Hold::Until(before, _) if before >= until);
            if !longer {
                self.hold = Hold::Until(until, after.0 as f64);
                // A quota of a longer period: what was delivered since the last hold is all until this one ends.
                let cycle = until - self.cycle_since;
                if self.cycle_since > 0.0 && cycle > 0.0 && cycle <= CYCLES * after.0 as f64 {
                    sustained = Some(self.cycle_count as f64 * 1_000.0 / cycle);
                    self.cycle = cycle.min(GROWTH_MOST);
                }
                (self.cycle_since, self.cycle_count) = (until, 0);
            }
        } else if let Some(length) = probe {
            let length = (length * 2.0).clamp(FIRST_HOLD, LONGEST_HOLD);
            self.hold = Hold::Until(now + length, length);
        }
        let known = self.cut_at > 0.0 && started <= self.cut_at && now - self.cut_at > MEASURING;
        if known || probe.is_some() {
            return retry_after.is_some() || probe.is_some();
        }
        let current = self.rate().unwrap_or(configured);
        let total = self.delivered.total();
        self.delivered.rejected[2] += 1;
        if total == 0 && self.cut.is_some() {
            if started <= self.cut_at {
                return retry_after.is_some();
            }
            // Nothing was delivered since the cut: a lower rate would not help, and calling on would waste calls.
            if self.hold == Hold::None {
                self.hold = Hold::Until(now + FIRST_HOLD, FIRST_HOLD);
            }
            return true;
        }
        let delivered = match total {
            0 => current / 2.0,
            // A single rejection is a small step too far.
            _ if self.cut.is_some() && total >= PART_CALLS && self.delivered.rejected == [0, 0, 1] => current,
            // So few calls are a poor clock; but how many of them were delivered is exact.
            _ if total < FEW && self.cut.is_some() => {
                self.delivered.rate(now).max(current * self.delivered.share())
            }
            _ => self.delivered.rate(now),
        };
        // Calls that nobody asked for say nothing about the capacity.
        let least = match self.cut {
            None => LEAST_KNOWN,
            Some(_) if !self.limiting && (self.growth == 0.0 || self.growth == GUESSED) => current / 2.0,
            Some(_) => 0.0,
        };
        let delivered = sustained.map_or(delivered.max(least), |rate| rate.min(delivered).max(SLOWEST));
        let settled = self.cut_at == 0.0 || started > self.cut_at && now - self.cut_at >= SETTLING;
        let target = (delivered * KEPT).min(if settled { current * STEP } else { current });
        if target >= current {
            return retry_after.is_some();
        }
        let target = target.max(SLOWEST.min(configured));
        let guessed = total < PART_CALLS;
        self.growth = if guessed { GUESSED } else { 0.0 };
        self.cut = Some(target / grown(self.growth));
        if self.cut_at == 0.0 || started > self.cut_at {
            self.cut_at = now;
        }
        self.grown_at = now;
        self.limiting = false;
        // What was saved up is gone: the next call starts after an even spacing.
        self.next = now + BURST.max(1_000.0 / target);
        true
    }
}

#[cfg(test)]
#[path = "downstream_tests.rs"]
mod tests;
