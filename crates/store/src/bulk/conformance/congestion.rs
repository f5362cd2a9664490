//! Feedback of the downstream: backoff by backlog, the queue's pace, and their statistics.

use tidegate_core::bulk::config::{BulkConfig, Hold};
use tidegate_core::bulk::congestion::CongestionLevel;
use tidegate_core::bulk::views::{CongestionSnapshot, CongestionSummary, Query, View};
use tidegate_core::bulk::{ResetStatsParams, Settled, SnapshotCongestionParams};
use tidegate_core::time::Millis;

use super::harness::*;

/// 100 starts per second, backoffs up to a minute.
async fn hundred_per_second(backend: &dyn Backend) -> Harness {
    Harness::with(backend, |c| {
        c.backpressure.global_rps = 100.0.into();
        c.congestion.max_backoff_ms = Millis(60_000);
    })
    .await
}

fn last_wait(q: &Harness, settled: &[Settled]) -> Millis {
    match settled.last() {
        Some(Settled::Delayed { until, .. }) => until.since(q.now()),
        other => panic!("not delayed: {other:?}"),
    }
}

async fn reset(q: &Harness, name: &str) {
    let reset = q.call(ResetStatsParams { group: group(name) }).await;
    reset.unwrap_or_else(|refusal| panic!("resetting {name} was refused: {refusal}"));
}

async fn history(q: &Harness, name: &str, max: u32) -> Vec<CongestionSnapshot> {
    match q
        .view(Query::CongestionHistory {
            group: group(name),
            max,
        })
        .await
    {
        View::CongestionHistory(history) => history,
        other => panic!("a history was answered with {other:?}"),
    }
}

async fn summary(q: &Harness) -> CongestionSummary {
    match q.view(Query::CongestionSummary { after: None, max: 2 }).await {
        View::CongestionSummary(summary) => summary,
        other => panic!("a summary was answered with {other:?}"),
    }
}

pub async fn the_first_throttle_waits_the_base(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 2).await;
    assert_eq!(q.congestion("A").await.congestion_level, CongestionLevel::None);
    let settled = q.throttle_n(1).await;
    assert_eq!(last_wait(&q, &settled), Millis(1_000));
    assert_eq!(q.congestion("A").await.last_backoff_ms, Millis(1_000));
}

pub async fn two_hundred_ahead_wait_three_seconds(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 201).await;
    q.throttle_n(200).await;
    let settled = q.throttle_n(1).await;
    assert_eq!(last_wait(&q, &settled), Millis(3_000));
}

pub async fn released_jobs_are_no_longer_ahead(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 101).await;
    q.throttle_n(100).await;
    q.advance(2_000);
    let released = q.call(tidegate_core::bulk::ReleaseDueParams { max: 50 }).await;
    assert_eq!(released.released, 50);
    let settled = q.throttle_n(1).await;
    assert_eq!(last_wait(&q, &settled), Millis(1_000));
    assert_eq!(q.congestion("A").await.non_ready_count, 51);
}

pub async fn speed_is_the_groups_share(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 101).await;
    for name in ["B", "C", "D", "E"] {
        q.enqueue_sleeper(name).await;
    }
    q.throttle_n(100).await;
    assert_eq!(q.congestion("A").await.rate_limit_speed, 20);
    let settled = q.throttle_n(1).await;
    assert_eq!(last_wait(&q, &settled), Millis(6_000));
}

pub async fn state_after_fifty_throttles(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 50).await;
    q.throttle_n(50).await;
    let state = q.congestion("A").await;
    assert_eq!(state.non_ready_count, 50);
    assert_eq!(state.rate_limit_speed, 100);
    assert_eq!(state.total_throttle_count, 50);
    assert_eq!(state.last_throttle_at, Some(START));
}

pub async fn reset_clears_what_was_counted(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 10).await;
    q.throttle_n(10).await;
    q.call(SnapshotCongestionParams {}).await;
    reset(&q, "A").await;
    let state = q.congestion("A").await;
    assert_eq!(state.total_throttle_count, 0);
    assert_eq!(state.non_ready_count, 10, "what waits is seen, not remembered");
    assert!(history(&q, "A", 10).await.is_empty(), "b94: the history goes too");
    q.advance(1_000);
    q.release_due().await;
    assert_eq!(q.congestion("A").await.non_ready_count, 0);
}

/// Completes everything in simulated time, polling ten times per second; returns the time it took.
async fn run_to_the_end(q: &Harness, total: usize) -> Millis {
    let mut finished = 0;
    while finished < total {
        q.release_due().await;
        q.admit(100, 100).await;
        finished += q.run(100).await.len();
        q.advance(100);
        assert!(
            q.elapsed() < Millis::from_secs(600),
            "{finished} of {total} after ten minutes"
        );
    }
    q.elapsed()
}

pub async fn five_hundred_jobs_at_fifty_per_second(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 50.0.into();
        c.backpressure.hold = Hold::Job;
    })
    .await;
    q.enqueue_n("A", 500).await;
    let took = run_to_the_end(&q, 500).await;
    assert!(
        (9_000..=10_000).contains(&took.0),
        "500 at 50 per second took {took}"
    );
    let stats = q.stats().await;
    assert!(
        stats.throttles <= 500,
        "{} throttles for 500 jobs",
        stats.throttles
    );
    assert_eq!(stats.most_started_per_window, 50);
}

pub async fn waiting_does_not_become_spinning(backend: &dyn Backend) {
    for hold in [Hold::Group, Hold::Job] {
        let q = Harness::with(backend, |c| {
            c.backpressure.global_rps = 30.0.into();
            c.backpressure.hold = hold;
            c.congestion.max_backoff_ms = Millis(5_000);
        })
        .await;
        for name in ["A", "B", "C"] {
            q.enqueue_n(name, 100).await;
        }
        let took = run_to_the_end(&q, 300).await;
        assert!(
            took <= Millis(10_000),
            "ideal is 10 s, took {took} with hold = {hold:?}"
        );
        let throttles = q.stats().await.throttles;
        match hold {
            Hold::Group => assert_eq!(throttles, 0),
            Hold::Job => assert!(throttles <= 300, "{throttles} throttles for 300 jobs"),
        }
    }
}

pub async fn a_fixed_backoff_is_counted_too(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        c.congestion.enabled = false;
    })
    .await;
    q.enqueue_n("A", 30).await;
    let settled = q.throttle_n(25).await;
    assert_eq!(last_wait(&q, &settled), Millis(1_000), "fixed, however many wait");
    assert_eq!(q.congestion("A").await.non_ready_count, 25);
    q.advance(10_000);
    q.release_due().await;
    assert_eq!(q.congestion("A").await.non_ready_count, 0);
    assert_eq!(
        q.take(100).await.len(),
        10,
        "switched off, throttles lower no rate"
    );
}

pub async fn a_job_throttled_again_is_counted_once(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 1).await;
    for _ in 0..3 {
        q.release_due().await;
        q.throttle_n(1).await;
        q.advance(5_000);
    }
    let state = q.congestion("A").await;
    assert_eq!((state.non_ready_count, state.total_throttle_count), (1, 3));
}

pub async fn counts_are_per_group(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 3).await;
    q.enqueue_n("B", 2).await;
    q.throttle_n(5).await;
    assert_eq!(q.congestion("A").await.non_ready_count, 3);
    assert_eq!(q.congestion("B").await.non_ready_count, 2);
    assert_eq!(summary(&q).await.total_non_ready_count, 5);
}

pub async fn a_job_is_not_ahead_of_itself(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 1.0).await;
    q.enqueue_n("A", 2).await;
    let settled = q.throttle_n(1).await;
    assert_eq!(
        last_wait(&q, &settled),
        Millis(1_000),
        "speed 1: the first waits the base"
    );
    q.next_window();
    let settled = q.throttle_n(1).await;
    assert_eq!(last_wait(&q, &settled), Millis(2_000));
}

/// Ten starts per window of ten seconds.
fn ten_second_window(config: &mut BulkConfig) {
    config.backpressure.global_rps = 1.0.into();
    config.backpressure.rate_limit_window_sec = 10.0;
}

pub async fn a_round_lasts_one_window(backend: &dyn Backend) {
    let q = Harness::with(backend, ten_second_window).await;
    q.enqueue_n("A", 20).await;
    q.throttle_n(10).await;
    let settled = q.throttle_n(1).await;
    assert_eq!(last_wait(&q, &settled), Millis(11_000));
}

pub async fn the_average_is_that_of_completed_jobs(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 10).await;
    q.throttle_n(9).await;
    q.run(1).await;
    assert_eq!(
        q.congestion("A").await.avg_throttle_per_job,
        0.0,
        "the one that is done met no throttle"
    );
    q.advance(5_000);
    q.release_due().await;
    q.run(1).await;
    assert_eq!(q.congestion("A").await.avg_throttle_per_job, 0.5);
}

pub async fn critical_is_within_reach(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        ten_second_window(c);
        c.congestion.base_backoff_ms = Millis(5_000);
    })
    .await;
    // Ten active groups: A's speed is one per window.
    q.enqueue_n("A", 20).await;
    for i in 0..9 {
        q.enqueue_sleeper(&format!("sleeper-{i}")).await;
    }
    q.throttle_n(15).await;
    let state = q.congestion("A").await;
    assert_eq!(
        state.current_backoff_ms,
        Millis(120_000),
        "5 s + 15 × 10 s, capped"
    );
    assert_eq!(state.congestion_level, CongestionLevel::Critical);
}

pub async fn a_base_of_zero_is_refused(backend: &dyn Backend) {
    let opened = Harness::try_with(backend, |c| c.congestion.base_backoff_ms = Millis(0)).await;
    assert!(matches!(opened, Err(crate::StoreError::Config(_))), "{opened:?}");
}

pub async fn history_is_kept_by_time(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.congestion.stats_retention_ms = Millis(60_000)).await;
    q.enqueue_n("A", 3).await;
    q.enqueue_n("quiet", 1).await;
    q.run(4).await;
    q.enqueue("A", jobs("more", 3)).await;
    q.throttle_n(3).await;
    // Snapshots at irregular times: only the times decide.
    for ms in [10_000, 1_000, 30_000, 25_000, 5_000] {
        q.advance(ms);
        assert_eq!(
            q.call(SnapshotCongestionParams {}).await,
            1,
            "only A has something to report"
        );
    }
    let kept = history(&q, "A", 100).await;
    let times: Vec<u64> = kept.iter().map(|entry| entry.timestamp.since(START).0).collect();
    assert_eq!(
        times,
        [11_000, 41_000, 66_000, 71_000],
        "61 s before the last is too old"
    );
    assert_eq!(kept[0].non_ready_count, 3);
    assert_eq!(history(&q, "A", 2).await.len(), 2);
    assert!(history(&q, "quiet", 100).await.is_empty());
}

pub async fn the_summary_comes_in_pages(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    for name in ["A", "B", "C"] {
        q.enqueue_n(name, 1).await;
    }
    q.enqueue("B", jobs("more", 20)).await;
    q.throttle_n(15).await;
    let first = summary(&q).await;
    assert_eq!((first.active_group_count, first.total_non_ready_count), (3, 15));
    assert_eq!(first.worst_congestion_group, Some(group("B")));
    assert_eq!(first.groups.items.len(), 2);
    let after = first.groups.next;
    assert!(after.is_some());
    let View::CongestionSummary(second) = q.view(Query::CongestionSummary { after, max: 2 }).await else {
        panic!("a summary is answered with a summary")
    };
    assert_eq!((second.groups.items.len(), second.groups.next), (1, None));
}

pub async fn saved_spins_are_counted(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 1.0).await;
    q.enqueue_n("A", 4).await;
    q.throttle_n(4).await;
    // Waits of 1, 2, 3 and 4 s save 0, 1, 2 and 3 rounds of one second.
    assert_eq!(q.stats().await.saved_spins, 6);
}

pub async fn a_lost_lease_is_no_throttle(backend: &dyn Backend) {
    let q = hundred_per_second(backend).await;
    q.enqueue_n("A", 1).await;
    q.take_one().await;
    q.advance(60_000);
    assert_eq!(q.expire_leases().await.delayed, 1);
    assert_eq!(q.congestion("A").await.total_throttle_count, 0);
    assert_eq!(q.stats().await.throttles, 0);
    assert_eq!(q.job("A", "A-0").await.view.throttles, 0);
}
