//! Which worker may fetch a record, and what remains after the fetch.

use futures_util::future::join_all;
use tidegate_core::priority::Priority::{High, Low};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, Pending, RequestOutcome, SettleOutcome, SettleParams, Settlement,
};

use super::harness::*;

pub async fn one_worker_fetches_and_others_are_busy(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.sent(&record, High).await;
    assert_eq!(h.begin(&record, version, High, "one").await, BeginOutcome::Go);
    let until = h.now() + CLAIM;
    h.advance(10);
    let busy = BeginOutcome::Busy { until };
    assert_eq!(h.begin(&record, version, High, "two").await, busy);
    assert_eq!(
        h.begin(&record, version, High, "one").await,
        BeginOutcome::Go,
        "its own"
    );
    let state = h.look(&record).await.expect("remembered");
    let claim = state.claim.expect("claimed");
    assert_eq!((claim.version, claim.owner), (version, owner("one")));
    assert_eq!(claim.until, h.now() + CLAIM, "counted from the last time");
}

pub async fn what_is_completed_is_not_fetched_again(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.refreshed(&record, High).await;
    assert_eq!(
        h.begin(&record, version, High, "worker").await,
        BeginOutcome::Obsolete
    );
    h.advance(h.settings.coalescer.remember_ms.0 - 1);
    assert_eq!(
        h.begin(&record, version, High, "worker").await,
        BeginOutcome::Obsolete
    );
    let later = Version(version.0 + 1);
    assert_eq!(h.begin(&record, later, High, "worker").await, BeginOutcome::Go);
}

pub async fn an_expired_claim_is_taken_by_another(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.sent(&record, High).await;
    assert_eq!(h.begin(&record, version, High, "one").await, BeginOutcome::Go);
    h.advance(CLAIM.0 - 1);
    let other = h.begin(&record, version, High, "two").await;
    assert!(matches!(other, BeginOutcome::Busy { .. }), "{other:?}");
    h.advance(1);
    assert_eq!(h.begin(&record, version, High, "two").await, BeginOutcome::Go);
    assert!(!h.extend(&record, version, "one").await, "lost");
    assert!(!h.abandon(&record, version, "one").await, "lost");
    assert!(h.extend(&record, version, "two").await);
}

pub async fn an_extended_claim_lasts_longer(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.sent(&record, Low).await;
    assert_eq!(h.begin(&record, version, Low, "one").await, BeginOutcome::Go);
    h.advance(20_000);
    assert!(h.extend(&record, version, "one").await);
    assert!(
        !h.extend(&record, Version(version.0 + 1), "one").await,
        "another version"
    );
    h.advance(CLAIM.0 - 1);
    let until = h.now() + tidegate_core::time::Millis(1);
    assert_eq!(
        h.begin(&record, version, Low, "two").await,
        BeginOutcome::Busy { until }
    );
}

pub async fn an_abandoned_claim_is_free_at_once(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.sent(&record, High).await;
    assert_eq!(h.begin(&record, version, High, "one").await, BeginOutcome::Go);
    assert!(!h.abandon(&record, version, "two").await, "not its own");
    assert!(h.abandon(&record, version, "one").await);
    assert!(!h.abandon(&record, version, "one").await, "once");
    assert_eq!(h.begin(&record, version, High, "two").await, BeginOutcome::Go);
}

pub async fn high_waits_for_the_fetch_that_runs(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.sent(&record, Low).await;
    assert_eq!(h.begin(&record, version, Low, "one").await, BeginOutcome::Go);
    let already = RequestOutcome::AlreadyProcessing { version };
    assert_eq!(h.request(&record, High).await, already, "it is being fetched");
    h.advance(CLAIM.0);
    let upgraded = h.request(&record, High).await;
    assert!(
        matches!(upgraded, RequestOutcome::Upgraded { .. }),
        "{upgraded:?}"
    );
}

pub async fn settling_ends_what_came_before_and_nothing_after(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let low = h.sent(&record, Low).await;
    assert_eq!(h.begin(&record, low, Low, "one").await, BeginOutcome::Go);
    h.advance(CLAIM.0);
    let high = h.request(&record, High).await.to_send().expect("an upgrade");
    let since = h.now();
    assert_eq!(h.settle(&record, low, Low).await, SettleOutcome::Settled);
    let state = h.look(&record).await.expect("remembered");
    assert_eq!((state.completed, state.issued, state.low), (low, high, None));
    let waiting = Pending {
        version: high,
        since,
        sent: false,
    };
    assert_eq!(state.high, Some(waiting), "it came after");
    assert_eq!(h.begin(&record, high, High, "two").await, BeginOutcome::Go);
    assert_eq!(h.settle(&record, high, High).await, SettleOutcome::Settled);
    let state = h.look(&record).await.expect("remembered");
    assert_eq!((state.high, state.claim), (None, None));
}

pub async fn only_one_settle_succeeds(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.refreshed(&record, High).await;
    let settled = h.now();
    h.advance(10);
    assert_eq!(
        h.settle(&record, version, High).await,
        SettleOutcome::AlreadySettled
    );
    let earlier = Version(version.0 - 1);
    assert_eq!(
        h.settle(&record, earlier, High).await,
        SettleOutcome::AlreadySettled
    );
    let mark = h.look(&record).await.and_then(|state| state.mark);
    assert_eq!(mark.map(|mark| mark.at), Some(settled), "the mark stays");
}

pub async fn a_lost_claim_may_still_settle(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = h.sent(&record, High).await;
    assert_eq!(h.begin(&record, version, High, "one").await, BeginOutcome::Go);
    h.advance(CLAIM.0);
    assert_eq!(h.begin(&record, version, High, "two").await, BeginOutcome::Go);
    // The first worker returns: a written result stays written.
    assert_eq!(h.settle(&record, version, High).await, SettleOutcome::Settled);
    assert_eq!(
        h.settle(&record, version, High).await,
        SettleOutcome::AlreadySettled
    );
    assert!(
        !h.extend(&record, version, "two").await,
        "there is nothing left to fetch"
    );
}

/// A transition that ends an event compares before it deletes.
pub async fn a_stale_version_ends_nothing_that_came_after_it(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let old = h.sent(&record, High).await;
    assert_eq!(h.begin(&record, old, High, "one").await, BeginOutcome::Go);
    // The worker stalls until its event is no longer pending, and another one is requested.
    h.advance(h.settings.coalescer.high_pending_ms.0);
    let new = h.sent(&record, High).await;
    let waiting = Pending {
        version: new,
        since: h.now(),
        sent: true,
    };
    assert_eq!(h.begin(&record, new, High, "two").await, BeginOutcome::Go);
    assert!(!h.abandon(&record, old, "one").await, "lost");
    assert!(!h.abandon(&record, old, "two").await, "another version");
    assert!(!h.abandon(&record, new, "one").await, "another owner");
    assert!(!h.send_failed(&record, old).await, "it was sent");
    assert_eq!(h.settle(&record, old, High).await, SettleOutcome::Settled);
    let state = h.look(&record).await.expect("remembered");
    assert_eq!((state.completed, state.high), (old, Some(waiting)));
    let claim = state.claim.expect("claimed");
    assert_eq!((claim.version, claim.owner), (new, owner("two")));
    let already = RequestOutcome::AlreadyProcessing { version: new };
    assert_eq!(h.request(&record, High).await, already, "still held");

    assert_eq!(h.settle(&record, new, High).await, SettleOutcome::Settled);
    let state = h.look(&record).await.expect("remembered");
    assert_eq!((state.high, state.claim), (None, None), "the slot and the claim");
}

pub async fn one_of_many_callers_ends_an_event(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (fetched, given_back) = (record("a"), record("b"));
    let version = h.sent(&fetched, High).await;
    let params = SettleParams {
        version,
        priority: High,
        settlement: Settlement::Done,
    };
    let many = (0..20).map(|_| h.store.settle(vec![(fetched.clone(), params); 3]));
    let ended = join_all(many)
        .await
        .into_iter()
        .flat_map(|answer| answer.expect("the store answers"))
        .filter(|outcome| *outcome == SettleOutcome::Settled)
        .count();
    assert_eq!(ended, 1, "settled");

    let version = h.sent(&given_back, High).await;
    assert_eq!(h.begin(&given_back, version, High, "one").await, BeginOutcome::Go);
    let claim = (given_back, version, owner("one"));
    let many = (0..20).map(|_| h.store.abandon(vec![claim.clone(); 3]));
    let ended = join_all(many)
        .await
        .into_iter()
        .flat_map(|answer| answer.expect("the store answers"))
        .filter(|given_back| *given_back)
        .count();
    assert_eq!(ended, 1, "given back");
}

pub async fn an_unknown_event_is_fetched(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let version = Version(Version::floor(h.now()).0 - 1_000_000);
    assert!(!h.confirm(&record, version).await);
    assert!(!h.extend(&record, version, "worker").await);
    assert_eq!(h.look(&record).await, None, "asking leaves nothing behind");
    assert_eq!(h.begin(&record, version, Low, "worker").await, BeginOutcome::Go);
    assert_eq!(h.settle(&record, version, Low).await, SettleOutcome::Settled);
    let state = h.look(&record).await.expect("remembered");
    assert_eq!((state.completed, state.issued), (version, version));
}
