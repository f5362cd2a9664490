//! Queues with separate workers, which do not block each other.

use tidegate_core::bulk::Stop;
use tidegate_core::bulk::config::{BulkConfig, JobTypeConfig, QueueConfig};
use tidegate_core::time::Millis;

use super::harness::*;

/// Jobs of type `mail` go to queue `mail`, with its own rate if given.
pub(super) fn mail_queue(config: &mut BulkConfig, rps: Option<f64>) {
    let settings = JobTypeConfig {
        queue: Some(queue("mail")),
        ..Default::default()
    };
    config.job_types.insert(kind("mail"), settings);
    config.queues.insert(
        queue("mail"),
        QueueConfig {
            rate: rps.map(Into::into),
            ..Default::default()
        },
    );
}

pub async fn an_idle_queue_holds_up_nobody(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| mail_queue(c, None)).await;
    q.enqueue("A", of_kind("mail", jobs("mail", 100))).await;
    q.enqueue_n("A", 2).await;
    q.enqueue_n("B", 1).await;
    assert_eq!(
        groups(&q.take(10).await),
        "ABA",
        "nobody works in queue mail, and nobody waits for it"
    );
    assert_eq!(ids(&q.lease_in("mail", 1).await.jobs), ["mail-0"]);
}

pub async fn a_queue_keeps_to_its_own_rate(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        mail_queue(c, Some(3.0));
    })
    .await;
    q.enqueue("A", of_kind("mail", jobs("mail", 20))).await;
    q.enqueue_n("A", 20).await;
    let mail = q.lease_in("mail", 20).await;
    assert_eq!(mail.jobs.len(), 3);
    assert_eq!(
        mail.stop,
        Stop::Limited {
            until: START + Millis(1_000)
        }
    );
    assert_eq!(q.take(20).await.len(), 7, "the rest of the global window");
}

pub async fn ready_jobs_that_nobody_fetches_give_their_places_back(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        mail_queue(c, None);
    })
    .await;
    q.enqueue_n("A", 10).await;
    q.enqueue("A", of_kind("mail", jobs("mail", 20))).await;
    // The default queue had a worker that disappeared after its fetcher filled ready.
    q.admit(10, 10).await;
    assert!(
        q.lease_in("mail", 20).await.jobs.is_empty(),
        "every place of the window is promised"
    );
    q.advance(2_000);
    assert_eq!(q.release_due().await.recalled, 10);
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 10);
    q.next_window();
    assert_eq!(
        ids(&q.take(2).await),
        ["A-0", "A-1"],
        "recalled jobs keep their order"
    );
}

pub async fn a_group_has_its_turn_in_every_queue(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| mail_queue(c, None)).await;
    q.enqueue("A", of_kind("mail", jobs("mail", 20))).await;
    q.lease_in("mail", 20).await;
    q.enqueue_n("B", 3).await;
    q.enqueue_n("A", 3).await;
    q.assert_order(
        &groups(&q.take(6).await),
        "BABABA",
        "twenty starts in queue mail cost A nothing here",
    );
}

pub async fn a_full_ready_of_one_queue_leaves_room_in_another(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.ready_queue_max_size = 5;
        mail_queue(c, None);
    })
    .await;
    q.enqueue_n("A", 10).await;
    q.enqueue("A", of_kind("mail", jobs("mail", 10))).await;
    assert_eq!(q.admit(10, 10).await.stop, Stop::Full);
    assert_eq!(q.admit_in("mail", 10, 10).await.admitted.len(), 5);
}
