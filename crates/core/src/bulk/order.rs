//! The fair order of one queue and priority: which flow is next, and where a served flow goes.

use std::collections::{BTreeMap, BTreeSet};

use slab::Slab;

use super::flow::Flow;
use super::list::Slot;
use super::policy::TAG_LIMIT;

/// Places are compared by key, then by the sequence in which flows took them, never by name. One number,
/// because a pick compares dozens of them.
fn place((key, turn): (i64, u64)) -> u128 {
    // Negative keys (of the `score` policy) sort before positive ones.
    let key = (key as u64) ^ (1 << 63);
    (u128::from(key) << 64) | u128::from(turn)
}

#[derive(Debug, Default)]
pub(super) struct FairOrder {
    places: BTreeMap<u128, Slot>,
    /// The tag of the flow served last.
    virtual_time: u64,
    /// Flows without unfinished jobs whose tag is still ahead of virtual time. Once virtual time has caught up
    /// they can be forgotten, because `max(tag, virtual time)` no longer depends on the tag.
    remembered: BTreeSet<(u64, Slot)>,
    next_turn: u64,
    /// Of the flows in it, in thousandths.
    weight: u64,
}

impl FairOrder {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn first(&self) -> Option<Slot> {
        self.places.first_key_value().map(|(_, &flow)| flow)
    }

    pub(super) fn flows(&self) -> impl Iterator<Item = Slot> + '_ {
        self.places.values().copied()
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn insert(&mut self, flows: &mut Slab<Flow>, flow: Slot, key: i64, weight: u64) {
        self.next_turn += 1;
        self.weight += weight;
        let entry = &mut flows[flow as usize];
        assert!(entry.place.is_none(), "a flow is in the order at most once");
        entry.place = Some((key, self.next_turn));
        entry.weight = weight;
        self.places.insert(place((key, self.next_turn)), flow);
    }

    pub(super) fn remove(&mut self, flows: &mut Slab<Flow>, flow: Slot) {
        let Some(taken) = flows[flow as usize].place.take() else {
            return;
        };
        self.weight -= flows[flow as usize].weight;
        // Nearly always it is the first, which needs no comparison.
        if self.first() == Some(flow) {
            self.places.pop_first();
        } else {
            self.places.remove(&place(taken));
        }
    }

    /// The tag of a flow that enters or re-enters the order.
    pub(super) fn arrival_tag(&self, tag: u64) -> u64 {
        tag.max(self.virtual_time)
    }

    /// Advances virtual time to the tag of the flow being served.
    pub(super) fn advance(&mut self, tag: u64) {
        self.virtual_time = self.virtual_time.max(tag);
    }

    #[cfg(test)]
    pub(super) fn set_virtual_time(&mut self, tag: u64) {
        self.virtual_time = tag;
    }

    /// Remembers the tag of a flow without unfinished jobs; returns false if there is nothing to remember.
    pub(super) fn remember(&mut self, flow: Slot, tag: u64) -> bool {
        tag > self.virtual_time && self.remembered.insert((tag, flow))
    }

    pub(super) fn recall(&mut self, flow: Slot, tag: u64) {
        self.remembered.remove(&(tag, flow));
    }

    /// The next remembered flow that may be forgotten. When the order is empty, the busy period is over:
    /// virtual time jumps ahead, and everyone starts equal.
    pub(super) fn forgettable(&mut self) -> Option<Slot> {
        let &(tag, flow) = self.remembered.first()?;
        if self.places.is_empty() {
            self.virtual_time = self.virtual_time.max(tag);
        }
        (tag <= self.virtual_time).then(|| {
            self.remembered.pop_first();
            flow
        })
    }

    pub(super) fn remembered(&self) -> usize {
        self.remembered.len()
    }

    pub(super) fn needs_rebase(&self, step: u64) -> bool {
        self.virtual_time >= TAG_LIMIT - step.saturating_mul(2)
    }

    /// Subtracts virtual time from every tag, so that tags stay below [`TAG_LIMIT`]. The order does not change.
    pub(super) fn rebase<'a>(&mut self, flows: impl Iterator<Item = (Slot, &'a mut Flow)>) {
        let base = self.virtual_time;
        self.virtual_time = 0;
        self.places.clear();
        self.remembered.clear();
        for (slot, flow) in flows {
            let was = flow.tag as i64;
            flow.tag = flow.tag.saturating_sub(base);
            if let Some((key, turn)) = &mut flow.place {
                // Scores are not tags and stay as they are.
                if *key == was {
                    *key = flow.tag as i64;
                }
                self.places.insert(place((*key, *turn)), slot);
            } else if flow.unfinished == 0 {
                self.remembered.insert((flow.tag, slot));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::policy::STEP_UNIT;
    use super::super::{Bulk, EnqueueParams, LeaseParams, NewJob, Priority, default_queue};
    use super::TAG_LIMIT;
    use crate::bulk::config::BulkConfig;
    use crate::ids::{GroupId, JobId, JobType, Owner};
    use crate::time::Timestamp;

    fn enqueue(bulk: &mut Bulk, group: &str, jobs: u64) {
        let job = |n: u64| NewJob {
            id: JobId::new(format!("job-{n}")).unwrap(),
            kind: JobType::new("mail").unwrap(),
            priority: Priority::Normal,
            payload: Bytes::new(),
            run_at: None,
            expires_at: None,
            cost: 1,
        };
        let params = EnqueueParams {
            group: GroupId::new(group).unwrap(),
            batch: None,
            base_priority: None,
            jobs: (0..jobs).map(job).collect(),
        };
        bulk.call(params, Timestamp(1)).unwrap();
    }

    fn serve(bulk: &mut Bulk, jobs: u32) -> String {
        let owner = Owner::new("worker").unwrap();
        let leased = bulk.call(
            LeaseParams {
                queue: default_queue(),
                max: jobs,
                owner,
            },
            Timestamp(1),
        );
        bulk.check();
        leased
            .jobs
            .iter()
            .map(|job| job.group.as_str().to_owned())
            .collect()
    }

    #[test]
    fn tags_are_rebased_before_they_are_no_longer_exact_and_the_order_stays() {
        let mut bulk = Bulk::new(BulkConfig::default(), (0, 0)).unwrap();
        enqueue(&mut bulk, "a", 1);
        assert_eq!(serve(&mut bulk, 1), "a");
        // As after eight billion picks.
        let near = TAG_LIMIT - 6 * STEP_UNIT;
        bulk.queues[0].orders[Priority::Normal as usize].set_virtual_time(near);
        enqueue(&mut bulk, "b", 20);
        enqueue(&mut bulk, "c", 20);
        assert_eq!(serve(&mut bulk, 24), "bc".repeat(12));
        for (_, flow) in &bulk.flows {
            assert!(flow.tag < near, "the tag was rebased: {}", flow.tag);
        }
        // A newcomer after the rebase is not delayed, and delays nobody.
        enqueue(&mut bulk, "d", 3);
        let order = serve(&mut bulk, 6);
        assert_eq!(order.matches('d').count(), 2, "{order}");
    }

    #[test]
    fn what_is_remembered_of_absent_groups_is_bounded() {
        let mut bulk = Bulk::new(BulkConfig::default(), (0, 0)).unwrap();
        enqueue(&mut bulk, "always there", 5_000);
        for visitor in 0..2_000 {
            enqueue(&mut bulk, &format!("visitor {visitor}"), 1);
            serve(&mut bulk, 2);
            let answers = bulk.leases.iter().map(|(&job, entry)| super::super::Settlement {
                lease: super::super::LeaseRef {
                    job,
                    fence: bulk.jobs[entry.slot as usize].fence,
                },
                outcome: super::super::JobOutcome::Completed { result: Bytes::new() },
                cost: None,
            });
            let answers = answers.collect();
            bulk.call(super::super::SettleParams { answers }, Timestamp(1));
            assert!(
                bulk.flows.len() <= 4,
                "{} flows after visitor {visitor}",
                bulk.flows.len()
            );
        }
    }
}
