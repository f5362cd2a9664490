//! The content of an export by names: two exports of the same content are equal, whatever their numbers are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_core::bulk::record::{
    BatchRecord, BatchSeq, GroupRecord, GroupSeq, JobProgress, JobRecord, LimitsRecord, RunRecord,
    StoredState,
};
use tidegate_core::bulk::{BatchCounts, BatchStatus, DeathReason, Fence, JobSeq};
use tidegate_core::time::Timestamp;
use tidegate_store::bulk::transfer::{self, Line};

/// Group and batch.
pub(crate) type Batch = (String, String);
/// Group and job.
pub(crate) type Job = (String, String);

#[derive(Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) limits: Option<LimitsRecord>,
    pub(crate) groups: BTreeMap<String, GroupRecord>,
    pub(crate) batches: BTreeMap<Batch, BatchRecord>,
    pub(crate) jobs: BTreeMap<Job, (Batch, JobRecord, Option<JobProgress>)>,
    /// The recorded runs of each job that has any.
    pub(crate) runs: BTreeMap<Job, Vec<RunRecord>>,
    /// The jobs of each group, in the order of their numbers.
    pub(crate) order: BTreeMap<String, Vec<String>>,
}

/// Omits numbers, and normalizes what a store may or may not have persisted: a delay that is over, and the status and the
/// errors of an open batch, which follow from its jobs.
pub(crate) fn content_of(stream: &[u8], now: Timestamp) -> Content {
    let mut content = Content {
        limits: None,
        groups: BTreeMap::new(),
        batches: BTreeMap::new(),
        jobs: BTreeMap::new(),
        runs: BTreeMap::new(),
        order: BTreeMap::new(),
    };
    let (mut groups, mut batches) = (HashMap::new(), HashMap::new());
    let mut numbered: Vec<(JobSeq, Job)> = Vec::new();
    transfer::read(stream, |line| {
        match line {
            Line::Limits(limits) => assert!(content.limits.replace(limits).is_none(), "they are there once"),
            Line::Group(mut group) => {
                let id = group.id.as_str().to_owned();
                assert!(
                    groups.insert(group.seq, id.clone()).is_none(),
                    "a number is given once"
                );
                group.seq = GroupSeq(0);
                assert!(
                    content.groups.insert(id, group).is_none(),
                    "a group is there once"
                );
            }
            Line::Batch(mut batch) => {
                let name = (groups[&batch.group].clone(), batch.id.as_str().to_owned());
                assert!(batches.insert(batch.seq, name.clone()).is_none());
                (batch.seq, batch.group) = (BatchSeq(0), GroupSeq(0));
                if batch.status.is_open() {
                    batch.status = BatchStatus::Created;
                }
                assert!(content.batches.insert(name, batch).is_none());
            }
            Line::Job { mut job, state, runs } => {
                let batch = batches[&job.batch].clone();
                let name = (batch.0.clone(), job.id.as_str().to_owned());
                numbered.push((job.seq, name.clone()));
                (job.seq, job.batch) = (JobSeq(0), BatchSeq(0));
                if !runs.is_empty() {
                    content.runs.insert(name.clone(), runs);
                }
                job.priority = state.as_ref().map_or(job.priority, |state| state.priority);
                let state = state.map(|state| settled(state, now));
                let state = state.filter(|state| !follows(&job, state));
                assert!(content.jobs.insert(name, (batch, job, state)).is_none());
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    })
    .unwrap();
    numbered.sort();
    assert!(
        numbered.windows(2).all(|two| two[0].0 != two[1].0),
        "numbers are given once"
    );
    for (_, (group, job)) in numbered {
        content.order.entry(group).or_default().push(job);
    }
    let mut errors: HashMap<&Batch, BTreeSet<String>> = HashMap::new();
    for (batch, _, state) in content.jobs.values() {
        if let Some(JobProgress {
            state: StoredState::Dead { reason, error, .. },
            ..
        }) = state
            && *reason != DeathReason::Cancelled
        {
            errors.entry(batch).or_default().insert(error.clone());
        }
    }
    for (name, batch) in &mut content.batches {
        if batch.status.is_open() {
            let mut all = errors.remove(name).unwrap_or_default();
            all.extend(batch.errors.drain(..));
            batch.errors.extend(all);
        }
    }
    content
}

fn settled(mut state: JobProgress, now: Timestamp) -> JobProgress {
    assert_eq!(state.fence, Fence(0), "fences are not part of a stream");
    if matches!(state.state, StoredState::Delayed { due, .. } if due <= now) {
        state.state = StoredState::Waiting;
    }
    state
}

/// Means only that the job has not started yet.
fn follows(job: &JobRecord, state: &JobProgress) -> bool {
    state.state == StoredState::Waiting
        && state.attempts == 0
        && state.throttles == 0
        && state.expires == job.expires_at.is_some()
}

impl Content {
    pub(crate) fn is_finished(&self, job: &Job) -> bool {
        let state = self.jobs[job].2.as_ref().map(|state| &state.state);
        matches!(
            state,
            Some(StoredState::Completed { .. } | StoredState::Dead { .. })
        )
    }

    pub(crate) fn dead(&self) -> BTreeSet<Job> {
        let is_dead = |(_, _, state): &(Batch, JobRecord, Option<JobProgress>)| {
            let state = state.as_ref().map(|state| &state.state);
            matches!(state, Some(StoredState::Dead { .. }))
        };
        let dead = self.jobs.iter().filter(|(_, job)| is_dead(job));
        dead.map(|(name, _)| name.clone()).collect()
    }

    /// Jobs that will run: not finished, not cancelled, not expired before `late`.
    pub(crate) fn to_run(&self, late: Timestamp) -> BTreeSet<Job> {
        let runs = |(name, (batch, job, state)): (&Job, &(Batch, JobRecord, Option<JobProgress>))| {
            let expires = state.as_ref().is_none_or(|state| state.expires);
            let expired = expires && job.expires_at.is_some_and(|at| at < late);
            let open = !self.is_finished(name) && !self.batches[batch].cancelled && !expired;
            open.then(|| name.clone())
        };
        self.jobs.iter().filter_map(runs).collect()
    }

    /// The current counts of a batch.
    pub(crate) fn counts(&self, name: &Batch) -> BatchCounts {
        let batch = &self.batches[name];
        let mut counts = batch.counts;
        if batch.status.is_open() {
            for (_, _, state) in self.jobs.values().filter(|(of, ..)| of == name) {
                counts.total += 1;
                match state.as_ref().map(|state| &state.state) {
                    Some(StoredState::Completed { .. }) => counts.success += 1,
                    Some(StoredState::Dead { .. }) => counts.failed += 1,
                    _ => {}
                }
            }
        }
        counts
    }
}
