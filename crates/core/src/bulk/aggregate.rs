//! Aggregation: one aggregator claims a complete batch, folds its results, decides it once and calls its
//! callback.
//!
//! If an aggregator dies, its claim expires and another takes over. The state machine rejects the late result
//! of the first.

use super::Bulk;
use super::command::{
    Aggregation, BatchStatus, ClaimAggregationParams, ConfirmCompletionParams, FinishAggregationParams,
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
                let batch = &mut self.batches[slot as usize];
                batch.claim = Some(claim);
                batch.claimable_from = now + p.claim_for;
                Aggregation {
                    group: self.groups[batch.group as usize].id.clone(),
                    batch: batch.id.clone(),
                    claim,
                    counts: batch.counts,
                    errors: batch.errors.clone(),
                    keep_results: batch.options.keep_results,
                    callback: batch.options.callback.clone(),
                    finished: batch.status.is_finished().then_some(batch.status),
                }
            })
            .collect()
    }

    pub(super) fn finish_aggregation(
        &mut self,
        p: FinishAggregationParams,
        now: Timestamp,
    ) -> Result<BatchStatus, Refusal> {
        let slot = self.find_batch(&p.group, &p.batch)?;
        let batch = &mut self.batches[slot as usize];
        if batch.claim != Some(p.claim) || batch.status != BatchStatus::Aggregating {
            return Err(Refusal::ClaimLost(p.batch));
        }
        let (counts, threshold) = (batch.counts, u64::from(batch.options.failure_threshold_percent));
        let too_many = counts.failed > 0 && counts.failed * 100 >= counts.total * threshold;
        batch.status = match p.summary {
            Ok(summary) => {
                batch.summary = Some(summary);
                match () {
                    () if batch.cancelled => BatchStatus::Cancelled,
                    () if too_many => BatchStatus::Failed,
                    () => BatchStatus::Completed,
                }
            }
            Err(error) => {
                batch.keep_error(&format!("aggregation failed: {error}"));
                if batch.cancelled {
                    BatchStatus::Cancelled
                } else {
                    BatchStatus::Failed
                }
            }
        };
        batch.finished_at = Some(now);
        let (status, group) = (batch.status, batch.group);
        self.put_batch(slot);
        self.forget_dropped(slot);
        // A group without unfinished jobs starts its next batch with clean statistics.
        if !self.groups[group as usize].is_active() {
            self.groups[group as usize].stats = CongestionStats::default();
        }
        Ok(status)
    }

    pub(super) fn confirm_completion(&mut self, p: ConfirmCompletionParams) -> Result<(), Refusal> {
        let slot = self.find_batch(&p.group, &p.batch)?;
        let batch = &mut self.batches[slot as usize];
        let Some(finished_at) = batch.finished_at else {
            return Err(Refusal::ClaimLost(p.batch));
        };
        if !batch.confirmed {
            batch.confirmed = true;
            self.aggregating.remove(&(batch.claimable_from, batch.seq, slot));
            self.finished_batches.insert((finished_at, batch.seq, slot));
            self.put_batch(slot);
        }
        Ok(())
    }
}
