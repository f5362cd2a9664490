//! Outcomes of runs: they count once, in order, and are kept.

use bytes::Bytes;
use tidegate_core::bulk::{
    BatchStatus, DeathReason, JobOutcome, JobState, SettleParams, Settled, Settlement,
};

use super::harness::*;

pub async fn one_job_completes_its_sealed_batch(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.seal("A").await;
    let leased = q.take_one().await;
    assert_eq!(
        q.settle(&leased, done()).await,
        Settled::Completed { batch_complete: true }
    );
}

pub async fn completion_is_reported_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.seal("A").await;
    let jobs = q.take_all(3).await;
    let mut completions = 0;
    for job in jobs.iter().chain(&jobs) {
        if q.settle(job, done()).await == (Settled::Completed { batch_complete: true }) {
            completions += 1;
        }
    }
    assert_eq!(completions, 1);
    assert_eq!(q.claim(1_000).await.len(), 1);
    assert_eq!(q.claim(1_000).await.len(), 0, "one aggregator at a time");
}

pub async fn a_second_settlement_does_not_count(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    q.seal("A").await;
    let first = q.take_one().await;
    assert_eq!(
        q.settle(&first, done()).await,
        Settled::Completed {
            batch_complete: false
        }
    );
    assert_eq!(q.settle(&first, done()).await, Settled::Stale);
    assert_eq!(q.settle(&first, failed("changed my mind")).await, Settled::Stale);
    let batch = q.first_batch("A").await;
    assert_eq!((batch.counts.success, batch.counts.failed), (1, 0));
    assert_eq!(batch.status, BatchStatus::Running, "the other job has not run");
}

pub async fn the_same_settlement_twice_in_one_call(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    q.seal("A").await;
    let lease = q.take_one().await.leased.lease;
    let answers = vec![
        Settlement {
            lease,
            outcome: done(),
            cost: None,
        },
        Settlement {
            lease,
            outcome: done(),
            cost: None,
        },
    ];
    let settled = q.call(SettleParams { answers }).await;
    assert_eq!(
        settled,
        [
            Settled::Completed {
                batch_complete: false
            },
            Settled::Stale
        ]
    );
    assert_eq!(q.first_batch("A").await.counts.success, 1);
}

pub async fn a_failed_job_counts_for_completion(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    q.seal("A").await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], done()).await;
    let dead = Settled::Dead {
        reason: DeathReason::Failed,
        batch_complete: true,
    };
    assert_eq!(q.settle(&jobs[1], failed("no")).await, dead);
    let batch = q.first_batch("A").await;
    assert_eq!(
        (batch.counts.total, batch.counts.success, batch.counts.failed),
        (2, 1, 1)
    );
    assert_eq!(batch.errors, ["no"]);
    assert!(!q.group("A").await.active);
}

pub async fn answers_come_in_the_order_of_the_batch(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 5).await;
    let jobs = q.take_all(5).await;
    let outcomes = [done(), failed("no"), throttled(), retry(), JobOutcome::Released];
    let answer = |(job, outcome): (&crate::bulk::LeasedJob, JobOutcome)| Settlement {
        lease: job.leased.lease,
        outcome,
        cost: None,
    };
    let answers = jobs.iter().zip(outcomes).map(answer).collect();
    let settled = q.call(SettleParams { answers }).await;
    assert!(matches!(settled[0], Settled::Completed { .. }), "{settled:?}");
    assert!(matches!(settled[1], Settled::Dead { .. }), "{settled:?}");
    assert!(matches!(settled[2], Settled::Delayed { .. }), "{settled:?}");
    assert!(matches!(settled[3], Settled::Delayed { .. }), "{settled:?}");
    assert_eq!(settled[4], Settled::Released);
    let counts = q.counts().await;
    assert_eq!(
        (counts.completed, counts.dead, counts.delayed, counts.waiting),
        (1, 1, 2, 1)
    );
}

pub async fn a_result_is_kept_with_its_job(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    let jobs = q.take_all(2).await;
    let result = Bytes::from_static(&[0, 1, 254, 255]);
    q.settle(
        &jobs[0],
        JobOutcome::Completed {
            result: result.clone(),
        },
    )
    .await;
    q.settle(&jobs[1], failed("bounced")).await;
    let fine = q.job("A", "A-0").await;
    assert_eq!(
        (fine.result, fine.error, fine.view.state),
        (Some(result), None, JobState::Completed)
    );
    assert_eq!(fine.view.finished_at, Some(START));
    let dead = q.job("A", "A-1").await;
    assert_eq!((dead.result, dead.error.as_deref()), (None, Some("bounced")));
    assert_eq!(dead.view.dead, Some(DeathReason::Failed));
}

pub async fn a_result_beyond_the_limit_fails_the_job(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.limits.max_result_bytes = 10).await;
    q.enqueue_n("A", 2).await;
    let jobs = q.take_all(2).await;
    let of = |len: usize| JobOutcome::Completed {
        result: vec![b'x'; len].into(),
    };
    assert_eq!(
        q.settle(&jobs[0], of(10)).await,
        Settled::Completed {
            batch_complete: false
        }
    );
    let dead = q.settle(&jobs[1], of(11)).await;
    assert!(
        matches!(
            dead,
            Settled::Dead {
                reason: DeathReason::Failed,
                ..
            }
        ),
        "{dead:?}"
    );
    let error = q.job("A", "A-1").await.error.unwrap_or_default();
    assert!(
        error.contains("11 bytes"),
        "the error names the length: {error:?}"
    );
}

pub async fn a_long_error_is_cut_between_characters(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let leased = q.take_one().await;
    // One byte and then two per character: the limit of 1,024 falls into the middle of one.
    let text = format!("x{}", "é".repeat(2_000));
    q.settle(&leased, failed(&text)).await;
    let kept = q.job("A", "A-0").await.error.unwrap_or_default();
    assert_eq!(kept.len(), 1_023);
    assert!(text.starts_with(&kept));
}

pub async fn a_failure_without_words_has_an_error_all_the_same(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let leased = q.take_one().await;
    q.settle(&leased, failed("")).await;
    assert!(
        q.job("A", "A-0")
            .await
            .error
            .is_some_and(|error| !error.is_empty())
    );
}

pub async fn a_batch_keeps_its_first_errors(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 15).await;
    for (i, leased) in q.take_all(15).await.iter().enumerate() {
        q.settle(leased, failed(&format!("error {i}"))).await;
    }
    let errors = q.first_batch("A").await.errors;
    let expected: Vec<String> = (0..10).map(|i| format!("error {i}")).collect();
    assert_eq!(errors, expected);
}
