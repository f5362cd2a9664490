//! Statistics for operators: congestion statistics and history per group, totals of the system.
//!
//! Kept in memory only, and reset when a group has finished its batches.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Bulk;
use super::job::JobState;
use super::list::Slot;
use super::refusal::Refusal;
use crate::ids::GroupId;
use crate::time::{Millis, Timestamp};

#[derive(Debug, Clone, PartialEq)]
pub struct ResetStatsParams {
    pub group: GroupId,
}

#[derive(Debug, Clone, Default)]
pub(super) struct CongestionStats {
    pub(super) total_throttle_count: u64,
    pub(super) last_throttle_at: Option<Timestamp>,
    pub(super) last_backoff: Millis,
    pub(super) completed: u64,
    /// Throttles of completed jobs only, so that the average covers no others.
    pub(super) completed_throttles: u64,
    pub(super) history: VecDeque<CongestionSnapshot>,
}

/// One entry of a group's congestion history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestionSnapshot {
    pub timestamp: Timestamp,
    pub non_ready_count: u32,
    pub backoff_ms: Millis,
    pub rate_limit_speed: u64,
}

impl CongestionStats {
    /// Mean throttles of completed jobs, to two decimals.
    pub(super) fn avg_throttle_per_job(&self) -> f64 {
        let hundredths = (self.completed_throttles * 100)
            .checked_div(self.completed)
            .unwrap_or(0);
        hundredths as f64 / 100.0
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    /// Jobs per state.
    pub(super) counts: [u64; 6],
    pub(super) started: u64,
    pub(super) most_started_per_window: u64,
    pub(super) throttles: u64,
    pub(super) saved_spins: u64,
}

impl Totals {
    pub(super) fn unfinished(&self) -> u64 {
        [
            JobState::Waiting,
            JobState::Ready,
            JobState::Running,
            JobState::Delayed,
        ]
        .iter()
        .map(|&state| self.counts[state as usize])
        .sum()
    }
}

impl Bulk {
    /// Adds an entry for every group that has throttled jobs, or had some in its last entry. Drops entries by
    /// their age, not by their number. Returns how many entries it added.
    pub(super) fn snapshot_congestion(&mut self, now: Timestamp) -> u32 {
        let oldest = now - self.config.congestion.stats_retention_ms;
        let mut added = 0;
        let slots: Vec<Slot> = self.groups_by_seq.values().copied().collect();
        for slot in slots {
            let (backoff_ms, speed) = (self.next_backoff(slot).wait, self.speed(slot));
            let group = &mut self.groups[slot as usize];
            let history = &mut group.stats.history;
            while history.front().is_some_and(|entry| entry.timestamp < oldest) {
                history.pop_front();
            }
            if group.congested > 0 || history.back().is_some_and(|last| last.non_ready_count > 0) {
                history.push_back(CongestionSnapshot {
                    timestamp: now,
                    non_ready_count: group.congested,
                    backoff_ms,
                    rate_limit_speed: speed,
                });
                added += 1;
            }
        }
        added
    }

    pub(super) fn reset_stats(&mut self, p: ResetStatsParams) -> Result<(), Refusal> {
        let group = self.find_group(&p.group)?;
        self.groups[group as usize].stats = CongestionStats::default();
        Ok(())
    }
}
