//! Never over the limit in any second, never idle while there is work, exact waits, and which priority goes
//! first.

use proptest::prelude::*;

use super::*;
use crate::time::StoreClock;

const START: Timestamp = Timestamp(1_790_000_000_000);

fn ms(offset: u64) -> Timestamp {
    START + Millis(offset)
}

/// A budget with a full bucket at `START`.
fn ready(config: BudgetConfig) -> Budget {
    Budget::new(config, START - Millis(60_000))
}

fn granted(outcome: TakeOutcome) -> u64 {
    match outcome {
        TakeOutcome::Granted { tokens, .. } => tokens,
        TakeOutcome::Limited { .. } => 0,
    }
}

fn limited(outcome: TakeOutcome) -> (Timestamp, LimitedBy) {
    match outcome {
        TakeOutcome::Limited { until, by } => (until, by),
        granted => panic!("{granted:?}"),
    }
}

/// Most arrivals in any window of one second.
fn worst_second(mut arrivals: Vec<Timestamp>) -> usize {
    arrivals.sort();
    let mut first = 0;
    let mut worst = 0;
    for (index, arrival) in arrivals.iter().enumerate() {
        while arrivals[first] + Millis(1_000) <= *arrival {
            first += 1;
        }
        worst = worst.max(index + 1 - first);
    }
    worst
}

#[test]
fn the_defaults_keep_under_the_hard_limit_and_others_are_refused_with_the_values() {
    BudgetConfig::default().validate("nexon").unwrap();
    let refused = |change: fn(&mut BudgetConfig)| {
        let mut config = BudgetConfig::default();
        change(&mut config);
        config.validate("nexon").unwrap_err().to_string()
    };
    assert_eq!(
        refused(|c| c.burst = 50),
        "budgets.nexon: rate 450 × (1 s + validity 50 ms) + burst 50 = 522.500 calls can arrive in one \
         second, more than hard_limit = 500: lower one of them"
    );
    for (message, text) in [
        (refused(|c| c.rate = 0), "rate = 0: it must be from 1"),
        (
            refused(|c| c.validity_ms = Millis(0)),
            "validity_ms = 0: it must be from 1 to 10000",
        ),
        (
            refused(|c| c.low_cap = 501),
            "low_cap = 501 is above hard_limit = 500",
        ),
        (
            refused(|c| c.low_burst = 350),
            "low_cap = 350 with low_burst = 350",
        ),
        (
            refused(|c| c.day_reserve = 20_000_000),
            "day_reserve = 20000000 leaves nothing of per_day = 20000000",
        ),
        (refused(|c| c.low_floor_percent = 51), "low_floor_percent = 51"),
        (
            refused(|c| c.zone.utc_offset_minutes = 900),
            "utc_offset_minutes = 900",
        ),
    ] {
        assert!(message.contains(text), "{message:?} should contain {text:?}");
    }
}

/// Offers `high` and `low` calls per second, evenly, for `secs`; each waits until it gets its token.
fn offered(budget: &mut Budget, high: u64, low: u64, secs: u64) -> (u64, u64) {
    let (mut waiting_high, mut waiting_low) = (0, 0);
    let (mut got_high, mut got_low) = (0, 0);
    for at in 0..secs * 1_000 {
        waiting_high += (at + 1) * high / 1_000 - at * high / 1_000;
        waiting_low += (at + 1) * low / 1_000 - at * low / 1_000;
        // LOW asks first in every millisecond: the order of requests must not decide.
        if waiting_low > 0 {
            let tokens = granted(budget.take(Priority::Low, waiting_low, ms(at)));
            waiting_low -= tokens;
            got_low += tokens;
        }
        if waiting_high > 0 {
            let tokens = granted(budget.take(Priority::High, waiting_high, ms(at)));
            waiting_high -= tokens;
            got_high += tokens;
        }
    }
    (got_high, got_low)
}

#[test]
fn high_gets_its_200_and_low_the_other_250() {
    let mut budget = ready(BudgetConfig::default());
    let (high, low) = offered(&mut budget, 200, 300, 60);
    assert!((200 * 60 - 2..=200 * 60).contains(&high), "{high}");
    assert!((250 * 60 - 5..=250 * 60 + 25).contains(&low), "{low}");
}

#[test]
fn high_that_asks_for_all_leaves_low_its_floor() {
    let mut budget = ready(BudgetConfig::default());
    let (high, low) = offered(&mut budget, 600, 300, 60);
    // One of twenty.
    assert!((1_300..=1_450).contains(&low), "{low}");
    assert!(
        (450 * 60 - 5..=450 * 60 + 25).contains(&(high + low)),
        "{high} + {low}"
    );
}

#[test]
fn low_alone_never_exceeds_its_cap_and_leaves_the_rest_to_high() {
    let mut budget = ready(BudgetConfig::default());
    let mut grants = Vec::new();
    for at in 0..5_000 {
        let tokens = granted(budget.take(Priority::Low, 50, ms(at)));
        // Calls use the full validity in one half, and none of it in the other.
        let delay = if at % 1_000 < 500 { 50 } else { 0 };
        grants.extend((0..tokens).map(|_| ms(at + delay)));
    }
    assert!(
        worst_second(grants.clone()) <= 350,
        "{}",
        worst_second(grants.clone())
    );
    assert!(grants.len() > 5 * 320, "{}", grants.len());
}

#[test]
fn low_at_its_cap_takes_nothing_from_the_others() {
    let mut budget = ready(BudgetConfig::default());
    assert_eq!(granted(budget.take(Priority::Low, 50, ms(0))), 10);
    let before = budget.state().all.level;
    let (until, by) = limited(budget.take(Priority::Low, 50, ms(0)));
    assert_eq!((until, by), (ms(4), LimitedBy::LowCap));
    assert_eq!(budget.state().all.level, before);
    assert_eq!(granted(budget.take(Priority::High, 50, ms(0))), 15);
}

#[test]
fn a_budget_that_is_not_known_starts_empty_and_waits_a_second() {
    let mut budget = Budget::new(BudgetConfig::default(), START);
    assert_eq!(
        limited(budget.take(Priority::High, 1, START)),
        (ms(1_003), LimitedBy::Rate)
    );
    assert_eq!(granted(budget.take(Priority::High, 9, ms(1_003))), 1);
}

#[test]
fn a_clock_that_goes_back_mints_nothing_and_one_that_jumps_one_burst() {
    let mut budget = ready(BudgetConfig::default());
    assert_eq!(granted(budget.take(Priority::High, 100, ms(0))), 25);
    assert_eq!(granted(budget.take(Priority::High, 100, START - Millis(500))), 0);
    assert_eq!(
        granted(budget.take(Priority::High, 100, ms(0))),
        0,
        "no refill twice"
    );
    assert_eq!(granted(budget.take(Priority::High, 100, ms(86_000))), 25);
}

#[test]
fn a_retry_after_of_decades_stops_a_target_for_an_hour() {
    let mut budget = ready(BudgetConfig::default());
    let hour = Millis(3_600_000);
    assert_eq!(budget.hold(Millis(999_999_999_000), ms(0)), hour);
    assert_eq!(
        limited(budget.take(Priority::High, 1, ms(0))),
        (ms(hour.0), LimitedBy::Hold)
    );
    // Nor does one that was persisted before this limit existed.
    let record = BudgetRecord {
        hold_until: ms(999_999_999_000),
        ..BudgetRecord::default()
    };
    let restored = Budget::restored(BudgetConfig::default(), record, ms(7));
    assert_eq!(restored.view(ms(7)).hold_until, ms(7) + hour);
}

#[test]
fn a_hold_that_is_lifted_stays_lifted() {
    let mut budget = ready(BudgetConfig::default());
    budget.hold(Millis(60_000), ms(0));
    assert!(budget.take_record().is_some());
    assert!(budget.lift(ms(10)));
    assert!(!budget.lift(ms(10)), "there is none any more");
    assert_eq!(granted(budget.take(Priority::High, 1, ms(10))), 1);
    let record = budget.take_record().expect("a crash does not bring it back");
    assert_eq!(record.hold_until, Timestamp(0));
    budget.hold(Millis(100), ms(20));
    assert_eq!(
        limited(budget.take(Priority::High, 1, ms(20))),
        (ms(120), LimitedBy::Hold)
    );
}

#[test]
fn a_held_target_is_left_alone_and_a_shorter_hold_does_not_end_it() {
    let mut budget = ready(BudgetConfig::default());
    assert_eq!(budget.hold(Millis(5_000), ms(0)), Millis(5_000));
    assert_eq!(budget.hold(Millis(10), ms(0)), Millis(10));
    assert_eq!(
        limited(budget.take(Priority::High, 1, ms(0))),
        (ms(5_000), LimitedBy::Hold)
    );
    let record = budget.take_record().expect("a hold survives a crash");
    assert_eq!(budget.take_record(), None);
    let mut after = Budget::restored(BudgetConfig::default(), record, ms(1));
    assert_eq!(
        limited(after.take(Priority::Low, 1, ms(2))),
        (ms(5_000), LimitedBy::Hold)
    );
    assert!(granted(after.take(Priority::Low, 1, ms(5_000))) == 1);
}

fn of_a_day(per_day: u64, day_reserve: u64, day_block: u64) -> BudgetConfig {
    BudgetConfig {
        per_day,
        day_reserve,
        day_block,
        zone: DayZone {
            utc_offset_minutes: 540,
            day_starts_at_minutes: 0,
        },
        ..BudgetConfig::default()
    }
}

#[test]
fn the_day_is_spent_in_the_providers_zone_and_low_leaves_the_reserve() {
    let config = of_a_day(30, 10, 7);
    let zone = config.zone;
    let mut budget = ready(config.clone());
    let turn = zone.start(zone.day(START) + 1);
    assert_eq!(turn.0 % DAY_MS, 15 * 3_600_000, "midnight in Seoul is 15:00 UTC");
    let mut low = 0;
    let mut at = START;
    loop {
        match budget.take(Priority::Low, 5, at) {
            TakeOutcome::Granted { tokens, .. } => low += tokens,
            TakeOutcome::Limited {
                until,
                by: LimitedBy::Day,
            } => {
                assert_eq!(until, turn);
                break;
            }
            TakeOutcome::Limited { until, .. } => at = until,
        }
    }
    assert_eq!(low, 20);
    assert_eq!(granted(budget.take(Priority::High, 50, at + Millis(200))), 10);
    let view = budget.view(at);
    assert_eq!((view.day_used, view.day_left_high, view.day_ends), (30, 0, turn));
    assert_eq!(
        limited(budget.take(Priority::High, 1, at + Millis(400))),
        (turn, LimitedBy::Day)
    );
    assert_eq!(limited(budget.take(Priority::High, 1, turn - Millis(1))).0, turn);
    assert_eq!(granted(budget.take(Priority::High, 1, turn)), 1);
}

#[test]
fn the_last_moments_of_a_day_belong_to_nobody() {
    let config = of_a_day(1_000, 10, 10);
    let turn = config.zone.start(config.zone.day(START) + 1);
    let mut budget = ready(config);
    assert_eq!(granted(budget.take(Priority::High, 1, turn - Millis(51))), 1);
    assert_eq!(
        limited(budget.take(Priority::High, 1, turn - Millis(50))),
        (turn, LimitedBy::Day)
    );
}

#[test]
fn a_crash_counts_at_most_one_block_too_much_and_never_too_little() {
    let config = of_a_day(1_000, 100, 50);
    let mut budget = ready(config.clone());
    let mut kept = BudgetRecord::default();
    let (mut made, mut records) = (0, 0);
    for at in 0..400 {
        made += granted(budget.take(Priority::High, 2, ms(at)));
        if let Some(record) = budget.take_record() {
            (kept, records) = (record, records + 1);
        }
        assert!(
            kept.day.used >= made && kept.day.used < made + 50,
            "{kept:?} {made}"
        );
    }
    assert_eq!(records, made.div_ceil(50));
    let after = Budget::restored(config, kept, ms(500));
    assert_eq!(after.view(ms(500)).day_used, kept.day.used);
}

/// A moment at which the wall clock is `step` milliseconds off, for a store that started with it.
struct Stepped {
    clock: StoreClock,
    real: Timestamp,
    step: i64,
}

impl Stepped {
    fn at(real: Timestamp) -> Self {
        let (clock, step) = (StoreClock::default(), 0);
        Self { clock, real, step }
    }

    fn moment(&mut self) -> Moment {
        let wall = Timestamp(self.real.0.saturating_add_signed(self.step));
        Moment {
            now: self.clock.observe(wall),
            wall,
            steady: self.real,
        }
    }

    /// Takes every token available in two seconds.
    fn take_all(&mut self, budget: &mut Budget) -> u64 {
        let mut got = 0;
        for _ in 0..2_000 {
            self.real = self.real + Millis(1);
            got += granted(budget.take(Priority::High, 5, self.moment()));
        }
        got
    }
}

const HOUR: Millis = Millis(3_600_000);

#[test]
fn a_clock_stepped_over_midnight_and_back_mints_no_second_day() {
    let config = of_a_day(300, 0, 20);
    let midnight = config.zone.start(config.zone.day(START) + 1);
    let mut world = Stepped::at(midnight - Millis(6 * HOUR.0));
    let mut budget = Budget::new(config.clone(), world.real);
    world.real = world.real + SETTLING;
    world.clock.observe(world.real);
    for _ in 0..100 {
        world.real = world.real + Millis(10);
        assert_eq!(granted(budget.take(Priority::High, 1, world.moment())), 1);
    }
    // Over midnight, where it takes everything left; a crash does not make it forget either.
    world.step = 9 * HOUR.0 as i64;
    assert_eq!(world.take_all(&mut budget), 200);
    let kept = budget.take_record().unwrap();
    let mut restarted = Budget::restored(config.clone(), kept, world.moment().now);
    assert_eq!(world.take_all(&mut restarted), 0);
    assert_eq!(budget.view(world.moment()).day_left_high, 0);

    world.step = 0;
    assert_eq!(
        world.take_all(&mut budget),
        0,
        "the day that it came back to is used up"
    );
    let until = limited(budget.take(Priority::High, 1, world.moment())).0;
    let real = world.real + until.since(world.moment().now);
    assert_eq!(real, midnight, "and ends when the provider's does");
    // Calls made while the clock was ahead also count in the day they belonged to by that clock.
    world.real = midnight;
    assert_eq!(world.take_all(&mut budget), 100);
    world.real = midnight + Millis(24 * HOUR.0);
    assert_eq!(world.take_all(&mut budget), 300, "the step is forgotten");
}

#[test]
fn a_clock_that_was_stepped_back_turns_the_day_where_it_stands() {
    let config = of_a_day(300, 0, 20);
    let midnight = config.zone.start(config.zone.day(START) + 1);
    let mut world = Stepped::at(midnight - Millis(6 * HOUR.0));
    let mut budget = Budget::new(config, world.real);
    // The store's time stays nine hours ahead from here on.
    world.step = 9 * HOUR.0 as i64;
    world.moment();
    world.step = 0;
    world.real = world.real + SETTLING;
    let mut days = Vec::new();
    for _ in 0..3 {
        let mut hours = Vec::new();
        for _ in 0..4 {
            hours.push(world.take_all(&mut budget));
            world.real = world.real + Millis(6 * HOUR.0);
        }
        days.push(hours);
    }
    // The first one begins six hours before midnight.
    assert_eq!(days, [[300, 300, 0, 0], [0, 300, 0, 0], [0, 300, 0, 0]]);
}

#[test]
fn a_clock_that_is_set_right_shares_one_quota_among_the_days_of_both() {
    let config = of_a_day(300, 0, 20);
    let midnight = config.zone.start(config.zone.day(START) + 1);
    // The clock was an hour late until now: the process is wrong, and the wall clock is right.
    let mut world = Stepped::at(midnight - Millis(2 * HOUR.0));
    let mut budget = Budget::new(config.clone(), world.real);
    world.step = HOUR.0 as i64;
    world.real = world.real + SETTLING;
    let mut calls = std::collections::BTreeMap::new();
    for _ in 0..60 {
        let day = config.zone.day(world.moment().wall);
        *calls.entry(day).or_insert(0) += world.take_all(&mut budget);
        world.real = world.real + Millis(HOUR.0 + 1);
    }
    assert!(calls.values().all(|calls| *calls <= 300), "{calls:?}");
    assert!(calls.values().sum::<u64>() >= 600, "{calls:?}");
}

#[test]
fn zones_east_and_west_turn_where_their_clocks_do() {
    let west = DayZone {
        utc_offset_minutes: -480,
        day_starts_at_minutes: 60,
    };
    let day = west.day(START);
    assert_eq!(west.start(day).0 % DAY_MS, 9 * 3_600_000);
    assert!(west.start(day) <= START && START < west.start(day + 1));
    assert_eq!(west.day(west.start(day + 1) - Millis(1)), day);
    assert_eq!(west.hour(west.start(day)), 1);
}

#[test]
fn other_settings_hold_at_once() {
    let mut budget = ready(BudgetConfig::default());
    let small = BudgetConfig {
        rate: 10,
        burst: 2,
        ..BudgetConfig::default()
    };
    budget.configure(small, START);
    assert_eq!(granted(budget.take(Priority::High, 100, ms(0))), 2);
    assert_eq!(limited(budget.take(Priority::High, 100, ms(0))).0, ms(100));
}

fn any_config() -> impl Strategy<Value = BudgetConfig> {
    (
        1u64..600,
        1u64..60,
        1u64..200,
        1u64..20,
        0u64..=50,
        40u64..4_000,
        0u64..30,
    )
        .prop_map(|(rate, burst, validity, low_burst, floor, per_day, reserve)| {
            let hard_limit = (rate * (1_000 + validity) + burst * 1_000)
                .div_ceil(1_000)
                .max(30);
            BudgetConfig {
                hard_limit,
                rate,
                burst,
                validity_ms: Millis(validity),
                low_cap: (hard_limit * 7 / 10).max(low_burst + 2).min(hard_limit),
                low_burst,
                low_floor_percent: floor,
                per_day,
                day_reserve: reserve,
                day_block: 10,
                max_hold_ms: Millis(3_600_000),
                zone: DayZone::default(),
            }
        })
}

fn any_priority() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::High), Just(Priority::Low)]
}

proptest! {
    /// One millisecond before `until` nothing, at `until` something, whatever happened before.
    #[test]
    fn the_wait_is_exact(
        config in any_config(),
        history in proptest::collection::vec((any_priority(), 1u64..40, 0u64..30), 0..60),
        held in proptest::option::of(0u64..2_000),
        caller in any_priority(),
    ) {
        prop_assume!(config.validate("t").is_ok());
        // Close to the end of a day, so that the day limit takes part.
        let turn = config.zone.start(config.zone.day(START) + 1);
        let mut now = turn - Millis(900);
        let mut budget = Budget::new(config, now - Millis(1_100));
        for (priority, tokens, pause) in history {
            now = now + Millis(pause);
            let _ = budget.take(priority, tokens, now);
        }
        if let Some(held) = held {
            budget.hold(Millis(held), now);
        }
        let until = loop {
            match budget.take(caller, 40, now) {
                TakeOutcome::Limited { until, .. } => break until,
                TakeOutcome::Granted { tokens, .. } => prop_assert!(tokens >= 1),
            }
        };
        prop_assert!(until > now, "{until:?} {now:?}");
        let mut earlier = budget.clone();
        let early = earlier.take(caller, 40, until - Millis(1));
        // Nothing is reserved in the last moments of a day: a caller that asks then has lost its reservation.
        if until != turn {
            prop_assert!(matches!(early, TakeOutcome::Limited { until: again, .. } if again == until), "{early:?} {until:?}");
            prop_assert!(granted(earlier.take(caller, 40, until)) >= 1);
        }
        prop_assert_eq!(granted(early), 0);
        prop_assert!(granted(budget.take(caller, 40, until)) >= 1);
    }

    /// Whoever asks, however late a token is used: no second exceeds the hard limit, no day its quota, and LOW
    /// never its cap.
    #[test]
    fn no_second_and_no_day_is_ever_over(
        config in any_config(),
        asks in proptest::collection::vec((any_priority(), 1u64..60, 0u64..40, 0u64..=1_000), 1..400),
        restart in proptest::option::of(0usize..400),
    ) {
        prop_assume!(config.validate("t").is_ok());
        let turn = config.zone.start(config.zone.day(START) + 1);
        let mut now = turn - Millis(3_000);
        let mut budget = Budget::new(config.clone(), now);
        now = now + Millis(1_000);
        let mut kept = BudgetRecord::default();
        let (mut all, mut low) = (Vec::new(), Vec::new());
        for (index, (priority, tokens, pause, part)) in asks.into_iter().enumerate() {
            now = now + Millis(pause);
            if restart == Some(index) {
                budget = Budget::restored(config.clone(), kept, now);
            }
            let outcome = budget.take(priority, tokens, now);
            kept = budget.take_record().unwrap_or(kept);
            if let TakeOutcome::Granted { tokens, use_by } = outcome {
                let arrival = now + Millis(use_by.since(now).0 * part / 1_000);
                for _ in 0..tokens {
                    all.push(arrival);
                    if priority == Priority::Low {
                        low.push(arrival);
                    }
                }
            }
        }
        for day in [config.zone.day(turn) - 1, config.zone.day(turn)] {
            let of_day = |calls: &[Timestamp]| calls.iter().filter(|at| config.zone.day(**at) == day).count() as u64;
            prop_assert!(of_day(&all) <= config.per_day);
            prop_assert!(of_day(&low) <= config.per_day - config.day_reserve);
        }
        prop_assert!(worst_second(all) as u64 <= config.hard_limit);
        prop_assert!(worst_second(low) as u64 <= config.low_cap);
    }

    /// A caller that waits as instructed reaches the rate.
    #[test]
    fn sustained_demand_uses_the_rate(batch in 1u64..30, low_too in any::<bool>()) {
        let mut budget = ready(BudgetConfig::default());
        let mut got = 0;
        for priority_turn in 0.. {
            let mut next = Timestamp(u64::MAX);
            let now = ms(priority_turn);
            if now >= ms(10_000) {
                break;
            }
            for priority in Priority::ALL {
                if priority == Priority::High || low_too {
                    match budget.take(priority, batch, now) {
                        TakeOutcome::Granted { tokens, .. } => got += tokens,
                        TakeOutcome::Limited { until, .. } => next = next.min(until),
                    }
                }
            }
            prop_assert!(next > now);
        }
        prop_assert!(got >= 4_400, "{got} in 10 s");
    }
}
