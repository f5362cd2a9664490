//! One submission of a group: opened, filled, sealed, completed once, aggregated once.

use tidegate_core::bulk::{
    BatchCounts, BatchOptions, BatchStatus, Enqueued, JobState, OpenBatchParams, Opened, Refusal, Settled,
};
use tidegate_core::time::Millis;

use super::harness::*;

fn threshold(percent: u32) -> BatchOptions {
    BatchOptions {
        failure_threshold_percent: percent,
        ..Default::default()
    }
}

const KEEP_RESULTS: BatchOptions = BatchOptions {
    failure_threshold_percent: 100,
    keep_results: true,
    callback: None,
};

pub async fn a_second_batch_of_a_group_starts_from_zero(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "spring", jobs("spring", 2)).await;
    q.try_seal("A", Some("spring")).await.expect("it is open");
    q.run(2).await;
    assert_eq!(q.aggregate_all().await, [BatchStatus::Completed]);

    q.enqueue_to("A", "summer", jobs("summer", 3)).await;
    q.run(1).await;
    let summer = q.batch("A", "summer").await;
    assert_eq!(
        summer.counts,
        BatchCounts {
            total: 3,
            success: 1,
            failed: 0
        }
    );
    assert_eq!(summer.status, BatchStatus::Running);
    assert_eq!(q.batch("A", "spring").await.counts.total, 2);
}

pub async fn an_open_batch_never_completes(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("first", 1)).await;
    let leased = q.take_one().await;
    assert_eq!(
        q.settle(&leased, done()).await,
        Settled::Completed {
            batch_complete: false
        }
    );
    q.enqueue_to("A", "a", jobs("second", 1)).await;
    q.run(1).await;
    assert_eq!(q.batch("A", "a").await.status, BatchStatus::Running);
    let sealed = q.seal("A").await;
    assert!(sealed.batch_complete, "the seal completes it");
    assert_eq!(sealed.total_jobs, 2);
    assert_eq!(q.batch("A", "a").await.status, BatchStatus::Aggregating);
}

pub async fn an_empty_batch_completes_when_sealed(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.open_batch("A", "empty", BatchOptions::default()).await;
    assert!(q.seal("A").await.batch_complete);
    assert_eq!(q.aggregate_all().await, [BatchStatus::Completed]);
}

pub async fn sealing_again_changes_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    q.seal("A").await;
    q.run(1).await;
    let again = q.try_seal("A", Some("a")).await.expect("sealing is idempotent");
    assert!(!again.batch_complete, "completion is reported once");
    assert_eq!(q.claim(1_000).await.len(), 1);
}

pub async fn a_sealed_batch_takes_no_more_jobs(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    q.seal("A").await;
    let refused = q.try_enqueue("A", Some("a"), jobs("more", 1)).await;
    assert_eq!(refused, Err(Refusal::Sealed(batch("a"))));
    assert_eq!(q.batch("A", "a").await.counts.total, 1);
}

pub async fn jobs_without_a_batch_go_to_the_open_one(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.open_batch("A", "named", BatchOptions::default()).await;
    assert_eq!(q.enqueue("A", jobs("A", 1)).await.batch, batch("named"));
    q.seal("A").await;
    let fresh = q.enqueue("A", jobs("later", 1)).await;
    assert_ne!(fresh.batch, batch("named"), "a fresh one is opened");
    assert_eq!(fresh.total_jobs, 1);
}

pub async fn opening_twice_changes_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    assert_eq!(q.open_batch("A", "a", threshold(50)).await, Opened::New);
    q.enqueue_to("A", "a", jobs("A", 2)).await;
    assert_eq!(q.open_batch("A", "a", threshold(1)).await, Opened::Already);
    assert_eq!(q.batch("A", "a").await.counts.total, 2);
}

pub async fn a_finished_batch_is_not_opened_again(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    q.seal("A").await;
    q.run(1).await;
    q.aggregate_all().await;
    let params = OpenBatchParams {
        group: group("A"),
        batch: batch("a"),
        base_priority: None,
        options: BatchOptions::default(),
    };
    assert_eq!(q.call(params).await, Err(Refusal::BatchFinished(batch("a"))));
}

pub async fn sealing_what_is_not_there_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    assert_eq!(
        q.try_seal("A", None).await,
        Err(Refusal::UnknownGroup(group("A")))
    );
    q.enqueue_n("A", 1).await;
    let unknown = q.try_seal("A", Some("nope")).await;
    assert!(
        matches!(unknown, Err(Refusal::UnknownBatch { .. })),
        "{unknown:?}"
    );
    q.seal("A").await;
    assert_eq!(q.try_seal("A", None).await, Err(Refusal::NoOpenBatch(group("A"))));
}

pub async fn a_threshold_out_of_range_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for percent in [0, 101] {
        let params = OpenBatchParams {
            group: group("A"),
            batch: batch("a"),
            base_priority: None,
            options: threshold(percent),
        };
        assert_eq!(q.call(params).await, Err(Refusal::FailureThreshold(percent)));
    }
}

/// Runs ten jobs of which `bad` fail; returns the status of the batch.
async fn decide(backend: &dyn Backend, options: BatchOptions, bad: usize) -> BatchStatus {
    let q = Harness::new(backend).await;
    q.open_batch("A", "a", options).await;
    q.enqueue_to("A", "a", jobs("A", 10)).await;
    q.seal("A").await;
    let jobs = q.take_all(10).await;
    q.settle_all(&jobs[..bad], failed("no")).await;
    q.settle_all(&jobs[bad..], done()).await;
    let decided = q.aggregate_all().await[0];
    assert_eq!(q.batch("A", "a").await.status, decided);
    decided
}

pub async fn by_default_only_all_failures_fail_a_batch(backend: &dyn Backend) {
    let options = BatchOptions::default;
    assert_eq!(decide(backend, options(), 0).await, BatchStatus::Completed);
    assert_eq!(decide(backend, options(), 9).await, BatchStatus::Completed);
    assert_eq!(decide(backend, options(), 10).await, BatchStatus::Failed);
}

pub async fn a_failure_threshold_decides_the_batch(backend: &dyn Backend) {
    assert_eq!(decide(backend, threshold(30), 2).await, BatchStatus::Completed);
    assert_eq!(decide(backend, threshold(30), 3).await, BatchStatus::Failed);
    assert_eq!(decide(backend, threshold(1), 0).await, BatchStatus::Completed);
}

pub async fn a_failed_aggregation_fails_the_batch(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    q.seal("A").await;
    q.run(1).await;
    let claimed = q.claim(1_000).await.remove(0);
    assert_eq!(
        q.finish(&claimed, Err("reducer broke")).await,
        Ok(BatchStatus::Failed)
    );
    let errors = q.batch("A", "a").await.errors;
    assert!(
        errors.iter().any(|error| error.contains("reducer broke")),
        "{errors:?}"
    );
}

pub async fn an_aggregation_hands_over_the_counts(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 3)).await;
    q.seal("A").await;
    let jobs = q.take_all(3).await;
    q.settle_all(&jobs[..2], done()).await;
    q.settle(&jobs[2], failed("no")).await;
    let claimed = q.claim(1_000).await.remove(0);
    assert_eq!(
        (claimed.group.clone(), claimed.batch.clone()),
        (group("A"), batch("a"))
    );
    assert_eq!(
        claimed.counts,
        BatchCounts {
            total: 3,
            success: 2,
            failed: 1
        }
    );
    assert_eq!(
        (claimed.errors.clone(), claimed.finished),
        (vec!["no".to_owned()], None)
    );
    q.finish(&claimed, Ok("2 of 3")).await.expect("the claim holds");
    let view = q.batch("A", "a").await;
    assert_eq!(view.summary.as_deref(), Some(&b"2 of 3"[..]));
    assert_eq!(view.finished_at, Some(START));
}

pub async fn another_watcher_takes_over(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    q.seal("A").await;
    q.run(1).await;
    let dead_watcher = q.claim(5_000).await.remove(0);
    q.advance(4_999);
    assert!(q.claim(5_000).await.is_empty(), "the claim holds");
    q.advance(1);
    let successor = q.claim(5_000).await.remove(0);
    let late = q.finish(&dead_watcher, Ok("late")).await;
    assert_eq!(
        late,
        Err(Refusal::ClaimLost(batch("a"))),
        "the first aggregator is rejected"
    );
    assert_eq!(q.finish(&successor, Ok("sum")).await, Ok(BatchStatus::Completed));
    let again = q.finish(&successor, Ok("again")).await;
    assert_eq!(again, Err(Refusal::ClaimLost(batch("a"))), "decided once");
    assert_eq!(q.batch("A", "a").await.summary.as_deref(), Some(&b"sum"[..]));
}

pub async fn a_callback_that_was_not_confirmed_is_due_again(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    q.seal("A").await;
    q.run(1).await;
    let claimed = q.claim(5_000).await.remove(0);
    assert_eq!(
        q.confirm(&claimed).await,
        Err(Refusal::ClaimLost(batch("a"))),
        "not decided yet"
    );
    q.finish(&claimed, Ok("sum")).await.expect("the claim holds");
    q.advance(5_000);
    let again = q.claim(5_000).await.remove(0);
    assert_eq!(
        again.finished,
        Some(BatchStatus::Completed),
        "only the callback is missing"
    );
    q.confirm(&again).await.expect("it is decided");
    q.confirm(&again).await.expect("confirming is idempotent");
    q.advance(60_000);
    assert!(q.claim(5_000).await.is_empty());
}

pub async fn a_group_is_idle_when_its_batches_are_done(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    q.seal("A").await;
    q.run(2).await;
    let claimed = q.claim(5_000).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(
        q.stats().await.active_groups,
        0,
        "an aggregator that dies leaves no active group behind"
    );
}

pub async fn results_come_in_pages_in_order(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.open_batch("A", "a", KEEP_RESULTS).await;
    q.enqueue_to("A", "a", jobs("A", 7)).await;
    q.enqueue_to("A", "other", jobs("other", 2)).await;
    let mut jobs = q.take_all(9).await;
    jobs.reverse();
    q.settle_all(&jobs, done()).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = q.results("A", "a", after, 3).await;
        assert!(page.items.len() <= 3);
        seen.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let names: Vec<&str> = seen.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(names, ["A-0", "A-1", "A-2", "A-3", "A-4", "A-5", "A-6"]);
    assert!(seen.iter().all(|job| job.result.as_deref() == Some(&b"ok"[..])));
}

pub async fn kept_results_outlive_finished_jobs(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.retention.finished_jobs_max = 1).await;
    q.open_batch("A", "kept", KEEP_RESULTS).await;
    q.enqueue_to("A", "kept", jobs("kept", 5)).await;
    q.run(5).await;
    q.advance(10 * 86_400_000);
    q.drop_finished().await;
    assert_eq!(q.results("A", "kept", None, 100).await.items.len(), 5);
    q.try_seal("A", Some("kept")).await.expect("it is open");
    q.aggregate_all().await;
    q.advance(Millis::from_secs(8 * 86_400).0);
    assert_eq!(q.drop_finished().await.jobs, 5, "they go with their batch");
}

pub async fn counts_outlive_dropped_jobs(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("early", 3)).await;
    q.run(3).await;
    q.advance(86_400_001);
    assert_eq!(q.drop_finished().await.jobs, 3);
    q.enqueue_to("A", "a", jobs("late", 1)).await;
    q.run(1).await;
    assert!(q.seal("A").await.batch_complete);
    assert_eq!(
        q.batch("A", "a").await.counts,
        BatchCounts {
            total: 4,
            success: 4,
            failed: 0
        }
    );
}

pub async fn a_replayed_job_of_an_open_batch_counts_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 2)).await;
    q.seal("A").await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], failed("no")).await;
    q.replay("A", "A-0").await.expect("it is dead");
    assert_eq!(q.batch("A", "a").await.counts.failed, 0);
    assert_eq!(
        q.settle(&jobs[1], done()).await,
        Settled::Completed {
            batch_complete: false
        }
    );
    let again = q.take_one().await;
    assert_eq!(
        (again.id.as_str(), again.leased.attempt),
        ("A-0", 1),
        "a new life has all its attempts"
    );
    assert_eq!(
        q.settle(&again, done()).await,
        Settled::Completed { batch_complete: true }
    );
    assert_eq!(
        q.batch("A", "a").await.counts,
        BatchCounts {
            total: 2,
            success: 2,
            failed: 0
        }
    );
}

pub async fn a_replay_never_changes_a_finished_batch(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 2)).await;
    q.seal("A").await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], failed("no")).await;
    q.settle(&jobs[1], done()).await;
    q.aggregate_all().await;
    let before = q.batch("A", "a").await;
    q.replay("A", "A-0").await.expect("it is dead");
    let again = q.take_one().await;
    assert_eq!(
        q.settle(&again, done()).await,
        Settled::Completed {
            batch_complete: false
        }
    );
    let after = q.batch("A", "a").await;
    assert_eq!((after.counts, after.status), (before.counts, before.status));
    assert_eq!(q.job("A", "A-0").await.view.state, JobState::Completed);
    assert!(q.claim(1_000).await.is_empty(), "nothing is aggregated twice");
}

pub async fn only_dead_jobs_are_replayed(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    assert_eq!(q.replay("A", "A-0").await, Err(Refusal::NotDead(job_id("A-0"))));
    q.run(1).await;
    assert_eq!(q.replay("A", "A-0").await, Err(Refusal::NotDead(job_id("A-0"))));
    let unknown = q.replay("A", "A-9").await;
    assert!(matches!(unknown, Err(Refusal::UnknownJob { .. })), "{unknown:?}");
    let again = q.enqueue("A", jobs("A", 1)).await;
    assert!(
        matches!(again.jobs[0], Enqueued::Duplicate(_)),
        "a finished job is still a duplicate"
    );
}

pub async fn a_batch_keeps_its_callback(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let name = "é".repeat(128);
    for callback in [None, Some("mailer".to_owned()), Some(name)] {
        let options = BatchOptions {
            callback: callback.clone(),
            ..Default::default()
        };
        let of_group = format!("group of {}", callback.as_deref().map_or(0, str::len));
        q.open_batch(&of_group, "a", options).await;
        assert_eq!(q.batch(&of_group, "a").await.callback, callback);
        q.open_batch(&of_group, "a", threshold(50)).await;
        q.seal(&of_group).await;
        let claimed = q.claim(1_000).await.remove(0);
        assert_eq!(claimed.callback, callback, "the aggregator knows the callback");
        q.finish(&claimed, Ok("sum")).await.expect("the claim holds");
        q.advance(1_000);
        let again = q.claim(1_000).await.remove(0);
        assert_eq!(again.callback, callback, "and who takes over, too");
        q.confirm(&again).await.expect("it is decided");
        assert_eq!(q.batch(&of_group, "a").await.callback, callback);
    }
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    assert_eq!(q.batch("A", "a").await.callback, None);
}

pub async fn a_callback_without_a_name_or_with_too_long_a_one_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for len in [0, 257] {
        let params = OpenBatchParams {
            group: group("A"),
            batch: batch("a"),
            base_priority: None,
            options: BatchOptions {
                callback: Some("c".repeat(len)),
                ..Default::default()
            },
        };
        let refused = q.call(params).await;
        let (len, max) = (len as u64, 256);
        assert_eq!(refused, Err(Refusal::CallbackName { len, max }));
    }
}
