//! What waits and runs in each queue, and since when.

use tidegate_core::bulk::NewJob;
use tidegate_core::bulk::views::{Query, QueueBacklog, View};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;

impl Harness {
    async fn backlog(&self) -> Vec<QueueBacklog> {
        match self.view(Query::Backlog).await {
            View::Backlog(backlog) => backlog,
            other => panic!("a backlog was answered with {other:?}"),
        }
    }
}

fn of(name: &str, waiting: u64, delayed: u64, running: u64, since: Option<Timestamp>) -> QueueBacklog {
    QueueBacklog {
        queue: queue(name),
        waiting,
        delayed,
        running,
        oldest_waiting_since: since,
    }
}

pub async fn a_queue_says_what_waits_and_runs(backend: &dyn Backend) {
    let q = Harness::with(backend, |config| {
        config.job_types.entry(kind("mail")).or_default().queue = Some(queue("post"));
    })
    .await;
    assert_eq!(q.backlog().await, []);
    q.enqueue_n("A", 3).await;
    q.advance(5_000);
    let later = NewJob {
        run_at: Some(q.now() + Millis(60_000)),
        ..job("later")
    };
    q.enqueue("B", vec![job("b"), later]).await;
    q.enqueue("B", of_kind("mail", vec![job("m")])).await;
    let post = of("post", 1, 0, 0, Some(START + Millis(5_000)));
    assert_eq!(
        q.backlog().await,
        [of("default", 4, 1, 0, Some(START)), post.clone()]
    );
    q.admit(1, 10).await;
    let jobs = q.take_all(4).await;
    assert_eq!(q.backlog().await, [of("default", 0, 1, 4, None), post.clone()]);
    q.settle(&jobs[0], done()).await;
    q.settle(&jobs[1], retry()).await;
    q.settle(&jobs[2], failed("no")).await;
    q.settle(&jobs[3], tidegate_core::bulk::JobOutcome::Released)
        .await;
    let [default, _] = &q.backlog().await[..] else {
        panic!("two queues");
    };
    assert_eq!((default.waiting, default.delayed, default.running), (1, 2, 0));
    q.advance(120_000);
    q.release_due().await;
    assert_eq!(q.backlog().await[0].waiting, 3);
    q.advance(120_000);
    q.take_all(3).await;
    q.advance(600_000);
    q.expire_leases().await;
    assert_eq!(q.backlog().await[0], of("default", 0, 3, 0, None));
}

pub async fn a_cancelled_job_leaves_the_backlog(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.cancel(tidegate_core::bulk::Scope::Group(group("A"))).await;
    assert_eq!(q.backlog().await, [of("default", 0, 0, 0, None)]);
}
