//! A token bucket in whole thousandths of a token.
//!
//! At `rate` tokens per second one millisecond mints exactly `rate` thousandths, so nothing is ever rounded and
//! the time of the next token is exact. Every number stays below 2^53.

use serde::{Deserialize, Serialize};

use crate::time::{Millis, Timestamp};

/// Thousandths in one token.
pub const TOKEN: u64 = 1_000;

/// The refill rate and the capacity of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketConfig {
    /// Tokens per second; at least 1.
    pub rate: u64,
    /// Capacity in tokens; at least 1.
    pub burst: u64,
}

/// The state of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Thousandths of a token as of `at`.
    pub level: u64,
    /// When tokens were last minted. If in the future, nothing is minted before then.
    pub at: Timestamp,
}

impl Bucket {
    /// An empty bucket that mints from `at` on.
    pub fn empty(at: Timestamp) -> Self {
        Self { level: 0, at }
    }

    /// Mints the tokens due at `now`. A clock that went back mints nothing, one that jumped ahead at most the
    /// burst.
    pub fn refill(&mut self, config: BucketConfig, now: Timestamp) {
        let full = config.burst * TOKEN;
        let elapsed = now.since(self.at).0;
        // Bounded before the multiplication: a long silence must stay within the range of exact numbers.
        self.level = match elapsed >= full.div_ceil(config.rate) {
            true => full,
            false => full.min(self.level + elapsed * config.rate),
        };
        self.at = self.at.max(now);
    }

    /// Whole tokens available.
    pub fn tokens(&self) -> u64 {
        self.level / TOKEN
    }

    /// Takes whole tokens. Panics if there are fewer: every caller has checked.
    pub fn spend(&mut self, tokens: u64) {
        assert!(tokens <= self.tokens(), "{tokens} taken of {}", self.tokens());
        self.level -= tokens * TOKEN;
    }

    /// When `tokens` are available if nobody takes any: time 0 if they are, `None` if they exceed the burst.
    pub fn ready_at(&self, config: BucketConfig, tokens: u64) -> Option<Timestamp> {
        let missing = (tokens * TOKEN).saturating_sub(self.level);
        match missing {
            0 => Some(Timestamp(0)),
            _ if tokens > config.burst => None,
            _ => Some(self.at + Millis(missing.div_ceil(config.rate))),
        }
    }
}
