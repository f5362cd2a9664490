//! The place of a flow in the order: start-time fair queueing (SFQ), or a score.
//!
//! Both policies give an integer. The smallest goes next; ties break by the sequence in which flows took their
//! places.
//!
//! Fair: each flow has a virtual tag. Serving it advances the tag by a step inversely proportional to the
//! group's weight; virtual time is the tag of the flow served last. A flow that returns gets
//! `max(its tag, virtual time)`, so nobody saves up credit while idle.
//!
//! Score: `since + base_priority + alpha × min(1, served / remaining)`, where `since` is the time at which the
//! flow became eligible or was last served. Older goes first. The served share is bounded, so that every flow
//! is served within a bounded time (unbounded, the last of a million jobs would wait 115 days).

/// One pick at weight 1. Large enough that a step at weight 100 is still exact to 0.01 %.
pub const STEP_UNIT: u64 = 1 << 20;

/// Limit: tags stay below 2^53, so that they are exact in a double, the only number type of Lua.
pub const TAG_LIMIT: u64 = 1 << 53;

/// Limit: the range of `base_priority`, ±: weights from 1/64 to 64.
pub const MAX_BASE_PRIORITY: i32 = 6_000_000;

/// The advance of a group's tag per pick: −1,000,000 is weight 2, 0 is 1, +1,000,000 is ½.
pub fn step(base_priority: i32) -> u64 {
    let weight = 2f64.powf(-f64::from(base_priority) / 1_000_000.0);
    (STEP_UNIT as f64 / weight).round() as u64
}

/// The `score` policy as a formula.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorityCalculator {
    pub alpha: f64,
}

/// The inputs of the formula.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorityInput {
    /// When the flow became eligible or was last served, in milliseconds.
    pub since_ms: u64,
    pub base_priority: i32,
    pub total_jobs: u64,
    /// Jobs served, not jobs finished: running jobs count.
    pub done_jobs: u64,
}

impl PriorityCalculator {
    pub fn calculate(&self, input: PriorityInput) -> i64 {
        let remaining = input.total_jobs.saturating_sub(input.done_jobs).max(1);
        let served = (input.done_jobs as f64 / remaining as f64).min(1.0);
        input.since_ms as i64 + i64::from(input.base_priority) + (self.alpha * served).floor() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_706_000_000_000;

    fn score(alpha: f64, since_ms: u64, base_priority: i32, done_jobs: u64) -> i64 {
        PriorityCalculator { alpha }.calculate(PriorityInput {
            since_ms,
            base_priority,
            total_jobs: 100,
            done_jobs,
        })
    }

    #[test]
    fn older_goes_first() {
        assert!(score(10_000.0, NOW, 0, 0) < score(10_000.0, NOW + 1_000_000, 0, 0));
    }

    #[test]
    fn premium_goes_first() {
        assert!(score(10_000.0, NOW, -1_000_000, 0) < score(10_000.0, NOW, 0, 0));
    }

    #[test]
    fn positive_alpha_puts_the_served_later() {
        assert!(score(10_000.0, NOW, 0, 95) > score(10_000.0, NOW, 0, 5));
    }

    #[test]
    fn negative_alpha_puts_the_nearly_done_first() {
        assert!(score(-10_000.0, NOW, 0, 95) < score(-10_000.0, NOW, 0, 5));
    }

    #[test]
    fn the_served_share_is_bounded() {
        let input = |done_jobs| PriorityInput {
            since_ms: NOW,
            base_priority: 0,
            total_jobs: 1_000_000,
            done_jobs,
        };
        for alpha in [10_000.0, -10_000.0] {
            let calculator = PriorityCalculator { alpha };
            let spread = calculator.calculate(input(999_999)) - calculator.calculate(input(0));
            assert_eq!(spread.unsigned_abs(), 10_000);
        }
    }

    #[test]
    fn base_priority_is_a_weight() {
        assert_eq!(step(0), STEP_UNIT);
        assert_eq!(step(-1_000_000), STEP_UNIT / 2);
        assert_eq!(step(1_000_000), STEP_UNIT * 2);
        assert_eq!(step(-MAX_BASE_PRIORITY), STEP_UNIT / 64);
    }
}
