//! One job as an operator sees it: when it came, who runs it, how far it is, and every run with its error.

use tidegate_core::bulk::record::{RUNS_KEPT, RunOutcome};
use tidegate_core::bulk::{ExtendParams, Extended, JobState, LeaseExtension, Progress};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;
use crate::bulk::{JobRun, LeasedJob};

impl Harness {
    async fn report(&self, job: &LeasedJob, percent: u8, text: &str) -> Extended {
        let progress = Progress {
            percent,
            text: text.to_owned(),
        };
        let extension = LeaseExtension {
            lease: job.leased.lease,
            progress: Some(progress),
        };
        self.call(ExtendParams {
            leases: vec![extension],
            by: Millis(30_000),
        })
        .await[0]
    }
}

fn outcomes(runs: &[JobRun]) -> Vec<(u32, Option<RunOutcome>)> {
    runs.iter().map(|run| (run.number, run.outcome)).collect()
}

pub async fn a_job_says_when_it_came_started_and_finished(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.advance(123);
    q.enqueue_n("A", 1).await;
    q.advance(1_000);
    assert_eq!(q.job("A", "A-0").await.created_at, START + Millis(123));
    assert_eq!(q.job("A", "A-0").await.runs, []);
    let job = q.take_one().await;
    let view = q.job("A", "A-0").await;
    let running = view.view.running.expect("it runs");
    assert_eq!(running.started_at, Some(START + Millis(1_123)));
    assert_eq!(running.worker.as_str(), "worker");
    assert_eq!((running.progress, running.cancelled), (None, false));
    assert_eq!(outcomes(&view.runs), [(1, None)]);
    q.advance(500);
    q.settle(&job, done()).await;
    let after = q.job("A", "A-0").await;
    assert_eq!(after.view.running, None);
    assert_eq!(after.view.finished_at, Some(START + Millis(1_623)));
    let run = &after.runs[0];
    assert_eq!(
        (run.started_at, run.ended_at),
        (running.started_at, after.view.finished_at)
    );
    assert_eq!(
        (run.worker.as_str(), run.outcome),
        ("worker", Some(RunOutcome::Completed))
    );
    assert_eq!(after.result.as_deref(), Some(&b"ok"[..]));
}

pub async fn every_run_is_kept_with_its_error(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let job = q.take_one().await;
    q.settle(&job, retry()).await;
    q.advance(60_000);
    q.release_due().await;
    let job = q.take_one().await;
    q.settle(&job, throttled_for(1_000)).await;
    q.advance(60_000);
    q.release_due().await;
    q.take_one().await;
    q.advance(600_000);
    q.expire_leases().await;
    q.advance(60_000);
    q.release_due().await;
    let job = q.take_one().await;
    let runs = q.job("A", "A-0").await.runs;
    assert_eq!(
        outcomes(&runs),
        [
            (1, Some(RunOutcome::Retry)),
            (2, Some(RunOutcome::Throttled)),
            (3, Some(RunOutcome::LeaseExpired)),
            (4, None)
        ]
    );
    assert_eq!(runs[0].error.as_deref(), Some("try again"));
    assert_eq!((&runs[1].error, &runs[2].error), (&None, &None));
    assert_eq!(runs[0].started_at, Some(START));
    assert_eq!(runs[1].started_at, Some(START + Millis(60_000)));
    q.settle(&job, failed("no such mailbox")).await;
    let dead = q.job("A", "A-0").await;
    assert_eq!(outcomes(&dead.runs)[3], (4, Some(RunOutcome::Failed)));
    assert_eq!(dead.runs[3].error.as_deref(), Some("no such mailbox"));
    // A replay starts anew and forgets nothing.
    q.replay("A", "A-0").await.expect("it is dead");
    let job = q.take_one().await;
    q.settle(&job, done()).await;
    let done = q.job("A", "A-0").await;
    assert_eq!(outcomes(&done.runs)[4], (5, Some(RunOutcome::Completed)));
    assert_eq!(outcomes(&done.runs)[3], (4, Some(RunOutcome::Failed)));
}

pub async fn a_released_run_was_none(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let job = q.take_one().await;
    q.settle(&job, tidegate_core::bulk::JobOutcome::Released).await;
    let view = q.job("A", "A-0").await;
    assert_eq!((view.view.state, view.runs), (JobState::Waiting, vec![]));
    let job = q.take_one().await;
    q.settle(&job, done()).await;
    assert_eq!(
        outcomes(&q.job("A", "A-0").await.runs),
        [(1, Some(RunOutcome::Completed))]
    );
}

pub async fn only_the_latest_runs_are_kept(backend: &dyn Backend) {
    let q = Harness::with(backend, |config| config.worker_pool.max_retry_count = 100).await;
    q.enqueue_n("A", 1).await;
    for _ in 0..RUNS_KEPT + 3 {
        let job = q.take_one().await;
        q.settle(&job, retry()).await;
        q.advance(3_600_000);
        q.release_due().await;
    }
    let numbers = |runs: &[JobRun]| runs.iter().map(|run| run.number).collect::<Vec<_>>();
    let runs = q.job("A", "A-0").await.runs;
    assert_eq!(numbers(&runs), (4..=RUNS_KEPT + 3).collect::<Vec<_>>());
    let job = q.take_one().await;
    let runs = q.job("A", "A-0").await.runs;
    assert_eq!(numbers(&runs), (5..=RUNS_KEPT + 4).collect::<Vec<_>>());
    q.settle(&job, done()).await;
    let runs = q.job("A", "A-0").await.runs;
    assert_eq!(numbers(&runs), (5..=RUNS_KEPT + 4).collect::<Vec<_>>());
}

pub async fn a_worker_reports_its_progress(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    let jobs = q.take_all(2).await;
    q.report(&jobs[0], 40, "page 4 of 10").await;
    let progress = |view: crate::bulk::JobDetails| view.view.running.expect("it runs").progress;
    let expected = Progress {
        percent: 40,
        text: "page 4 of 10".into(),
    };
    assert_eq!(progress(q.job("A", "A-0").await), Some(expected.clone()));
    assert_eq!(progress(q.job("A", "A-1").await), None);
    // An extension without one leaves it as it is.
    q.extend(&jobs[0], 30_000).await;
    assert_eq!(progress(q.job("A", "A-0").await), Some(expected));
    q.report(&jobs[0], 200, &"x".repeat(1_000)).await;
    let bounded = progress(q.job("A", "A-0").await).expect("a progress");
    assert_eq!((bounded.percent, bounded.text.len()), (100, 256));
    // The next run begins without.
    q.settle(&jobs[0], retry()).await;
    q.advance(60_000);
    q.release_due().await;
    let again = q.take_one().await;
    assert_eq!(progress(q.job("A", "A-0").await), None);
    assert_eq!(q.report(&jobs[0], 50, "late").await, Extended::Stale);
    q.report(&again, 1, "").await;
    q.settle(&again, done()).await;
    assert_eq!(q.job("A", "A-0").await.result.as_deref(), Some(&b"ok"[..]));
}

pub async fn a_dropped_job_takes_its_runs_along(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let job = q.take_one().await;
    q.settle(&job, failed("no")).await;
    q.purge("A", "A-0").await.expect("it is dead");
    q.enqueue_n("A", 1).await;
    assert_eq!(q.job("A", "A-0").await.runs, []);
    let job = q.take_one().await;
    q.settle(&job, failed("again")).await;
    let runs = q.job("A", "A-0").await.runs;
    assert_eq!(outcomes(&runs), [(1, Some(RunOutcome::Failed))]);
    assert!(runs[0].ended_at > Some(Timestamp(0)));
}
