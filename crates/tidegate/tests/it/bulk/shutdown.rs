//! How runs end: by shutdown, by panic, by timeout, or without a handler; and how batches end whose reducer or
//! callback panics.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::config::BulkConfig;
use tidegate::{
    BatchOptions, BatchStatus, Job, JobDetails, JobError, Millis, Options, Reducer, Submission, Tidegate,
};
use tidegate_core::bulk::{DeathReason, JobState};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

const KIND: &str = "SEND";
const BATCH: &str = "spring";
/// A test that waits this long for one thing has failed.
const DEADLINE: Duration = Duration::from_secs(60);

fn options(folder: &Path, change: impl FnOnce(&mut BulkConfig)) -> Options {
    let mut config = BulkConfig::default();
    config.backpressure.default_backoff_ms = Millis(1);
    // The last window before a shutdown counts as spent after it.
    config.backpressure.rate_limit_window_sec = 0.01;
    change(&mut config);
    Options::new(folder).config(config)
}

async fn submit(tide: &Tidegate, kind: &str, ids: &[&str]) {
    let mut submission = Submission::new("A").unwrap().batch(BATCH).unwrap();
    for id in ids {
        submission = submission.job(id, kind, "{}").unwrap();
    }
    let submitted = tide.submit(submission.seal()).await.unwrap();
    assert_eq!(submitted.accepted, ids.len() as u64);
}

/// Follows the batch to its end.
async fn finished(tide: &Tidegate) -> BatchStatus {
    let mut progress = tide.follow("A", BATCH).unwrap();
    let follow = async {
        let mut last = None;
        while let Some(now) = progress.next().await {
            last = Some(now.unwrap().status);
        }
        last.unwrap()
    };
    timeout(DEADLINE, follow).await.expect("the batch does not end")
}

async fn job(tide: &Tidegate, id: &str) -> JobDetails {
    tide.job("A", id).await.unwrap()
}

/// A handler that reports which attempt of which job it runs, and then calls `then`.
fn reporting<Fut: Future<Output = Result<(), JobError>> + Send + 'static>(
    then: impl Fn(Job) -> Fut + Send + Sync + 'static,
) -> (
    impl Fn(Job) -> Fut + Send + Sync + 'static,
    mpsc::UnboundedReceiver<(String, u32)>,
) {
    let (started, starts) = mpsc::unbounded_channel();
    let handler = move |job: Job| {
        started.send((job.id.to_string(), job.attempt)).unwrap();
        then(job)
    };
    (handler, starts)
}

async fn next(starts: &mut mpsc::UnboundedReceiver<(String, u32)>) -> (String, u32) {
    timeout(DEADLINE, starts.recv())
        .await
        .expect("nothing starts")
        .unwrap()
}

#[tokio::test]
async fn running_jobs_finish_and_no_other_starts() {
    let folder = tempfile::tempdir().unwrap();
    let options = || options(folder.path(), |config| config.worker_pool.worker_count = 1);
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let (handler, mut starts) = reporting(move |_| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            Ok(())
        }
    });
    let setup = Tidegate::open(options()).unwrap().handler(KIND, handler).unwrap();
    let tide = setup.start().unwrap();
    submit(&tide, KIND, &["one", "two"]).await;
    assert_eq!(next(&mut starts).await, ("one".into(), 1));

    let mut shutdown = Box::pin(tide.shutdown());
    // The first poll stops the engine; the running job delays the rest.
    assert!(poll_once(&mut shutdown).await.is_none());
    opened.notify_one();
    timeout(DEADLINE, shutdown).await.unwrap().unwrap();
    assert!(starts.recv().await.is_none(), "nothing starts after a shutdown");

    let (handler, mut starts) = reporting(|_| async { Ok(()) });
    let setup = Tidegate::open(options()).unwrap().handler(KIND, handler).unwrap();
    let tide = setup.start().unwrap();
    assert_eq!(finished(&tide).await, BatchStatus::Completed);
    assert_eq!(next(&mut starts).await, ("two".into(), 1));
    assert!(starts.try_recv().is_err(), "a completed job runs once");
    tide.shutdown().await.unwrap();
}

/// Polls once; none if it is not ready.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}

#[tokio::test]
async fn a_job_that_does_not_finish_within_the_grace_period_is_released_without_an_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let options = || {
        options(folder.path(), |config| {
            config.worker_pool.shutdown_grace_period_ms = Millis(30);
            config.worker_pool.max_retry_count = 0;
        })
    };
    let (handler, mut starts) = reporting(|_| std::future::pending());
    let setup = Tidegate::open(options()).unwrap().handler(KIND, handler).unwrap();
    let tide = setup.start().unwrap();
    submit(&tide, KIND, &["one", "two"]).await;
    next(&mut starts).await;
    next(&mut starts).await;
    timeout(DEADLINE, tide.shutdown()).await.unwrap().unwrap();

    // With no retry at all, an attempt that had been used up would leave the jobs dead.
    let (handler, mut starts) = reporting(|_| async { Ok(()) });
    let setup = Tidegate::open(options()).unwrap().handler(KIND, handler).unwrap();
    let tide = setup.start().unwrap();
    assert_eq!(finished(&tide).await, BatchStatus::Completed);
    let mut again = [next(&mut starts).await, next(&mut starts).await];
    again.sort();
    assert_eq!(again, [("one".into(), 1), ("two".into(), 1)]);
    assert_eq!(job(&tide, "one").await.view.state, JobState::Completed);
    tide.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_follower_does_not_keep_the_folder_locked() {
    let folder = tempfile::tempdir().unwrap();
    let options = || {
        options(folder.path(), |config| {
            config.worker_pool.shutdown_grace_period_ms = Millis(10);
        })
    };
    let (handler, mut starts) = reporting(|_| std::future::pending());
    let setup = Tidegate::open(options()).unwrap().handler(KIND, handler).unwrap();
    let tide = setup.start().unwrap();
    submit(&tide, KIND, &["one"]).await;
    next(&mut starts).await;
    let mut progress = tide.follow("A", BATCH).unwrap();
    timeout(DEADLINE, progress.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    tide.shutdown().await.unwrap();

    // Opening fails if the folder is still locked.
    let tide = Tidegate::open(options()).unwrap().start().unwrap();
    tide.shutdown().await.unwrap();
    // The stream ends with the engine instead of waiting for an end that does not come.
    let end = async { while progress.next().await.is_some() {} };
    timeout(DEADLINE, end).await.expect("the stream goes on");
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_and_stops_no_other_job() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), |config| {
        config.worker_pool.worker_count = 1;
        config.worker_pool.max_retry_count = 1;
    });
    let (handler, mut starts) = reporting(|job| async move {
        assert!(
            job.attempt > 1 && job.id.as_str() != "always",
            "no luck with {}",
            job.id
        );
        Ok(())
    });
    let setup = Tidegate::open(options).unwrap().handler(KIND, handler).unwrap();
    let tide = setup.start().unwrap();
    submit(&tide, KIND, &["once", "always"]).await;
    assert_eq!(finished(&tide).await, BatchStatus::Completed, "one of two failed");
    let mut runs = vec![];
    for _ in 0..4 {
        runs.push(next(&mut starts).await);
    }
    runs.sort();
    let expected = [("always", 1), ("always", 2), ("once", 1), ("once", 2)];
    assert_eq!(runs, expected.map(|(id, attempt)| (id.to_owned(), attempt)));
    assert_eq!(job(&tide, "once").await.view.state, JobState::Completed);
    let always = job(&tide, "always").await;
    assert_eq!(always.view.dead, Some(DeathReason::AttemptsUsedUp));
    assert_eq!(always.error.unwrap(), "the handler panicked: no luck with always");
    tide.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_never_returns_frees_its_worker_at_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), |config| {
        config.worker_pool.worker_count = 1;
        config.worker_pool.max_retry_count = 1;
        // Long enough for a busy machine to begin a run in time: a late one is released and leased again.
        config.worker_pool.job_timeout_ms = Millis(2_000);
    });
    let (handler, mut starts) = reporting(|job| async move {
        if job.id.as_str() == "stuck" {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let setup = Tidegate::open(options).unwrap().handler(KIND, handler).unwrap();
    let tide = setup.start().unwrap();
    submit(&tide, KIND, &["stuck", "quick"]).await;
    assert_eq!(finished(&tide).await, BatchStatus::Completed);
    let stuck = job(&tide, "stuck").await;
    assert_eq!(stuck.view.dead, Some(DeathReason::AttemptsUsedUp));
    assert_eq!(stuck.error.unwrap(), "the handler did not return within 2000 ms");
    assert_eq!(job(&tide, "quick").await.view.state, JobState::Completed);
    let mut stuck_runs = 0;
    while let Ok((id, _)) = starts.try_recv() {
        stuck_runs += u32::from(id == "stuck");
    }
    assert_eq!(stuck_runs, 2, "one attempt and one retry");
    tide.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_job_that_nobody_can_run_is_dead_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let tide = Tidegate::open(options(folder.path(), |_| {})).unwrap();
    let tide = tide
        .handler(KIND, |_: Job| std::future::ready(Ok::<_, JobError>(())))
        .unwrap()
        .start()
        .unwrap();
    submit(&tide, "UNHEARD_OF", &["one"]).await;
    assert_eq!(
        finished(&tide).await,
        BatchStatus::Failed,
        "all of its jobs failed"
    );
    let one = job(&tide, "one").await;
    assert_eq!(one.view.dead, Some(DeathReason::Failed));
    assert_eq!(one.error.unwrap(), "no handler for job type \"UNHEARD_OF\"");
    tide.shutdown().await.unwrap();
}

#[tokio::test]
async fn one_type_has_one_handler() {
    let folder = tempfile::tempdir().unwrap();
    let handler = |_: Job| std::future::ready(Ok::<_, JobError>(()));
    let setup = Tidegate::open(options(folder.path(), |_| {})).unwrap();
    let setup = setup
        .handler(KIND, handler)
        .unwrap()
        .handler(KIND, handler)
        .unwrap();
    let error = setup.start().unwrap_err().to_string();
    assert_eq!(error, "the handler for job type \"SEND\" was registered twice");
}

struct Clumsy;

impl Reducer for Clumsy {
    fn fold(&mut self, job: &JobDetails) -> Result<(), String> {
        panic!("dropped {}", job.id)
    }

    fn finish(self: Box<Self>) -> Result<bytes::Bytes, String> {
        unreachable!("the fold has panicked")
    }
}

#[tokio::test]
async fn a_panic_at_the_end_of_a_batch_does_not_end_the_aggregator() {
    let folder = tempfile::tempdir().unwrap();
    let handler = |_: Job| std::future::ready(Ok::<_, JobError>(()));
    let (called, mut calls) = mpsc::unbounded_channel();
    let tide = Tidegate::open(options(folder.path(), |_| {}))
        .unwrap()
        .handler(KIND, handler)
        .unwrap()
        .reducer(|batch| (batch.batch.as_str() == BATCH).then(|| Box::new(Clumsy) as Box<dyn Reducer>))
        .on_complete(move |batch| {
            called.send(batch.batch.to_string()).unwrap();
            assert_ne!(batch.batch.as_str(), BATCH, "clumsy as well");
            std::future::ready(())
        })
        .start()
        .unwrap();
    let options = BatchOptions {
        keep_results: true,
        ..Default::default()
    };
    let kept = Submission::new("A")
        .unwrap()
        .batch(BATCH)
        .unwrap()
        .options(options);
    tide.submit(kept.job("one", KIND, "{}").unwrap().seal())
        .await
        .unwrap();
    assert_eq!(finished(&tide).await, BatchStatus::Failed);
    let errors = tide.batch("A", BATCH).await.unwrap().errors;
    assert_eq!(errors, ["aggregation failed: the reducer panicked: dropped one"]);

    let autumn = Submission::new("A").unwrap().batch("autumn").unwrap();
    let autumn = autumn.job("two", KIND, "{}").unwrap().seal();
    tide.submit(autumn).await.unwrap();
    for batch in [BATCH, "autumn"] {
        let call = timeout(DEADLINE, calls.recv())
            .await
            .expect("the aggregator has ended");
        assert_eq!(call.unwrap(), batch);
    }
    tide.shutdown().await.unwrap();
}
