//! Counting.

use tidegate_core::time::Timestamp;

use super::harness::*;
use crate::*;

fn params(max: u32) -> CountParams {
    CountParams {
        source: source("characters"),
        tiers: vec![
            FreshnessTier {
                active_since: before(1_000),
                checked_since: before(100),
            },
            FreshnessTier {
                active_since: Timestamp(0),
                checked_since: before(10_000),
            },
        ],
        after: None,
        max,
    }
}

pub async fn freshness_goes_by_tier(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for (key, active, checked) in [
        ("hot and fresh", Some(5), Some(50)),
        ("hot and stale", Some(5), Some(500)),
        ("cold and fresh", Some(5_000), Some(500)),
        ("unasked and fresh", None, Some(500)),
        ("cold and stale", Some(5_000), Some(50_000)),
        ("missing", Some(5), None),
    ] {
        if let Some(checked) = checked {
            h.write_one(full(&record(key), 1, "one", before(checked))).await;
        }
        if let Some(active) = active {
            h.active(&record(key), before(active)).await;
        }
    }
    let counts = h.snapshots.counts(&params(100)).await.expect("counts");
    let expected = Counts {
        fresh: 3,
        stale: 2,
        missing: 1,
        next: None,
    };
    assert_eq!(counts, expected);
}

pub async fn counting_goes_in_slices(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let writes: Vec<_> = (0..25)
        .map(|n| {
            full(
                &record(format!("r{n}")),
                1,
                "one",
                before(if n < 10 { 50 } else { 50_000 }),
            )
        })
        .collect();
    h.write(&writes).await;
    let mut params = params(10);
    let (mut slices, mut fresh, mut stale) = (0, 0, 0);
    loop {
        let counts = h.snapshots.counts(&params).await.expect("counts");
        slices += 1;
        fresh += counts.fresh;
        stale += counts.stale;
        params.after = counts.next;
        if params.after.is_none() {
            break;
        }
    }
    assert_eq!((slices, fresh, stale), (3, 10, 15));
}

pub async fn a_status_is_counted_by_state_up_to_the_limit(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let writes: Vec<_> = (0..10)
        .map(|n| {
            let mut failure = failure(&record(format!("r{n}")), 1, T0);
            if n < 3 {
                failure.state = StatusState::Failed;
            }
            Write::Failed(failure)
        })
        .collect();
    h.write(&writes).await;
    let characters = source("characters");
    let all = h.snapshots.status_counts(&characters, 100).await.expect("counts");
    assert_eq!(
        all,
        StatusCounts {
            retrying: 7,
            failed: 3
        }
    );
    let some = h.snapshots.status_counts(&characters, 5).await.expect("counts");
    assert_eq!(some.retrying + some.failed, 5);
    let none = h
        .snapshots
        .status_counts(&source("guilds"), 100)
        .await
        .expect("counts");
    assert_eq!(none, StatusCounts::default());
}
