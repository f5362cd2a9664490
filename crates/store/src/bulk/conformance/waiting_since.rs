//! Since when a group waits: when the job that would start next was accepted.

use tidegate_core::bulk::config::Hold;
use tidegate_core::bulk::{NewJob, Priority, Scope};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;

async fn since(q: &Harness, group: &str) -> Option<Timestamp> {
    q.group(group).await.waiting_since
}

fn after(seconds: u64) -> Option<Timestamp> {
    Some(START + Millis::from_secs(seconds))
}

pub async fn the_first_job_of_a_flow_says_since_when(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![job("first")]).await;
    q.advance(1_999);
    q.enqueue("A", vec![job("second")]).await;
    q.advance(60_000);
    assert_eq!(since(&q, "A").await, after(0));
    q.take_one().await;
    assert_eq!(since(&q, "A").await, after(1), "in whole seconds");
    q.take_one().await;
    assert_eq!(since(&q, "A").await, None, "nothing waits");
}

pub async fn the_earliest_of_all_lines_counts(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for (priority, id) in [
        (Priority::Low, "low"),
        (Priority::High, "high"),
        (Priority::Normal, "normal"),
    ] {
        q.enqueue("A", at_priority(priority, vec![job(id)])).await;
        q.advance(1_000);
    }
    assert_eq!(since(&q, "A").await, after(0));
    assert_eq!(ids(&q.take(1).await), ["high"]);
    assert_eq!(since(&q, "A").await, after(0), "another flow has the earlier one");
    assert_eq!(ids(&q.take(1).await), ["normal"]);
    assert_eq!(since(&q, "A").await, after(0));
    q.take_one().await;
    assert_eq!(since(&q, "A").await, None);
}

pub async fn only_jobs_in_a_flow_wait(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 2.0).await;
    q.enqueue_sleeper("A").await;
    assert_eq!(since(&q, "A").await, None, "a scheduled job waits for its time");
    q.enqueue_n("A", 2).await;
    q.admit(1, 5).await;
    q.advance(2_000);
    assert_eq!(since(&q, "A").await, after(0), "the second one");
    q.admit(1, 5).await;
    assert_eq!(since(&q, "A").await, None, "both have their place in ready");
    let leased = q.take_all(2).await;
    assert_eq!(since(&q, "A").await, None);
    q.settle(&leased[0], throttled_for(60_000)).await;
    q.settle(&leased[1], done()).await;
    assert_eq!(since(&q, "A").await, None);

    // A job denied by a window keeps its place in its flow.
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 1.0.into();
        c.backpressure.hold = Hold::Job;
    })
    .await;
    q.enqueue_n("A", 2).await;
    q.take_one().await;
    let denied = q.admit(5, 5).await.denied;
    assert_eq!(denied.len(), 1);
    assert_eq!(since(&q, "A").await, after(0));
}

pub async fn a_job_that_comes_back_was_accepted_when_it_was(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![job("again")]).await;
    let leased = q.take_one().await;
    q.settle(&leased, throttled_for(5_000)).await;
    q.advance(5_000);
    q.enqueue("A", vec![job("fresh")]).await;
    assert_eq!(since(&q, "A").await, after(5));
    q.release_due().await;
    assert_eq!(since(&q, "A").await, after(0));
    let leased = q.take_one().await;
    q.settle(&leased, failed("no")).await;
    assert_eq!(since(&q, "A").await, after(5));
    q.advance(5_000);
    q.replay("A", "again").await.expect("it is dead");
    assert_eq!(since(&q, "A").await, after(0), "another life of the same job");
}

pub async fn jobs_of_a_paused_group_wait(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.pause(Scope::Group(group("A"))).await;
    q.advance(3_000);
    assert_eq!(since(&q, "A").await, after(0));
}

pub async fn jobs_set_aside_with_their_batch_do_not_wait(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let paused = Scope::Batch(group("A"), batch("paused"));
    q.enqueue_to("A", "paused", jobs("p", 2)).await;
    q.advance(1_000);
    q.pause(paused.clone()).await;
    assert!(q.take(5).await.is_empty(), "the picker sets them aside");
    assert_eq!(since(&q, "A").await, None);
    q.enqueue_to("A", "other", jobs("o", 1)).await;
    assert_eq!(since(&q, "A").await, after(1));
    q.resume(paused).await;
    assert_eq!(since(&q, "A").await, after(0));
}

pub async fn ended_jobs_at_the_head_are_passed(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let expiring = |id: usize| NewJob {
        expires_at: Some(START + Millis(500)),
        ..job(&format!("expiring-{id}"))
    };
    q.enqueue("A", (0..150).map(expiring).collect()).await;
    q.advance(1_000);
    for i in 0..11 {
        q.enqueue_to("A", "many", jobs(&format!("many-{i}"), 1_000)).await;
    }
    q.advance(1_000);
    q.enqueue_to("A", "last", jobs("last", 1)).await;
    assert_eq!(since(&q, "A").await, after(0), "nobody has looked yet");
    assert_eq!(q.release_due().await.expired, 150);
    assert_eq!(since(&q, "A").await, after(1));
    while q.cancel(Scope::Batch(group("A"), batch("many"))).await.more {}
    assert_eq!(since(&q, "A").await, after(2));
    assert_eq!(ids(&q.take(5).await), ["last-0"]);
    assert_eq!(since(&q, "A").await, None);
}
