//! Jobs that wait for a time: Retry-After, retries, schedules, expiry. All of them return through the limit.

use bytes::Bytes;
use tidegate_core::bulk::config::{BulkConfig, JobTypeConfig};
use tidegate_core::bulk::{
    DeathReason, DelayReason, Enqueued, JobOutcome, JobRefusal, JobState, NewJob, ReleaseDueParams, Settled,
    ThrottleScope,
};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;

fn scheduled(id: &str, run_at: Timestamp) -> NewJob {
    NewJob {
        run_at: Some(run_at),
        ..job(id)
    }
}

fn expiring(id: &str, expires_at: Timestamp) -> NewJob {
    NewJob {
        expires_at: Some(expires_at),
        ..job(id)
    }
}

fn delayed_until(settled: Settled) -> Millis {
    match settled {
        Settled::Delayed { until, .. } => until.since(START),
        other => panic!("not delayed: {other:?}"),
    }
}

pub async fn a_due_job_becomes_ready(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![job("job-001")]).await;
    let leased = q.take_one().await;
    q.settle(&leased, throttled_for(0)).await;
    q.advance(10);
    assert_eq!(q.release_due().await.released, 1);
    q.admit(10, 10).await;
    let counts = q.counts().await;
    assert_eq!((counts.ready, counts.delayed), (1, 0));
}

pub async fn a_job_that_is_not_due_stays(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![job("job-001")]).await;
    let leased = q.take_one().await;
    q.settle(&leased, throttled_for(10_000)).await;
    let released = q.release_due().await;
    assert_eq!(
        (released.released, released.next_due),
        (0, Some(START + Millis(10_000)))
    );
    assert_eq!(q.counts().await.delayed, 1);
}

pub async fn a_wait_is_exact(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let leased = q.take_one().await;
    q.settle(&leased, throttled_for(2_500)).await;
    q.advance(2_499);
    assert_eq!(q.release_due().await.released, 0);
    q.advance(1);
    assert_eq!(q.release_due().await.released, 1);
}

pub async fn a_retry_after_is_capped(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.backpressure.max_retry_after_ms = Millis(60_000)).await;
    q.enqueue_n("A", 2).await;
    let jobs = q.take_all(2).await;
    let after = Some(Millis::from_secs(86_400 * 365));
    let throttled = JobOutcome::Throttled {
        retry_after: after,
        scope: ThrottleScope::Queue,
    };
    let retried = JobOutcome::Retry {
        error: "later".into(),
        after,
        overloaded: false,
    };
    assert_eq!(delayed_until(q.settle(&jobs[0], throttled).await), Millis(60_000));
    assert_eq!(delayed_until(q.settle(&jobs[1], retried).await), Millis(60_000));
}

pub async fn attempts_are_counted_and_end(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    for (attempt, backoff) in [(1, 1_000), (2, 2_000), (3, 4_000)] {
        let leased = q.take_one().await;
        assert_eq!(leased.leased.attempt, attempt);
        let until = q.now() + Millis(backoff);
        let reason = DelayReason::TransientError;
        assert_eq!(
            q.settle(&leased, retry()).await,
            Settled::Delayed { until, reason }
        );
        q.advance(backoff);
        q.release_due().await;
    }
    let last = q.take_one().await;
    assert_eq!(last.leased.attempt, 4);
    let dead = q.settle(&last, retry()).await;
    assert!(
        matches!(
            dead,
            Settled::Dead {
                reason: DeathReason::AttemptsUsedUp,
                ..
            }
        ),
        "{dead:?}"
    );
    assert_eq!(q.job("A", "A-0").await.error.as_deref(), Some("try again"));
}

pub async fn attempts_and_runs_are_shown(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.worker_pool.max_retry_count = 1).await;
    q.enqueue_n("A", 3).await;
    let shown = async |id: &str| {
        let view = q.job("A", id).await.view;
        assert_eq!(view.max_attempts, 2);
        (view.attempts, view.throttles, view.runs())
    };
    assert_eq!(shown("A-0").await, (0, 0, 0), "it has not run");
    let jobs = q.take_all(3).await;
    assert_eq!(shown("A-0").await, (1, 0, 1), "it runs");
    q.settle(&jobs[0], done()).await;
    assert_eq!(shown("A-0").await, (1, 0, 1), "it ran");
    q.settle(&jobs[1], failed("no")).await;
    assert_eq!(shown("A-1").await, (1, 0, 1));
    q.settle(&jobs[2], throttled_for(1_000)).await;
    assert_eq!(
        shown("A-2").await,
        (0, 1, 1),
        "a throttled run uses up no attempt"
    );
    for (outcome, expected) in [
        (JobOutcome::Released, (0, 1, 1)),
        (retry(), (1, 1, 2)),
        (retry(), (2, 1, 3)),
    ] {
        q.advance(60_000);
        q.release_due().await;
        let leased = q.take_one().await;
        assert_eq!(q.job("A", "A-2").await.view.attempts, leased.leased.attempt);
        q.settle(&leased, outcome).await;
        assert_eq!(shown("A-2").await, expected);
    }
    assert_eq!(q.job("A", "A-2").await.view.state, JobState::Dead);
    q.replay("A", "A-2").await.expect("it is dead");
    assert_eq!(shown("A-2").await, (0, 0, 0), "as new");
}

pub async fn a_retry_may_name_its_time(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let leased = q.take_one().await;
    let retry = JobOutcome::Retry {
        error: "busy".into(),
        after: Some(Millis(7_000)),
        overloaded: false,
    };
    assert_eq!(delayed_until(q.settle(&leased, retry).await), Millis(7_000));
    assert_eq!(q.job("A", "A-0").await.view.attempts, 1);
}

pub async fn errors_are_of_three_kinds(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    let jobs = q.take_all(3).await;
    let permanent = q.settle(&jobs[0], failed("no such address")).await;
    assert!(
        matches!(
            permanent,
            Settled::Dead {
                reason: DeathReason::Failed,
                ..
            }
        ),
        "{permanent:?}"
    );
    q.settle(&jobs[1], retry()).await;
    q.settle(&jobs[2], throttled()).await;
    let transient = q.job("A", "A-1").await.view;
    assert_eq!(
        (transient.state, transient.attempts, transient.throttles),
        (JobState::Delayed, 1, 0)
    );
    let slow = q.job("A", "A-2").await.view;
    assert_eq!(
        (slow.state, slow.attempts, slow.throttles),
        (JobState::Delayed, 0, 1)
    );
}

pub async fn throttling_never_uses_up_attempts(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    for _ in 0..10 {
        let leased = q.take_one().await;
        assert_eq!(leased.leased.attempt, 1);
        q.settle(&leased, throttled_for(1_000)).await;
        q.advance(1_000);
        q.release_due().await;
    }
    assert_eq!(q.job("A", "A-0").await.view.throttles, 10);
}

fn mail_type(config: &mut BulkConfig) {
    let mail = JobTypeConfig {
        max_retry_count: Some(2),
        backoff_ms: Some(Millis(300)),
        max_backoff_ms: Some(Millis(400)),
        timeout_ms: Some(Millis(5_000)),
        ..Default::default()
    };
    config.job_types.insert(kind("mail"), mail);
}

pub async fn a_job_type_has_its_own_retries(backend: &dyn Backend) {
    let q = Harness::with(backend, mail_type).await;
    q.enqueue("A", of_kind("mail", jobs("mail", 1))).await;
    for backoff in [300, 400] {
        let leased = q.take_one().await;
        let before = q.elapsed().0;
        assert_eq!(
            delayed_until(q.settle(&leased, retry()).await),
            Millis(before + backoff)
        );
        q.advance(backoff);
        q.release_due().await;
    }
    let last = q.take_one().await;
    let dead = q.settle(&last, retry()).await;
    assert!(
        matches!(
            dead,
            Settled::Dead {
                reason: DeathReason::AttemptsUsedUp,
                ..
            }
        ),
        "{dead:?}"
    );
}

pub async fn a_job_type_has_its_own_timeout(backend: &dyn Backend) {
    let q = Harness::with(backend, mail_type).await;
    q.enqueue("A", of_kind("mail", jobs("mail", 1))).await;
    let leased = q.take_one().await.leased;
    assert_eq!(leased.timeout, Millis(5_000));
    assert_eq!(leased.deadline, START + Millis(10_000), "five seconds to answer");
}

pub async fn a_retry_goes_before_fresh_jobs_of_its_group(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    let first = q.take_one().await;
    q.settle(&first, throttled_for(500)).await;
    q.advance(500);
    q.release_due().await;
    assert_eq!(ids(&q.take(3).await), ["A-0", "A-1", "A-2"]);
}

pub async fn what_is_released_together_starts_within_the_limit(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    let due = START + Millis(5_000);
    let later = (0..40).map(|i| scheduled(&format!("j-{i}"), due)).collect();
    q.enqueue("A", later).await;
    q.advance(5_000);
    assert_eq!(q.release_due().await.released, 40);
    for _ in 0..4 {
        assert_eq!(q.run(100).await.len(), 10);
        q.next_window();
    }
}

pub async fn releasing_is_bounded_per_call(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let later = (0..10)
        .map(|i| scheduled(&format!("j-{i}"), START + Millis(10)))
        .collect();
    q.enqueue("A", later).await;
    q.advance(10);
    for released in [4, 4, 2, 0] {
        assert_eq!(q.call(ReleaseDueParams { max: 4 }).await.released, released);
    }
}

pub async fn a_scheduled_job_waits_for_its_time(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![scheduled("later", START + Millis(3_000)), job("now")])
        .await;
    assert_eq!(ids(&q.take(5).await), ["now"]);
    let view = q.job("A", "later").await.view;
    assert_eq!(
        view.delayed,
        Some((START + Millis(3_000), DelayReason::Scheduled))
    );
    assert_eq!(
        q.congestion("A").await.non_ready_count,
        0,
        "a schedule is no congestion"
    );
    q.advance(2_999);
    q.release_due().await;
    assert!(q.take(5).await.is_empty());
    q.advance(1);
    q.release_due().await;
    assert_eq!(ids(&q.take(5).await), ["later"]);
}

pub async fn a_schedule_in_the_past_means_at_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue(
        "A",
        vec![scheduled("late", START - Millis(1)), scheduled("now", START)],
    )
    .await;
    assert_eq!(ids(&q.take(5).await), ["late", "now"]);
}

pub async fn due_jobs_come_back_in_order_of_their_time(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let later = [30, 10, 20].map(|ms| scheduled(&ms.to_string(), START + Millis(ms)));
    q.enqueue("A", later.into()).await;
    q.advance(100);
    q.release_due().await;
    assert_eq!(ids(&q.take(3).await), ["10", "20", "30"]);
}

pub async fn a_job_that_did_not_start_in_time_is_dead(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![expiring("short", START + Millis(100)), job("long")])
        .await;
    q.seal("A").await;
    q.advance(100);
    assert_eq!(q.release_due().await.expired, 1);
    let short = q.job("A", "short").await;
    assert_eq!(
        (short.view.state, short.view.dead),
        (JobState::Dead, Some(DeathReason::Expired))
    );
    let long = q.take_one().await;
    let completed = Settled::Completed { batch_complete: true };
    assert_eq!(
        q.settle(&long, done()).await,
        completed,
        "an expired job counts as failed"
    );
    assert_eq!(q.first_batch("A").await.counts.failed, 1);
}

pub async fn an_expired_job_never_starts_even_if_nobody_looked(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![expiring("waiting", START + Millis(100)), job("other")])
        .await;
    q.enqueue("B", vec![expiring("ready", START + Millis(100))]).await;
    q.admit(3, 3).await;
    q.advance(100);
    assert_eq!(ids(&q.take(5).await), ["other"]);
    assert_eq!(q.counts().await.dead, 2);
}

pub async fn a_running_job_does_not_expire(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![expiring("short", START + Millis(100))]).await;
    let leased = q.take_one().await;
    q.advance(200);
    assert_eq!(q.release_due().await.expired, 0);
    assert_eq!(
        q.settle(&leased, done()).await,
        Settled::Completed {
            batch_complete: false
        }
    );
}

pub async fn a_retry_after_its_expiry_is_dead(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![expiring("short", START + Millis(100))]).await;
    let leased = q.take_one().await;
    q.advance(50);
    q.release_due().await;
    q.settle(&leased, throttled_for(100)).await;
    q.advance(100);
    q.release_due().await;
    assert!(q.take(1).await.is_empty());
    assert_eq!(q.job("A", "short").await.view.dead, Some(DeathReason::Expired));
}

pub async fn a_job_that_could_never_run_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let before_its_schedule = NewJob {
        run_at: Some(START + Millis(10)),
        ..expiring("b", START + Millis(5))
    };
    let outcome = q
        .enqueue("A", vec![expiring("a", START), before_its_schedule])
        .await;
    let refused = |one: &Enqueued| matches!(one, Enqueued::Refused(JobRefusal::AlreadyExpired { .. }));
    assert!(outcome.jobs.iter().all(refused), "{:?}", outcome.jobs);
    assert_eq!(outcome.total_jobs, 0);
}

pub async fn the_next_due_time_is_returned(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    assert_eq!(q.release_due().await.next_due, None);
    q.enqueue("A", vec![scheduled("a", START + Millis(700))]).await;
    q.enqueue("A", vec![expiring("b", START + Millis(400))]).await;
    assert_eq!(q.release_due().await.next_due, Some(START + Millis(400)));
    q.run(1).await;
    assert_eq!(q.release_due().await.next_due, Some(START + Millis(700)));
}

pub async fn a_clock_stepped_back_delays_nobody_for_long(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let leased = q.take_one().await;
    q.settle(&leased, throttled_for(1_000)).await;
    // An hour back: the job still waits one second, not an hour and a second.
    q.clock.set(START - Millis(3_600_000));
    assert_eq!(q.release_due().await.released, 0);
    q.advance(1_000);
    assert_eq!(q.release_due().await.released, 1);
}

pub async fn signals_notify_for_work_timers_and_completion(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let signals = q.store.notifier();

    let mut work = Box::pin(signals.work.notified());
    work.as_mut().enable();
    q.enqueue("A", vec![job("now")]).await;
    assert!(work.as_mut().enable(), "an enqueued job signals for work");

    let mut timer = Box::pin(signals.timer.notified());
    timer.as_mut().enable();
    q.enqueue("A", vec![scheduled("later", START + Millis(50))]).await;
    assert!(timer.as_mut().enable(), "a schedule signals for the timer");

    let mut aggregate = Box::pin(signals.aggregate.notified());
    aggregate.as_mut().enable();
    q.advance(50);
    q.release_due().await;
    q.seal("A").await;
    q.run(2).await;
    assert!(
        aggregate.as_mut().enable(),
        "a complete batch signals for its aggregator"
    );
}

pub async fn a_delayed_job_keeps_its_payload(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let payload = Bytes::from_static(&[0, 159, 146, 150, 255]);
    q.enqueue(
        "A",
        vec![NewJob {
            payload: payload.clone(),
            ..job("bytes")
        }],
    )
    .await;
    for _ in 0..3 {
        let leased = q.take_one().await;
        assert_eq!(leased.payload, payload);
        q.settle(&leased, retry()).await;
        q.advance(10_000);
        q.release_due().await;
    }
}

pub async fn times_at_the_end_of_time_do_no_harm(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let never = Timestamp(u64::MAX);
    q.enqueue(
        "A",
        vec![scheduled("never", never), expiring("always", never), job("now")],
    )
    .await;
    assert_eq!(q.release_due().await.next_due, Some(never));
    assert_eq!(ids(&q.take(3).await), ["always", "now"]);
    q.advance(100 * 365 * 86_400_000);
    assert_eq!(q.expire_leases().await.delayed, 2);
    assert_eq!(q.release_due().await.released, 0);
}
