//! Claims for retries.

use std::collections::HashSet;

use bytes::Bytes;
use tidegate_core::time::Millis;

use super::harness::*;
use crate::*;

async fn keys(h: &Harness, now: u64, until: u64, max: u32) -> Vec<String> {
    let retries = h.retries(after(now), after(until), max).await;
    retries
        .into_iter()
        .map(|retry| retry.record.key.to_string())
        .collect()
}

pub async fn a_due_retry_is_claimed_with_its_event(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let mut parked = failure(&record("a"), 2, T0);
    parked.event = Some(Bytes::from_static(b"event"));
    h.write_one(Write::Parked(parked)).await;
    let expected = h.status(&record("a")).await;
    let retries = h.retries(after(60), after(120), 10).await;
    assert_eq!(
        retries,
        [Retry {
            record: record("a"),
            status: expected
        }]
    );
    let status = h.status(&record("a")).await;
    assert_eq!(
        status.event,
        Some(Bytes::from_static(b"event")),
        "kept until a write ends it"
    );
    assert_eq!(status.next_retry_at, Some(after(120)));
}

pub async fn what_is_not_due_is_not_claimed(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(failed(&record("a"), 1, T0)).await;
    assert!(h.retries(after(60) - Millis(1), after(120), 10).await.is_empty());
    let mut never = failure(&record("b"), 1, T0);
    never.next_retry_at = None;
    h.write_one(Write::Failed(never)).await;
    assert_eq!(keys(&h, 60, 120, 10).await, ["a"]);
}

pub async fn the_longest_due_comes_first(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for (key, at) in [("late", 30), ("first", 10), ("middle", 20)] {
        h.write_one(failed(&record(key), 1, after(at))).await;
    }
    assert_eq!(keys(&h, 1_000, 2_000, 2).await, ["first", "middle"]);
    assert_eq!(keys(&h, 1_000, 2_000, 2).await, ["late"]);
}

pub async fn what_has_failed_for_good_is_not_claimed(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let mut failure = failure(&record("a"), 1, T0);
    failure.state = StatusState::Failed;
    h.write_one(Write::Failed(failure)).await;
    assert!(keys(&h, 1_000, 2_000, 10).await.is_empty());
}

pub async fn a_claim_holds_until_it_ends(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(failed(&record("a"), 1, T0)).await;
    assert_eq!(keys(&h, 60, 90, 10).await, ["a"]);
    assert!(keys(&h, 89, 150, 10).await.is_empty());
    // The claimer died.
    assert_eq!(keys(&h, 90, 150, 10).await, ["a"]);
}

pub async fn two_claimers_never_get_the_same(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let writes: Vec<_> = (0..200)
        .map(|n| failed(&record(format!("r{n}")), 1, T0))
        .collect();
    h.write(&writes).await;
    let claimers = [h.snapshots.clone(), h.another().await, h.another().await];
    let tasks: Vec<_> = claimers
        .into_iter()
        .map(|snapshots| {
            tokio::spawn(async move {
                let mut claimed = Vec::new();
                // A claim that meets others may come back short or empty; the last one does not.
                for _ in 0..30 {
                    claimed.extend(
                        snapshots
                            .claim_retries(after(100), after(500), 10)
                            .await
                            .expect("a claim"),
                    );
                }
                claimed
            })
        })
        .collect();
    let mut claimed = Vec::new();
    for task in tasks {
        claimed.extend(task.await.expect("a claimer"));
    }
    claimed.extend(h.retries(after(100), after(500), 200).await);
    let distinct: HashSet<_> = claimed.iter().map(|retry| retry.record.clone()).collect();
    assert_eq!((claimed.len(), distinct.len()), (200, 200));
}

pub async fn a_success_after_a_claim_ends_it(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(failed(&record("a"), 1, T0)).await;
    assert_eq!(keys(&h, 60, 90, 10).await, ["a"]);
    h.write_one(full(&record("a"), 1, "one", after(61))).await;
    assert!(keys(&h, 1_000, 2_000, 10).await.is_empty());
    assert_eq!(h.row(&record("a")).await.status, None);
}
