//! How fast jobs start: the window and its shares.

use tidegate_core::bulk::config::{BulkConfig, Hold};
use tidegate_core::bulk::{Priority, Stop};
use tidegate_core::time::Millis;

use super::harness::*;

fn window_of_ten_seconds(config: &mut BulkConfig, rps: f64) {
    config.backpressure.global_rps = rps.into();
    config.backpressure.rate_limit_window_sec = 10.0;
}

pub async fn ten_of_ten_start(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("customer-A", 11).await;
    for _ in 0..10 {
        q.take_one().await;
    }
}

pub async fn the_eleventh_waits(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("customer-A", 11).await;
    q.take_all(10).await;
    let denied = q.lease(1).await;
    assert!(denied.jobs.is_empty());
    assert_eq!(
        denied.stop,
        Stop::Limited {
            until: START + Millis(1_000)
        }
    );
}

pub async fn a_spent_window_shows_its_counts(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("customer-A", 11).await;
    q.take_all(10).await;
    q.lease(1).await;
    let limit = q.limit("customer-A").await;
    assert_eq!(
        (limit.global_count, limit.global_limit),
        (10, 10),
        "a denied start is not counted"
    );
    assert_eq!(limit.group_count, 10);
    assert_eq!(limit.window_ends, START + Millis(1_000));
}

pub async fn the_next_window_starts_empty(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("customer-A", 11).await;
    q.take_all(10).await;
    q.advance(1_100);
    q.take_one().await;
    assert_eq!(q.limit("customer-A").await.global_count, 1);
}

pub async fn two_busy_groups_share_a_window(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 6).await;
    q.enqueue_n("B", 6).await;
    let outcome = q.lease(12).await;
    assert_eq!(per_group(&outcome.jobs), [("A", 5), ("B", 5)].into());
    assert!(matches!(outcome.stop, Stop::Limited { .. }), "{:?}", outcome.stop);
    assert_eq!(q.limit("A").await.per_group_limit, 5);
}

pub async fn a_strict_share_is_a_ceiling(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        c.backpressure.strict_share = true;
    })
    .await;
    q.enqueue_n("A", 6).await;
    assert_eq!(groups(&q.take_all(5).await), "AAAAA");
    q.enqueue_n("B", 6).await;
    assert_eq!(groups(&q.take(12).await), "BBBBB", "A has had floor(10 / 2)");
    assert_eq!(q.limit("A").await.per_group_limit, 5);
    assert!(q.group("A").await.held);
    q.next_window();
    assert_eq!(per_group(&q.take(12).await), [("A", 1), ("B", 1)].into());
}

pub async fn a_third_group_meets_a_spent_window(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 5).await;
    q.enqueue_n("B", 5).await;
    q.take_all(10).await;
    q.enqueue_n("C", 1).await;
    let denied = q.lease(1).await;
    assert!(denied.jobs.is_empty());
    assert_eq!(
        denied.stop,
        Stop::Limited {
            until: START + Millis(1_000)
        }
    );
}

pub async fn no_window_is_ever_overrun(backend: &dyn Backend) {
    for hold in [Hold::Group, Hold::Job] {
        let q = Harness::with(backend, |c| {
            c.backpressure.global_rps = 20.0.into();
            c.backpressure.hold = hold;
        })
        .await;
        // Inflow is five times the limit, and workers poll ten times per window.
        for second in 0..5 {
            let mut started = 0;
            for tick in 0..10 {
                q.enqueue("A", jobs(&format!("{second}-{tick}"), 10)).await;
                q.release_due().await;
                q.admit(50, 50).await;
                started += q.run(50).await.len();
                q.advance(100);
            }
            assert_eq!(started, 20, "starts in window {second} with hold = {hold:?}");
        }
        assert_eq!(q.stats().await.most_started_per_window, 20);
    }
}

pub async fn a_stall_does_not_become_a_burst(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 50).await;
    for _ in 0..5 {
        q.admit(100, 100).await;
        q.next_window();
    }
    assert_eq!(
        q.take(100).await.len(),
        10,
        "five idle windows are not made up for"
    );
}

pub async fn finished_groups_have_no_share(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 100.0).await;
    for i in 0..20 {
        q.enqueue_n(&format!("gone-{i}"), 1).await;
    }
    assert_eq!(q.run(20).await.len(), 20);
    q.enqueue_n("live", 1).await;
    let limit = q.limit("live").await;
    assert_eq!((limit.active_group_count, limit.per_group_limit), (1, 100));
}

pub async fn asking_does_not_make_a_group_active(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 1).await;
    q.run(1).await;
    for _ in 0..3 {
        assert!(q.take(10).await.is_empty());
        q.limit("A").await;
        q.admit(10, 10).await;
    }
    assert!(!q.group("A").await.active);
    assert_eq!(q.stats().await.active_groups, 0);
}

pub async fn what_one_group_leaves_goes_to_others(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 20).await;
    q.enqueue_n("B", 1).await;
    assert_eq!(per_group(&q.take(20).await), [("A", 9), ("B", 1)].into());
}

pub async fn remainders_of_a_window_rotate(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    for name in ["A", "B", "C"] {
        q.enqueue_n(name, 20).await;
    }
    let mut started = Vec::new();
    for _ in 0..3 {
        started.extend(q.take(20).await);
        q.next_window();
    }
    assert_eq!(per_group(&started), [("A", 10), ("B", 10), ("C", 10)].into());
}

pub async fn more_groups_than_starts_take_turns(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 4.0).await;
    for i in 0..8 {
        q.enqueue_n(&i.to_string(), 2).await;
    }
    let mut order = groups(&q.take(8).await);
    assert_eq!(order.len(), 4);
    q.next_window();
    order += &groups(&q.take(8).await);
    q.assert_order(
        &order,
        "01234567",
        "a window's starts go on where the last one ended",
    );
}

pub async fn a_late_group_waits_one_window_at_most(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 30).await;
    q.take_all(10).await;
    q.enqueue_n("B", 30).await;
    assert!(q.take(1).await.is_empty());
    q.next_window();
    let next = q.take(10).await;
    assert!(
        groups(&next[..2]).contains('B'),
        "B is among the first two: {}",
        groups(&next)
    );
    assert_eq!(per_group(&next), [("A", 5), ("B", 5)].into());
}

pub async fn the_limit_is_rate_times_window(backend: &dyn Backend) {
    let long = Harness::with(backend, |c| window_of_ten_seconds(c, 5.0)).await;
    long.enqueue_n("A", 60).await;
    assert_eq!(long.take(60).await.len(), 50);
    long.advance(9_999);
    assert!(long.take(1).await.is_empty());
    long.advance(1);
    assert_eq!(long.take(60).await.len(), 10);

    let short = Harness::with(backend, |c| {
        c.backpressure.global_rps = 100.0.into();
        c.backpressure.rate_limit_window_sec = 0.1;
    })
    .await;
    short.enqueue_n("A", 30).await;
    assert_eq!(short.take(30).await.len(), 10);
}

pub async fn a_window_keeps_its_count_to_its_end(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| window_of_ten_seconds(c, 0.5)).await;
    q.enqueue_n("A", 30).await;
    let mut started = 0;
    for _ in 0..10 {
        started += q.run(30).await.len();
        q.advance(999);
    }
    assert_eq!(started, 5);
}

pub async fn a_clock_stepped_back_opens_no_window(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 40).await;
    q.take_all(10).await;
    q.clock.set(START - Millis(600));
    assert!(
        q.take(10).await.is_empty(),
        "the window before was not given back"
    );
    q.clock.set(START - Millis(5_000));
    assert!(q.take(10).await.is_empty());
    // Time continues from where it was: the window ends one second of clock time later.
    q.advance(1_000);
    assert_eq!(q.take(40).await.len(), 10);
}

pub async fn a_group_named_global_is_counted_once(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 4.0).await;
    q.enqueue_n("global", 5).await;
    assert_eq!(q.take(5).await.len(), 4);
    let limit = q.limit("global").await;
    assert_eq!((limit.global_count, limit.group_count), (4, 4));
}

pub async fn a_high_job_waits_for_ready_only(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("L", at_priority(Priority::Low, jobs("L", 100))).await;
    q.admit(100, 4).await;
    q.enqueue("H", at_priority(Priority::High, jobs("H", 1))).await;
    let order = groups(&q.take(6).await);
    let at = order.find('H').expect("it starts");
    assert!(at <= 4, "at most the four in ready go before it: {order}");
    assert!(at == 4 || q.shards > 1, "what is in ready goes first: {order}");
}
