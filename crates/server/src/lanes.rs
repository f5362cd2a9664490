//! Who asks for work by pull, per lane, as far as this process sees it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tidegate_core::ids::LaneId;
use tidegate_core::time::Timestamp;

/// Limit: lanes remembered; a client that makes up names does not fill the memory.
const MAX_LANES: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Asking {
    /// Calls that wait at this moment.
    pub(crate) waiting: u32,
    pub(crate) last: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct LaneActivity(Mutex<BTreeMap<LaneId, Asking>>);

impl LaneActivity {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<LaneId, Asking>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Somebody asks for work until the guard is dropped.
    pub(crate) fn asks(&self, lane: &LaneId, now: Timestamp) -> AskingGuard<'_> {
        let counted = self.with(|lanes| {
            if lanes.len() >= MAX_LANES && !lanes.contains_key(lane) {
                return false;
            }
            let asking = lanes.entry(lane.clone()).or_default();
            asking.waiting += 1;
            asking.last = Some(now);
            true
        });
        AskingGuard {
            of: self,
            lane: counted.then(|| lane.clone()),
        }
    }

    pub(crate) fn of(&self, lane: &LaneId) -> Asking {
        self.with(|lanes| lanes.get(lane).copied().unwrap_or_default())
    }
}

#[derive(Debug)]
pub(crate) struct AskingGuard<'a> {
    of: &'a LaneActivity,
    lane: Option<LaneId>,
}

impl Drop for AskingGuard<'_> {
    fn drop(&mut self) {
        let Some(lane) = &self.lane else { return };
        self.of.with(|lanes| {
            if let Some(asking) = lanes.get_mut(lane) {
                asking.waiting -= 1;
            }
        });
    }
}
