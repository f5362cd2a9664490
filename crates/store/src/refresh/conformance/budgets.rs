//! How many calls a target accepts, which priority goes first, and how long everybody else waits.

use tidegate_core::budget::LimitedBy;
use tidegate_core::priority::Priority;
use tidegate_core::priority::Priority::{High, Low};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;
use crate::StoreError;
use crate::refresh::TakeOutcome;

/// Most grants in any window of one second.
fn worst_second(grants: &[(Timestamp, u64)]) -> u64 {
    let within = |from: Timestamp| {
        let window = grants
            .iter()
            .filter(move |(at, _)| *at >= from && *at < from + Millis(1_000));
        window.map(|(_, tokens)| tokens).sum()
    };
    grants.iter().map(|(at, _)| within(*at)).max().unwrap_or_default()
}

/// Takes every available token, every 5 ms.
async fn greedy(h: &Harness<'_>, priority: Priority, ms: u64) -> Vec<(Timestamp, u64)> {
    let mut grants = Vec::new();
    for _ in 0..ms / 5 {
        let granted = tokens(h.take(priority, 1_000).await);
        if granted > 0 {
            grants.push((h.now(), granted));
        }
        h.advance(5);
    }
    grants
}

/// Offers calls per second, evenly, each waiting until it gets its token. LOW asks first every time, because
/// the order of requests must not decide.
async fn offered(h: &Harness<'_>, high: u64, low: u64, ms: u64) -> (u64, u64) {
    let (mut waiting_high, mut waiting_low) = (0, 0);
    let (mut got_high, mut got_low) = (0, 0);
    for at in (0..ms).step_by(5) {
        waiting_high += (at + 5) * high / 1_000 - at * high / 1_000;
        waiting_low += (at + 5) * low / 1_000 - at * low / 1_000;
        if waiting_low > 0 {
            let granted = tokens(h.take(Low, waiting_low).await);
            (waiting_low, got_low) = (waiting_low - granted, got_low + granted);
        }
        if waiting_high > 0 {
            let granted = tokens(h.take(High, waiting_high).await);
            (waiting_high, got_high) = (waiting_high - granted, got_high + granted);
        }
        h.advance(5);
    }
    (got_high, got_low)
}

pub async fn nothing_is_known_so_nothing_is_granted_for_a_second(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    // One second, and then 2.2 ms for one token at 450/s.
    assert_eq!(h.take(High, 10).await, limited(1_003, LimitedBy::Rate));
    h.advance(1_002);
    assert_eq!(h.take(High, 10).await, limited(1, LimitedBy::Rate));
    h.advance(1);
    assert_eq!(tokens(h.take(High, 10).await), 1);
}

pub async fn a_wait_is_exact(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let all = TakeOutcome::Taken {
        tokens: 25,
        valid_for: Millis(50),
    };
    assert_eq!(h.take(High, 100).await, all);
    for _ in 0..20 {
        let TakeOutcome::Limited { wait, by } = h.take(High, 1).await else {
            panic!("the bucket is empty");
        };
        assert_eq!(by, LimitedBy::Rate);
        h.advance(wait.0 - 1);
        assert_eq!(
            h.take(High, 1).await,
            limited(1, LimitedBy::Rate),
            "not a moment earlier"
        );
        h.advance(1);
        assert_eq!(tokens(h.take(High, 1).await), 1, "and none later");
    }
}

pub async fn no_second_is_overrun(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let grants = greedy(&h, High, 3_000).await;
    let worst = worst_second(&grants);
    assert!(worst <= 475, "450 and a burst of 25, not {worst}");
    h.advance(10_000);
    let after_a_stall = greedy(&h, High, 1_500).await;
    assert!(worst_second(&after_a_stall) <= 475);
}

pub async fn the_rate_is_used_up(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let total: u64 = greedy(&h, High, 2_000)
        .await
        .iter()
        .map(|(_, tokens)| tokens)
        .sum();
    assert!((900..=925).contains(&total), "{total} in 2 s at 450/s");
}

pub async fn low_keeps_to_its_cap(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let grants = greedy(&h, Low, 3_000).await;
    let worst = worst_second(&grants);
    // 323/s with a burst of 10: 350 arrive in any second, with calls up to 50 ms late.
    assert!((300..=350).contains(&worst), "{worst}");
    while tokens(h.take(Low, 100).await) > 0 {}
    let TakeOutcome::Limited { by, .. } = h.take(Low, 1).await else {
        panic!("the cap is reached");
    };
    assert_eq!(by, LimitedBy::LowCap);
    assert!(
        tokens(h.take(High, 100).await) > 0,
        "what low may not have is there for high"
    );
}

pub async fn high_goes_first(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let (high, low) = offered(&h, 200, 400, 3_000).await;
    assert!(
        (590..=600).contains(&high),
        "high gets all of its 600, not {high}"
    );
    assert!((730..=790).contains(&low), "low gets the other 250/s, not {low}");
}

pub async fn low_has_its_floor(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let (high, low) = offered(&h, 600, 300, 3_000).await;
    let total = high + low;
    assert!(total >= 1_340, "nothing is wasted: {total}");
    assert!(low * 100 >= total * 4, "low gets 5 of 100, not {low} of {total}");
    assert!(low * 100 <= total * 7, "and not much more: {low} of {total}");
}

pub async fn a_hold_lasts_no_longer_than_the_budget_allows(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let decades = Millis(999_999_999_000);
    let held = h.store.hold(&target("nexon"), decades).await.expect("answered");
    assert_eq!(held, Millis(3_600_000));
    assert_eq!(h.take(High, 1).await, limited(3_600_000, LimitedBy::Hold));
    assert_eq!(h.budget("nexon").await.hold_until, h.now() + Millis(3_600_000));
}

pub async fn a_lifted_hold_is_lifted_for_everybody(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    assert!(!h.lift().await, "nothing is held");
    h.hold(60_000).await;
    assert_eq!(h.take(Low, 1).await, limited(60_000, LimitedBy::Hold));
    assert!(h.lift().await);
    assert_eq!(h.budget("nexon").await.hold_until, Timestamp(0));
    assert_eq!(
        tokens(h.take(High, 1).await),
        1,
        "what was seen of it does not bring it back"
    );
    assert!(!h.lift().await, "there is none any more");
    h.hold(500).await;
    assert_eq!(
        h.take(High, 1).await,
        limited(500, LimitedBy::Hold),
        "the next one holds"
    );
    h.advance(500);
    assert_eq!(tokens(h.take(High, 1).await), 1);
}

pub async fn a_hold_blocks_every_take(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    h.hold(5_000).await;
    assert_eq!(h.take(High, 1).await, limited(5_000, LimitedBy::Hold));
    h.hold(1_000).await;
    assert_eq!(
        h.take(Low, 1).await,
        limited(5_000, LimitedBy::Hold),
        "never shortened"
    );
    assert_eq!(h.budget("nexon").await.hold_until, h.now() + Millis(5_000));
    h.advance(4_999);
    assert_eq!(h.take(High, 1).await, limited(1, LimitedBy::Hold));
    h.advance(1);
    assert_eq!(tokens(h.take(High, 1).await), 1);
}

pub async fn a_day_has_its_quota_and_high_its_reserve(backend: &dyn Backend) {
    let h = Harness::ready(backend, |config| {
        (config.per_day, config.day_reserve) = (30, 10);
    })
    .await;
    let ends = Timestamp(1_706_054_400_000);
    let mut low = 0;
    for _ in 0..10 {
        low += tokens(h.take(Low, 5).await);
        h.advance(100);
    }
    assert_eq!(low, 20, "low leaves the reserve");
    let view = h.budget("nexon").await;
    assert_eq!(
        (view.day_used, view.day_left_low, view.day_left_high),
        (20, 0, 10)
    );
    assert_eq!(view.day_ends, ends);
    assert_eq!(
        h.take(Low, 1).await,
        limited(ends.since(h.now()).0, LimitedBy::Day)
    );
    assert_eq!(tokens(h.take(High, 100).await), 10);
    assert_eq!(
        h.take(High, 1).await,
        limited(ends.since(h.now()).0, LimitedBy::Day)
    );
    h.clock.set(ends - Millis(1));
    assert_eq!(h.take(High, 1).await, limited(1, LimitedBy::Day));
    h.clock.set(ends);
    assert_eq!(tokens(h.take(High, 100).await), 25, "a new day");
    assert_eq!(h.budget("nexon").await.day_used, 25);
}

pub async fn a_day_begins_in_the_zone_of_the_provider(backend: &dyn Backend) {
    let h = Harness::ready(backend, |config| {
        (config.per_day, config.day_reserve) = (5, 0);
        config.zone.utc_offset_minutes = 540;
        config.zone.day_starts_at_minutes = 60;
    })
    .await;
    // 01:00 in Seoul is 16:00 UTC.
    let ends = Timestamp(1_706_025_600_000);
    assert_eq!(tokens(h.take(High, 100).await), 5);
    assert_eq!(
        h.take(High, 1).await,
        limited(ends.since(h.now()).0, LimitedBy::Day)
    );
    h.clock.set(ends - Millis(50));
    // A call of the last moments could arrive in either day, so nothing is granted.
    assert_eq!(h.take(High, 1).await, limited(50, LimitedBy::Day));
    h.clock.set(ends);
    assert_eq!(tokens(h.take(High, 100).await), 5);
}

pub async fn a_clock_stepped_back_mints_nothing(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    assert_eq!(tokens(h.take(High, 25).await), 25);
    h.clock.set(START);
    assert_eq!(h.take(High, 25).await, limited(3, LimitedBy::Rate));
    h.advance(2);
    assert_eq!(tokens(h.take(High, 25).await), 0);
    h.advance(1);
    assert_eq!(
        tokens(h.take(High, 25).await),
        1,
        "time goes on from where it was"
    );
}

pub async fn a_clock_stepped_back_turns_the_day_where_it_stands(backend: &dyn Backend) {
    let h = Harness::ready(backend, |config| {
        (config.per_day, config.day_reserve) = (5, 0);
    })
    .await;
    let (midnight, day) = (Timestamp(1_706_054_400_000), Millis(86_400_000));
    assert_eq!(tokens(h.take(High, 2).await), 2);
    // Over midnight, and back: the store's time does not go back with it.
    h.clock.set(midnight + Millis(3_600_000));
    assert_eq!(tokens(h.take(High, 1).await), 1);
    h.clock.set(START + Millis(90_000));
    let view = h.budget("nexon").await;
    assert_eq!((view.day_used, view.day_left_high), (1, 4));
    assert_eq!(tokens(h.take(High, 100).await), 4, "the later day's count stays");
    let ends = (midnight + day).since(h.now());
    assert_eq!(h.take(High, 1).await, limited(ends.0, LimitedBy::Day));
    h.clock.set(midnight + day - Millis(1));
    assert_eq!(h.take(High, 1).await, limited(1, LimitedBy::Day));
    h.clock.set(midnight + day);
    assert_eq!(tokens(h.take(High, 100).await), 5, "a new day");
}

pub async fn targets_have_budgets_of_their_own(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.advance(60_000);
    assert_eq!(tokens(h.take_of("nexon", High, 100).await), 25);
    h.hold(9_000).await;
    assert_eq!(tokens(h.take_of("other", High, 100).await), 25);
    assert_eq!(h.take_of("other", High, 1).await, limited(3, LimitedBy::Rate));
    assert_eq!(h.take_of("nexon", High, 1).await, limited(9_000, LimitedBy::Hold));
}

pub async fn a_budget_can_be_looked_at(backend: &dyn Backend) {
    let h = Harness::ready(backend, |_| {}).await;
    let full = h.budget("nexon").await;
    assert_eq!((full.tokens, full.low_tokens, full.day_used), (25, 10, 0));
    assert_eq!(tokens(h.take(Low, 4).await), 4);
    let view = h.budget("nexon").await;
    assert_eq!((view.tokens, view.low_tokens, view.day_used), (21, 6, 4));
    assert_eq!(view.day_left_high, 20_000_000 - 4);
    assert_eq!(view.day_left_low, 18_000_000 - 4);
    h.advance(1_000);
    assert_eq!(h.budget("nexon").await.tokens, 25);
    assert_eq!(tokens(h.take(High, 100).await), 25, "looking takes nothing");
}

pub async fn an_unknown_target_is_an_error(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let nobody = target("nobody");
    let message = "the target \"nobody\" has no budget here; targets with one: nexon, other";
    let took = h.store.take(&nobody, High, 1).await.expect_err("refused");
    assert_eq!(took.to_string(), message);
    assert!(!took.is_retryable());
    let held = h.store.hold(&nobody, Millis(5)).await.expect_err("refused");
    assert_eq!(held.to_string(), message);
    let lifted = h.store.lift(&nobody).await.expect_err("refused");
    assert_eq!(lifted.to_string(), message);
    let seen = h.store.budget(&nobody).await.expect_err("refused");
    assert_eq!(seen.to_string(), message);
}

pub async fn settings_that_cannot_work_are_refused(backend: &dyn Backend) {
    let too_much = Harness::try_with(backend, |settings| {
        settings
            .budgets
            .values_mut()
            .for_each(|budget| budget.burst = 400);
    })
    .await;
    let error = too_much.expect_err("refused");
    assert!(matches!(error, StoreError::Config(_)), "{error}");
    let backwards = Harness::try_with(backend, |settings| settings.coalescer.remember_ms = Millis(1)).await;
    let error = backwards.expect_err("refused");
    assert!(error.to_string().contains("remember_ms"), "{error}");
}
