//! Versions of a record grow, even after its state was forgotten.

use tidegate_core::priority::Priority::{High, Low};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::RequestOutcome;
use tidegate_core::time::Millis;

use super::harness::*;

pub async fn versions_grow_within_a_millisecond(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let mut last = Version(0);
    for _ in 0..20 {
        let version = h.unsent(&record, High).await;
        assert!(version > last, "{version} after {last}");
        last = version;
    }
    assert_eq!(last, Version(Version::floor(h.now()).0 + 19));
}

pub async fn versions_grow_above_the_snapshot(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let stored = Version(Version::floor(h.now()).0 + 5_000_000);
    let outcome = h.request_as(&record, High, Some(stored), h.now()).await;
    let above = Version(stored.0 + 1);
    assert_eq!(outcome, RequestOutcome::Published { version: above });
    assert!(h.send_failed(&record, above).await);
    let next = h.request(&record, High).await;
    assert_eq!(
        next,
        RequestOutcome::Published {
            version: Version(above.0 + 1)
        }
    );
}

pub async fn versions_grow_although_the_record_is_forgotten(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    // Ahead of time, as after a thousand requests in one millisecond.
    let stored = Version(Version::floor(h.now()).0 + 3_000);
    let outcome = h.request_as(&record, High, Some(stored), h.now()).await;
    let version = outcome.to_send().expect("an event");
    assert!(h.send_failed(&record, version).await);
    h.advance(1);
    assert!(
        h.look(&record).await.is_some(),
        "time alone would not give a later version"
    );
    let last = h.unsent(&record, High).await;
    assert!(last > version);
    h.advance(2);
    assert_eq!(h.look(&record).await, None, "forgotten");
    let after = h.request(&record, High).await.to_send().expect("an event");
    assert!(after > last, "{after} after {last}");
}

pub async fn versions_grow_over_a_restart(backend: &dyn Backend) {
    let mut h = Harness::new(backend).await;
    let record = record("a");
    let mut last = Version(0);
    for _ in 0..3 {
        let version = h.unsent(&record, Low).await;
        assert!(version > last, "{version} after {last}");
        last = version;
        h.advance(1);
        h = h.restart().await;
    }
}

pub async fn versions_grow_although_the_clock_steps_back(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.unsent(&record, High).await;
    h.clock.set(START - Millis(3_600_000));
    let next = h.sent(&record, High).await;
    assert!(next > version, "{next} after {version}");
}

pub async fn an_idle_record_is_forgotten_at_its_time(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.refreshed(&record, High).await;
    h.advance(h.settings.coalescer.remember_ms.0 - 1);
    assert!(h.look(&record).await.is_some());
    h.advance(1);
    assert_eq!(h.look(&record).await, None);
    h.unsent(&record, Low).await;
    h.advance(1);
    assert_eq!(h.look(&record).await, None, "there was nothing to wait for");
}
