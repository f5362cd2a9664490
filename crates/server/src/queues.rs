//! Who asks for work by pull, per queue, as far as this process sees it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tidegate_core::ids::QueueId;
use tidegate_core::time::Timestamp;

/// Limit: queues remembered; a client that makes up names does not fill the memory.
const MAX_QUEUES: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VisitorRequest {
    /// Calls that wait at this moment.
    pub(crate) waiting: u32,
    pub(crate) last: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct QueueActivity(Mutex<BTreeMap<QueueId, VisitorRequest>>);

impl QueueActivity {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<QueueId, VisitorRequest>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Somebody asks for work until the guard is dropped.
    pub(crate) fn asks(&self, queue: &QueueId, now: Timestamp) -> AskingGuard<'_> {
        let counted = self.with(|queues| {
            if queues.len() >= MAX_QUEUES && !queues.contains_key(queue) {
                return false;
            }
            let asking = queues.entry(queue.clone()).or_default();
            asking.waiting += 1;
            asking.last = Some(now);
            true
        });
        AskingGuard {
            of: self,
            queue: counted.then(|| queue.clone()),
        }
    }

    pub(crate) fn of(&self, queue: &QueueId) -> VisitorRequest {
        self.with(|queues| queues.get(queue).copied().unwrap_or_default())
    }
}

#[derive(Debug)]
pub(crate) struct AskingGuard<'a> {
    of: &'a QueueActivity,
    queue: Option<QueueId>,
}

impl Drop for AskingGuard<'_> {
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        self.of.with(|queues| {
            if let Some(asking) = queues.get_mut(queue) {
                asking.waiting -= 1;
            }
        });
    }
}
