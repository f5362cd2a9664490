//! Why a job is not running: what holds it, nearest cause first, and when it should start.

use tidegate_core::bulk::config::Hold;
use tidegate_core::bulk::views::*;
use tidegate_core::bulk::{DelayReason, GroupLimits, JobOutcome, JobState, NewJob, Priority, Refusal, Scope};
use tidegate_core::limits::quota::{Limit, Quota};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;
use super::queues::mail_queue;
use super::run_time_limits::set_global;

/// An answer, with the earliest start as a point in time; none if nobody knows it.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    state: Option<JobState>,
    waits: Vec<Wait>,
    starts: Option<Timestamp>,
}

async fn why(q: &Harness, query: Query) -> Said {
    let why = match q.view(query).await {
        View::Why(why) => why,
        other => panic!("a reason was answered with {other:?}"),
    };
    let rests = matches!(
        why.state,
        None | Some(JobState::Running | JobState::Completed | JobState::Dead)
    );
    assert_eq!(why.starts.is_none(), rests, "{why:?}");
    let range = why.starts.and_then(Result::ok);
    assert!(
        range.is_none_or(|range| range.earliest <= range.latest),
        "{why:?}"
    );
    Said {
        state: why.state,
        waits: why.waits,
        starts: range.map(|range| q.now() + range.earliest),
    }
}

async fn why_job(q: &Harness, of: &str, id: &str) -> Said {
    why(q, Query::WhyJob(group(of), job_id(id))).await
}

async fn why_group(q: &Harness, of: &str) -> Said {
    why(q, Query::WhyGroup(group(of))).await
}

fn waits(state: JobState, waits: impl Into<Vec<Wait>>, starts: Option<Timestamp>) -> Said {
    Said {
        state: Some(state),
        waits: waits.into(),
        starts,
    }
}

fn workers(name: &str) -> Wait {
    Wait::Workers { queue: queue(name) }
}

const WINDOW_END: Timestamp = Timestamp(START.0 + 1_000);

pub async fn a_job_that_nothing_holds_waits_for_workers(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    // No worker has asked, so nobody knows when.
    let nothing_holds = waits(JobState::Waiting, [workers("default")], None);
    assert_eq!(why_job(&q, "A", "A-0").await, nothing_holds);
    assert_eq!(why_group(&q, "A").await, nothing_holds);
}

pub async fn a_job_knows_how_many_start_before_it(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 30).await;
    let high = NewJob {
        priority: Priority::High,
        ..job("other flow")
    };
    q.enqueue("A", vec![high]).await;
    let behind = |jobs: u64| {
        waits(
            JobState::Waiting,
            [Wait::Behind { jobs }, workers("default")],
            None,
        )
    };
    assert_eq!(why_job(&q, "A", "A-9").await, behind(9));
    assert_eq!(why_job(&q, "A", "A-29").await, behind(29));
    q.enqueue_n("B", 1).await;
    assert_eq!(why_job(&q, "A", "A-29").await, behind(29));
    // A returned job goes first.
    let first = q.take_all(2).await;
    let of_a = first.iter().find(|job| job.id.as_str() == "other flow");
    q.settle(
        of_a.expect("the higher priority goes first"),
        JobOutcome::Released,
    )
    .await;
    assert_eq!(why_job(&q, "A", "other flow").await.waits, [workers("default")]);
}

pub async fn returned_jobs_are_counted_before_fresh_ones(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 6).await;
    let taken = q.take_all(3).await;
    q.settle_all(&taken[1..], JobOutcome::Released).await;
    for (id, ahead) in [("A-2", 0), ("A-1", 1), ("A-3", 2), ("A-5", 4)] {
        let why = why_job(&q, "A", id).await;
        let reported = match why.waits[0] {
            Wait::Behind { jobs } => jobs,
            _ => 0,
        };
        assert_eq!(reported, ahead, "{id}: {why:?}");
    }
}

pub async fn jobs_that_were_cancelled_are_not_ahead(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for (name, first) in [("one", 0), ("two", 10), ("three", 20)] {
        let of_batch = (first..first + 10).map(|i| job(&format!("A-{i}"))).collect();
        q.enqueue_to("A", name, of_batch).await;
    }
    q.cancel(Scope::Batch(group("A"), batch("two"))).await;
    let why = why_job(&q, "A", "A-25").await;
    assert_eq!(why.waits[0], Wait::Behind { jobs: 15 });
    assert_eq!(why_job(&q, "A", "A-15").await, waits(JobState::Dead, [], None));
}

pub async fn a_paused_group_or_batch_says_so(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "spring", jobs("A", 2)).await;
    q.enqueue_to("A", "autumn", vec![job("last")]).await;
    q.pause(Scope::Batch(group("A"), batch("spring"))).await;
    let paused = waits(JobState::Waiting, [Wait::BatchPaused], None);
    assert_eq!(why_job(&q, "A", "A-1").await, paused);
    assert_eq!(why_group(&q, "A").await.waits, [workers("default")], "of autumn");
    // The same after the picker has found them.
    assert_eq!(ids(&q.take(5).await), ["last"]);
    assert_eq!(why_job(&q, "A", "A-1").await, paused);
    assert_eq!(why_group(&q, "A").await, paused);
    q.pause(Scope::Group(group("A"))).await;
    let both = [Wait::GroupPaused, Wait::BatchPaused];
    assert_eq!(why_group(&q, "A").await, waits(JobState::Waiting, both, None));
    q.resume(Scope::Batch(group("A"), batch("spring"))).await;
    let behind = [Wait::GroupPaused, Wait::Behind { jobs: 1 }];
    assert_eq!(
        why_job(&q, "A", "A-1").await,
        waits(JobState::Waiting, behind, None)
    );
}

pub async fn a_delayed_job_says_until_when(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let at = |ms| NewJob {
        run_at: Some(START + Millis(ms)),
        ..job(&format!("in {ms}"))
    };
    q.enqueue("A", vec![at(9_000), at(5_000), at(7_000), job("now")])
        .await;
    q.take(1).await;
    let until = START + Millis(5_000);
    let reason = DelayReason::Scheduled;
    let delayed = Wait::Delayed { until, reason };
    let expected = waits(JobState::Delayed, [delayed.clone()], Some(until));
    assert_eq!(why_job(&q, "A", "in 5000").await, expected);
    assert_eq!(why_group(&q, "A").await, expected, "the one that is due first");
    q.pause(Scope::Group(group("A"))).await;
    let expected = waits(JobState::Delayed, [delayed, Wait::GroupPaused], None);
    assert_eq!(why_group(&q, "A").await, expected);
    q.resume(Scope::Group(group("A"))).await;
    q.advance(6_000);
    let due = why_job(&q, "A", "in 5000").await;
    assert_eq!(
        due.starts,
        Some(q.now()),
        "it is due and nobody has looked: {due:?}"
    );
}

pub async fn a_group_at_its_limit_says_which(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    let limits = GroupLimits {
        all: Limit {
            rate: Some(3.0.into()),
            max_running: Some(4),
        },
        ..GroupLimits::default()
    };
    q.configure("A", None, Some(limits)).await;
    q.enqueue_n("A", 10).await;
    q.take_all(2).await;
    assert_eq!(why_group(&q, "A").await.waits, [workers("default")]);
    q.take_all(1).await;
    let until = WINDOW_END;
    let share = Wait::GroupSpent { limit: 3, until };
    let expected = waits(JobState::Waiting, [share.clone()], Some(until));
    assert_eq!(why_group(&q, "A").await, expected);
    let behind = why_job(&q, "A", "A-9").await;
    assert_eq!(behind.waits, [Wait::Behind { jobs: 6 }, share]);
    q.next_window();
    q.take_all(1).await;
    let busy = waits(JobState::Waiting, [Wait::GroupBusy { limit: 4 }], Some(q.now()));
    assert_eq!(why_group(&q, "A").await, busy);
}

pub async fn a_strict_share_that_is_used_up_says_so(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        c.backpressure.strict_share = true;
    })
    .await;
    q.enqueue_n("A", 10).await;
    q.enqueue_sleeper("B").await;
    assert_eq!(q.take(10).await.len(), 5);
    let share = Wait::GroupSpent {
        limit: 5,
        until: WINDOW_END,
    };
    assert_eq!(why_group(&q, "A").await.waits, [share]);
}

pub async fn a_spent_window_says_so(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 4.0).await;
    q.enqueue_n("A", 12).await;
    // Three started, one promised to ready.
    q.take_all(3).await;
    q.admit(1, 10).await;
    let (limit, until) = (4, WINDOW_END);
    let spent = Wait::WindowSpent { limit, until };
    let queue_spent = Wait::QueueSpent { limit, until };
    let both = [spent, queue_spent];
    assert_eq!(
        why_job(&q, "A", "A-4").await,
        waits(JobState::Waiting, both, Some(until))
    );
    let last = why_job(&q, "A", "A-11").await;
    assert_eq!(last.waits[0], Wait::Behind { jobs: 7 });
    assert_eq!(
        why_job(&q, "A", "A-3").await,
        waits(JobState::Ready, [workers("default")], Some(START)),
        "it has its place"
    );
    q.next_window();
    assert_eq!(why_job(&q, "A", "A-4").await.waits, [workers("default")]);
}

pub async fn a_spent_queue_says_so(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        mail_queue(c, Some(2.0));
    })
    .await;
    q.enqueue("A", of_kind("mail", jobs("A", 9))).await;
    q.lease_in("mail", 9).await;
    let spent = Wait::QueueSpent {
        limit: 2,
        until: WINDOW_END,
    };
    assert_eq!(
        why_group(&q, "A").await,
        waits(JobState::Waiting, [spent.clone()], Some(WINDOW_END))
    );
    let last = why_job(&q, "A", "A-8").await;
    assert_eq!(last.waits, [Wait::Behind { jobs: 6 }, spent]);
    // Two per window.
    let starts = last.starts.expect("the queue has a rate");
    assert!(
        (WINDOW_END..=WINDOW_END + Millis(3_000)).contains(&starts),
        "{last:?}"
    );
}

pub async fn a_full_ready_says_so(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.backpressure.ready_queue_max_size = 2).await;
    q.enqueue_n("A", 5).await;
    assert_eq!(q.admit(5, 5).await.admitted.len(), 2);
    let full = waits(JobState::Waiting, [Wait::ReadyFull { ready: 2 }], None);
    assert_eq!(why_job(&q, "A", "A-2").await, full);
    let ready = waits(JobState::Ready, [workers("default")], None);
    assert_eq!(why_group(&q, "A").await, ready, "ready goes first");
}

pub async fn a_job_in_ready_waits_for_workers_and_the_window(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 4.0.into();
        mail_queue(c, None);
    })
    .await;
    q.enqueue("A", of_kind("mail", jobs("mail", 2))).await;
    q.admit_in("mail", 2, 5).await;
    assert_eq!(
        why_job(&q, "A", "mail-1").await,
        waits(JobState::Ready, [workers("mail")], None)
    );
    set_global(&q, 1.0).await;
    assert_eq!(ids(&q.lease_in("mail", 2).await.jobs), ["mail-0"]);
    let (limit, until) = (1, WINDOW_END);
    let spent = [
        Wait::WindowSpent { limit, until },
        Wait::QueueSpent { limit, until },
        workers("mail"),
    ];
    assert_eq!(
        why_job(&q, "A", "mail-1").await,
        waits(JobState::Ready, spent, Some(until))
    );
    q.next_window();
    q.pause(Scope::Group(group("A"))).await;
    assert_eq!(
        why_job(&q, "A", "mail-1").await,
        waits(JobState::Ready, [Wait::GroupPaused], None)
    );
}

pub async fn what_runs_or_is_finished_waits_for_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    let taken = q.take_all(3).await;
    assert_eq!(why_job(&q, "A", "A-0").await, waits(JobState::Running, [], None));
    assert_eq!(why_group(&q, "A").await, waits(JobState::Running, [], None));
    q.settle(&taken[0], done()).await;
    q.settle(&taken[1], failed("no")).await;
    assert_eq!(
        why_job(&q, "A", "A-0").await,
        waits(JobState::Completed, [], None)
    );
    assert_eq!(why_job(&q, "A", "A-1").await, waits(JobState::Dead, [], None));
    q.settle(&taken[2], done()).await;
    let idle = Said {
        state: None,
        waits: Vec::new(),
        starts: None,
    };
    assert_eq!(why_group(&q, "A").await, idle);
}

pub async fn a_job_denied_by_a_window_says_until_when(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 2.0.into();
        c.backpressure.hold = Hold::Job;
    })
    .await;
    q.enqueue_n("A", 5).await;
    q.take_all(2).await;
    q.admit(1, 5).await;
    let reason = DelayReason::RateLimited;
    let until = START + Millis(1_000);
    let denied = waits(JobState::Delayed, [Wait::Delayed { until, reason }], Some(until));
    assert_eq!(why_job(&q, "A", "A-2").await, denied);
    assert_eq!(why_group(&q, "A").await, denied, "it goes next");
    let next = why_job(&q, "A", "A-3").await;
    assert_eq!(next.waits[0], Wait::Behind { jobs: 1 }, "{next:?}");
}

pub async fn the_next_job_of_a_group_is_that_of_the_highest_priority(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| mail_queue(c, Some(1.0))).await;
    q.enqueue_n("A", 2).await;
    q.enqueue("A", at_priority(Priority::High, of_kind("mail", jobs("mail", 3))))
        .await;
    assert_eq!(why_group(&q, "A").await.waits, [workers("mail")]);
    q.lease_in("mail", 1).await;
    let spent = Wait::QueueSpent {
        limit: 1,
        until: WINDOW_END,
    };
    assert_eq!(why_group(&q, "A").await.waits, [spent]);
}

pub async fn what_is_not_there_has_no_reason(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let unknown = q.call(Query::WhyGroup(group("A"))).await;
    assert_eq!(unknown, Err(Refusal::UnknownGroup(group("A"))));
    q.enqueue_n("A", 1).await;
    let unknown = q.call(Query::WhyJob(group("A"), job_id("none"))).await;
    let expected = Refusal::UnknownJob {
        group: group("A"),
        job: job_id("none"),
    };
    assert_eq!(unknown, Err(expected));
}

pub async fn a_group_at_its_limit_in_a_queue_says_which(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        let per_group = Limit {
            rate: Some("120/min".parse().expect("a rate")),
            max_running: Some(3),
        };
        c.queues.entry(queue("default")).or_default().per_group = per_group;
    })
    .await;
    q.enqueue_n("A", 10).await;
    q.take_all(2).await;
    let until = WINDOW_END;
    let spent = Wait::GroupInQueueSpent { limit: 2, until };
    let expected = waits(JobState::Waiting, [spent], Some(until));
    assert_eq!(why_group(&q, "A").await, expected);
    q.next_window();
    q.take_all(1).await;
    let busy = Wait::GroupInQueueBusy { limit: 3 };
    let expected = waits(JobState::Waiting, [busy], Some(q.now()));
    assert_eq!(why_group(&q, "A").await, expected);
    // A rate of less than one start per window: the next one that allows a start may be far.
    let slow = GroupLimits {
        all: Limit::rate("1/h".parse::<Quota>().expect("a rate")),
        ..GroupLimits::default()
    };
    q.configure("B", None, Some(slow)).await;
    q.enqueue_n("B", 1).await;
    let why = why_group(&q, "B").await;
    let [Wait::GroupSpent { limit: 1, until }] = why.waits[..] else {
        panic!("{why:?}");
    };
    assert!(until > q.now() + Millis(1_000) && until <= q.now() + Millis::from_secs(3_602));
    // With shards, nobody has asked the group's own one for work yet.
    let unknown = q.shards > 1;
    assert!(why.starts.map_or(unknown, |starts| starts >= until), "{why:?}");
}
