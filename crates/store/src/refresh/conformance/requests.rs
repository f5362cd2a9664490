//! Which request sends an event, and which events are obsolete.

use futures_util::future::join_all;
use tidegate_core::priority::Priority::{High, Low};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, RequestOutcome, RequestParams, SettleOutcome, Settlement,
};
use tidegate_core::time::Millis;

use super::harness::*;
use crate::StoreError;

fn already(version: Version) -> RequestOutcome {
    RequestOutcome::AlreadyProcessing { version }
}

pub async fn published_upgraded_and_already_processing(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let low = h.sent(&record, Low).await;
    assert_eq!(low, Version::floor(h.now()), "the time gives the first version");
    assert_eq!(h.request(&record, Low).await, already(low));
    let upgraded = h.request(&record, High).await;
    let high = Version(low.0 + 1);
    assert_eq!(upgraded, RequestOutcome::Upgraded { version: high });
    assert_eq!(h.request(&record, High).await, already(high));
    assert_eq!(h.request(&record, Low).await, already(high));

    let other = super::harness::record("b");
    let first = h.request(&other, High).await;
    assert!(matches!(first, RequestOutcome::Published { .. }), "{first:?}");
    let second = h.request(&other, Low).await;
    assert!(
        matches!(second, RequestOutcome::AlreadyProcessing { .. }),
        "{second:?}"
    );
}

pub async fn a_herd_of_ten_thousand_is_one_event(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let params = RequestParams {
        priority: High,
        snapshot_version: None,
        read_at: h.now(),
    };
    let herd = (0..100).map(|_| h.store.request(vec![(record("a"), params); 100]));
    let outcomes: Vec<RequestOutcome> = join_all(herd)
        .await
        .into_iter()
        .flat_map(|answer| answer.expect("the store answers"))
        .collect();
    assert_eq!(outcomes.len(), 10_000);
    let published: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.to_send()).collect();
    assert_eq!(published.len(), 1, "one event for all");
    let joined = outcomes
        .iter()
        .filter(|&&outcome| outcome == already(published[0]));
    assert_eq!(joined.count(), 9_999, "all others learn which one");
}

pub async fn a_batch_answers_in_its_order(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let names: Vec<String> = (0..50).map(|index| format!("key-{}", index % 40)).collect();
    let ask = |name: &String| {
        let params = RequestParams {
            priority: Low,
            snapshot_version: None,
            read_at: h.now(),
        };
        (record(name), params)
    };
    let outcomes = h
        .store
        .request(names.iter().map(ask).collect())
        .await
        .expect("answers");
    assert_eq!(outcomes.len(), 50);
    for (index, outcome) in outcomes.iter().enumerate() {
        let first = index < 40;
        assert_eq!(outcome.to_send().is_some(), first, "{index}: {outcome:?}");
    }
    // Each with the version of its own record.
    let sent: Vec<_> = (0..40).rev().map(|index| record(&names[index])).collect();
    let versions: Vec<_> = (0..40).rev().map(|index| outcomes[index].to_send()).collect();
    let asked = sent
        .iter()
        .cloned()
        .zip(versions.iter().map(|version| version.expect("sent")));
    let mut asked: Vec<_> = asked.collect();
    asked[7].1 = Version(1);
    let confirmed = h.store.confirm_sent(asked).await.expect("answers");
    for (index, confirmed) in confirmed.into_iter().enumerate() {
        assert_eq!(confirmed, index != 7, "{index}");
    }
    assert!(
        h.store.look(Vec::new()).await.expect("answers").is_empty(),
        "nothing for nothing"
    );
}

pub async fn records_do_not_know_each_other(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (a, b) = (record("a"), record("b"));
    let version = h.refreshed(&a, High).await;
    assert_eq!(h.look(&b).await, None);
    assert!(!h.confirm(&b, version).await);
    assert!(!h.send_failed(&b, version).await);
    assert!(!h.abandon(&b, version, "worker").await);
    assert!(h.request(&b, High).await.to_send().is_some());
    let state = h.look(&a).await.expect("remembered");
    assert_eq!(
        (state.completed, state.issued, state.high),
        (version, version, None)
    );
}

pub async fn an_upgrade_supersedes_only_when_confirmed(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (a, b) = (record("a"), record("b"));
    for (record, confirmed) in [(&a, false), (&b, true)] {
        let low = h.sent(record, Low).await;
        let high = h.request(record, High).await.to_send().expect("an upgrade");
        if confirmed {
            assert!(h.confirm(record, high).await);
        }
        let expected = match confirmed {
            true => BeginOutcome::Obsolete,
            false => BeginOutcome::Go,
        };
        assert_eq!(
            h.begin(record, low, Low, "worker").await,
            expected,
            "confirmed: {confirmed}"
        );
    }
}

pub async fn a_failed_send_rolls_back(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let low = h.sent(&record, Low).await;
    let high = h.request(&record, High).await.to_send().expect("an upgrade");
    assert!(h.send_failed(&record, high).await);
    assert!(!h.send_failed(&record, high).await, "once");
    assert_eq!(
        h.request(&record, Low).await,
        already(low),
        "the LOW stands as before"
    );
    let again = h.request(&record, High).await;
    assert_eq!(
        again,
        RequestOutcome::Upgraded {
            version: Version(high.0 + 1)
        }
    );
    assert!(!h.send_failed(&record, low).await, "that one was sent");
    assert_eq!(h.begin(&record, low, Low, "worker").await, BeginOutcome::Go);

    let lonely = super::harness::record("b");
    let version = h.request(&lonely, High).await.to_send().expect("an event");
    assert!(h.send_failed(&lonely, version).await);
    let next = h.request(&lonely, High).await;
    assert_eq!(
        next,
        RequestOutcome::Published {
            version: Version(version.0 + 1)
        }
    );
}

pub async fn an_event_that_a_worker_has_was_sent(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let low = h.sent(&record, Low).await;
    let high = h.request(&record, High).await.to_send().expect("an upgrade");
    // The sender died before it could confirm.
    assert_eq!(h.begin(&record, high, High, "worker").await, BeginOutcome::Go);
    assert_eq!(h.begin(&record, low, Low, "other").await, BeginOutcome::Obsolete);
    assert!(!h.send_failed(&record, high).await, "it is in the log");
}

pub async fn what_nobody_confirmed_was_never_sent(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.request(&record, High).await.to_send().expect("an event");
    let wait = h.settings.coalescer.send_timeout_ms.0;
    h.advance(wait - 1);
    assert_eq!(h.request(&record, High).await, already(version));
    h.advance(1);
    let next = h.request(&record, High).await;
    assert_eq!(
        next,
        RequestOutcome::Published {
            version: Version::floor(h.now())
        }
    );
    assert!(!h.confirm(&record, version).await, "too late");
}

pub async fn a_later_version_alone_makes_nothing_obsolete(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let first = h.sent(&record, High).await;
    let mut last = first;
    for _ in 0..5 {
        // The previous event is no longer pending, but the log may still have it.
        h.advance(h.settings.coalescer.high_pending_ms.0);
        last = h.sent(&record, High).await;
    }
    // A HIGH that follows another could itself be followed before a worker reaches it.
    assert_eq!(h.begin(&record, first, High, "worker").await, BeginOutcome::Go);
    assert!(h.abandon(&record, first, "worker").await);
    assert_eq!(h.begin(&record, last, High, "worker").await, BeginOutcome::Go);
    assert_eq!(h.settle(&record, last, High).await, SettleOutcome::Settled);
    assert_eq!(
        h.begin(&record, first, High, "worker").await,
        BeginOutcome::Obsolete
    );

    let low = super::harness::record("b");
    let first = h.sent(&low, Low).await;
    h.advance(h.settings.coalescer.low_pending_ms.0);
    let second = h.sent(&low, Low).await;
    assert_eq!(
        h.begin(&low, first, Low, "worker").await,
        BeginOutcome::Go,
        "merely issued"
    );
    assert_eq!(h.settle(&low, first, Low).await, SettleOutcome::Settled);
    assert_eq!(h.begin(&low, second, Low, "worker").await, BeginOutcome::Go);
}

pub async fn an_event_is_waited_for_as_long_as_the_log_keeps_it(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (a, b) = (record("a"), record("b"));
    let (high, low) = (h.sent(&a, High).await, h.sent(&b, Low).await);
    let (of_high, of_low) = (
        h.settings.coalescer.high_pending_ms.0,
        h.settings.coalescer.low_pending_ms.0,
    );
    h.advance(of_high - 1);
    assert_eq!(h.request(&a, High).await, already(high));
    h.advance(1);
    assert!(
        h.request(&a, High).await.to_send().is_some(),
        "the log has dropped it"
    );
    h.advance(of_low - of_high - 1);
    assert_eq!(h.request(&b, Low).await, already(low));
    h.advance(1);
    assert!(h.request(&b, Low).await.to_send().is_some());
}

pub async fn a_late_reader_is_absorbed(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for (key, priority, mark) in [
        ("a", High, h.settings.coalescer.high_mark_ms),
        ("b", Low, h.settings.coalescer.low_mark_ms),
    ] {
        let record = record(key);
        h.refreshed(&record, priority).await;
        let settled = h.now();
        let absorbed = RequestOutcome::JustRefreshed {
            at: settled,
            settlement: Settlement::Done,
        };
        let looked = settled - Millis(5);
        assert_eq!(h.request_as(&record, High, None, looked).await, absorbed);
        h.advance(mark.0 - 1);
        assert_eq!(
            h.request_as(&record, High, None, settled).await,
            absorbed,
            "to the end"
        );
        h.advance(1);
        let late = h.request_as(&record, High, None, looked).await;
        assert!(matches!(late, RequestOutcome::Published { .. }), "{late:?}");
    }
    // A reader that read afterwards saw the result, and wants another.
    let record = record("c");
    h.refreshed(&record, High).await;
    h.advance(1);
    assert!(h.request(&record, High).await.to_send().is_some());
}

pub async fn a_reader_of_an_older_snapshot_is_absorbed(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.refreshed(&record, High).await;
    h.advance(10);
    let older = Some(Version(version.0 - 1));
    let outcome = h.request_as(&record, High, older, h.now()).await;
    assert!(
        matches!(outcome, RequestOutcome::JustRefreshed { .. }),
        "{outcome:?}"
    );
    let outcome = h.request_as(&record, High, Some(version), h.now()).await;
    assert!(matches!(outcome, RequestOutcome::Published { .. }), "{outcome:?}");
}

pub async fn a_settled_refresh_says_how_it_ended(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for (key, settlement) in [
        ("a", Settlement::Done),
        ("b", Settlement::Failed),
        ("c", Settlement::Parked),
    ] {
        let record = record(key);
        let version = h.sent(&record, High).await;
        let settled = h.settle_as(&record, version, High, settlement).await;
        assert_eq!(settled, SettleOutcome::Settled);
        let expected = RequestOutcome::JustRefreshed {
            at: h.now(),
            settlement,
        };
        assert_eq!(h.request(&record, High).await, expected);
    }
}

pub async fn a_version_that_cannot_grow_is_refused(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    for version in [Version::MAX, Version(u64::MAX)] {
        let params = RequestParams {
            priority: High,
            snapshot_version: Some(version),
            read_at: h.now(),
        };
        let refused = h.store.request(vec![(record.clone(), params)]).await;
        assert!(matches!(refused, Err(StoreError::Version(_))), "{refused:?}");
    }
    assert_eq!(h.look(&record).await, None);
    h.refreshed(&record, High).await;
}
