//! Claims for prefetching.

use std::collections::HashSet;

use tidegate_core::time::Timestamp;

use super::harness::*;
use crate::*;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Hot: requested within a day, every hour. Warm: within a week, every six hours. Cold: every day.
fn params_at(now: Timestamp, max: u32) -> PrefetchParams {
    let ago = |secs| now - tidegate_core::time::Millis::from_secs(secs);
    let tier = |active, every| PrefetchTier {
        active_since: ago(active),
        checked_before: ago(every),
    };
    PrefetchParams {
        source: source("characters"),
        tiers: vec![
            tier(DAY, HOUR),
            tier(7 * DAY, 6 * HOUR),
            PrefetchTier {
                active_since: Timestamp(0),
                checked_before: ago(DAY),
            },
        ],
        max,
        now,
        claim_until: now + tidegate_core::time::Millis::from_secs(600),
    }
}

async fn checked_ago(h: &Harness, key: &str, secs: u64) {
    h.write_one(full(&record(key), 1, "one", before(secs))).await;
}

async fn active_ago(h: &Harness, key: &str, secs: u64) {
    h.active(&record(key), before(secs)).await;
}

pub async fn what_is_stale_is_claimed_most_overdue_first(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for (key, ago) in [("two", 2), ("four", 4), ("fresh", 0), ("three", 3)] {
        checked_ago(&h, key, DAY + ago * HOUR).await;
    }
    checked_ago(&h, "fresh", DAY - HOUR).await;
    h.write_one(full(&record("fresh"), 2, "one", before(HOUR))).await;
    let claimed = h
        .snapshots
        .claim_stale(&params_at(T0, 10))
        .await
        .expect("a claim");
    let keys: Vec<_> = claimed
        .iter()
        .map(|claimed| claimed.record.key.as_str())
        .collect();
    assert_eq!(keys, ["four", "three", "two"]);
    assert!(
        claimed
            .iter()
            .all(|claimed| claimed.version.0 == 1 && claimed.tier == 2)
    );
}

pub async fn what_was_never_fetched_comes_first(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    checked_ago(&h, "old", 30 * DAY).await;
    active_ago(&h, "new", 5).await;
    let claimed = h
        .snapshots
        .claim_stale(&params_at(T0, 10))
        .await
        .expect("a claim");
    let found: Vec<_> = claimed
        .iter()
        .map(|claimed| (claimed.record.key.as_str(), claimed.version.0))
        .collect();
    assert_eq!(found, [("new", 0), ("old", 1)]);
}

pub async fn activity_decides_the_tier(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    // All checked two hours ago: only the hot one is due.
    for (key, active) in [("hot", HOUR), ("warm", 3 * DAY), ("cold", 9 * DAY)] {
        checked_ago(&h, key, 2 * HOUR).await;
        active_ago(&h, key, active).await;
    }
    checked_ago(&h, "nobody", 2 * HOUR).await;
    assert_eq!(h.stale(&params_at(T0, 10)).await, ["hot"]);
    let later = T0 + tidegate_core::time::Millis::from_secs(5 * HOUR);
    let claimed = h
        .snapshots
        .claim_stale(&params_at(later, 10))
        .await
        .expect("a claim");
    let found: Vec<_> = claimed
        .iter()
        .map(|claimed| (claimed.record.key.as_str(), claimed.tier))
        .collect();
    assert_eq!(found, [("hot", 0), ("warm", 1)]);
}

/// Lateness counts in check intervals of the tier.
pub async fn the_most_overdue_of_all_tiers_goes_first(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    // Late by: hot 10 min of an hour, warm 40 min of six hours, cold 60 min of a day.
    for (key, active, checked) in [
        ("hot", HOUR, HOUR + 600),
        ("warm", 3 * DAY, 6 * HOUR + 2_400),
        ("cold", 9 * DAY, DAY + 3_600),
    ] {
        checked_ago(&h, key, checked).await;
        active_ago(&h, key, active).await;
    }
    // All of them were requested, and cool down to their right tier while none is due.
    assert!(h.stale(&params_at(before(3_601), 10)).await.is_empty());
    assert_eq!(h.stale(&params_at(T0, 2)).await, ["hot", "warm"]);
    assert_eq!(h.stale(&params_at(T0, 2)).await, ["cold"]);
}

pub async fn a_record_cools_down(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    checked_ago(&h, "a", 10).await;
    active_ago(&h, "a", 10).await;
    // Nobody requests it any more. After three days it is warm: two hours do not make it due.
    let at = |secs| T0 + tidegate_core::time::Millis::from_secs(secs);
    h.write_one(full(&record("a"), 2, "one", at(3 * DAY))).await;
    assert!(h.stale(&params_at(at(3 * DAY + 2 * HOUR), 10)).await.is_empty());
    assert_eq!(h.stale(&params_at(at(3 * DAY + 7 * HOUR), 10)).await, ["a"]);
    h.write_one(full(&record("a"), 3, "one", at(9 * DAY))).await;
    assert!(h.stale(&params_at(at(9 * DAY + 7 * HOUR), 10)).await.is_empty());
    assert_eq!(h.stale(&params_at(at(10 * DAY + HOUR), 10)).await, ["a"]);
}

pub async fn a_record_that_is_asked_for_heats_up(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    checked_ago(&h, "a", 2 * HOUR).await;
    assert!(h.stale(&params_at(T0, 10)).await.is_empty());
    active_ago(&h, "a", 1).await;
    assert_eq!(h.stale(&params_at(T0, 10)).await, ["a"]);
}

pub async fn cooling_down_hides_nobody(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    // Many that were requested long ago, and are not due in their right tier, in front of one that is.
    let mut seen = Vec::new();
    let mut writes = Vec::new();
    for n in 0..50 {
        seen.push((record(format!("cold{n}")), before(30 * DAY)));
        writes.push(full(&record(format!("cold{n}")), 1, "one", before(5 * HOUR)));
    }
    h.snapshots.mark_active(&seen).await.expect("activity");
    h.write(&writes).await;
    checked_ago(&h, "hot", 2 * HOUR).await;
    active_ago(&h, "hot", 1).await;
    let mut claimed = Vec::new();
    for _ in 0..20 {
        claimed.extend(h.stale(&params_at(T0, 5)).await);
    }
    assert_eq!(claimed, ["hot"]);
}

pub async fn a_claim_excludes_others_until_it_ends(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    checked_ago(&h, "a", 2 * DAY).await;
    checked_ago(&h, "b", 3 * DAY).await;
    active_ago(&h, "b", 60).await;
    assert_eq!(h.stale(&params_at(T0, 10)).await, ["b", "a"]);
    assert!(h.stale(&params_at(after(599), 10)).await.is_empty());
    // The claimer died.
    let mut again = h.stale(&params_at(after(601), 10)).await;
    again.sort();
    assert_eq!(again, ["a", "b"]);
}

pub async fn a_claim_holds_although_the_tier_changes(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    checked_ago(&h, "a", 2 * DAY).await;
    assert_eq!(h.stale(&params_at(T0, 10)).await, ["a"]);
    // As a hot record it would be due at once.
    h.active(&record("a"), after(1)).await;
    assert!(h.stale(&params_at(after(2), 10)).await.is_empty());
    assert!(h.stale(&params_at(after(599), 10)).await.is_empty());
    assert_eq!(h.stale(&params_at(after(601), 10)).await, ["a"]);
}

pub async fn a_check_makes_a_claimed_record_fresh(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    checked_ago(&h, "a", 2 * DAY).await;
    assert_eq!(h.stale(&params_at(T0, 10)).await, ["a"]);
    h.write_one(full(&record("a"), 2, "one", after(30))).await;
    assert!(h.stale(&params_at(after(DAY), 10)).await.is_empty());
    assert_eq!(h.stale(&params_at(after(DAY + 31), 10)).await, ["a"]);
}

pub async fn two_schedulers_never_get_the_same(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let writes: Vec<_> = (0..200)
        .map(|n| full(&record(format!("r{n}")), 1, "one", before(2 * DAY + n)))
        .collect();
    h.write(&writes).await;
    let schedulers = [h.snapshots.clone(), h.another().await, h.another().await];
    let tasks: Vec<_> = schedulers
        .into_iter()
        .map(|snapshots| {
            tokio::spawn(async move {
                let mut claimed = Vec::new();
                for _ in 0..30 {
                    claimed.extend(snapshots.claim_stale(&params_at(T0, 10)).await.expect("a claim"));
                }
                claimed
            })
        })
        .collect();
    let mut claimed = Vec::new();
    for task in tasks {
        claimed.extend(task.await.expect("a scheduler"));
    }
    claimed.extend(
        h.snapshots
            .claim_stale(&params_at(T0, 200))
            .await
            .expect("a claim"),
    );
    let distinct: HashSet<_> = claimed.iter().map(|claimed| claimed.record.clone()).collect();
    assert_eq!((claimed.len(), distinct.len()), (200, 200));
}

pub async fn a_failed_record_is_not_fetched_ahead_before_its_time(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    checked_ago(&h, "a", 2 * DAY).await;
    let mut absent = failure(&record("a"), 2, T0);
    absent.state = StatusState::Failed;
    absent.next_retry_at = Some(after(7 * DAY));
    h.write_one(Write::Failed(absent)).await;
    assert!(h.stale(&params_at(after(7 * DAY), 10)).await.is_empty());
    assert_eq!(h.stale(&params_at(after(9 * DAY), 10)).await, ["a"]);
}

pub async fn sources_do_not_mix(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let mut other = record("other");
    other.source = source("guilds");
    h.active(&other, T0).await;
    h.active(&record("mine"), T0).await;
    assert_eq!(h.stale(&params_at(T0, 10)).await, ["mine"]);
}

pub async fn activity_never_goes_back(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let seen = [
        (record.clone(), after(5)),
        (record.clone(), after(9)),
        (record.clone(), after(7)),
    ];
    h.snapshots.mark_active(&seen).await.expect("activity");
    assert_eq!(h.row(&record).await.active_at, Some(after(9)));
    h.active(&record, after(2)).await;
    let row = h.row(&record).await;
    assert_eq!(row.active_at, Some(after(9)));
    assert_eq!((row.snapshot, row.status), (None, None));
}

pub async fn no_more_than_asked(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let seen: Vec<_> = (0..30).map(|n| (record(format!("r{n}")), T0)).collect();
    h.snapshots.mark_active(&seen).await.expect("activity");
    assert_eq!(h.stale(&params_at(T0, 7)).await.len(), 7);
    assert_eq!(h.stale(&params_at(T0, 0)).await.len(), 0);
    assert_eq!(h.stale(&params_at(T0, 100)).await.len(), 23);
}

pub async fn too_many_tiers_are_refused(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let mut params = params_at(T0, 10);
    params.tiers = vec![params.tiers[0]; MAX_TIERS + 1];
    let error = h
        .snapshots
        .claim_stale(&params)
        .await
        .expect_err("too many tiers");
    assert!(matches!(error, SnapshotsError::Invalid(_)), "{error}");
    params.tiers.clear();
    assert!(h.snapshots.claim_stale(&params).await.is_err());
}
