//! Leased jobs: deadlines, fencing tokens, late and foreign outcomes.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_core::bulk::{
    DeathReason, DelayReason, ExpireLeasesParams, ExtendParams, Extended, Fence, JobOutcome, JobSeq,
    JobState, LeaseParams, LeaseRef, Settled, Stop, default_queue,
};
use tidegate_core::ids::Owner;
use tidegate_core::time::Millis;

use super::harness::*;

/// A lease lasts the job's timeout plus the margin for its outcome: 30 s + 5 s.
const LEASE_MS: u64 = 35_000;

pub async fn a_job_whose_worker_died_comes_back(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let lost = q.take_one().await;
    q.advance(LEASE_MS - 1);
    assert_eq!(q.expire_leases().await.delayed, 0);
    q.advance(1);
    assert_eq!(q.expire_leases().await.delayed, 1);
    let view = q.job("A", "A-0").await.view;
    assert_eq!(
        view.delayed,
        Some((q.now() + Millis(1_000), DelayReason::LeaseExpired))
    );
    q.advance(1_000);
    q.release_due().await;
    let again = q.take_one().await;
    assert_eq!((again.id.clone(), again.leased.attempt), (lost.id.clone(), 2));
    assert!(
        again.leased.lease.fence > lost.leased.lease.fence,
        "every lease has a larger fence"
    );
}

pub async fn leasing_and_taking_are_one_step(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 5).await;
    q.take_all(3).await;
    let counts = q.counts().await;
    assert_eq!((counts.waiting, counts.ready, counts.running), (2, 0, 3));
}

pub async fn no_job_is_leased_twice(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 30).await;
    q.enqueue_n("B", 30).await;
    q.admit(20, 20).await;
    let mut workers = Vec::new();
    for i in 0..4 {
        let store = Arc::clone(&q.store);
        workers.push(tokio::spawn(async move {
            let owner = Owner::new(format!("worker-{i}")).expect("a valid owner");
            let mut seen = Vec::new();
            loop {
                let params = LeaseParams {
                    queue: default_queue(),
                    max: 3,
                    owner: owner.clone(),
                };
                let outcome = store.lease(params).await.expect("the store works");
                seen.extend(outcome.jobs.iter().map(|job| job.leased.lease));
                if outcome.stop == Stop::Empty {
                    return seen;
                }
            }
        }));
    }
    let mut leases = Vec::new();
    for worker in workers {
        leases.extend(worker.await.expect("a worker ends"));
    }
    let jobs: BTreeSet<JobSeq> = leases.iter().map(|lease| lease.job).collect();
    let fences: BTreeSet<Fence> = leases.iter().map(|lease| lease.fence).collect();
    assert_eq!(
        (leases.len(), jobs.len(), fences.len()),
        (60, 60, 60),
        "leases, jobs and fences"
    );
}

pub async fn every_accepted_job_runs(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for chunk in 0..5 {
        let outcome = q.enqueue("A", jobs(&format!("chunk-{chunk}"), 20)).await;
        assert_eq!(outcome.total_jobs, 20 * (chunk + 1));
    }
    assert_eq!(q.counts().await.waiting, 100);
    let ran = q.run(1_000).await;
    let distinct: BTreeSet<&str> = ids(&ran).into_iter().collect();
    assert_eq!(distinct.len(), 100);
}

pub async fn a_lease_shows_its_deadline(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let leased = q.take_one().await;
    assert_eq!(leased.leased.deadline, START + Millis(LEASE_MS));
    assert_eq!(
        q.job("A", "A-0").await.view.deadline,
        Some(START + Millis(LEASE_MS))
    );
    assert_eq!(
        q.expire_leases().await.next_deadline,
        Some(START + Millis(LEASE_MS))
    );
}

pub async fn a_late_answer_changes_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.seal("A").await;
    let late = q.take_one().await;
    q.advance(LEASE_MS);
    q.expire_leases().await;
    assert_eq!(
        q.settle(&late, done()).await,
        Settled::Stale,
        "while it is delayed"
    );
    q.advance(1_000);
    q.release_due().await;
    assert_eq!(q.settle(&late, done()).await, Settled::Stale, "while it waits");
    let current = q.take_one().await;
    assert_eq!(
        q.settle(&late, failed("late")).await,
        Settled::Stale,
        "while another runs it"
    );
    assert_eq!(q.job("A", "A-0").await.view.state, JobState::Running);
    assert_eq!(
        q.settle(&current, done()).await,
        Settled::Completed { batch_complete: true }
    );
    assert_eq!(q.settle(&late, done()).await, Settled::Stale, "after its end");
    assert_eq!(q.first_batch("A").await.counts.success, 1);
}

pub async fn a_made_up_answer_changes_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    let LeaseRef { job, fence } = q.take_one().await.leased.lease;
    for fence in [Fence(0), Fence(fence.0 + 1), Fence(u64::MAX)] {
        assert_eq!(
            q.settle_lease(LeaseRef { job, fence }, done()).await,
            Settled::Stale
        );
    }
    for job in [JobSeq(0), JobSeq(job.0 + 1_000), JobSeq(u64::MAX)] {
        assert_eq!(
            q.settle_lease(LeaseRef { job, fence }, done()).await,
            Settled::Stale
        );
    }
    assert_eq!(q.counts().await.running, 1);
    assert_eq!(
        q.settle_lease(LeaseRef { job, fence }, done()).await,
        Settled::Completed {
            batch_complete: false
        }
    );
}

pub async fn an_answer_counts_for_the_jobs_own_group(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.enqueue_n("B", 1).await;
    q.seal("A").await;
    q.seal("B").await;
    let jobs = q.take_all(2).await;
    // The fencing token of one lease with the job of another: a forged pair.
    let forged = LeaseRef {
        job: jobs[1].leased.lease.job,
        fence: jobs[0].leased.lease.fence,
    };
    assert_eq!(q.settle_lease(forged, done()).await, Settled::Stale);
    q.settle(&jobs[0], done()).await;
    assert_eq!(q.first_batch("A").await.counts.success, 1);
    assert_eq!(q.first_batch("B").await.counts.success, 0);
}

pub async fn a_returned_job_goes_first_and_loses_no_attempt(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    let jobs = q.take_all(2).await;
    for job in jobs.iter().rev() {
        assert_eq!(q.settle(job, JobOutcome::Released).await, Settled::Released);
    }
    let again = q.take_all(3).await;
    assert_eq!(ids(&again), ["A-0", "A-1", "A-2"]);
    assert_eq!(again[0].leased.attempt, 1);
    assert_eq!(
        q.settle(&jobs[0], done()).await,
        Settled::Stale,
        "the first lease has ended"
    );
}

pub async fn a_job_that_kills_its_workers_ends(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.seal("A").await;
    for attempt in 1..=4 {
        assert_eq!(q.take_one().await.leased.attempt, attempt);
        q.advance(LEASE_MS);
        q.expire_leases().await;
        q.advance(60_000);
        q.release_due().await;
    }
    assert!(q.take(1).await.is_empty());
    let details = q.job("A", "A-0").await;
    assert_eq!(details.view.dead, Some(DeathReason::AttemptsUsedUp));
    assert!(
        details.error.is_some_and(|error| error.contains("worker")),
        "the error names who was silent"
    );
    let batch = q.first_batch("A").await;
    assert_eq!(batch.counts.failed, 1);
    assert!(!batch.status.is_open(), "its batch is complete");
}

pub async fn an_extended_lease_lives_longer(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    let jobs = q.take_all(2).await;
    q.advance(30_000);
    assert_eq!(
        q.extend(&jobs[0], 20_000).await,
        Extended::Until(START + Millis(50_000))
    );
    q.advance(5_000);
    assert_eq!(q.expire_leases().await.delayed, 1, "only the other one ran out");
    assert_eq!(q.job("A", "A-0").await.view.state, JobState::Running);
    assert_eq!(
        q.settle(&jobs[0], done()).await,
        Settled::Completed {
            batch_complete: false
        }
    );
}

pub async fn a_lease_that_ended_is_not_extended(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], done()).await;
    let leases = jobs.iter().map(|job| job.leased.lease.into()).collect();
    let extended = q
        .call(ExtendParams {
            leases,
            by: Millis(1_000),
        })
        .await;
    assert_eq!(
        extended,
        [Extended::Stale, Extended::Until(START + Millis(1_000))]
    );
    q.advance(1_000);
    q.expire_leases().await;
    assert_eq!(q.extend(&jobs[1], 1_000).await, Extended::Stale);
}

pub async fn expiring_is_bounded_per_call(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 5).await;
    q.take_all(5).await;
    q.advance(LEASE_MS);
    for delayed in [2, 2, 1, 0] {
        assert_eq!(q.call(ExpireLeasesParams { max: 2 }).await.delayed, delayed);
    }
}

pub async fn a_clock_stepped_back_ends_no_lease_and_keeps_none(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.take_one().await;
    q.advance(10_000);
    q.expire_leases().await;
    // An hour back, ten seconds into the lease: 25 s of it are left, not an hour more.
    q.clock.set(START - Millis(3_600_000));
    assert_eq!(q.expire_leases().await.delayed, 0);
    q.advance(LEASE_MS - 10_000 - 1);
    assert_eq!(q.expire_leases().await.delayed, 0);
    q.advance(1);
    assert_eq!(q.expire_leases().await.delayed, 1);
}

pub async fn an_empty_store_says_so(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let outcome = q.lease(10).await;
    assert!(outcome.jobs.is_empty());
    assert_eq!(outcome.stop, Stop::Empty);
    let unheard = q.lease_in("a queue nobody uses", 10).await;
    assert_eq!(unheard.stop, Stop::Empty);
}
