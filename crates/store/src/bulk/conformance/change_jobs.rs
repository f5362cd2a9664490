//! Commands on single jobs: cancel, run now, reschedule, reprioritise.

use tidegate_core::bulk::{
    BatchOptions, BatchStatus, CancelParams, ChangeJobsParams, DeathReason, DelayReason, JobCommand,
    JobCommandKind, JobOutcome, JobState, NewJob, Priority, Refusal, Scope, Settled,
};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;

impl Harness {
    async fn change_all(
        &self,
        name: &str,
        ids: &[&str],
        command: JobCommand,
    ) -> Vec<Result<JobState, Refusal>> {
        self.call(ChangeJobsParams {
            group: group(name),
            jobs: ids.iter().map(|id| job_id(id)).collect(),
            command,
        })
        .await
    }

    async fn change(&self, name: &str, id: &str, command: JobCommand) -> Result<JobState, Refusal> {
        self.change_all(name, &[id], command).await.remove(0)
    }
}

fn wrong(id: &str, state: JobState, command: JobCommandKind) -> Result<JobState, Refusal> {
    Err(Refusal::WrongState {
        job: job_id(id),
        state,
        command,
    })
}

fn in_an_hour(id: &str) -> NewJob {
    NewJob {
        run_at: Some(START + Millis(3_600_000)),
        ..job(id)
    }
}

fn reschedule(run_at: Timestamp) -> JobCommand {
    JobCommand::Reschedule { run_at }
}

fn reprioritise(priority: Priority) -> JobCommand {
    JobCommand::Reprioritise { priority }
}

pub async fn one_waiting_job_is_cancelled(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    assert_eq!(q.change("A", "A-1", JobCommand::Cancel).await, Ok(JobState::Dead));
    let view = q.job("A", "A-1").await.view;
    assert_eq!(view.dead, Some(DeathReason::Cancelled));
    assert_eq!(ids(&q.take(10).await), ["A-0", "A-2"]);
    let batch = q.first_batch("A").await;
    assert_eq!((batch.counts.failed, batch.cancelled), (1, false));
    assert_eq!(batch.errors, Vec::<String>::new());
}

pub async fn a_delayed_and_a_ready_job_are_cancelled(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![in_an_hour("later"), job("ready"), job("other")])
        .await;
    q.admit(2, 10).await;
    assert_eq!(
        q.change("A", "later", JobCommand::Cancel).await,
        Ok(JobState::Dead)
    );
    assert_eq!(
        q.change("A", "ready", JobCommand::Cancel).await,
        Ok(JobState::Dead)
    );
    assert_eq!(ids(&q.take(10).await), ["other"]);
    q.advance(7_200_000);
    assert_eq!(q.release_due().await.released, 0);
}

pub async fn a_cancelled_running_job_ends_with_its_run(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 4).await;
    let jobs = q.take_all(4).await;
    for id in ["A-0", "A-1", "A-2", "A-3"] {
        assert_eq!(q.change("A", id, JobCommand::Cancel).await, Ok(JobState::Running));
        assert!(q.job("A", id).await.view.running.expect("it runs").cancelled);
    }
    let dead = Settled::Dead {
        reason: DeathReason::Cancelled,
        batch_complete: false,
    };
    assert_eq!(q.settle(&jobs[0], retry()).await, dead);
    assert_eq!(q.settle(&jobs[1], JobOutcome::Released).await, dead);
    // A run that completes its job was in time.
    let completed = Settled::Completed {
        batch_complete: false,
    };
    assert_eq!(q.settle(&jobs[2], done()).await, completed);
    q.advance(600_000);
    assert_eq!(q.expire_leases().await.dead, 1);
    assert_eq!(q.take(10).await, []);
    // A replayed job is no longer cancelled.
    q.replay("A", "A-0").await.expect("it is dead");
    let job = q.take_one().await;
    assert!(!q.job("A", "A-0").await.view.running.expect("it runs").cancelled);
    assert!(matches!(q.settle(&job, retry()).await, Settled::Delayed { .. }));
}

pub async fn the_last_cancelled_job_completes_its_batch(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.open_batch("A", "spring", BatchOptions::default()).await;
    q.enqueue_to("A", "spring", jobs("A", 2)).await;
    q.try_seal("A", Some("spring")).await.expect("it is open");
    let job = q.take_one().await;
    q.settle(&job, done()).await;
    assert_eq!(q.change("A", "A-1", JobCommand::Cancel).await, Ok(JobState::Dead));
    assert_eq!(q.batch("A", "spring").await.status, BatchStatus::Aggregating);
}

pub async fn a_delayed_job_runs_now_within_the_limits(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 2.0).await;
    let jobs = vec![in_an_hour("a"), in_an_hour("b"), in_an_hour("c"), job("fresh")];
    q.enqueue("A", jobs).await;
    let now = q.change_all("A", &["a", "b", "c"], JobCommand::RunNow).await;
    assert_eq!(now, vec![Ok(JobState::Waiting); 3]);
    assert_eq!(ids(&q.take(10).await), ["a", "b"], "two start in a window");
    q.next_window();
    assert_eq!(ids(&q.take(10).await), ["c", "fresh"]);
}

pub async fn a_retry_after_that_was_a_mistake_is_taken_back(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let job = q.take_one().await;
    q.settle(&job, throttled_for(86_400_000)).await;
    assert_eq!(q.congestion("A").await.non_ready_count, 1);
    assert_eq!(
        q.change("A", "A-0", JobCommand::RunNow).await,
        Ok(JobState::Waiting)
    );
    assert_eq!(q.congestion("A").await.non_ready_count, 0);
    assert_eq!(ids(&q.take(10).await), ["A-0"]);
}

pub async fn a_job_run_now_still_waits_for_its_pause(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![in_an_hour("later")]).await;
    q.pause(Scope::Group(group("A"))).await;
    assert_eq!(
        q.change("A", "later", JobCommand::RunNow).await,
        Ok(JobState::Waiting)
    );
    assert_eq!(q.take(10).await, []);
    q.resume(Scope::Group(group("A"))).await;
    assert_eq!(ids(&q.take(10).await), ["later"]);
}

pub async fn a_job_is_rescheduled(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![job("now"), in_an_hour("later"), job("other")])
        .await;
    let at = START + Millis(60_000);
    assert_eq!(q.change("A", "now", reschedule(at)).await, Ok(JobState::Delayed));
    assert_eq!(
        q.change("A", "later", reschedule(at)).await,
        Ok(JobState::Delayed)
    );
    let view = q.job("A", "now").await.view;
    assert_eq!(view.delayed, Some((at, DelayReason::Scheduled)));
    assert_eq!(ids(&q.take(10).await), ["other"]);
    q.advance(60_000);
    assert_eq!(q.release_due().await.released, 2);
    let mut started = q.take(10).await;
    started.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    assert_eq!(ids(&started), ["later", "now"]);
}

pub async fn a_time_that_has_passed_is_now(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("A", vec![in_an_hour("later")]).await;
    q.advance(10);
    assert_eq!(
        q.change("A", "later", reschedule(START)).await,
        Ok(JobState::Waiting)
    );
    assert_eq!(ids(&q.take(10).await), ["later"]);
}

pub async fn a_job_is_not_rescheduled_beyond_its_end(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let expires_at = START + Millis(60_000);
    let ends = NewJob {
        expires_at: Some(expires_at),
        ..job("ends")
    };
    q.enqueue("A", vec![ends]).await;
    let refused = q.change("A", "ends", reschedule(expires_at)).await;
    let expected = Refusal::ExpiresBefore {
        job: job_id("ends"),
        expires_at,
    };
    assert_eq!(refused, Err(expected));
    let at = expires_at - Millis(1);
    assert_eq!(q.change("A", "ends", reschedule(at)).await, Ok(JobState::Delayed));
    q.advance(60_000);
    assert_eq!(q.release_due().await.expired, 1);
    assert_eq!(q.take(10).await, []);
}

pub async fn a_job_gets_another_priority(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.enqueue("A", vec![in_an_hour("later")]).await;
    assert_eq!(
        q.change("A", "A-2", reprioritise(Priority::High)).await,
        Ok(JobState::Waiting)
    );
    assert_eq!(
        q.change("A", "later", reprioritise(Priority::High)).await,
        Ok(JobState::Delayed)
    );
    assert_eq!(q.job("A", "A-2").await.view.priority, Priority::High);
    let first = q.take_one().await;
    assert_eq!(
        (first.id.as_str(), first.leased.priority),
        ("A-2", Priority::High)
    );
    q.advance(3_600_000);
    q.release_due().await;
    assert_eq!(ids(&q.take(10).await), ["later", "A-0", "A-1"]);
}

pub async fn a_running_job_is_tried_again_at_its_new_priority(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    let job = q.take_one().await;
    assert_eq!(
        q.change("A", "A-0", reprioritise(Priority::Low)).await,
        Ok(JobState::Running)
    );
    q.settle(&job, JobOutcome::Released).await;
    assert_eq!(ids(&q.take(10).await), ["A-1", "A-0"]);
}

pub async fn a_ready_job_gets_another_priority(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.admit(2, 10).await;
    assert_eq!(
        q.change("A", "A-0", reprioritise(Priority::Low)).await,
        Ok(JobState::Waiting)
    );
    assert_eq!(q.counts().await.ready, 1);
    assert_eq!(ids(&q.take(10).await), ["A-1", "A-2", "A-0"]);
}

pub async fn a_refusal_names_the_state_and_what_is_possible(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    let waiting = q.change("A", "A-0", JobCommand::RunNow).await;
    assert_eq!(waiting, wrong("A-0", JobState::Waiting, JobCommandKind::RunNow));
    let job = q.take_one().await;
    let running = q.change("A", "A-0", reschedule(START)).await;
    assert_eq!(
        running,
        wrong("A-0", JobState::Running, JobCommandKind::Reschedule)
    );
    let text = running.expect_err("refused").to_string();
    assert!(
        text.contains("RUNNING") && text.contains("cancel or reprioritise"),
        "{text}"
    );
    q.settle(&job, done()).await;
    let over = q.change("A", "A-0", JobCommand::Cancel).await;
    assert_eq!(over, wrong("A-0", JobState::Completed, JobCommandKind::Cancel));
    assert_eq!(q.change("A", "A-1", JobCommand::Cancel).await, Ok(JobState::Dead));
    let dead = q.change("A", "A-1", reprioritise(Priority::Low)).await;
    assert_eq!(dead, wrong("A-1", JobState::Dead, JobCommandKind::Reprioritise));
}

pub async fn each_job_of_a_call_has_its_own_answer(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let unknown = Refusal::UnknownJob {
        group: group("A"),
        job: job_id("nobody"),
    };
    assert_eq!(
        q.change_all("A", &["nobody", "A-0", "A-0"], JobCommand::Cancel)
            .await,
        [
            Err(unknown),
            Ok(JobState::Dead),
            wrong("A-0", JobState::Dead, JobCommandKind::Cancel)
        ]
    );
    assert_eq!(
        q.change_all("B", &["b"], JobCommand::RunNow).await,
        [Err(Refusal::UnknownGroup(group("B")))]
    );
}

pub async fn a_job_denied_by_a_window_takes_every_command(backend: &dyn Backend) {
    let q = Harness::with(backend, |config| {
        config.backpressure.global_rps = 1.0;
        config.backpressure.hold = tidegate_core::bulk::config::Hold::Job;
    })
    .await;
    q.enqueue_n("A", 5).await;
    q.take_one().await;
    q.admit(10, 10).await;
    assert_eq!(q.counts().await.delayed, 4);
    assert_eq!(q.change("A", "A-1", JobCommand::Cancel).await, Ok(JobState::Dead));
    assert_eq!(
        q.change("A", "A-2", JobCommand::RunNow).await,
        Ok(JobState::Waiting)
    );
    let at = START + Millis(5_000);
    assert_eq!(q.change("A", "A-3", reschedule(at)).await, Ok(JobState::Delayed));
    assert_eq!(
        q.change("A", "A-4", reprioritise(Priority::High)).await,
        Ok(JobState::Waiting)
    );
    for expected in ["A-4", "A-2"] {
        q.next_window();
        assert_eq!(ids(&q.take(10).await), [expected]);
    }
}

pub async fn a_job_of_a_paused_batch_takes_every_command(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.open_batch("A", "spring", BatchOptions::default()).await;
    q.enqueue_to("A", "spring", jobs("A", 4)).await;
    let scope = Scope::Batch(group("A"), batch("spring"));
    q.pause(scope.clone()).await;
    assert_eq!(q.take(10).await, [], "they are set aside");
    assert_eq!(q.change("A", "A-0", JobCommand::Cancel).await, Ok(JobState::Dead));
    let at = START + Millis(5_000);
    assert_eq!(q.change("A", "A-1", reschedule(at)).await, Ok(JobState::Delayed));
    assert_eq!(
        q.change("A", "A-3", reprioritise(Priority::High)).await,
        Ok(JobState::Waiting)
    );
    assert_eq!(q.take(10).await, []);
    q.resume(scope).await;
    assert_eq!(ids(&q.take(10).await), ["A-3", "A-2"]);
}

pub async fn a_changed_job_is_cancelled_with_its_batch(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.change("A", "A-0", reprioritise(Priority::High))
        .await
        .expect("it waits");
    q.change("A", "A-1", reschedule(START + Millis(5_000)))
        .await
        .expect("it waits");
    let cancelled = q
        .call(CancelParams {
            scope: Scope::Group(group("A")),
            max: 100,
        })
        .await
        .expect("the group is known");
    assert_eq!(cancelled.cancelled, 3);
    assert_eq!(q.stats().await.flows_in_memory, 0);
}
