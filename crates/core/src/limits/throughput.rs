//! How fast jobs start, measured in slots of five seconds, with what came before merged.
//!
//! Only busy time counts. While nobody waits, or nobody asks, the number of starts says nothing about what is possible:
//! [`Throughput::idle`] stops the clock, and the next start lets it go on. A busy spell of less than a second says
//! nothing either. A start that came to nothing is refunded, so that what is counted are jobs that got through.
//!
//! All numbers are integers below 2^53, so that the scripts of a Redis store keep exactly the same record.

use crate::time::{Millis, Timestamp};

/// The length of a slot.
pub const SLOT: Millis = Millis(5_000);
/// Slots that are kept one by one.
pub const SLOTS: usize = 6;
/// What is merged covers at most this much busy time; beyond it weighs half.
pub const OLDER_MOST: Millis = Millis(300_000);
/// After this much idle time everything may have changed.
pub const FORGOTTEN: Millis = Millis(900_000);
/// A shorter busy spell says nothing.
pub const SPELL: Millis = Millis(1_000);

/// Starts and busy time of a queue, or of one flow. Slots are aligned on a clock that runs in busy time only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Throughput {
    /// When the measure began, by the busy clock; 0 before the first start.
    pub since: u64,
    /// Idle time so far (ms): the busy clock is the time without it.
    pub lost: u64,
    /// Since when it is idle; 0 while it is busy.
    pub idle_at: u64,
    /// When the running busy spell began, and its starts.
    pub spell_at: u64,
    pub spell: u64,
    /// The number of the latest slot, and the starts in it and in those before it.
    pub slot: u64,
    pub starts: [u64; SLOTS],
    /// Starts and busy time (ms) before these slots.
    pub older: u64,
    pub older_ms: u64,
}

/// One stretch of busy time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub starts: u64,
    pub ms: u64,
}

impl Throughput {
    /// The time by the busy clock.
    fn busy(&self, now: Timestamp) -> u64 {
        let until = if self.idle_at > 0 { self.idle_at } else { now.0 };
        until.saturating_sub(self.lost)
    }

    /// Moves slots that are over to where they belong.
    fn turn(&mut self, busy: u64) {
        let slot = busy / SLOT.0;
        let passed = slot.saturating_sub(self.slot);
        if passed == 0 {
            return;
        }
        self.slot = slot;
        for _ in 0..passed.min(SLOTS as u64) {
            self.older += self.starts[SLOTS - 1];
            self.starts.rotate_right(1);
            self.starts[0] = 0;
        }
        let ends = slot.saturating_sub(SLOTS as u64 - 1) * SLOT.0;
        let begins = ends.saturating_sub(passed * SLOT.0).max(self.since);
        self.older_ms += ends.saturating_sub(begins);
        while self.older_ms > OLDER_MOST.0 {
            self.older /= 2;
            self.older_ms /= 2;
        }
    }

    /// Counts starts. Those that begin the measure are only its origin.
    pub fn start(&mut self, count: u64, now: Timestamp) {
        if self.idle_at > 0 {
            let idle = now.0.saturating_sub(self.idle_at);
            if idle > FORGOTTEN.0 {
                *self = Self::default();
            } else {
                self.lost += idle;
                self.idle_at = 0;
                (self.spell_at, self.spell) = (now.0, 0);
            }
        }
        let busy = self.busy(now);
        if self.since == 0 {
            self.since = busy;
            self.slot = busy / SLOT.0;
            (self.spell_at, self.spell) = (now.0, 0);
            return;
        }
        self.turn(busy);
        self.starts[0] += count;
        self.spell += count;
    }

    /// A start at this time came to nothing.
    pub fn refund(&mut self, started: Timestamp) {
        let slot = started.0.saturating_sub(self.lost) / SLOT.0;
        if let Some(back) = self.slot.checked_sub(slot)
            && back < SLOTS as u64
            && self.since > 0
        {
            let starts = &mut self.starts[back as usize];
            *starts = starts.saturating_sub(1);
        }
    }

    /// From here on nothing waits.
    pub fn idle(&mut self, now: Timestamp) {
        if self.idle_at > 0 || self.since == 0 {
            return;
        }
        self.turn(self.busy(now));
        if now.0.saturating_sub(self.spell_at) < SPELL.0 {
            self.starts[0] = self.starts[0].saturating_sub(self.spell);
            self.lost += now.0.saturating_sub(self.spell_at);
        }
        self.idle_at = now.0;
    }

    /// The measured stretches, the latest first; the last one is what was merged.
    pub fn stretches(&self, now: Timestamp) -> Vec<Stretch> {
        if self.since == 0 {
            return Vec::new();
        }
        let mut copy = self.clone();
        let busy = copy.busy(now);
        copy.turn(busy);
        let mut stretches = Vec::with_capacity(SLOTS + 1);
        for (back, &starts) in copy.starts.iter().enumerate() {
            let Some(slot) = copy.slot.checked_sub(back as u64) else {
                break;
            };
            let (begins, ends) = ((slot * SLOT.0).max(copy.since), ((slot + 1) * SLOT.0).min(busy));
            if ends > begins || starts > 0 {
                let ms = ends.saturating_sub(begins);
                stretches.push(Stretch { starts, ms });
            }
        }
        if copy.older_ms > 0 {
            stretches.push(Stretch {
                starts: copy.older,
                ms: copy.older_ms,
            });
        }
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: u64 = 1_706_000_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp(T0 + ms)
    }

    fn total(throughput: &Throughput, now: u64) -> Stretch {
        throughput
            .stretches(at(now))
            .into_iter()
            .fold(Stretch { starts: 0, ms: 0 }, |sum, one| Stretch {
                starts: sum.starts + one.starts,
                ms: sum.ms + one.ms,
            })
    }

    #[test]
    fn a_steady_rate_is_measured_as_it_is() {
        let mut throughput = Throughput::default();
        for tick in 0..=400 {
            throughput.start(1, at(tick * 100));
        }
        assert_eq!(
            total(&throughput, 40_000),
            Stretch {
                starts: 400,
                ms: 40_000
            }
        );
        let slots = throughput.stretches(at(40_000));
        assert_eq!(
            slots[1],
            Stretch {
                starts: 50,
                ms: 5_000
            }
        );
        assert_eq!(
            slots.last(),
            Some(&Stretch {
                starts: 149,
                ms: 15_000
            })
        );
    }

    #[test]
    fn idle_time_does_not_count() {
        let mut throughput = Throughput::default();
        for tick in 0..=100 {
            throughput.start(1, at(tick * 100));
        }
        throughput.idle(at(10_000));
        throughput.idle(at(20_000));
        assert_eq!(
            total(&throughput, 60_000),
            Stretch {
                starts: 100,
                ms: 10_000
            }
        );
        for tick in 0..=20 {
            throughput.start(1, at(60_000 + tick * 100));
        }
        assert_eq!(
            total(&throughput, 62_000),
            Stretch {
                starts: 121,
                ms: 12_000
            }
        );
    }

    #[test]
    fn a_short_spell_says_nothing() {
        let mut throughput = Throughput::default();
        for tick in 0..=100 {
            throughput.start(1, at(tick * 100));
        }
        throughput.idle(at(10_000));
        for second in 20..40 {
            throughput.start(7, at(second * 1_000));
            throughput.idle(at(second * 1_000 + 1));
        }
        assert_eq!(
            total(&throughput, 60_000),
            Stretch {
                starts: 100,
                ms: 10_000
            }
        );
    }

    #[test]
    fn what_is_refunded_never_started() {
        let mut throughput = Throughput::default();
        throughput.start(1, at(0));
        throughput.start(3, at(1_000));
        throughput.start(2, at(7_000));
        throughput.refund(at(1_000));
        assert_eq!(total(&throughput, 8_000).starts, 4);
    }

    #[test]
    fn after_a_long_rest_the_measure_begins_again() {
        let mut throughput = Throughput::default();
        throughput.start(1, at(0));
        throughput.start(5, at(2_000));
        throughput.idle(at(3_000));
        throughput.start(9, at(4_000_000));
        assert_eq!(total(&throughput, 4_002_000), Stretch { starts: 0, ms: 2_000 });
    }

    proptest::proptest! {
        /// Whatever happens, no time and no start is invented.
        #[test]
        fn no_more_is_measured_than_happened(steps in proptest::collection::vec((0u64..20_000, 0u64..5, 0u8..8), 1..200)) {
            let mut throughput = Throughput::default();
            let (mut now, mut starts) = (0, 0);
            for (wait, count, what) in steps {
                now += wait;
                match what {
                    0 => throughput.idle(at(now)),
                    1 => throughput.refund(at(now.saturating_sub(wait))),
                    _ => {
                        throughput.start(count, at(now));
                        starts += count;
                    }
                }
                let sum = total(&throughput, now);
                proptest::prop_assert!(sum.starts <= starts);
                proptest::prop_assert!(sum.ms <= now, "{} of {now} ms", sum.ms);
            }
        }
    }
}
