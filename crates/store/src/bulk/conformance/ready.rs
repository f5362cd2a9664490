//! Ready: filled in fair order up to its cap and up to the window; the effect of a spent window.

use tidegate_core::bulk::config::{BulkConfig, Hold};
use tidegate_core::bulk::{BatchStatus, JobOutcome, JobState, Stop};
use tidegate_core::time::Millis;

use super::harness::*;

/// Five starts per window of ten seconds.
fn five_per_window(config: &mut BulkConfig) {
    config.backpressure.global_rps = 0.5.into();
    config.backpressure.rate_limit_window_sec = 10.0;
}

fn five_per_window_hold_job(config: &mut BulkConfig) {
    five_per_window(config);
    config.backpressure.hold = Hold::Job;
}

pub async fn the_first_job_becomes_ready(backend: &dyn Backend) {
    let q = Harness::with(backend, five_per_window).await;
    q.enqueue_n("A", 1).await;
    assert_eq!(q.admit(10, 10).await.admitted.len(), 1);
    assert_eq!(q.counts().await.ready, 1);
}

pub async fn the_sixth_job_is_delayed_with_a_reason(backend: &dyn Backend) {
    let q = Harness::with(backend, five_per_window_hold_job).await;
    q.enqueue_n("A", 6).await;
    let outcome = q.admit(10, 10).await;
    assert_eq!(outcome.admitted.len(), 5);
    assert_eq!(outcome.denied.len(), 1);
    let reason = outcome.denied[0].to_string();
    assert!(reason.contains("Rate limited"), "{reason}");
    assert_eq!(q.counts().await.delayed, 1);
    assert_eq!(q.job("A", "A-5").await.view.state, JobState::Delayed);
}

pub async fn a_full_ready_takes_nothing(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 50.0.into();
        c.backpressure.ready_queue_max_size = 10;
    })
    .await;
    q.enqueue_n("A", 11).await;
    assert_eq!(q.admit(100, 100).await.admitted.len(), 10);
    let outcome = q.admit(100, 100).await;
    assert!(outcome.admitted.is_empty());
    assert_eq!(outcome.stop, Stop::Full);
    assert_eq!((q.counts().await.ready, q.counts().await.waiting), (10, 1));
}

pub async fn the_group_beyond_its_share_is_denied(backend: &dyn Backend) {
    let q = Harness::with(backend, five_per_window_hold_job).await;
    q.enqueue_n("B", 3).await;
    q.enqueue_n("A", 3).await;
    let outcome = q.admit(10, 10).await;
    assert_eq!(outcome.admitted.len(), 5);
    let ready = (q.group("B").await.counts.ready, q.group("A").await.counts.ready);
    // The odd start goes to the group that came first; between shards, to either.
    let late = if ready == (2, 3) { "B" } else { "A" };
    assert!(ready == (3, 2) || (ready == (2, 3) && q.shards > 1), "{ready:?}");
    assert_eq!(outcome.denied.len(), 1);
    assert_eq!(outcome.denied[0].group, group(late));
    assert!(outcome.denied[0].to_string().contains("Rate limited"));
    assert_eq!(outcome.denied[0].share, (2, 2), "floor(5 / 2)");
    assert_eq!(
        q.job(late, &format!("{late}-2")).await.view.state,
        JobState::Delayed
    );
}

pub async fn every_state_has_its_moment(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let state = async || q.job("A", "A-0").await.view.state;
    let status = async || q.first_batch("A").await.status;
    assert_eq!(
        (state().await, status().await),
        (JobState::Waiting, BatchStatus::Created)
    );
    q.admit(1, 1).await;
    assert_eq!(
        (state().await, status().await),
        (JobState::Ready, BatchStatus::Dispatched)
    );
    let leased = q.take_one().await;
    assert_eq!(
        (state().await, status().await),
        (JobState::Running, BatchStatus::Running)
    );
    q.settle(&leased, done()).await;
    assert_eq!(
        (state().await, status().await),
        (JobState::Completed, BatchStatus::Running)
    );
    q.seal("A").await;
    assert_eq!(status().await, BatchStatus::Aggregating);
}

pub async fn ready_is_promised_no_more_than_the_window(backend: &dyn Backend) {
    let q = Harness::with(backend, five_per_window).await;
    q.enqueue_n("A", 20).await;
    q.take_all(2).await;
    let outcome = q.admit(20, 20).await;
    assert_eq!(outcome.admitted.len(), 3, "two of five places are spent");
    assert_eq!(
        outcome.stop,
        Stop::Limited {
            until: START + Millis(10_000)
        }
    );
}

pub async fn a_denial_has_the_real_counts(backend: &dyn Backend) {
    let q = Harness::with(backend, five_per_window_hold_job).await;
    q.enqueue_n("A", 4).await;
    q.enqueue_n("B", 4).await;
    q.take_all(3).await;
    let outcome = q.admit(10, 10).await;
    assert_eq!(outcome.admitted.len(), 2);
    for denied in &outcome.denied {
        assert_eq!(denied.global, (5, 5), "three started, two promised: {denied}");
        let expected = if denied.group == group("A") {
            (3, 2)
        } else {
            (2, 2)
        };
        assert_eq!(denied.share, expected, "{denied}");
    }
}

pub async fn a_denied_start_spends_nothing(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 12).await;
    q.take_all(10).await;
    for _ in 0..5 {
        q.lease(1).await;
        q.admit(1, 10).await;
    }
    assert_eq!(q.limit("A").await.global_count, 10);
    assert_eq!(
        q.stats().await.throttles,
        0,
        "with hold = group nothing is thrown about"
    );
    q.next_window();
    assert_eq!(ids(&q.take(5).await), ["A-10", "A-11"]);
}

pub async fn a_denied_job_stays_at_the_head(backend: &dyn Backend) {
    for hold in [Hold::Group, Hold::Job] {
        let q = Harness::with(backend, |c| {
            c.backpressure.global_rps = 2.0.into();
            c.backpressure.hold = hold;
        })
        .await;
        q.enqueue_n("A", 4).await;
        q.take_all(2).await;
        q.admit(1, 10).await;
        assert_eq!(
            q.counts().await.unfinished(),
            4,
            "no job is lost with hold = {hold:?}"
        );
        q.next_window();
        q.release_due().await;
        assert_eq!(ids(&q.take(2).await), ["A-2", "A-3"], "hold = {hold:?}");
    }
}

pub async fn giving_back_counts_nothing_again(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.seal("A").await;
    let returned = q.take_one().await;
    q.settle(&returned, JobOutcome::Released).await;
    let jobs = q.take_all(3).await;
    assert_eq!(ids(&jobs), ["A-0", "A-1", "A-2"], "back at the head of its flow");
    q.settle_all(&jobs, done()).await;
    let batch = q.first_batch("A").await;
    assert_eq!((batch.counts.total, batch.counts.success), (3, 3));
    assert_eq!(batch.status, BatchStatus::Aggregating);
}

pub async fn one_call_moves_no_more_than_asked(backend: &dyn Backend) {
    for hold in [Hold::Group, Hold::Job] {
        let q = Harness::with(backend, |c| {
            c.backpressure.global_rps = 100.0.into();
            c.backpressure.hold = hold;
        })
        .await;
        q.enqueue_n("A", 1_000).await;
        assert_eq!(q.admit(50, 1_000).await.admitted.len(), 50);
        q.admit(50, 1_000).await;
        let spent = q.admit(50, 1_000).await;
        assert!(spent.admitted.is_empty());
        assert!(
            spent.denied.len() <= 50,
            "{} denied with hold = {hold:?}",
            spent.denied.len()
        );
        let counts = q.counts().await;
        assert_eq!((counts.ready, counts.waiting + counts.delayed), (100, 900));
        assert!(
            counts.waiting >= 850,
            "surplus stays in the fair queue: {counts:?}"
        );
    }
}

pub async fn delayed_is_capped_per_group(backend: &dyn Backend) {
    let q = Harness::with(backend, five_per_window_hold_job).await;
    q.enqueue_n("A", 200).await;
    for _ in 0..5 {
        q.admit(100, 100).await;
    }
    // 1 s + floor(59 / 5) × 10 s is the last estimate below the longest backoff of 120 s.
    let counts = q.counts().await;
    assert_eq!((counts.ready, counts.delayed, counts.waiting), (5, 60, 135));
}

pub async fn ready_never_exceeds_its_cap(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.backpressure.ready_queue_max_size = 20).await;
    q.enqueue_n("A", 100).await;
    for chunk in [7, 7, 100] {
        q.admit(chunk, 1_000).await;
        assert!(q.counts().await.ready <= 20);
    }
    assert_eq!(q.counts().await.ready, 20);
    q.take_all(5).await;
    q.admit(100, 10).await;
    assert_eq!(q.counts().await.ready, 15, "the caller's own cap holds too");
}

pub async fn a_job_is_in_one_place_only(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let lost = q.take_one().await;
    q.advance(60_000);
    q.expire_leases().await;
    q.advance(60_000);
    for _ in 0..3 {
        q.release_due().await;
        q.admit(10, 10).await;
        q.expire_leases().await;
    }
    let counts = q.counts().await;
    assert_eq!((counts.ready, counts.unfinished()), (1, 1));
    assert_eq!(q.take(10).await.len(), 1);
    assert_eq!(q.settle(&lost, done()).await, tidegate_core::bulk::Settled::Stale);
}

pub async fn a_denied_job_goes_before_fresh_ones(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        c.backpressure.hold = Hold::Job;
    })
    .await;
    q.enqueue_n("A", 15).await;
    q.take_all(10).await;
    q.admit(100, 100).await;
    q.enqueue("A", jobs("fresh", 20)).await;
    q.next_window();
    let next = q.take(10).await;
    assert_eq!(ids(&next)[..5], ["A-10", "A-11", "A-12", "A-13", "A-14"]);
    assert_eq!(
        ids(&next)[5..],
        ["fresh-0", "fresh-1", "fresh-2", "fresh-3", "fresh-4"]
    );
}

pub async fn a_denied_job_starts_early_when_there_is_quota(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        c.backpressure.hold = Hold::Job;
    })
    .await;
    // Ten groups share the window, so A's estimates are long.
    q.enqueue_n("A", 12).await;
    for i in 0..9 {
        q.enqueue_sleeper(&format!("sleeper-{i}")).await;
    }
    q.take_all(5).await;
    q.admit(5, 100).await;
    q.admit(5, 100).await;
    let longest = q.job("A", "A-11").await.view.delayed.expect("A-11 is delayed").0;
    assert!(
        longest > START + Millis(1_000),
        "its estimate is beyond the next window"
    );
    q.take_all(5).await;
    q.next_window();
    assert_eq!(ids(&q.take(10).await), ["A-10", "A-11"]);
}
