//! What is refreshed ahead of demand: how many records in this tick, and which go first.
//!
//! The hourly rates are ceilings. The plan spreads what is left of the day over the rest of the day, in
//! proportion to those ceilings, so it can never use more than the day has. Nor does it exceed what can be
//! fetched in time on top of the queued events, at the measured rate: late work would be wasted and would delay
//! what is due by then.

use super::config::PrefetchConfig;
use crate::budget::DayZone;
use crate::time::{Millis, Timestamp};

const HOUR_MS: u64 = 3_600_000;

/// The inputs of a tick's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanParams {
    /// Low-priority calls left in the day, without the reserve for readers.
    pub day_left: u64,
    /// When the day ends.
    pub day_ends: Timestamp,
    /// Waiting low-priority events, which use the same calls.
    pub queued: u64,
    /// Low-priority events settled recently, in thousandths per second. Meaningful only while events wait:
    /// otherwise it measures the demand, not the capacity.
    pub milli_rate: u64,
    pub zone: DayZone,
}

/// Maximum records to prefetch in the tick that begins at `now`.
pub fn plan(config: &PrefetchConfig, params: PlanParams, now: Timestamp) -> u64 {
    let tick_ends = (now + config.tick_ms).min(params.day_ends);
    let tick = allowance(config, params.zone, now, tick_ends);
    let rest = allowance(config, params.zone, now, params.day_ends);
    let left = u128::from(params.day_left.saturating_sub(params.queued));
    let share = (left * tick).checked_div(rest).unwrap_or(0);
    let share = u64::try_from(share.min(tick / 1_000)).unwrap_or(u64::MAX);
    share.min(in_time(config, params))
}

/// How many more can be fetched within the longest lag, after the waiting events.
fn in_time(config: &PrefetchConfig, params: PlanParams) -> u64 {
    if params.queued == 0 {
        return u64::MAX;
    }
    let within = u128::from(params.milli_rate) * u128::from(config.max_lag_ms.0) / 1_000_000;
    u64::try_from(within)
        .unwrap_or(u64::MAX)
        .saturating_sub(params.queued)
}

/// Records, in thousandths, that the hourly ceilings allow between two times, at most a day apart.
fn allowance(config: &PrefetchConfig, zone: DayZone, from: Timestamp, to: Timestamp) -> u128 {
    let mut at = from;
    let mut sum = 0;
    // Zones are whole minutes from UTC, so hours turn at whole minutes of it: at most 26 steps for a day.
    while at < to {
        let offset = i64::from(zone.utc_offset_minutes) * 60_000;
        let into_hour = at.0.saturating_add_signed(offset) % HOUR_MS;
        let turn = (at + Millis(HOUR_MS - into_hour)).min(to);
        sum += u128::from(ceiling(config, zone.hour(at))) * u128::from(turn.since(at).0);
        at = turn;
    }
    sum
}

/// Maximum records per second in an hour of the provider's clock.
pub fn ceiling(config: &PrefetchConfig, hour: u32) -> u64 {
    match (config.peak_from_hour..=config.peak_to_hour).contains(&hour) {
        true => config.peak_rate,
        false => config.other_rate,
    }
}

/// How overdue a record is, in thousandths of its tier's interval; `None` if it is not due. The largest goes
/// first, so a HOT record an hour late goes before a COLD one an hour late.
pub fn overdue(interval: Millis, checked_at: Timestamp, now: Timestamp) -> Option<u64> {
    let late = now.0.checked_sub((checked_at + interval).0)?;
    let thousandths = u128::from(late) * 1_000 / u128::from(interval.0.max(1));
    Some(u64::try_from(thousandths).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::DAY_MS;
    use crate::refresh::config::TierConfig;
    use crate::refresh::freshness::Tier;

    const SEOUL: DayZone = DayZone {
        utc_offset_minutes: 540,
        day_starts_at_minutes: 0,
    };

    /// Simulates a day in which every planned record is called, and others take up to `others_per_tick`.
    /// Returns the plan of each hour, and what others took.
    fn day(quota: u64, others_per_tick: u64) -> (Vec<u64>, u64) {
        let config = PrefetchConfig::default();
        let start = SEOUL.start(20_700);
        let mut left = quota;
        let (mut hours, mut others) = (vec![0; 24], 0);
        for tick in 0..1_440 {
            let now = start + Millis(tick * 60_000);
            let params = PlanParams {
                day_left: left,
                day_ends: SEOUL.start(20_701),
                queued: 0,
                milli_rate: 0,
                zone: SEOUL,
            };
            let planned = plan(&config, params, now);
            hours[SEOUL.hour(now) as usize] += planned;
            left -= planned;
            let taken = left.min(others_per_tick);
            others += taken;
            left -= taken;
        }
        (hours, others)
    }

    #[test]
    fn a_day_is_spread_by_the_hours_and_never_over() {
        let (hours, _) = day(18_000_000, 0);
        let total: u64 = hours.iter().sum();
        assert!((17_990_000..=18_000_000).contains(&total), "{total}");
        assert!(hours[12] <= 250 * 3_600 && hours[20] <= 150 * 3_600, "{hours:?}");
        // 18 of the 19.8 million that the ceilings would allow.
        assert!(hours[12].abs_diff(818_181) < 500, "{hours:?}");
        assert!(hours[19].abs_diff(490_909) < 500, "{hours:?}");
    }

    #[test]
    fn the_ceilings_hold_when_there_is_more_than_the_day_can_use() {
        let (hours, _) = day(100_000_000, 0);
        assert_eq!((hours[3], hours[19], hours[23]), (900_000, 540_000, 540_000));
    }

    #[test]
    fn what_others_take_from_the_day_is_not_planned_again() {
        let (hours, others) = day(10_000_000, 3_000);
        let planned: u64 = hours.iter().sum();
        assert!(others > 3_000_000, "{others}");
        assert!(
            (9_990_000..=10_000_000).contains(&(planned + others)),
            "{planned} + {others}"
        );
        let params = PlanParams {
            day_left: 500,
            day_ends: Timestamp(DAY_MS),
            queued: 500,
            milli_rate: 1_000_000,
            zone: DayZone::default(),
        };
        assert_eq!(plan(&PrefetchConfig::default(), params, Timestamp(0)), 0);
        assert_eq!(plan(&PrefetchConfig::default(), params, Timestamp(DAY_MS)), 0);
    }

    #[test]
    fn no_more_is_planned_than_can_be_fetched_in_half_an_hour() {
        let config = PrefetchConfig::default();
        let planned = |queued, per_second: u64| {
            let params = PlanParams {
                day_left: 18_000_000,
                day_ends: Timestamp(DAY_MS),
                queued,
                milli_rate: per_second * 1_000,
                zone: DayZone::default(),
            };
            plan(&config, params, Timestamp(0))
        };
        let all = planned(0, 0);
        assert!(all > 10_000, "nothing waits, so the rate says nothing: {all}");
        assert_eq!(planned(1_000, 300), planned(1_000, 1_000_000), "540,000 can be");
        assert_eq!(planned(17_000, 10), 1_000, "18,000 could");
        assert_eq!(planned(18_000, 10), 0);
        assert_eq!(planned(1, 0), 0, "nothing moves");
    }

    /// A provider that accepts 20 of the 250 per second: the queue stays within what half an hour can process.
    #[test]
    fn a_slow_provider_does_not_let_the_lag_grow_all_day() {
        let config = PrefetchConfig::default();
        let (mut queued, mut left, mut most) = (0_u64, 18_000_000, 0);
        for tick in 0..1_440 {
            let params = PlanParams {
                day_left: left,
                day_ends: Timestamp(DAY_MS),
                queued,
                milli_rate: 20_000,
                zone: DayZone::default(),
            };
            queued += plan(&config, params, Timestamp(tick * 60_000));
            most = most.max(queued);
            let fetched = queued.min(20 * 60);
            queued -= fetched;
            left -= fetched;
        }
        assert!(most <= 20 * 1_800, "{most} waited at once");
        assert!(
            left <= 18_000_000 - 1_400 * 20 * 60,
            "and it is never idle: {left} left"
        );
    }

    #[test]
    fn the_most_overdue_goes_first() {
        let config = TierConfig::default();
        let now = Timestamp(1_000 * HOUR_MS);
        let late = |tier, hours: u64| overdue(config.interval(tier), now - Millis(hours * HOUR_MS), now);
        assert_eq!(late(Tier::Hot, 2), Some(1_000));
        assert_eq!(late(Tier::Warm, 9), Some(500));
        assert_eq!(late(Tier::Cold, 25), Some(41));
        assert_eq!(late(Tier::Cold, 23), None);
    }
}
