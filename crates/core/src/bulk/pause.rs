//! pause and resume: take a group or a batch out of the order, and put it back.
//!
//! Running jobs continue. Jobs of a paused batch leave their flow one by one as the picker finds them, and
//! return to its head together.

use super::Bulk;
use super::command::{PauseParams, ResumeParams, Scope};
use super::group::Held;
use super::job::Spot;
use super::list::Slot;
use super::refusal::Refusal;
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn pause(&mut self, p: PauseParams, now: Timestamp) -> Result<(), Refusal> {
        match p.scope {
            Scope::Group(id) => {
                let group = self.find_group(&id)?;
                self.groups[group as usize].paused = true;
                self.hold(group, Held::Paused);
                self.rest_flows(group, now);
                self.put_group(group);
            }
            Scope::Batch(group, id) => {
                let slot = self.find_batch(&group, &id)?;
                self.batches[slot as usize].paused = true;
                self.put_batch(slot);
            }
        }
        Ok(())
    }

    pub(super) fn resume(&mut self, p: ResumeParams, now: Timestamp) -> Result<(), Refusal> {
        match p.scope {
            Scope::Group(id) => {
                let group = self.find_group(&id)?;
                self.groups[group as usize].paused = false;
                self.unhold(group, now);
                self.put_group(group);
            }
            Scope::Batch(group, id) => {
                let slot = self.find_batch(&group, &id)?;
                self.batches[slot as usize].paused = false;
                self.unpark(slot, now);
                self.put_batch(slot);
            }
        }
        Ok(())
    }

    pub(super) fn unpark(&mut self, batch: Slot, now: Timestamp) {
        for (flow, mut list) in std::mem::take(&mut self.batches[batch as usize].parked) {
            while let Some(slot) = list.back() {
                list.remove(&mut self.jobs, slot);
                self.jobs[slot as usize].spot = Spot::Returned;
                self.flows[flow as usize]
                    .returned
                    .push_front(&mut self.jobs, slot);
            }
            if self.flows.contains(flow as usize) {
                self.enter_order(flow, now);
            }
        }
    }
}
