//! Jobs that cost more than one unit: every limit counts their cost, and what a run used up corrects it.

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::{
    Enqueued, GroupLimits, JobOutcome, JobRefusal, MAX_COST, NewJob, Refusal, SettleParams, Settlement, Stop,
};
use tidegate_core::limits::quota::Limit;
use tidegate_core::time::Millis;

use super::harness::*;
use crate::bulk::LeasedJob;

fn costs(id: &str, cost: u32) -> NewJob {
    NewJob { cost, ..job(id) }
}

/// Ten units per second. None on several shards, which refuse costs.
async fn ten(backend: &dyn Backend) -> Option<Harness> {
    if backend.shards() > 1 {
        return None;
    }
    Some(Harness::at_rate(backend, 10.0).await)
}

async fn settle_for(q: &Harness, job: &LeasedJob, outcome: JobOutcome, cost: u32) {
    let answer = Settlement {
        lease: job.leased.lease,
        outcome,
        cost: Some(cost),
    };
    q.call(SettleParams {
        answers: vec![answer],
    })
    .await;
}

pub async fn a_start_charges_the_cost(backend: &dyn Backend) {
    let Some(q) = ten(backend).await else { return };
    q.enqueue(
        "A",
        vec![costs("a", 4), costs("b", 3), costs("c", 4), costs("d", 1)],
    )
    .await;
    let outcome = q.lease(10).await;
    assert_eq!(ids(&outcome.jobs), ["a", "b"], "three of ten are left");
    let until = START + Millis(1_000);
    assert_eq!(outcome.stop, Stop::Limited { until });
    assert_eq!(q.stats().await.most_started_per_window, 7);
    q.next_window();
    assert_eq!(ids(&q.take(10).await), ["c", "d"], "nobody overtakes in a flow");
}

pub async fn what_no_window_can_hold_starts_and_later_windows_pay(backend: &dyn Backend) {
    let Some(q) = ten(backend).await else { return };
    q.enqueue("A", vec![costs("big", 25)]).await;
    q.enqueue_n("B", 20).await;
    assert_eq!(ids(&q.take_all(1).await), ["big"]);
    let outcome = q.lease(10).await;
    assert_eq!(outcome.jobs.len(), 0);
    assert_eq!(
        outcome.stop,
        Stop::Limited {
            until: START + Millis(2_000)
        },
        "the next window pays, and half of the one after it"
    );
    q.next_window();
    assert_eq!(q.take(10).await.len(), 0);
    q.next_window();
    assert_eq!(q.take(10).await.len(), 5);
    q.next_window();
    assert_eq!(q.take(10).await.len(), 10);
}

pub async fn the_limits_of_groups_and_queues_count_costs(backend: &dyn Backend) {
    if backend.shards() > 1 {
        return;
    }
    let q = Harness::with(backend, |c: &mut BulkConfig| {
        let own = c.queues.entry(queue("default")).or_default();
        own.rate = Some(20.0.into());
        own.per_group = Limit::rate(6.0);
    })
    .await;
    let limits = GroupLimits {
        all: Limit::rate(4.0),
        ..GroupLimits::default()
    };
    q.configure("C", None, Some(limits)).await;
    for name in ["A", "B", "C", "D", "E"] {
        let jobs = (0..4).map(|n| costs(&format!("{name}-{n}"), 3)).collect();
        q.enqueue(name, jobs).await;
    }
    let first = q.take(30).await;
    assert_eq!(
        per_group(&first),
        [("A", 2), ("B", 1), ("C", 1), ("D", 1), ("E", 1)].into(),
        "18 of 20; a group has 6, C has 4"
    );
    q.next_window();
    let second = q.take(30).await;
    assert_eq!(second.len(), 6);
    let one = |name: &str| {
        second
            .iter()
            .filter(|job| job.leased.group == group(name))
            .count()
    };
    assert!(one("C") <= 1 && one("A") <= 2, "{:?}", per_group(&second));
}

pub async fn a_run_that_used_more_is_paid_by_later_windows(backend: &dyn Backend) {
    let Some(q) = ten(backend).await else { return };
    q.enqueue_n("A", 40).await;
    let started = q.take(3).await;
    settle_for(&q, &started[0], done(), 13).await;
    assert_eq!(q.take(20).await.len(), 0, "3 + 12 of 10");
    q.next_window();
    assert_eq!(q.take(20).await.len(), 5);
    settle_for(&q, &started[1], done(), 4).await;
    q.next_window();
    assert_eq!(q.take(20).await.len(), 7, "the window before was full");
}

pub async fn a_run_that_used_less_gives_room_back_in_its_window(backend: &dyn Backend) {
    let Some(q) = ten(backend).await else { return };
    q.enqueue("A", vec![costs("a", 8), costs("b", 8)]).await;
    q.enqueue_n("B", 20).await;
    let first = q.take(1).await;
    assert_eq!(ids(&first), ["a"]);
    settle_for(&q, &first[0], done(), 2).await;
    let second = q.take_all(1).await;
    assert_eq!(q.limit("A").await.global_count, 3, "two, and one of B");
    assert_eq!(ids(&second), ["B-0"]);
    assert_eq!(q.take(1).await.len(), 0, "eight do not fit, and nobody overtakes");
    q.next_window();
    let big = q.take(1).await;
    assert_eq!(ids(&big), ["b"]);
    q.next_window();
    settle_for(&q, &big[0], done(), 0).await;
    assert_eq!(q.take(20).await.len(), 10, "its window is over");
}

pub async fn a_released_job_costs_nothing(backend: &dyn Backend) {
    let Some(q) = ten(backend).await else { return };
    q.enqueue("A", vec![costs("a", 9), costs("b", 9)]).await;
    let first = q.take(1).await;
    settle_for(&q, &first[0], JobOutcome::Released, 5).await;
    assert_eq!(q.limit("A").await.global_count, 0);
    assert_eq!(ids(&q.take(1).await), ["a"]);
}

pub async fn a_ready_job_keeps_its_cost(backend: &dyn Backend) {
    let Some(q) = ten(backend).await else { return };
    q.enqueue("A", vec![costs("a", 6), costs("b", 6), costs("c", 1)])
        .await;
    assert_eq!(q.admit(10, 10).await.admitted.len(), 3, "a promise is one start");
    let outcome = q.lease(10).await;
    assert_eq!(ids(&outcome.jobs), ["a"]);
    let until = START + Millis(1_000);
    assert_eq!(outcome.stop, Stop::Limited { until });
    q.next_window();
    assert_eq!(ids(&q.take(10).await), ["b", "c"]);
}

pub async fn a_replayed_job_keeps_its_cost(backend: &dyn Backend) {
    let Some(q) = ten(backend).await else { return };
    q.enqueue("A", vec![costs("a", 9)]).await;
    let first = q.take(1).await;
    q.settle(&first[0], failed("no")).await;
    q.replay("A", "a").await.expect("it is dead");
    q.next_window();
    assert_eq!(ids(&q.take(1).await), ["a"]);
    assert_eq!(q.limit("A").await.global_count, 9);
}

pub async fn an_impossible_cost_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    if q.shards > 1 {
        let params = tidegate_core::bulk::EnqueueParams {
            group: group("A"),
            batch: None,
            base_priority: None,
            jobs: vec![costs("a", 2)],
        };
        let refused = q.call(params).await.expect_err("a wrong cost");
        assert!(matches!(refused, Refusal::NotWithShards { .. }), "{refused}");
        return;
    }
    let outcome = q
        .enqueue(
            "A",
            vec![costs("a", 0), costs("b", MAX_COST + 1), costs("c", MAX_COST)],
        )
        .await;
    let refused = |cost| Enqueued::Refused(JobRefusal::Cost { cost, max: MAX_COST });
    assert_eq!(outcome.jobs[..2], [refused(0), refused(MAX_COST + 1)]);
    assert_eq!(ids(&q.take(1).await), ["c"]);
}
