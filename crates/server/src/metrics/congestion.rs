//! How congested the groups with most to do are, as the sampler last saw it.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::bulk::views::{CongestionState, GroupView, Query, View};
use tidegate_core::ids::GroupId;
use tidegate_core::time::Timestamp;
use tidegate_store::{Store, StoreExt};

/// Limit: groups asked for at once. With more, those that were not asked have their turn a second later.
const AT_ONCE: usize = 50;
/// A store that does not answer within this is asked again a second later.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Congestion {
    states: HashMap<GroupId, CongestionState>,
    turn: usize,
}

impl Congestion {
    /// Whom to ask for: groups of the top that have delayed jobs, or had throttled ones. The others are not
    /// congested. Groups that left the top are forgotten.
    pub(super) fn wanted(&mut self, top: &[&GroupView]) -> Vec<GroupId> {
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

    /// Keeps what was seen; with it, how often the group was throttled since it was last seen, or, of a group
    /// that is seen for the first time, since this process began.
    pub(super) fn put(&mut self, state: CongestionState, began: Timestamp) -> (CongestionState, u64) {
        let total = state.total_throttle_count;
        let before = match self.states.get(&state.group) {
            // Counts begin again when a group has finished its batches.
            Some(known) if known.total_throttle_count > total => 0,
            Some(known) => known.total_throttle_count,
            None if state.last_throttle_at.is_some_and(|at| at >= began) => 0,
            None => total,
        };
        self.states.insert(state.group.clone(), state.clone());
        (state, total - before)
    }

    pub(super) fn states(&self) -> impl Iterator<Item = &CongestionState> {
        self.states.values()
    }
}

/// What the store tells of these groups; nothing of those that it does not know any more, or if it is away.
pub(super) async fn ask(store: &dyn Store, groups: Vec<GroupId>) -> Vec<CongestionState> {
    let calls = groups
        .into_iter()
        .map(|group| store.call(Query::Congestion(group)));
    let answers = tokio::time::timeout(PATIENCE, futures_util::future::join_all(calls)).await;
    let states = answers.into_iter().flatten().filter_map(|answer| match answer {
        Ok(Ok(View::Congestion(state))) => Some(state),
        _ => None,
    });
    states.collect()
}
