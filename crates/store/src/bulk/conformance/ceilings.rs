//! Ceilings of individual groups: starts per window, running at once.

use tidegate_core::bulk::{Ceilings, ConfigureGroupParams, NewJob, Refusal, Scope, Stop};
use tidegate_core::time::Millis;

use super::harness::*;

fn starts_per_window(n: u32) -> Option<Ceilings> {
    Some(Ceilings {
        starts_per_window: Some(n),
        max_running: None,
    })
}

fn max_running(n: u32) -> Option<Ceilings> {
    Some(Ceilings {
        starts_per_window: None,
        max_running: Some(n),
    })
}

pub async fn a_group_keeps_to_its_starts_per_window(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.configure("A", None, starts_per_window(2)).await;
    q.enqueue_n("A", 20).await;
    q.enqueue_n("B", 20).await;
    assert_eq!(per_group(&q.take(20).await), [("A", 2), ("B", 8)].into());
    assert!(q.group("A").await.held);
    q.next_window();
    assert_eq!(per_group(&q.take(20).await), [("A", 2), ("B", 8)].into());
}

pub async fn all_groups_at_their_ceiling_is_a_limit_not_an_end(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.configure("A", None, starts_per_window(2)).await;
    q.enqueue_n("A", 5).await;
    let outcome = q.lease(5).await;
    assert_eq!(outcome.jobs.len(), 2);
    assert_eq!(
        outcome.stop,
        Stop::Held {
            until: START + Millis(1_000)
        }
    );
}

pub async fn a_group_keeps_to_its_leases_at_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(2)).await;
    q.enqueue_n("A", 5).await;
    q.enqueue_n("B", 2).await;
    let first = q.take(10).await;
    assert_eq!(per_group(&first), [("A", 2), ("B", 2)].into());
    q.next_window();
    assert!(q.take(10).await.is_empty(), "a new window ends no lease");
    q.settle(&first[0], done()).await;
    assert_eq!(ids(&q.take(10).await), ["A-2"], "one lease ended, one begins");
}

pub async fn jobs_in_ready_count_for_leases_at_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(3)).await;
    q.enqueue_n("A", 10).await;
    q.take_all(1).await;
    assert_eq!(q.admit(10, 10).await.admitted.len(), 2);
    assert_eq!(q.take(10).await.len(), 2);
}

pub async fn a_ceiling_lowered_below_ready_still_holds(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 6).await;
    q.admit(6, 10).await;
    q.configure("A", None, max_running(2)).await;
    assert_eq!(ids(&q.take(10).await), ["A-0", "A-1"]);
    assert_eq!(q.group("A").await.counts.waiting, 4);
}

pub async fn a_raised_ceiling_takes_effect_at_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(1)).await;
    q.enqueue_n("A", 5).await;
    assert_eq!(q.take(5).await.len(), 1);
    q.configure("A", None, max_running(3)).await;
    assert_eq!(q.take(5).await.len(), 2);
}

pub async fn a_ceiling_of_zero_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for ceilings in [starts_per_window(0), max_running(0)] {
        let params = ConfigureGroupParams {
            group: group("A"),
            base_priority: None,
            ceilings,
        };
        let refused = q.call(params).await;
        assert!(matches!(refused, Err(Refusal::ZeroCeiling { .. })), "{refused:?}");
    }
}

pub async fn a_held_group_does_not_hide_others(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for i in 0..30 {
        let name = format!("paused-{i}");
        q.enqueue_n(&name, 3).await;
        q.pause(Scope::Group(group(&name))).await;
    }
    q.enqueue_n("open", 2).await;
    assert_eq!(ids(&q.take(10).await), ["open-0", "open-1"]);
}

pub async fn a_group_held_for_its_ready_jobs_is_let_go_when_they_are_recalled(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(2)).await;
    q.enqueue_n("A", 5).await;
    // Two fill ready, the third reaches the ceiling; then no worker polls for two windows.
    assert_eq!(q.admit(10, 10).await.admitted.len(), 2);
    q.advance(2_000);
    assert_eq!(q.release_due().await.recalled, 2);
    assert_eq!(ids(&q.take(10).await), ["A-0", "A-1"]);
}

pub async fn a_group_held_for_its_ready_jobs_is_let_go_when_they_expire(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(1)).await;
    let short = NewJob {
        expires_at: Some(START + Millis(100)),
        ..job("short")
    };
    q.enqueue("A", vec![short, job("long")]).await;
    assert_eq!(q.admit(10, 10).await.admitted.len(), 1);
    q.advance(100);
    assert_eq!(q.release_due().await.expired, 1);
    assert_eq!(ids(&q.take(10).await), ["long"]);
}
