//! Limits of groups, over all queues and in single ones: starts, and running at once.

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::{
    ConfigureGroupParams, ConfigureLimitsParams, ExpireLeasesParams, GroupLimits, JobOutcome, NewJob,
    Refusal, Scope, Set, SetLimit, SetQueueLimits, Stop,
};
use tidegate_core::limits::quota::{Limit, Quota};
use tidegate_core::time::Millis;

use super::harness::*;
use super::queues::mail_queue;

fn all(limit: Limit) -> Option<GroupLimits> {
    Some(GroupLimits {
        all: limit,
        ..GroupLimits::default()
    })
}

/// In the queue `mail` alone.
fn in_mail(limit: Limit) -> Option<GroupLimits> {
    Some(GroupLimits {
        queues: [(queue("mail"), limit)].into(),
        ..GroupLimits::default()
    })
}

fn rate(n: f64) -> Option<GroupLimits> {
    all(Limit::rate(n))
}

fn max_running(n: u32) -> Option<GroupLimits> {
    all(Limit::max_running(n))
}

/// A store with a queue `mail` whose groups have this limit.
async fn with_mail(backend: &dyn Backend, per_group: Limit) -> Harness {
    Harness::with(backend, |c: &mut BulkConfig| {
        mail_queue(c, None);
        c.queues.entry(queue("mail")).or_default().per_group = per_group;
    })
    .await
}

async fn enqueue_mail(q: &Harness, name: &str, n: usize) {
    q.enqueue(name, of_kind("mail", jobs(name, n))).await;
}

pub async fn a_group_keeps_to_its_rate(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.configure("A", None, rate(2.0)).await;
    q.enqueue_n("A", 20).await;
    q.enqueue_n("B", 20).await;
    assert_eq!(per_group(&q.take(20).await), [("A", 2), ("B", 8)].into());
    assert!(q.group("A").await.held);
    q.next_window();
    assert_eq!(per_group(&q.take(20).await), [("A", 2), ("B", 8)].into());
}

pub async fn all_groups_at_their_limit_is_a_limit_not_an_end(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.configure("A", None, rate(2.0)).await;
    q.enqueue_n("A", 5).await;
    let outcome = q.lease(5).await;
    assert_eq!(outcome.jobs.len(), 2);
    assert_eq!(
        outcome.stop,
        Stop::Held {
            until: START + Millis(1_000)
        }
    );
}

pub async fn a_group_keeps_to_its_leases_at_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(2)).await;
    q.enqueue_n("A", 5).await;
    q.enqueue_n("B", 2).await;
    let first = q.take(10).await;
    assert_eq!(per_group(&first), [("A", 2), ("B", 2)].into());
    q.next_window();
    assert!(q.take(10).await.is_empty(), "a new window ends no lease");
    q.settle(&first[0], done()).await;
    assert_eq!(ids(&q.take(10).await), ["A-2"], "one lease ended, one begins");
}

pub async fn jobs_in_ready_count_for_leases_at_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(3)).await;
    q.enqueue_n("A", 10).await;
    q.take_all(1).await;
    assert_eq!(q.admit(10, 10).await.admitted.len(), 2);
    assert_eq!(q.take(10).await.len(), 2);
}

pub async fn a_limit_lowered_below_ready_still_holds(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 6).await;
    q.admit(6, 10).await;
    q.configure("A", None, max_running(2)).await;
    assert_eq!(ids(&q.take(10).await), ["A-0", "A-1"]);
    assert_eq!(q.group("A").await.counts.waiting, 4);
}

pub async fn a_raised_limit_of_a_group_takes_effect_at_once(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(1)).await;
    q.enqueue_n("A", 5).await;
    assert_eq!(q.take(5).await.len(), 1);
    q.configure("A", None, max_running(3)).await;
    assert_eq!(q.take(5).await.len(), 2);
}

pub async fn a_limit_that_cannot_work_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let range = "it must be from 0.00001/s to 1000000000/s";
    for (limits, text) in [
        (rate(0.0), format!("rate of the group = 0/s: {range}")),
        (
            max_running(0),
            "max_running of the group = 0: it must be at least 1".to_owned(),
        ),
        (
            in_mail(Limit::rate(-2.5)),
            format!("rate of the group in queue \"mail\" = -2.5/s: {range}"),
        ),
        (
            in_mail(Limit::max_running(0)),
            "max_running of the group in queue \"mail\" = 0: it must be at least 1".to_owned(),
        ),
    ] {
        let params = ConfigureGroupParams {
            group: group("A"),
            base_priority: None,
            limits,
        };
        assert_eq!(q.call(params).await.expect_err("a wrong limit").to_string(), text);
    }
    let many = (0..65).map(|n| (queue(&format!("q-{n}")), Limit::max_running(1)));
    let params = ConfigureGroupParams {
        group: group("A"),
        base_priority: None,
        limits: Some(GroupLimits {
            queues: many.collect(),
            ..GroupLimits::default()
        }),
    };
    let refused = q.call(params).await;
    assert_eq!(refused, Err(Refusal::TooManyQueuesOfGroup { max: 64 }));
}

pub async fn a_group_may_be_slower_than_one_start_per_window(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    let slow: Quota = "30/min".parse().expect("a rate");
    q.configure("A", None, all(Limit::rate(slow))).await;
    q.enqueue_n("A", 20).await;
    let mut started = Vec::new();
    for _ in 0..8 {
        let outcome = q.lease(5).await;
        started.push(outcome.jobs.len());
        // The window that allows the next start is not always the next one.
        if let Stop::Held { until } = outcome.stop {
            assert!(until > q.now() && until <= q.now() + Millis(2_000), "{until:?}");
        }
        q.next_window();
    }
    assert_eq!(started.iter().sum::<usize>(), 4, "{started:?}");
    assert!(started.iter().all(|&one| one <= 1), "{started:?}");
}

pub async fn a_group_keeps_to_its_rate_in_a_queue_and_is_free_in_others(backend: &dyn Backend) {
    let q = with_mail(backend, Limit::default()).await;
    q.configure("A", None, in_mail(Limit::rate(2.0))).await;
    enqueue_mail(&q, "A", 10).await;
    enqueue_mail(&q, "B", 3).await;
    q.enqueue("A", of_kind("other", jobs("other", 5))).await;
    assert_eq!(
        per_group(&q.lease_in("mail", 20).await.jobs),
        [("A", 2), ("B", 3)].into()
    );
    let outcome = q.lease_in("mail", 20).await;
    let until = START + Millis(1_000);
    assert_eq!((outcome.jobs.len(), outcome.stop), (0, Stop::Held { until }));
    assert!(!q.group("A").await.held, "it is free elsewhere");
    assert_eq!(q.take(20).await.len(), 5);
    q.next_window();
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 2);
}

pub async fn every_group_keeps_to_the_limit_of_the_queue(backend: &dyn Backend) {
    let limit = Limit {
        rate: Some(3.0.into()),
        max_running: Some(4),
    };
    let q = with_mail(backend, limit).await;
    for name in ["A", "B", "C"] {
        enqueue_mail(&q, name, 10).await;
    }
    // Only what a group leaves open is as the queue says.
    q.configure("C", None, in_mail(Limit::rate(1.0))).await;
    let first = q.lease_in("mail", 30).await.jobs;
    assert_eq!(per_group(&first), [("A", 3), ("B", 3), ("C", 1)].into());
    q.next_window();
    let second = q.lease_in("mail", 30).await.jobs;
    assert_eq!(per_group(&second), [("A", 1), ("B", 1), ("C", 1)].into());
    q.next_window();
    let third = q.lease_in("mail", 30).await.jobs;
    assert_eq!(per_group(&third), [("C", 1)].into(), "four of A and B run");
    let of_a = first
        .iter()
        .find(|job| job.leased.group == group("A"))
        .expect("A started");
    q.settle(of_a, done()).await;
    let next = q.lease_in("mail", 30).await.jobs;
    assert_eq!(per_group(&next), [("A", 1)].into());
    q.advance(3_600_000);
    q.call(ExpireLeasesParams { max: 100 }).await;
    let all = q.lease_in("mail", 30).await.jobs;
    assert_eq!(
        per_group(&all),
        [("A", 3), ("B", 3), ("C", 1)].into(),
        "leases that run out free their places"
    );
}

pub async fn the_limit_of_every_group_changes_at_once(backend: &dyn Backend) {
    let q = with_mail(backend, Limit::max_running(1)).await;
    enqueue_mail(&q, "A", 20).await;
    enqueue_mail(&q, "B", 20).await;
    let set = |rate: Set<f64>, max_running| ConfigureLimitsParams {
        queues: vec![(
            queue("mail"),
            SetQueueLimits::per_group(SetLimit {
                rate: rate.map(Quota::from),
                max_running,
            }),
        )],
        by: "Ada".to_owned(),
        ..ConfigureLimitsParams::default()
    };
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 2);
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 0);
    q.call(set(Set::Keep, Set::To(3))).await.expect("changed");
    assert_eq!(
        per_group(&q.lease_in("mail", 20).await.jobs),
        [("A", 2), ("B", 2)].into()
    );
    q.call(set(Set::To(4.0), Set::To(10))).await.expect("changed");
    assert_eq!(
        per_group(&q.lease_in("mail", 20).await.jobs),
        [("A", 1), ("B", 1)].into(),
        "three of four have started"
    );
    q.call(set(Set::To(5.0), Set::Keep)).await.expect("changed");
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 2);
    q.call(set(Set::Reset, Set::Keep)).await.expect("changed");
    assert_eq!(q.lease_in("mail", 40).await.jobs.len(), 10, "five more of each");
    assert_eq!(q.lease_in("mail", 40).await.jobs.len(), 0);
    q.call(set(Set::Keep, Set::Reset)).await.expect("changed");
    q.next_window();
    assert_eq!(q.lease_in("mail", 40).await.jobs.len(), 0, "one, as configured");
}

pub async fn a_job_that_was_not_run_returns_its_start_in_the_queue(backend: &dyn Backend) {
    let q = with_mail(backend, Limit::rate(2.0)).await;
    enqueue_mail(&q, "A", 5).await;
    let started = q.lease_in("mail", 5).await.jobs;
    assert_eq!(started.len(), 2);
    q.settle(&started[0], JobOutcome::Released).await;
    q.configure("A", None, Some(GroupLimits::default())).await;
    assert_eq!(
        q.lease_in("mail", 5).await.jobs.len(),
        1,
        "it may start once more"
    );
    q.next_window();
    q.settle(&started[1], JobOutcome::Released).await;
    assert_eq!(
        q.lease_in("mail", 5).await.jobs.len(),
        2,
        "a start of another window is gone"
    );
}

pub async fn ready_jobs_count_for_the_limit_in_the_queue(backend: &dyn Backend) {
    let q = with_mail(backend, Limit::max_running(3)).await;
    enqueue_mail(&q, "A", 10).await;
    let one = q.lease_in("mail", 1).await.jobs;
    assert_eq!(q.admit_in("mail", 10, 10).await.admitted.len(), 2);
    assert!(q.admit_in("mail", 10, 10).await.admitted.is_empty());
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 2);
    q.settle(&one[0], done()).await;
    assert_eq!(q.admit_in("mail", 10, 10).await.admitted.len(), 1);
    // Nobody leases it: its place is free again.
    q.advance(2_000);
    assert_eq!(q.release_due().await.recalled, 1);
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 1);
}

pub async fn a_group_that_was_dropped_gets_no_second_rate(backend: &dyn Backend) {
    let q = Harness::with(backend, |c: &mut BulkConfig| {
        mail_queue(c, None);
        c.queues.entry(queue("mail")).or_default().per_group = Limit::rate(2.0);
        c.retention.finished_jobs_max = 1;
        c.retention.finished_batches_max = 1;
    })
    .await;
    for name in ["A", "B", "C"] {
        enqueue_mail(&q, name, 2).await;
    }
    let started = q.lease_in("mail", 10).await.jobs;
    assert_eq!(started.len(), 6);
    q.settle_all(&started, done()).await;
    for _ in 0..5 {
        q.drop_finished().await;
    }
    for name in ["A", "B", "C"] {
        q.enqueue(name, of_kind("mail", jobs("again", 2))).await;
    }
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 0);
    q.next_window();
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 6);
}

pub async fn a_held_group_does_not_hide_others(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for i in 0..30 {
        let name = format!("paused-{i}");
        q.enqueue_n(&name, 3).await;
        q.pause(Scope::Group(group(&name))).await;
    }
    q.enqueue_n("open", 2).await;
    assert_eq!(ids(&q.take(10).await), ["open-0", "open-1"]);
}

pub async fn a_group_held_for_its_ready_jobs_is_let_go_when_they_are_recalled(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(2)).await;
    q.enqueue_n("A", 5).await;
    // Two fill ready, the third reaches the limit; then no worker polls for two windows.
    assert_eq!(q.admit(10, 10).await.admitted.len(), 2);
    q.advance(2_000);
    assert_eq!(q.release_due().await.recalled, 2);
    assert_eq!(ids(&q.take(10).await), ["A-0", "A-1"]);
}

pub async fn a_group_held_for_its_ready_jobs_is_let_go_when_they_expire(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("A", None, max_running(1)).await;
    let short = NewJob {
        expires_at: Some(START + Millis(100)),
        ..job("short")
    };
    q.enqueue("A", vec![short, job("long")]).await;
    assert_eq!(q.admit(10, 10).await.admitted.len(), 1);
    q.advance(100);
    assert_eq!(q.release_due().await.expired, 1);
    assert_eq!(ids(&q.take(10).await), ["long"]);
}
