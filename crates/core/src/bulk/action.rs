//! An action: one bulk submission of a group. Opened, fed, sealed; complete when every job is finished.

use bytes::Bytes;

use super::Bulk;
use super::command::{
    ActionCounts, ActionOptions, ActionStatus, OpenActionParams, Opened, SealActionParams, Sealed,
};
use super::list::{ACTION, List, NIL, QUEUE, Slot};
use super::record::{ActionRecord, ActionSeq, Change};
use super::refusal::Refusal;
use crate::ids::{ActionId, GroupId};
use crate::time::Timestamp;

/// Limit: error texts kept per action.
const MAX_ERRORS: usize = 10;

/// Limit: bytes of a callback's name.
const MAX_CALLBACK_BYTES: usize = 256;

impl ActionOptions {
    /// Whether every option is within its range.
    pub fn check(&self) -> Result<(), Refusal> {
        if !(1..=100).contains(&self.failure_threshold_percent) {
            return Err(Refusal::FailureThreshold(self.failure_threshold_percent));
        }
        match self.callback.as_deref().map(str::len) {
            Some(len) if !(1..=MAX_CALLBACK_BYTES).contains(&len) => Err(Refusal::CallbackName {
                len: len as u64,
                max: MAX_CALLBACK_BYTES as u64,
            }),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Action {
    pub(super) seq: ActionSeq,
    pub(super) group: Slot,
    pub(super) id: ActionId,
    pub(super) options: ActionOptions,
    pub(super) status: ActionStatus,
    pub(super) sealed: bool,
    pub(super) paused: bool,
    pub(super) cancelled: bool,
    pub(super) implicit: bool,
    pub(super) created_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) counts: ActionCounts,
    /// The part of the counts whose jobs are no longer kept.
    pub(super) dropped: ActionCounts,
    pub(super) errors: Vec<String>,
    pub(super) summary: Option<Bytes>,
    /// The completion callback was called.
    pub(super) confirmed: bool,
    /// The watcher that has it, and until when nobody else may.
    pub(super) claim: Option<u64>,
    pub(super) claimable_from: Timestamp,
    /// Kept jobs, in the order in which they came.
    pub(super) jobs: List<ACTION>,
    /// Kept jobs that are not finished.
    pub(super) unfinished: u32,
    /// While paused: jobs taken out of their lines, per line.
    pub(super) parked: Vec<(Slot, List<QUEUE>)>,
    /// While being cancelled: the next job to look at.
    pub(super) cancel_cursor: Slot,
}

impl Action {
    /// The first errors that differ: a thousand equal ones tell no more than one.
    pub(super) fn keep_error(&mut self, error: &str) {
        if self.errors.len() < MAX_ERRORS && !self.errors.iter().any(|kept| kept == error) {
            self.errors.push(error.to_owned());
        }
    }

    pub(super) fn record(&self, group: super::record::GroupSeq) -> ActionRecord {
        ActionRecord {
            seq: self.seq,
            group,
            id: self.id.clone(),
            options: self.options.clone(),
            status: self.status,
            sealed: self.sealed,
            paused: self.paused,
            cancelled: self.cancelled,
            implicit: self.implicit,
            created_at: self.created_at,
            finished_at: self.finished_at,
            counts: if self.status.is_open() {
                self.dropped
            } else {
                self.counts
            },
            errors: self.errors.clone(),
            summary: self.summary.clone(),
            confirmed: self.confirmed,
        }
    }
}

impl Bulk {
    pub(super) fn find_action(&self, group: &GroupId, action: &ActionId) -> Result<Slot, Refusal> {
        let slot = self.find_group(group)?;
        self.action_slots
            .get(&(slot, action.clone()))
            .copied()
            .ok_or_else(|| Refusal::UnknownAction {
                group: group.clone(),
                action: action.clone(),
            })
    }

    pub(super) fn put_action(&mut self, slot: Slot) {
        let action = &self.actions[slot as usize];
        let group = self.groups[action.group as usize].seq;
        self.changes.push(Change::PutAction(action.record(group)));
    }

    pub(super) fn open_action(&mut self, p: OpenActionParams, now: Timestamp) -> Result<Opened, Refusal> {
        p.options.check()?;
        let group = self.find_or_create_group(&p.group, p.base_priority, now)?;
        if let Some(&slot) = self.action_slots.get(&(group, p.action.clone())) {
            let action = &self.actions[slot as usize];
            return match () {
                () if !action.status.is_open() => Err(Refusal::ActionFinished(p.action)),
                () if action.cancelled => Err(Refusal::Cancelled(p.action)),
                () if action.sealed => Err(Refusal::Sealed(p.action)),
                () => Ok(Opened::Already),
            };
        }
        self.create_action(group, p.action, p.options, false, now);
        Ok(Opened::New)
    }

    pub(super) fn create_action(
        &mut self,
        group: Slot,
        id: ActionId,
        options: ActionOptions,
        implicit: bool,
        now: Timestamp,
    ) -> Slot {
        let record = ActionRecord {
            seq: ActionSeq(self.give_seq()),
            group: self.groups[group as usize].seq,
            id,
            options,
            status: ActionStatus::Created,
            sealed: false,
            paused: false,
            cancelled: false,
            implicit,
            created_at: now,
            finished_at: None,
            counts: ActionCounts::default(),
            errors: Vec::new(),
            summary: None,
            confirmed: false,
        };
        let slot = self.insert_action(group, &record);
        self.changes.push(Change::PutAction(record));
        slot
    }

    pub(super) fn insert_action(&mut self, group: Slot, record: &ActionRecord) -> Slot {
        let slot = self.actions.insert(Action {
            seq: record.seq,
            group,
            id: record.id.clone(),
            options: record.options.clone(),
            status: record.status,
            sealed: record.sealed,
            paused: record.paused,
            cancelled: record.cancelled,
            implicit: record.implicit,
            created_at: record.created_at,
            finished_at: record.finished_at,
            counts: record.counts,
            dropped: record.counts,
            errors: record.errors.clone(),
            summary: record.summary.clone(),
            confirmed: record.confirmed,
            claim: None,
            claimable_from: Timestamp(0),
            jobs: List::default(),
            unfinished: 0,
            parked: Vec::new(),
            cancel_cursor: NIL,
        }) as Slot;
        self.action_slots.insert((group, record.id.clone()), slot);
        let entry = &mut self.groups[group as usize];
        entry.actions.push(slot);
        if !record.sealed {
            entry.open_action = Some(slot);
        }
        slot
    }

    pub(super) fn seal_action(&mut self, p: SealActionParams, now: Timestamp) -> Result<Sealed, Refusal> {
        let slot = match &p.action {
            Some(action) => self.find_action(&p.group, action)?,
            None => {
                let group = self.find_group(&p.group)?;
                self.groups[group as usize]
                    .open_action
                    .ok_or(Refusal::NoOpenAction(p.group))?
            }
        };
        let action_complete = self.seal(slot, now);
        let action = &self.actions[slot as usize];
        Ok(Sealed {
            action: action.id.clone(),
            total_jobs: action.counts.total,
            action_complete,
        })
    }

    /// Seals; true if that completed the action.
    pub(super) fn seal(&mut self, slot: Slot, now: Timestamp) -> bool {
        let action = &mut self.actions[slot as usize];
        if action.sealed {
            return false;
        }
        action.sealed = true;
        let group = action.group;
        let others = self.groups[group as usize].actions.iter().rev().copied();
        let open = others
            .into_iter()
            .find(|&other| !self.actions[other as usize].sealed);
        self.groups[group as usize].open_action = open;
        let complete = self.complete_if_done(slot, now);
        if !complete {
            self.put_action(slot);
        }
        complete
    }

    /// The one way to AGGREGATING: sealed, every job finished, and not there yet.
    pub(super) fn complete_if_done(&mut self, slot: Slot, now: Timestamp) -> bool {
        let action = &mut self.actions[slot as usize];
        let counts = action.counts;
        if !action.sealed || !action.status.is_open() || counts.success + counts.failed < counts.total {
            return false;
        }
        action.status = ActionStatus::Aggregating;
        action.claimable_from = now;
        self.aggregating.insert((now, action.seq, slot));
        self.signals.aggregate = true;
        self.put_action(slot);
        true
    }

    /// Raises the status to DISPATCHED or RUNNING; never lowers it.
    pub(super) fn raise_status(&mut self, slot: Slot, status: ActionStatus) {
        let action = &mut self.actions[slot as usize];
        if action.status < status {
            action.status = status;
        }
    }
}
