//! cancel: ends every job of a group or an action that is not running, a bounded number per call.

use super::Bulk;
use super::command::{CancelOutcome, CancelParams, DeathReason, Target};
use super::job::Phase;
use super::list::{ACTION, NIL, Slot};
use super::refusal::Refusal;
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn cancel(&mut self, p: CancelParams, now: Timestamp) -> Result<CancelOutcome, Refusal> {
        let actions = match &p.target {
            Target::Group(id) => {
                let group = self.find_group(id)?;
                self.groups[group as usize].actions.clone()
            }
            Target::Action(group, id) => vec![self.find_action(group, id)?],
        };
        let mut out = CancelOutcome::default();
        for &slot in &actions {
            self.begin_cancelling(slot, now);
        }
        let mut budget = p.max;
        for &slot in &actions {
            self.cancel_jobs(slot, &mut budget, &mut out, now);
        }
        out.more = actions.iter().any(|&slot| self.is_cancelling(slot));
        Ok(out)
    }

    fn is_cancelling(&self, slot: Slot) -> bool {
        self.cancelling.contains(&(self.actions[slot as usize].seq, slot))
    }

    /// From here on none of its jobs starts: the picker ends those it meets.
    fn begin_cancelling(&mut self, slot: Slot, now: Timestamp) {
        let action = &mut self.actions[slot as usize];
        // A decided action may have replayed jobs.
        if action.cancelled || !action.status.is_open() && action.unfinished == 0 {
            return;
        }
        action.cancelled = true;
        action.cancel_cursor = action.jobs.head;
        self.cancelling.insert((action.seq, slot));
        if action.sealed {
            self.put_action(slot);
        } else {
            self.seal(slot, now);
        }
    }

    /// Goes on with cancellations that were begun, also before a restart.
    pub(super) fn continue_cancelling(&mut self, max: u32, now: Timestamp) {
        let mut budget = max;
        while budget > 0
            && let Some(&(_, slot)) = self.cancelling.first()
        {
            self.cancel_jobs(slot, &mut budget, &mut CancelOutcome::default(), now);
        }
    }

    fn cancel_jobs(&mut self, action: Slot, budget: &mut u32, out: &mut CancelOutcome, now: Timestamp) {
        if !self.is_cancelling(action) {
            return;
        }
        while *budget > 0 {
            let slot = self.actions[action as usize].cancel_cursor;
            if slot == NIL {
                self.cancelling
                    .remove(&(self.actions[action as usize].seq, action));
                return;
            }
            *budget -= 1;
            self.actions[action as usize].cancel_cursor = self.jobs[slot as usize].links[ACTION].next;
            match self.jobs[slot as usize].phase {
                Phase::Done | Phase::Dead => {}
                Phase::Leased => out.running += 1,
                Phase::Waiting | Phase::Ready | Phase::Delayed => {
                    self.detach(slot);
                    self.die(slot, DeathReason::Cancelled, String::new(), now);
                    out.cancelled += 1;
                }
            }
        }
    }
}
