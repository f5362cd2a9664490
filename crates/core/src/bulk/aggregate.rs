//! Aggregation: a complete action is claimed by one watcher, folded, decided once, and its callback called.
//!
//! A watcher that dies loses its claim, and another takes over; one that comes back late is refused.

use super::Bulk;
use super::command::{
    ActionStatus, Aggregation, ClaimAggregationParams, ConfirmCompletionParams, FinishAggregationParams,
};
use super::refusal::Refusal;
use super::stats::CongestionStats;
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn claim_aggregation(
        &mut self,
        p: ClaimAggregationParams,
        now: Timestamp,
    ) -> Vec<Aggregation> {
        let free: Vec<_> = self
            .aggregating
            .iter()
            .take_while(|&&(from, ..)| from <= now)
            .take(p.max as usize)
            .copied()
            .collect();
        free.into_iter()
            .map(|entry @ (_, seq, slot)| {
                let claim = self.give_seq();
                self.aggregating.remove(&entry);
                self.aggregating.insert((now + p.claim_for, seq, slot));
                let action = &mut self.actions[slot as usize];
                action.claim = Some(claim);
                action.claimable_from = now + p.claim_for;
                Aggregation {
                    group: self.groups[action.group as usize].id.clone(),
                    action: action.id.clone(),
                    claim,
                    counts: action.counts,
                    errors: action.errors.clone(),
                    keep_results: action.options.keep_results,
                    callback: action.options.callback.clone(),
                    finished: action.status.is_finished().then_some(action.status),
                }
            })
            .collect()
    }

    pub(super) fn finish_aggregation(
        &mut self,
        p: FinishAggregationParams,
        now: Timestamp,
    ) -> Result<ActionStatus, Refusal> {
        let slot = self.find_action(&p.group, &p.action)?;
        let action = &mut self.actions[slot as usize];
        if action.claim != Some(p.claim) || action.status != ActionStatus::Aggregating {
            return Err(Refusal::ClaimLost(p.action));
        }
        let (counts, threshold) = (action.counts, u64::from(action.options.failure_threshold_percent));
        let too_many = counts.failed > 0 && counts.failed * 100 >= counts.total * threshold;
        action.status = match p.summary {
            Ok(summary) => {
                action.summary = Some(summary);
                if too_many {
                    ActionStatus::Failed
                } else {
                    ActionStatus::Completed
                }
            }
            Err(error) => {
                action.keep_error(&format!("aggregation failed: {error}"));
                ActionStatus::Failed
            }
        };
        action.finished_at = Some(now);
        let (status, group) = (action.status, action.group);
        self.put_action(slot);
        // A group that is done starts its next action with clean statistics.
        if !self.groups[group as usize].is_active() {
            self.groups[group as usize].stats = CongestionStats::default();
        }
        Ok(status)
    }

    pub(super) fn confirm_completion(&mut self, p: ConfirmCompletionParams) -> Result<(), Refusal> {
        let slot = self.find_action(&p.group, &p.action)?;
        let action = &mut self.actions[slot as usize];
        let Some(finished_at) = action.finished_at else {
            return Err(Refusal::ClaimLost(p.action));
        };
        if !action.confirmed {
            action.confirmed = true;
            self.aggregating
                .remove(&(action.claimable_from, action.seq, slot));
            self.finished_actions.insert((finished_at, action.seq, slot));
            self.put_action(slot);
        }
        Ok(())
    }
}
