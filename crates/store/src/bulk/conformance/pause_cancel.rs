//! Pauses, resumes and cancels groups and batches.

use tidegate_core::bulk::config::Hold;
use tidegate_core::bulk::{
    BatchOptions, BatchStatus, CancelParams, DeathReason, Enqueued, GroupLimits, JobOutcome, JobState,
    PauseParams, Refusal, ResumeParams, Scope, Settled, Stop,
};
use tidegate_core::limits::quota::Limit;

use super::harness::*;

fn whole_group(name: &str) -> Scope {
    Scope::Group(group(name))
}

fn one_batch(group_name: &str, name: &str) -> Scope {
    Scope::Batch(group(group_name), batch(name))
}

pub async fn a_paused_group_starts_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    let running = q.take_one().await;
    q.pause(whole_group("A")).await;
    q.enqueue("A", jobs("more", 1)).await;
    q.enqueue_n("B", 1).await;
    assert_eq!(groups(&q.take(10).await), "B");
    let view = q.group("A").await;
    assert!(view.paused && view.held);
    let settled = q.settle(&running, done()).await;
    assert_eq!(
        settled,
        Settled::Completed {
            batch_complete: false
        },
        "running jobs go on"
    );
    q.resume(whole_group("A")).await;
    assert_eq!(ids(&q.take(10).await), ["A-1", "A-2", "more-0"]);
}

pub async fn ready_jobs_of_a_paused_group_do_not_start(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.enqueue_n("B", 3).await;
    q.admit(4, 10).await;
    q.pause(whole_group("A")).await;
    assert_eq!(groups(&q.take(10).await), "BBB");
    q.resume(whole_group("A")).await;
    let started = q.take(10).await;
    assert_eq!(per_group(&started), [("A", 3)].into());
}

pub async fn a_delayed_job_of_a_paused_group_comes_back_but_waits(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let leased = q.take_one().await;
    q.pause(whole_group("A")).await;
    q.settle(&leased, throttled_for(100)).await;
    q.advance(100);
    q.release_due().await;
    let outcome = q.lease(1).await;
    assert!(outcome.jobs.is_empty());
    assert_eq!(outcome.stop, Stop::Empty);
    q.resume(whole_group("A")).await;
    assert_eq!(ids(&q.take(1).await), ["A-0"]);
}

pub async fn a_paused_group_still_counts_as_active(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 1).await;
    q.enqueue_n("B", 1).await;
    q.pause(whole_group("A")).await;
    assert!(q.group("A").await.active, "it has unfinished jobs");
    assert_eq!(q.limit("B").await.per_group_limit, 5);
}

pub async fn a_paused_batch_lets_its_siblings_pass(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "first", jobs("first", 3)).await;
    q.enqueue_to("A", "second", jobs("second", 2)).await;
    q.pause(one_batch("A", "first")).await;
    assert!(q.batch("A", "first").await.paused);
    assert_eq!(ids(&q.take(10).await), ["second-0", "second-1"]);
    q.enqueue_to("A", "first", jobs("more", 1)).await;
    assert!(q.take(10).await.is_empty());
    q.resume(one_batch("A", "first")).await;
    assert_eq!(
        ids(&q.take(10).await),
        ["first-0", "first-1", "first-2", "more-0"]
    );
}

pub async fn ready_jobs_of_a_paused_batch_do_not_start(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 3)).await;
    q.admit(2, 10).await;
    q.pause(one_batch("A", "a")).await;
    assert!(q.take(10).await.is_empty());
    assert_eq!(q.counts().await.waiting, 3);
    q.resume(one_batch("A", "a")).await;
    assert_eq!(ids(&q.take(10).await), ["a-0", "a-1", "a-2"]);
}

pub async fn what_is_not_there_cannot_be_paused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let unknown = Err(Refusal::UnknownGroup(group("A")));
    assert_eq!(
        q.call(PauseParams {
            scope: whole_group("A")
        })
        .await,
        unknown
    );
    assert_eq!(
        q.call(ResumeParams {
            scope: one_batch("A", "a")
        })
        .await,
        unknown
    );
    let cancelled = q
        .call(CancelParams {
            scope: whole_group("A"),
            max: 10,
        })
        .await;
    assert_eq!(cancelled.map(|_| ()), unknown);
    q.enqueue_n("A", 1).await;
    let refused = q
        .call(PauseParams {
            scope: one_batch("A", "nope"),
        })
        .await;
    assert!(
        matches!(refused, Err(Refusal::UnknownBatch { .. })),
        "{refused:?}"
    );
}

pub async fn pausing_and_resuming_twice_is_fine(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    q.resume(whole_group("A")).await;
    for _ in 0..2 {
        q.pause(whole_group("A")).await;
    }
    assert!(q.take(1).await.is_empty());
    for _ in 0..2 {
        q.resume(whole_group("A")).await;
    }
    assert_eq!(q.take(5).await.len(), 2);
}

pub async fn cancelling_ends_everything_but_running_jobs(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 6)).await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], throttled_for(60_000)).await;
    q.admit(2, 10).await;
    let outcome = q.cancel(one_batch("A", "a")).await;
    assert_eq!((outcome.cancelled, outcome.running, outcome.more), (5, 1, false));
    let counts = q.counts().await;
    assert_eq!((counts.dead, counts.running, counts.unfinished()), (5, 1, 1));
    assert_eq!(q.job("A", "a-0").await.view.dead, Some(DeathReason::Cancelled));
    assert!(q.take(10).await.is_empty());
    let settled = q.settle(&jobs[1], done()).await;
    assert_eq!(
        settled,
        Settled::Completed { batch_complete: true },
        "cancelled jobs count as failed"
    );
    let view = q.batch("A", "a").await;
    assert!(view.cancelled && view.sealed);
    assert_eq!((view.counts.success, view.counts.failed), (1, 5));
    assert_eq!(q.aggregate_all().await, [BatchStatus::Cancelled]);
}

pub async fn a_running_job_of_a_cancelled_batch_is_not_tried_again(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 4)).await;
    let jobs = q.take_all(4).await;
    q.cancel(one_batch("A", "a")).await;
    for (job, outcome) in jobs
        .iter()
        .zip([retry(), throttled(), tidegate_core::bulk::JobOutcome::Released])
    {
        let settled = q.settle(job, outcome).await;
        assert!(
            matches!(
                settled,
                Settled::Dead {
                    reason: DeathReason::Cancelled,
                    ..
                }
            ),
            "{settled:?}"
        );
    }
    q.advance(60_000);
    assert_eq!(q.expire_leases().await.dead, 1);
    assert_eq!(q.batch("A", "a").await.status, BatchStatus::Aggregating);
}

pub async fn cancelling_goes_in_bounded_steps(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 10)).await;
    let step = CancelParams {
        scope: one_batch("A", "a"),
        max: 4,
    };
    let first = q.call(step.clone()).await.expect("the batch is there");
    assert_eq!((first.cancelled, first.more), (4, true));
    assert!(
        q.take(10).await.is_empty(),
        "from the first step on nothing of it starts"
    );
    let mut more = true;
    while more {
        more = q.call(step.clone()).await.expect("the batch is there").more;
    }
    assert_eq!(q.batch("A", "a").await.counts.failed, 10);
    assert_eq!(q.counts().await.dead, 10);
}

pub async fn the_dispatcher_finishes_a_cancellation(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 10)).await;
    let step = CancelParams {
        scope: one_batch("A", "a"),
        max: 1,
    };
    q.call(step).await.expect("the batch is there");
    q.release_due().await;
    assert_eq!(q.counts().await.dead, 10);
    assert_eq!(q.batch("A", "a").await.status, BatchStatus::Aggregating);
}

pub async fn cancelling_a_group_ends_all_its_batches(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 2)).await;
    q.enqueue_to("A", "b", jobs("b", 3)).await;
    q.enqueue_n("B", 1).await;
    assert_eq!(q.cancel(whole_group("A")).await.cancelled, 5);
    assert_eq!(groups(&q.take(10).await), "B");
    assert!(q.batch("A", "a").await.cancelled && q.batch("A", "b").await.cancelled);
    assert_eq!(q.aggregate_all().await.len(), 2);
    q.enqueue("A", jobs("fresh", 1)).await;
    assert_eq!(ids(&q.take(1).await), ["fresh-0"], "the group itself goes on");
}

pub async fn a_cancelled_batch_takes_nothing_more(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 1)).await;
    q.cancel(one_batch("A", "a")).await;
    let refused = Err(Refusal::Cancelled(batch("a")));
    assert_eq!(q.try_enqueue("A", Some("a"), jobs("b", 1)).await, refused);
}

pub async fn a_cancelled_batch_is_decided_as_cancelled(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 3)).await;
    q.run(2).await;
    q.cancel(one_batch("A", "a")).await;
    let claimed = q.claim(1_000).await.remove(0);
    assert_eq!(claimed.finished, None);
    let decided = q.finish(&claimed, Ok("sum")).await;
    assert_eq!(decided, Ok(BatchStatus::Cancelled));
    let view = q.batch("A", "a").await;
    assert_eq!((view.status, view.counts.success), (BatchStatus::Cancelled, 2));
    assert!(view.status.is_finished() && view.finished_at.is_some());
    q.confirm(&claimed).await.expect("it is decided");

    q.enqueue_to("A", "b", jobs("b", 1)).await;
    q.cancel(one_batch("A", "b")).await;
    let claimed = q.claim(1_000).await.remove(0);
    let decided = q.finish(&claimed, Err("no sum")).await;
    assert_eq!(decided, Ok(BatchStatus::Cancelled), "with or without a summary");
}

pub async fn a_job_of_a_cancelled_batch_can_be_replayed(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 4)).await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], failed("no")).await;
    q.settle(&jobs[1], retry()).await;
    q.cancel(one_batch("A", "a")).await;
    assert_eq!(q.aggregate_all().await, [BatchStatus::Cancelled]);
    let decided = q.batch("A", "a").await;
    for id in ["a-0", "a-1", "a-2"] {
        q.replay("A", id).await.expect("it is dead");
    }
    q.release_due().await;
    let again = q.take_all(3).await;
    assert_eq!(ids(&again), ["a-0", "a-1", "a-2"]);
    q.settle(&again[0], done()).await;
    q.settle(&again[1], retry()).await;
    q.settle(&again[2], throttled_for(5)).await;
    assert_eq!(
        q.job("A", "a-1").await.view.state,
        JobState::Delayed,
        "it is tried again"
    );
    q.advance(60_000);
    q.release_due().await;
    assert_eq!(q.run(10).await.len(), 2);
    assert_eq!(q.job("A", "a-2").await.view.state, JobState::Completed);
    let after = q.batch("A", "a").await;
    assert_eq!(
        (after.status, after.counts, after.finished_at),
        (decided.status, decided.counts, decided.finished_at),
        "a decided batch stays as it is"
    );
    assert_eq!(q.counts().await.dead, 1);
}

pub async fn a_replay_before_the_decision_counts_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 3)).await;
    let running = q.take_one().await;
    q.cancel(one_batch("A", "a")).await;
    q.replay("A", "a-1").await.expect("it is dead");
    q.settle(&running, done()).await;
    assert_eq!(
        q.batch("A", "a").await.status,
        BatchStatus::Running,
        "a-1 is open"
    );
    assert_eq!(ids(&q.run(5).await), ["a-1"]);
    let view = q.batch("A", "a").await;
    assert_eq!((view.counts.success, view.counts.failed), (2, 1));
    assert_eq!(q.aggregate_all().await, [BatchStatus::Cancelled]);
}

pub async fn a_second_cancellation_ends_replayed_jobs(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 3)).await;
    q.cancel(one_batch("A", "a")).await;
    assert_eq!(q.cancel(one_batch("A", "a")).await.cancelled, 0);
    q.aggregate_all().await;
    for id in ["a-0", "a-1"] {
        q.replay("A", id).await.expect("it is dead");
    }
    let running = q.take_one().await;
    let second = q.cancel(one_batch("A", "a")).await;
    assert_eq!((second.cancelled, second.running), (1, 1));
    assert!(q.take(5).await.is_empty());
    let settled = q.settle(&running, retry()).await;
    assert!(matches!(settled, Settled::Dead { .. }), "{settled:?}");
}

pub async fn ids_of_cancelled_jobs_are_free_again(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 3)).await;
    q.cancel(one_batch("A", "a")).await;
    let again = q.enqueue_to("A", "b", jobs("a", 2)).await;
    let accepted = |one: &Enqueued| matches!(one, Enqueued::Accepted(_));
    assert!(again.jobs.iter().all(accepted), "{:?}", again.jobs);
    assert_eq!(again.total_jobs, 2);
    assert_eq!(q.counts().await.dead, 1, "they are no longer dead");
    let third = q.enqueue_to("A", "b", jobs("a", 3)).await;
    assert!(matches!(
        third.jobs[..],
        [
            Enqueued::Duplicate(_),
            Enqueued::Duplicate(_),
            Enqueued::Accepted(_)
        ]
    ));
    assert_eq!(q.run(10).await.len(), 3);
    assert_eq!(q.job("A", "a-0").await.view.batch, batch("b"));
    let view = q.batch("A", "a").await;
    assert_eq!(
        (view.counts.total, view.counts.failed),
        (3, 3),
        "the old batch counts them"
    );
    assert_eq!(q.aggregate_all().await, [BatchStatus::Cancelled]);
    assert_eq!(q.results("A", "a", None, 10).await.items, []);
}

pub async fn ids_of_finished_jobs_of_a_cancelled_batch_stay_known(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let options = BatchOptions {
        keep_results: true,
        ..Default::default()
    };
    q.open_batch("A", "kept", options).await;
    q.enqueue_to("A", "kept", jobs("kept", 1)).await;
    q.enqueue_to("A", "a", jobs("a", 3)).await;
    let leased = q.take_all(3).await;
    assert_eq!(ids(&leased), ["kept-0", "a-0", "a-1"]);
    q.settle(&leased[1], done()).await;
    q.settle(&leased[2], failed("no")).await;
    q.settle(&leased[0], JobOutcome::Released).await;
    q.cancel(whole_group("A")).await;
    let again = [jobs("kept", 1), jobs("a", 3)].concat();
    let again = q.enqueue_to("A", "b", again).await.jobs;
    assert!(
        matches!(
            again[..],
            [
                Enqueued::Duplicate(_),
                Enqueued::Duplicate(_),
                Enqueued::Duplicate(_),
                Enqueued::Accepted(_)
            ]
        ),
        "what ran is known, and so is what a reducer is still to see: {again:?}"
    );
    q.aggregate_all().await;
    let again = q.enqueue_to("A", "b", jobs("kept", 1)).await.jobs;
    assert!(matches!(again[..], [Enqueued::Accepted(_)]), "{again:?}");
}

pub async fn a_batch_of_a_paused_group_says_so(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 1)).await;
    let paused = async || {
        let view = q.batch("A", "a").await;
        (view.paused, view.group_paused)
    };
    assert_eq!(paused().await, (false, false));
    q.pause(whole_group("A")).await;
    assert_eq!(paused().await, (false, true));
    q.pause(one_batch("A", "a")).await;
    q.resume(whole_group("A")).await;
    assert_eq!(paused().await, (true, false));
}

pub async fn a_paused_batch_can_be_cancelled(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 3)).await;
    q.pause(one_batch("A", "a")).await;
    q.take(1).await;
    assert_eq!(q.cancel(one_batch("A", "a")).await.cancelled, 3);
    assert_eq!(q.job("A", "a-2").await.view.state, JobState::Dead);
    q.resume(one_batch("A", "a")).await;
    assert!(q.take(10).await.is_empty());
}

pub async fn cancelling_a_finished_batch_changes_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 2)).await;
    q.seal("A").await;
    q.run(2).await;
    q.aggregate_all().await;
    assert_eq!(q.cancel(one_batch("A", "a")).await.cancelled, 0);
    let view = q.batch("A", "a").await;
    assert_eq!((view.status, view.counts.success), (BatchStatus::Completed, 2));
    assert!(!view.cancelled);
}

/// Two starts per second; denied jobs go to delayed.
async fn two_per_second_hold_job(backend: &dyn Backend) -> Harness {
    Harness::with(backend, |c| {
        c.backpressure.global_rps = 2.0.into();
        c.backpressure.hold = Hold::Job;
    })
    .await
}

pub async fn jobs_denied_by_a_window_can_be_cancelled(backend: &dyn Backend) {
    let q = two_per_second_hold_job(backend).await;
    q.enqueue_to("A", "a", jobs("a", 6)).await;
    q.run(2).await;
    assert_eq!(q.admit(3, 10).await.denied.len(), 3);
    assert_eq!(q.cancel(one_batch("A", "a")).await.cancelled, 4);
    assert_eq!(q.congestion("A").await.non_ready_count, 0);
    assert_eq!(q.batch("A", "a").await.status, BatchStatus::Aggregating);
}

pub async fn jobs_denied_by_a_window_can_be_paused(backend: &dyn Backend) {
    let q = two_per_second_hold_job(backend).await;
    q.enqueue_to("A", "a", jobs("a", 4)).await;
    q.enqueue_to("A", "b", jobs("b", 1)).await;
    q.run(2).await;
    q.admit(2, 10).await;
    q.pause(one_batch("A", "a")).await;
    q.next_window();
    assert_eq!(ids(&q.take(2).await), ["b-0"]);
    q.resume(one_batch("A", "a")).await;
    q.next_window();
    assert_eq!(ids(&q.take(2).await), ["a-2", "a-3"]);
}

pub async fn a_retry_of_a_paused_batch_waits_for_it(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 2)).await;
    let leased = q.take_one().await;
    q.pause(one_batch("A", "a")).await;
    q.settle(&leased, throttled_for(10)).await;
    q.advance(10);
    q.release_due().await;
    assert!(q.take(2).await.is_empty());
    q.resume(one_batch("A", "a")).await;
    assert_eq!(ids(&q.take(2).await), ["a-0", "a-1"]);
}

pub async fn a_group_paused_at_its_limit_stays_paused(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    let limits = GroupLimits {
        all: Limit::rate(1.0),
        ..GroupLimits::default()
    };
    q.configure("A", None, Some(limits)).await;
    q.enqueue_n("A", 3).await;
    assert_eq!(q.take(3).await.len(), 1);
    q.pause(whole_group("A")).await;
    q.next_window();
    assert!(q.take(3).await.is_empty(), "the turn of the window is no resume");
    q.configure("A", None, Some(GroupLimits::default())).await;
    assert!(q.take(3).await.is_empty(), "neither is a change of its limits");
    q.resume(whole_group("A")).await;
    assert_eq!(q.take(3).await.len(), 2);
}
