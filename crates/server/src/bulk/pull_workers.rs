//! The pull workers of each queue, as far as this process knows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tidegate_core::ids::QueueId;
use tidegate_core::time::Timestamp;

/// Limit: queues that the process tracks, so that a client that invents names does not fill the memory.
const MAX_QUEUES: usize = 1_000;

/// The lease calls of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PullActivity {
    /// Calls that wait now.
    pub(crate) waiting: u32,
    /// When the last call came.
    pub(crate) last: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct QueueActivity(Mutex<BTreeMap<QueueId, PullActivity>>);

impl QueueActivity {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<QueueId, PullActivity>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a lease call until the guard is dropped.
    pub(crate) fn track(&self, queue: &QueueId, now: Timestamp) -> PullGuard<'_> {
        let counted = self.with(|queues| {
            if queues.len() >= MAX_QUEUES && !queues.contains_key(queue) {
                return false;
            }
            let activity = queues.entry(queue.clone()).or_default();
            activity.waiting += 1;
            activity.last = Some(now);
            true
        });
        PullGuard {
            of: self,
            queue: counted.then(|| queue.clone()),
        }
    }

    pub(crate) fn of(&self, queue: &QueueId) -> PullActivity {
        self.with(|queues| queues.get(queue).copied().unwrap_or_default())
    }
}

#[derive(Debug)]
pub(crate) struct PullGuard<'a> {
    of: &'a QueueActivity,
    queue: Option<QueueId>,
}

impl Drop for PullGuard<'_> {
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        self.of.with(|queues| {
            if let Some(activity) = queues.get_mut(queue) {
                activity.waiting -= 1;
            }
        });
    }
}
