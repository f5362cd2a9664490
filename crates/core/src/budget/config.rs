//! Settings of one target's budget, and the relations that keep it under the provider's limits.

use serde::{Deserialize, Serialize};

use super::bucket::BucketConfig;
use super::day::DayZone;
use crate::config::{ConfigError, ensure};
use crate::priority::Priority;
use crate::time::Millis;

/// Limit: keeps products of rates and times below 2^53, where scripts still count exactly.
pub const MAX_RATE: u64 = 1_000_000;
/// Limit: the longest configurable hold, a week.
const MAX_HOLD: Millis = Millis(7 * 86_400_000);
/// Limit: the largest daily quota.
pub const MAX_PER_DAY: u64 = 1_000_000_000_000;

/// How many calls a target accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// The provider's limit: calls that arrive in any second.
    pub hard_limit: u64,
    /// Calls granted per second.
    pub rate: u64,
    /// Calls that may start at once after an idle period.
    pub burst: u64,
    /// How long a token is valid, in milliseconds. An expired token is void, so that calls delayed by a stalled
    /// process or by jitter never arrive together with later ones.
    pub validity_ms: Millis,
    /// Maximum calls of low priority that arrive in any second.
    pub low_cap: u64,
    /// Calls of low priority that may start at once; part of `low_cap`.
    pub low_burst: u64,
    /// Of 100 calls, the minimum for low priority while it has demand. 0 = none while high uses everything.
    pub low_floor_percent: u64,
    /// Calls per day of the provider; 0 = unlimited.
    pub per_day: u64,
    /// Calls of `per_day` reserved for high priority.
    pub day_reserve: u64,
    /// The day's count is persisted in blocks of this many calls. A crash overcounts by at most one block.
    pub day_block: u64,
    /// Longest hold that one response of the provider can cause, in milliseconds. After it, a call checks
    /// whether a longer Retry-After still applies.
    pub max_hold_ms: Millis,
    /// When the provider's day begins.
    pub zone: DayZone,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            hard_limit: 500,
            rate: 450,
            burst: 25,
            validity_ms: Millis(50),
            low_cap: 350,
            low_burst: 10,
            low_floor_percent: 5,
            per_day: 20_000_000,
            day_reserve: 2_000_000,
            day_block: 1_000,
            max_hold_ms: Millis(3_600_000),
            zone: DayZone::default(),
        }
    }
}

impl BudgetConfig {
    /// The bucket of all calls.
    pub fn bucket(&self) -> BucketConfig {
        BucketConfig {
            rate: self.rate,
            burst: self.burst,
        }
    }

    /// The bucket of low-priority calls. Its rate is what `low_rate × (1 s + validity) + low_burst ≤ low_cap`
    /// leaves.
    pub fn low_bucket(&self) -> BucketConfig {
        BucketConfig {
            rate: self.low_cap.saturating_sub(self.low_burst) * 1_000 / (1_000 + self.validity_ms.0),
            burst: self.low_burst,
        }
    }

    /// The hold for a provider that asks for `wait`.
    pub fn held_for(&self, wait: Millis) -> Millis {
        wait.min(self.max_hold_ms)
    }

    /// Calls of a day that a priority may use; for low, only its own count.
    pub(super) fn day_quota(&self, priority: Priority) -> u64 {
        match (self.per_day, priority) {
            (0, _) => MAX_PER_DAY,
            (all, Priority::High) => all,
            (all, Priority::Low) => all - self.day_reserve,
        }
    }

    /// The maximum, in thousandths of a call, that can arrive in one second: `rate × (1 s + validity) + burst`.
    fn worst_second(&self) -> u64 {
        self.rate * (1_000 + self.validity_ms.0) + self.burst * 1_000
    }

    /// Checks every value and relation; the message names the values. `name` is the target's.
    pub fn validate(&self, name: &str) -> Result<(), ConfigError> {
        for (field, value) in [
            ("rate", self.rate),
            ("burst", self.burst),
            ("low_burst", self.low_burst),
            ("day_block", self.day_block),
        ] {
            ensure!(
                (1..=MAX_RATE).contains(&value),
                "budgets.{name}.{field} = {value}: it must be from 1 to {MAX_RATE}"
            );
        }
        ensure!(
            (1..=10_000).contains(&self.validity_ms.0),
            "budgets.{name}.validity_ms = {}: it must be from 1 to 10000",
            self.validity_ms.0
        );
        ensure!(
            (Millis(1)..=MAX_HOLD).contains(&self.max_hold_ms),
            "budgets.{name}.max_hold_ms = {}: it must be from 1 to {}",
            self.max_hold_ms.0,
            MAX_HOLD.0
        );
        let worst = self.worst_second();
        ensure!(
            worst <= self.hard_limit.saturating_mul(1_000),
            "budgets.{name}: rate {} × (1 s + validity {}) + burst {} = {}.{:03} calls can arrive in one \
             second, more than hard_limit = {}: lower one of them",
            self.rate,
            self.validity_ms,
            self.burst,
            worst / 1_000,
            worst % 1_000,
            self.hard_limit
        );
        self.validate_low(name)?;
        self.validate_day(name)
    }

    fn validate_low(&self, name: &str) -> Result<(), ConfigError> {
        ensure!(
            self.low_cap <= self.hard_limit,
            "budgets.{name}.low_cap = {} is above hard_limit = {}: low priority is part of all calls",
            self.low_cap,
            self.hard_limit
        );
        ensure!(
            self.low_bucket().rate >= 1,
            "budgets.{name}: low_cap = {} with low_burst = {} and validity {} leaves low priority no call \
             per second; raise low_cap or lower low_burst",
            self.low_cap,
            self.low_burst,
            self.validity_ms
        );
        ensure!(
            self.low_floor_percent <= 50,
            "budgets.{name}.low_floor_percent = {}: at most 50, or low priority goes first",
            self.low_floor_percent
        );
        Ok(())
    }

    fn validate_day(&self, name: &str) -> Result<(), ConfigError> {
        ensure!(
            self.per_day <= MAX_PER_DAY,
            "budgets.{name}.per_day = {}: at most {MAX_PER_DAY}",
            self.per_day
        );
        ensure!(
            self.per_day == 0 || self.day_reserve < self.per_day,
            "budgets.{name}.day_reserve = {} leaves nothing of per_day = {} for low priority",
            self.day_reserve,
            self.per_day
        );
        ensure!(
            (-840..=840).contains(&self.zone.utc_offset_minutes),
            "budgets.{name}.zone.utc_offset_minutes = {}: it must be from -840 to 840",
            self.zone.utc_offset_minutes
        );
        ensure!(
            self.zone.day_starts_at_minutes < 1_440,
            "budgets.{name}.zone.day_starts_at_minutes = {}: it must be below 1440",
            self.zone.day_starts_at_minutes
        );
        Ok(())
    }
}
