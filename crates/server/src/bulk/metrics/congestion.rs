//! The congestion of the busiest groups, as the sampler last read it.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::bulk::congestion::CongestionLevel;
use tidegate_core::bulk::views::{CongestionState, GroupView, Query, View};
use tidegate_core::ids::GroupId;
use tidegate_core::time::Timestamp;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};

/// Limit: groups that one reading covers. The remaining ones follow a second later.
const AT_ONCE: usize = 50;
/// How long a reading waits for the store. After a timeout the next one follows a second later.
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Congestion {
    states: HashMap<GroupId, CongestionState>,
    turn: usize,
}

impl Congestion {
    /// Selects the groups to read: those among the busiest that have delayed jobs, or had throttled ones. The others are
    /// not congested. Groups that are no longer among the busiest lose their state.
    pub(crate) fn wanted(&mut self, top: &[&GroupView]) -> Vec<GroupId> {
        let wanted = top
            .iter()
            .filter(|group| group.counts.delayed > 0 || self.states.contains_key(&group.id));
        let mut wanted: Vec<GroupId> = wanted.map(|group| group.id.clone()).collect();
        self.states
            .retain(|id, _| top.iter().any(|group| group.id == *id));
        if wanted.len() > AT_ONCE {
            self.turn %= wanted.len();
            wanted.rotate_left(self.turn);
            wanted.truncate(AT_ONCE);
            self.turn += AT_ONCE;
        }
        wanted
    }

    /// Stores a state. Returns it with the number of throttles since the group's last state, or, for a new group, since
    /// this process started.
    pub(crate) fn put(&mut self, state: CongestionState, began: Timestamp) -> (CongestionState, u64) {
        let total = state.total_throttle_count;
        let before = match self.states.get(&state.group) {
            // The count restarts at zero when a group has finished its batches.
            Some(known) if known.total_throttle_count > total => 0,
            Some(known) => known.total_throttle_count,
            None if state.last_throttle_at.is_some_and(|at| at >= began) => 0,
            None => total,
        };
        let level_before = self.states.get(&state.group).map(|known| known.congestion_level);
        report(level_before.unwrap_or_default(), &state);
        self.states.insert(state.group.clone(), state.clone());
        (state, total - before)
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = &CongestionState> {
        self.states.values()
    }
}

/// Logs a group that becomes more congested than an operator can ignore, and the end of that.
fn report(before: CongestionLevel, state: &CongestionState) {
    let now = state.congestion_level;
    let (group, delayed, backoff) = (&state.group, state.non_ready_count, state.current_backoff_ms);
    let speed = state.rate_limit_speed;
    if now > before && now >= CongestionLevel::High {
        tracing::warn!(
            %group, level = ?now, delayed, %backoff, speed,
            "the group is congested: more of its jobs are throttled than its share of the rate can start soon"
        );
    } else if now < CongestionLevel::High && before >= CongestionLevel::High {
        tracing::info!(%group, level = ?now, delayed, "the group is no longer congested");
    }
}

/// Reads the states of these groups. Omits groups that the store no longer knows, and all of them if it is unavailable.
pub(crate) async fn read_states(store: &dyn BulkStore, groups: Vec<GroupId>) -> Vec<CongestionState> {
    let calls = groups
        .into_iter()
        .map(|group| store.call(Query::Congestion(group)));
    let answers = tokio::time::timeout(TIMEOUT, futures_util::future::join_all(calls)).await;
    let states = answers.into_iter().flatten().filter_map(|answer| match answer {
        Ok(Ok(View::Congestion(state))) => Some(state),
        _ => None,
    });
    states.collect()
}
