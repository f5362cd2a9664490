//! What a stream says, by names: two exports of the same content say the same, whatever their numbers are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_core::bulk::record::{
    ActionRecord, ActionSeq, GroupRecord, GroupSeq, JobRecord, JobState, LimitsRecord, StoredPhase,
};
use tidegate_core::bulk::{ActionCounts, ActionStatus, DeathReason, Fence, JobSeq};
use tidegate_core::time::Timestamp;
use tidegate_store::transfer::{self, Line};

/// Group and action.
pub(crate) type Action = (String, String);
/// Group and job.
pub(crate) type Job = (String, String);

#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) limits: Option<LimitsRecord>,
    pub(crate) groups: BTreeMap<String, GroupRecord>,
    pub(crate) actions: BTreeMap<Action, ActionRecord>,
    pub(crate) jobs: BTreeMap<Job, (Action, JobRecord, Option<JobState>)>,
    /// The jobs of each group, in the order of their numbers.
    pub(crate) order: BTreeMap<String, Vec<String>>,
}

/// Numbers are left out. What a store may or may not have written down is made equal: a delay that is over, the
/// status and the errors of an open action, which follow from its jobs.
pub(crate) fn said(stream: &[u8], now: Timestamp) -> Said {
    let mut said = Said {
        limits: None,
        groups: BTreeMap::new(),
        actions: BTreeMap::new(),
        jobs: BTreeMap::new(),
        order: BTreeMap::new(),
    };
    let (mut groups, mut actions) = (HashMap::new(), HashMap::new());
    let mut numbered: Vec<(JobSeq, Job)> = Vec::new();
    transfer::read(stream, |line| {
        match line {
            Line::Limits(limits) => assert!(said.limits.replace(limits).is_none(), "they are there once"),
            Line::Group(mut group) => {
                let id = group.id.as_str().to_owned();
                assert!(
                    groups.insert(group.seq, id.clone()).is_none(),
                    "a number is given once"
                );
                group.seq = GroupSeq(0);
                assert!(said.groups.insert(id, group).is_none(), "a group is there once");
            }
            Line::Action(mut action) => {
                let name = (groups[&action.group].clone(), action.id.as_str().to_owned());
                assert!(actions.insert(action.seq, name.clone()).is_none());
                (action.seq, action.group) = (ActionSeq(0), GroupSeq(0));
                if action.status.is_open() {
                    action.status = ActionStatus::Created;
                }
                assert!(said.actions.insert(name, action).is_none());
            }
            Line::Job { mut job, state } => {
                let action = actions[&job.action].clone();
                let name = (action.0.clone(), job.id.as_str().to_owned());
                numbered.push((job.seq, name.clone()));
                (job.seq, job.action) = (JobSeq(0), ActionSeq(0));
                let state = state.map(|state| settled(state, now));
                let state = state.filter(|state| !follows(&job, state));
                assert!(said.jobs.insert(name, (action, job, state)).is_none());
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
        said.order.entry(group).or_default().push(job);
    }
    let mut errors: HashMap<&Action, BTreeSet<String>> = HashMap::new();
    for (action, _, state) in said.jobs.values() {
        if let Some(JobState {
            phase: StoredPhase::Dead { reason, error, .. },
            ..
        }) = state
            && *reason != DeathReason::Cancelled
        {
            errors.entry(action).or_default().insert(error.clone());
        }
    }
    for (name, action) in &mut said.actions {
        if action.status.is_open() {
            let mut all = errors.remove(name).unwrap_or_default();
            all.extend(action.errors.drain(..));
            action.errors.extend(all);
        }
    }
    said
}

fn settled(mut state: JobState, now: Timestamp) -> JobState {
    assert_eq!(state.fence, Fence(0), "fences are not part of a stream");
    if matches!(state.phase, StoredPhase::Delayed { due, .. } if due <= now) {
        state.phase = StoredPhase::Waiting;
    }
    state
}

/// Says no more than that the job has not started yet.
fn follows(job: &JobRecord, state: &JobState) -> bool {
    state.phase == StoredPhase::Waiting
        && state.attempts == 0
        && state.throttles == 0
        && state.expires == job.expires_at.is_some()
}

impl Said {
    pub(crate) fn is_finished(&self, job: &Job) -> bool {
        let state = self.jobs[job].2.as_ref().map(|state| &state.phase);
        matches!(state, Some(StoredPhase::Done { .. } | StoredPhase::Dead { .. }))
    }

    pub(crate) fn dead(&self) -> BTreeSet<Job> {
        let is_dead = |(_, _, state): &(Action, JobRecord, Option<JobState>)| {
            let phase = state.as_ref().map(|state| &state.phase);
            matches!(phase, Some(StoredPhase::Dead { .. }))
        };
        let dead = self.jobs.iter().filter(|(_, job)| is_dead(job));
        dead.map(|(name, _)| name.clone()).collect()
    }

    /// Jobs that will run: not finished, not cancelled, not expired before `late`.
    pub(crate) fn to_run(&self, late: Timestamp) -> BTreeSet<Job> {
        let runs = |(name, (action, job, state)): (&Job, &(Action, JobRecord, Option<JobState>))| {
            let expires = state.as_ref().is_none_or(|state| state.expires);
            let expired = expires && job.expires_at.is_some_and(|at| at < late);
            let open = !self.is_finished(name) && !self.actions[action].cancelled && !expired;
            open.then(|| name.clone())
        };
        self.jobs.iter().filter_map(runs).collect()
    }

    /// What an action counts as it stands.
    pub(crate) fn counts(&self, name: &Action) -> ActionCounts {
        let action = &self.actions[name];
        let mut counts = action.counts;
        if action.status.is_open() {
            for (_, _, state) in self.jobs.values().filter(|(of, ..)| of == name) {
                counts.total += 1;
                match state.as_ref().map(|state| &state.phase) {
                    Some(StoredPhase::Done { .. }) => counts.success += 1,
                    Some(StoredPhase::Dead { .. }) => counts.failed += 1,
                    _ => {}
                }
            }
        }
        counts
    }
}
