//! When a group, a batch or a job is done: ranges that come true, and reasons where nobody knows.

use tidegate_core::bulk::views::{Estimate, NoEstimate, Query, Range, View};
use tidegate_core::bulk::{JobOutcome, NewJob, Priority, Scope};
use tidegate_core::time::Millis;

use super::harness::*;
use super::queues::mail_queue;

/// A queue that starts ten jobs per second.
async fn ten_per_second(backend: &dyn Backend) -> Harness {
    Harness::with(backend, |c| mail_queue(c, Some(10.0))).await
}

async fn enqueue(q: &Harness, group: &str, n: usize) {
    q.enqueue(group, of_kind("mail", jobs(group, n))).await;
}

/// Workers that complete all that may start in each of so many windows.
async fn work(q: &Harness, windows: usize) {
    for _ in 0..windows {
        loop {
            let leased = q.lease_in("mail", 20).await.jobs;
            if leased.is_empty() {
                break;
            }
            q.settle_all(&leased, done()).await;
        }
        q.next_window();
        q.release_due().await;
    }
}

async fn of_group(q: &Harness, name: &str) -> Estimate {
    q.group(name).await.estimate
}

async fn of_batch(q: &Harness, group: &str, name: &str) -> Estimate {
    q.batch(group, name).await.estimate
}

async fn of_job(q: &Harness, of: &str, id: &str) -> Estimate {
    match q.view(Query::WhyJob(group(of), job_id(id))).await {
        View::Why(why) => why.starts.expect("it waits"),
        other => panic!("a reason was answered with {other:?}"),
    }
}

fn range(estimate: Estimate) -> Range {
    estimate.unwrap_or_else(|why| panic!("there is an estimate, not {why:?}"))
}

/// The range contains this many seconds, and is not wider than half of them.
fn assert_holds(estimate: Estimate, seconds: u64, what: &str) {
    let range = range(estimate);
    let actual = Millis::from_secs(seconds);
    assert!(
        (range.earliest..=range.latest).contains(&actual),
        "{what}: {range:?}"
    );
    assert!(
        range.latest.0 - range.earliest.0 <= actual.0 / 2 + 2_000,
        "{what}: {range:?}"
    );
}

pub async fn a_group_is_done_when_its_queue_says(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    enqueue(&q, "A", 500).await;
    work(&q, 20).await;
    assert_holds(of_group(&q, "A").await, 30, "after 200 of 500");
    work(&q, 20).await;
    assert_holds(of_group(&q, "A").await, 10, "after 400 of 500");
    work(&q, 11).await;
    assert_eq!(of_group(&q, "A").await, Ok(Range::default()));
}

pub async fn a_rate_is_believed_until_it_is_measured(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    enqueue(&q, "A", 500).await;
    q.lease_in("mail", 1).await;
    let range = range(of_group(&q, "A").await);
    assert!(
        (range.earliest..=range.latest).contains(&Millis(50_000)),
        "{range:?}"
    );
}

pub async fn a_newcomer_gets_its_share(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    enqueue(&q, "A", 900).await;
    work(&q, 30).await;
    assert_holds(of_group(&q, "A").await, 60, "alone");
    enqueue(&q, "B", 100).await;
    if q.shards == 1 {
        assert_holds(of_group(&q, "B").await, 20, "it has never started a job");
        assert_holds(of_group(&q, "A").await, 70, "with company");
    }
}

pub async fn a_heavier_group_is_done_sooner(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    q.configure("A", Some(-2_000_000), None).await;
    enqueue(&q, "A", 400).await;
    enqueue(&q, "B", 400).await;
    work(&q, 20).await;
    if q.shards == 1 {
        assert_holds(of_group(&q, "A").await, 30, "four fifths of the queue");
        assert_holds(of_group(&q, "B").await, 60, "a fifth, and all of it later");
    }
}

pub async fn a_low_priority_waits_for_the_high_one(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    let at = |priority, of: &str, n| at_priority(priority, of_kind("mail", jobs(of, n)));
    q.enqueue("A", at(Priority::High, "A", 600)).await;
    q.enqueue("B", at(Priority::Low, "B", 100)).await;
    work(&q, 20).await;
    // Each shard has an order of its own.
    if q.shards == 1 {
        let low = range(of_group(&q, "B").await);
        assert!((low.earliest..=low.latest).contains(&Millis(50_000)), "{low:?}");
        let high = range(of_group(&q, "A").await);
        assert!(high.latest < low.latest, "{high:?} {low:?}");
    }
}

pub async fn a_batch_does_not_wait_for_later_ones(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    for (name, first) in [("one", 0), ("two", 200), ("three", 400)] {
        let of_batch = (first..first + 200).map(|i| job(&format!("A-{i}"))).collect();
        q.enqueue_to("A", name, of_kind("mail", of_batch)).await;
    }
    work(&q, 10).await;
    assert_holds(of_batch(&q, "A", "one").await, 10, "one");
    assert_holds(of_batch(&q, "A", "two").await, 30, "two");
    assert_holds(of_batch(&q, "A", "three").await, 50, "three");
    assert_holds(of_job(&q, "A", "A-300").await, 20, "a job of two");
    q.pause(Scope::Batch(group("A"), batch("two"))).await;
    assert_eq!(of_batch(&q, "A", "two").await, Err(NoEstimate::Paused));
}

pub async fn scheduled_jobs_are_not_done_before_their_time(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    let later = |i| NewJob {
        run_at: Some(START + Millis(60_000)),
        ..job(&format!("later-{i}"))
    };
    enqueue(&q, "A", 200).await;
    q.enqueue("A", of_kind("mail", (0..100).map(later).collect()))
        .await;
    work(&q, 10).await;
    assert_holds(
        of_group(&q, "A").await,
        60,
        "ten seconds of work at the end of the minute",
    );
    work(&q, 40).await;
    assert_holds(of_group(&q, "A").await, 20, "nothing waits");
}

pub async fn a_run_that_came_to_nothing_is_no_progress(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    enqueue(&q, "A", 300).await;
    for _ in 0..20 {
        let leased = q.lease_in("mail", 10).await.jobs;
        q.settle_all(&leased[..5], done()).await;
        q.settle_all(&leased[5..], JobOutcome::Released).await;
        q.next_window();
    }
    assert_holds(of_group(&q, "A").await, 40, "five of ten get through");
}

pub async fn where_nobody_knows_the_answer_says_why(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 40).await;
    assert_eq!(of_group(&q, "A").await, Err(NoEstimate::NoWorker));
    q.pause(Scope::Group(group("A"))).await;
    assert_eq!(of_group(&q, "A").await, Err(NoEstimate::Paused));
    assert_eq!(of_job(&q, "A", "A-1").await, Err(NoEstimate::Paused));
    q.resume(Scope::Group(group("A"))).await;
    let leased = q.take(1).await;
    assert_eq!(of_group(&q, "A").await, Err(NoEstimate::NotMeasured));
    q.settle_all(&leased, done()).await;
    assert_eq!(of_group(&q, "A").await, Err(NoEstimate::NotMeasured));
    q.advance(60_000);
    assert_eq!(of_group(&q, "A").await, Err(NoEstimate::NoWorker));
}

pub async fn a_single_worker_is_measured(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 60).await;
    for _ in 0..20 {
        let leased = q.take_one().await;
        q.advance(2_000);
        q.settle(&leased, done()).await;
    }
    assert_holds(of_group(&q, "A").await, 80, "forty jobs of two seconds");
    // It rests; the time without work is not counted.
    for _ in 20..60 {
        let leased = q.take_one().await;
        q.advance(2_000);
        q.settle(&leased, done()).await;
    }
    assert!(q.take(1).await.is_empty());
    q.advance(300_000);
    assert!(q.take(1).await.is_empty());
    q.enqueue("A", (100..120).map(|i| job(&format!("A-{i}"))).collect())
        .await;
    q.take_one().await;
    assert_holds(of_group(&q, "A").await, 40, "as fast as before");
}

pub async fn a_store_that_is_asked_changes_nothing(backend: &dyn Backend) {
    let q = ten_per_second(backend).await;
    enqueue(&q, "A", 100).await;
    work(&q, 3).await;
    let first = of_group(&q, "A").await;
    for _ in 0..3 {
        assert_eq!(of_group(&q, "A").await, first);
    }
}
