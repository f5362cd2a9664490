//! Ids, jobs and outcomes as cases write them, and leased jobs as cases read them.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_core::bulk::{JobOutcome, NewJob, Priority, ThrottleScope};
use tidegate_core::ids::{BatchId, GroupId, JobId, JobType, QueueId};
use tidegate_core::time::Millis;

use crate::bulk::LeasedJob;

pub(super) fn group(name: &str) -> GroupId {
    GroupId::new(name).expect("a case uses valid group ids")
}

pub(super) fn batch(name: &str) -> BatchId {
    BatchId::new(name).expect("a case uses valid batch ids")
}

pub(super) fn job_id(name: &str) -> JobId {
    JobId::new(name).expect("a case uses valid job ids")
}

pub(super) fn kind(name: &str) -> JobType {
    JobType::new(name).expect("a case uses valid job types")
}

pub(super) fn queue(name: &str) -> QueueId {
    QueueId::new(name).expect("a case uses valid queues")
}

/// A job of type `test` and priority normal that may run at once; cases change the relevant fields.
pub(super) fn job(id: &str) -> NewJob {
    NewJob {
        id: job_id(id),
        kind: kind("test"),
        priority: Priority::Normal,
        payload: Bytes::from_static(b"{}"),
        run_at: None,
        expires_at: None,
        cost: 1,
    }
}

/// `n` jobs of a group, named `A-0`, `A-1`, …
pub(super) fn jobs(group: &str, n: usize) -> Vec<NewJob> {
    (0..n).map(|i| job(&format!("{group}-{i}"))).collect()
}

pub(super) fn at_priority(priority: Priority, jobs: Vec<NewJob>) -> Vec<NewJob> {
    jobs.into_iter().map(|job| NewJob { priority, ..job }).collect()
}

pub(super) fn of_kind(name: &str, jobs: Vec<NewJob>) -> Vec<NewJob> {
    let kind = kind(name);
    jobs.into_iter()
        .map(|job| NewJob {
            kind: kind.clone(),
            ..job
        })
        .collect()
}

pub(super) fn done() -> JobOutcome {
    JobOutcome::Completed {
        result: Bytes::from_static(b"ok"),
    }
}

pub(super) fn failed(error: &str) -> JobOutcome {
    JobOutcome::Failed {
        error: error.to_owned(),
    }
}

pub(super) fn throttled() -> JobOutcome {
    JobOutcome::Throttled {
        retry_after: None,
        scope: ThrottleScope::Queue,
    }
}

pub(super) fn throttled_for(ms: u64) -> JobOutcome {
    JobOutcome::Throttled {
        retry_after: Some(Millis(ms)),
        scope: ThrottleScope::Queue,
    }
}

pub(super) fn retry() -> JobOutcome {
    JobOutcome::Retry {
        error: "try again".to_owned(),
        after: None,
        overloaded: false,
    }
}

/// The ids of leased jobs, in the order of the outcome.
pub(super) fn ids(jobs: &[LeasedJob]) -> Vec<&str> {
    jobs.iter().map(|job| job.id.as_str()).collect()
}

/// The groups of leased jobs as one word: `ABAB` for groups `A` and `B`.
pub(super) fn groups(jobs: &[LeasedJob]) -> String {
    jobs.iter().map(|job| job.leased.group.as_str()).collect()
}

/// How many of the jobs each group has.
pub(super) fn per_group(jobs: &[LeasedJob]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for job in jobs {
        *counts.entry(job.leased.group.as_str()).or_default() += 1;
    }
    counts
}
