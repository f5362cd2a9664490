//! What waits and runs in each queue, and since when.

use super::Bulk;
use super::job::Job;
use super::views::QueueBacklog;
use crate::time::Timestamp;

/// Limit: flows of a queue and priority inspected for the oldest waiting job, those that go next first.
pub const MAX_FLOWS_INSPECTED: usize = 300;

impl Bulk {
    pub(super) fn backlog(&self) -> Vec<QueueBacklog> {
        let of_queue = |queue: &super::flow::Queue| {
            let first_flows = queue
                .orders
                .iter()
                .flat_map(|order| order.flows().take(MAX_FLOWS_INSPECTED));
            let firsts = first_flows.filter_map(|flow| self.flows[flow as usize].front());
            QueueBacklog {
                queue: queue.name.clone(),
                waiting: queue.unfinished - queue.delayed - queue.running,
                delayed: queue.delayed,
                running: queue.running,
                oldest_waiting_since: firsts
                    .map(|slot| Job::created_at(&self.jobs[slot as usize]))
                    .min(),
            }
        };
        let mut all: Vec<QueueBacklog> = self.queues.iter().map(of_queue).collect();
        all.sort_by(|one, other| one.queue.cmp(&other.queue));
        all
    }
}

impl Job {
    /// When the job was accepted, in whole seconds.
    pub(super) fn created_at(&self) -> Timestamp {
        Timestamp(u64::from(self.created) * 1_000)
    }
}
