//! The freshness that a reader sees, and how old a snapshot may get.

use serde::{Deserialize, Serialize};

use super::config::TierConfig;
use crate::time::Timestamp;

/// How active a record is: it decides how often it is refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Tier {
    Hot,
    Warm,
    Cold,
}

impl Tier {
    pub const ALL: [Tier; 3] = [Tier::Hot, Tier::Warm, Tier::Cold];

    /// Classifies a record by when it was last active; never active means COLD.
    pub fn of(config: &TierConfig, active_at: Option<Timestamp>, now: Timestamp) -> Tier {
        match active_at.map(|at| now.since(at)) {
            Some(age) if age < config.hot_active_ms => Tier::Hot,
            Some(age) if age < config.warm_active_ms => Tier::Warm,
            _ => Tier::Cold,
        }
    }
}

/// The age of a snapshot, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Freshness {
    /// Checked within the time that its tier allows.
    Fresh,
    /// Has data, but older than that. `updateQueued`, not this word, shows whether a refresh is pending.
    Stale,
    /// No data yet; a refresh is pending.
    Updating,
    /// The upstream reported that there is no such record.
    NotFound,
    /// No data, and no refresh could be queued: retry later.
    Unavailable,
}

/// What is known when a reader reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadFacts {
    /// When the snapshot was last checked against the upstream, if there is one.
    pub checked_at: Option<Timestamp>,
    /// The upstream reported that the record does not exist, and that result is still valid.
    pub absent: bool,
    /// A refresh is pending.
    pub queued: bool,
    pub tier: Tier,
}

/// Whether a snapshot that was checked at `checked_at` needs a refresh.
pub fn is_stale(config: &TierConfig, tier: Tier, checked_at: Timestamp, now: Timestamp) -> bool {
    now.since(checked_at) >= config.fresh_for(tier)
}

/// The freshness to report. A confirmed absence wins over an old snapshot: the record is gone.
pub fn freshness(config: &TierConfig, facts: ReadFacts, now: Timestamp) -> Freshness {
    match facts {
        ReadFacts { absent: true, .. } => Freshness::NotFound,
        ReadFacts {
            checked_at: Some(at),
            tier,
            ..
        } if is_stale(config, tier, at, now) => Freshness::Stale,
        ReadFacts {
            checked_at: Some(_), ..
        } => Freshness::Fresh,
        ReadFacts { queued: true, .. } => Freshness::Updating,
        _ => Freshness::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    const HOUR: u64 = 3_600_000;

    fn read(checked_ago: Option<u64>, absent: bool, queued: bool, tier: Tier) -> Freshness {
        let now = Timestamp(100 * HOUR);
        let facts = ReadFacts {
            checked_at: checked_ago.map(|ago| now - Millis(ago)),
            absent,
            queued,
            tier,
        };
        freshness(&TierConfig::default(), facts, now)
    }

    #[test]
    fn every_word_means_one_thing() {
        use Freshness::*;
        assert_eq!(read(Some(HOUR - 1), false, false, Tier::Hot), Fresh);
        assert_eq!(read(Some(HOUR), false, true, Tier::Hot), Stale);
        assert_eq!(read(Some(HOUR), false, false, Tier::Hot), Stale);
        assert_eq!(read(None, false, true, Tier::Hot), Updating);
        assert_eq!(read(None, true, true, Tier::Hot), NotFound);
        assert_eq!(read(None, false, false, Tier::Hot), Unavailable);
        assert_eq!(serde_json::to_string(&NotFound).unwrap(), "\"NOT_FOUND\"");
    }

    #[test]
    fn warm_and_cold_records_are_fresh_until_their_prefetch_should_have_come() {
        assert_eq!(read(Some(6 * HOUR), false, false, Tier::Warm), Freshness::Fresh);
        assert_eq!(read(Some(7 * HOUR), false, false, Tier::Warm), Freshness::Stale);
        assert_eq!(read(Some(24 * HOUR), false, false, Tier::Cold), Freshness::Fresh);
        assert_eq!(read(Some(25 * HOUR), false, false, Tier::Cold), Freshness::Stale);
    }

    #[test]
    fn tiers_follow_activity() {
        let config = TierConfig::default();
        let now = Timestamp(1_000 * HOUR);
        let tier = |ago: u64| Tier::of(&config, Some(now - Millis(ago * HOUR)), now);
        assert_eq!([tier(0), tier(23), tier(24)], [Tier::Hot, Tier::Hot, Tier::Warm]);
        assert_eq!([tier(167), tier(168)], [Tier::Warm, Tier::Cold]);
        assert_eq!(Tier::of(&config, None, now), Tier::Cold);
    }
}
