//! A group in a queue, where the downstream limits each group on its own: its rate, and how it waits without hiding
//! others from the picker.

use super::Bulk;
use super::group::Group;
use super::list::Slot;
use crate::limits::downstream::Downstream;
use crate::time::Timestamp;

/// Whose calls the downstream found too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThrottleScope {
    /// Those of the whole queue.
    #[default]
    Queue,
    /// Those of the job's group: others keep their rate.
    Group,
}

/// A group in a queue.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) queue: u16,
    pub(super) downstream: Downstream,
    /// Its flows are out of the order until then.
    pub(super) held: Option<Timestamp>,
}

impl Group {
    fn pair(&self, queue: u16) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.queue == queue)
    }

    fn pair_mut(&mut self, queue: u16) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| pair.queue == queue)
    }

    pub(super) fn pair_held(&self, queue: u16) -> bool {
        self.pair(queue).is_some_and(|pair| pair.held.is_some())
    }
}

impl Bulk {
    /// Lets the rate of the queue's downstream grow.
    pub(super) fn turn_downstream(&mut self, queue: u16, now: Timestamp) {
        let queue = &mut self.queues[usize::from(queue)];
        queue.downstream.advance(queue.rps, now);
    }

    /// When the group may start its next job in this queue, if its own downstream keeps it from that now.
    pub(super) fn pair_wait(&mut self, group: Slot, queue: u16, now: Timestamp) -> Option<Timestamp> {
        let rps = self.queues[usize::from(queue)].rps;
        let pair = self.groups[group as usize].pair_mut(queue)?;
        pair.downstream.advance(rps, now);
        if pair.downstream.room(now) > 0 {
            return None;
        }
        pair.downstream.next_start(now)
    }

    /// Takes the group's flows in this queue out of the order.
    pub(super) fn hold_pair(&mut self, group: Slot, queue: u16, until: Timestamp) {
        for flow in self.groups[group as usize].flows.clone() {
            if self.flows[flow as usize].queue == queue {
                self.leave_order(flow);
            }
        }
        let entry = &mut self.groups[group as usize];
        let seq = entry.seq;
        let Some(pair) = entry.pair_mut(queue) else { return };
        let before = pair.held.replace(until);
        if let Some(before) = before {
            self.held_pairs.remove(&(before, seq, group, queue));
        }
        self.held_pairs.insert((until, seq, group, queue));
        self.signals.timer = true;
    }

    /// Puts groups back into the orders of queues in which they may try again.
    pub(super) fn unhold_pairs(&mut self, max: usize, now: Timestamp) {
        for _ in 0..max {
            let Some(&(until, _, group, queue)) = self.held_pairs.first() else {
                return;
            };
            if until > now {
                return;
            }
            self.unhold_pair(group, queue, now);
        }
    }

    /// Puts the group's flows in this queue back into the order.
    pub(super) fn unhold_pair(&mut self, group: Slot, queue: u16, now: Timestamp) {
        let entry = &mut self.groups[group as usize];
        let seq = entry.seq;
        let Some(until) = entry.pair_mut(queue).and_then(|pair| pair.held.take()) else {
            return;
        };
        self.held_pairs.remove(&(until, seq, group, queue));
        let flows = self.groups[group as usize].flows.clone();
        for flow in flows {
            if self.flows[flow as usize].queue == queue {
                self.enter_order(flow, now);
            }
        }
    }

    /// When the next group may try again in this queue.
    pub(super) fn next_pair(&self, queue: u16) -> Option<Timestamp> {
        let of_queue = |(_, _, _, of): &&(_, _, _, u16)| *of == queue;
        self.held_pairs.iter().find(of_queue).map(|&(until, ..)| until)
    }

    pub(super) fn start_pair(&mut self, group: Slot, queue: u16, now: Timestamp) {
        if let Some(pair) = self.groups[group as usize].pair_mut(queue) {
            pair.downstream.start(1, now);
        }
    }

    /// Changes what is known of the group's downstream in this queue, if it was ever overloaded.
    pub(super) fn change_pair(
        &mut self,
        group: Slot,
        queue: u16,
        now: Timestamp,
        change: impl FnOnce(&mut Downstream),
    ) {
        let Some(pair) = self.groups[group as usize].pair_mut(queue) else {
            return;
        };
        let probing = pair.downstream.is_probing();
        change(&mut pair.downstream);
        let free = pair.downstream.is_free();
        if free || probing && !pair.downstream.is_probing() {
            self.unhold_pair(group, queue, now);
        }
        if free {
            self.groups[group as usize]
                .pairs
                .retain(|pair| pair.queue != queue);
        }
    }

    /// Nobody follows a downstream any more: groups go on as if none had ever been overloaded.
    pub(super) fn forget_pairs(&mut self, now: Timestamp) {
        let of_groups = self.groups.iter().filter(|(_, group)| !group.pairs.is_empty());
        let slots: Vec<Slot> = of_groups.map(|(slot, _)| slot as Slot).collect();
        for slot in slots {
            let queues: Vec<u16> = self.groups[slot as usize]
                .pairs
                .iter()
                .map(|pair| pair.queue)
                .collect();
            for queue in queues {
                self.unhold_pair(slot, queue, now);
            }
            self.groups[slot as usize].pairs.clear();
            self.signals.work = true;
        }
    }

    /// The group's own downstream is overloaded: it alone slows down.
    pub(super) fn overload_pair(&mut self, group: Slot, queue: u16, change: impl FnOnce(&mut Downstream)) {
        let pairs = &mut self.groups[group as usize].pairs;
        if !pairs.iter().any(|pair| pair.queue == queue) {
            pairs.push(Pair {
                queue,
                downstream: Downstream::default(),
                held: None,
            });
        }
        let pair = self.groups[group as usize].pair_mut(queue).expect("just made");
        change(&mut pair.downstream);
    }
}
