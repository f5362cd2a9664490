//! A budget's settings as arguments.

use tidegate_core::budget::{BudgetConfig, MAX_PER_DAY};
use tidegate_redis::Args;

use super::decode::Seen;

const MINUTE_MS: i64 = 60_000;

/// What this process has seen of the budget, and its settings as numbers.
pub(super) fn budget_args(config: &BudgetConfig, seen: Seen) -> Args {
    let (all, low) = (config.bucket(), config.low_bucket());
    let (quota, low_quota) = match config.per_day {
        0 => (MAX_PER_DAY, MAX_PER_DAY),
        all => (all, all - config.day_reserve),
    };
    let zone = config.zone;
    let shift = (i64::from(zone.utc_offset_minutes) - i64::from(zone.day_starts_at_minutes)) * MINUTE_MS;
    let mut args = Args::default();
    args.big(seen.day.day).big(seen.day.used).big(seen.day.low);
    args.big(seen.hold_until.0);
    args.big(all.rate).big(all.burst).big(low.rate).big(low.burst);
    args.big(config.low_floor_percent).big(quota).big(low_quota);
    args.number(shift).span(config.validity_ms);
    args
}
