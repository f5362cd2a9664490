//! A group in a queue: what it runs and starts there, the limits that hold for it there, what its own downstream sustains
//! there, and how it waits without hiding others from the picker.

use super::Bulk;
use super::group::{Group, Held};
use super::list::Slot;
use super::pick::UNHOLD_PER_CALL;
use crate::limits::downstream::Downstream;
use crate::limits::meter::Meter;
use crate::limits::quota::Limit;
use crate::limits::rate::Rate;
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

/// Why the flows of a group in one queue are out of the order although they have jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairHeld {
    /// Its rate there, or its own downstream, allows nothing until then.
    Until(Timestamp),
    /// As many of its jobs run there as may; held until a lease ends.
    Running,
}

/// A group in a queue. Exists while it has something to count or to remember.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) queue: u16,
    pub(super) running: u32,
    /// Its jobs in ready: each will start.
    pub(super) ready: u32,
    pub(super) meter: Meter,
    /// There if it was ever overloaded.
    pub(super) downstream: Option<Box<Downstream>>,
    pub(super) held: Option<PairHeld>,
}

impl Pair {
    fn new(queue: u16) -> Self {
        Self {
            queue,
            running: 0,
            ready: 0,
            meter: Meter::default(),
            downstream: None,
            held: None,
        }
    }

    /// Without it, nothing would be different.
    fn is_over(&self, window: u64) -> bool {
        self.running == 0
            && self.ready == 0
            && self.downstream.is_none()
            && self.held.is_none()
            && self.meter.is_over(window)
    }
}

impl Group {
    pub(super) fn pair(&self, queue: u16) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.queue == queue)
    }

    fn pair_mut(&mut self, queue: u16) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| pair.queue == queue)
    }

    /// The pair of this queue; created if needed, in place of those that are over.
    pub(super) fn pair_of(&mut self, queue: u16, window: u64) -> &mut Pair {
        if self.pair(queue).is_none() {
            self.pairs.retain(|pair| !pair.is_over(window));
            self.pairs.push(Pair::new(queue));
        }
        self.pair_mut(queue).expect("just made")
    }

    pub(super) fn pair_held(&self, queue: u16) -> bool {
        self.pair(queue).is_some_and(|pair| pair.held.is_some())
    }
}

/// The limits of a group in a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct PairLimit {
    pub(super) rate: Option<Rate>,
    pub(super) max_running: Option<u32>,
}

impl Bulk {
    /// Lets the rate of the queue's downstream grow.
    pub(super) fn turn_downstream(&mut self, queue: u16, now: Timestamp) {
        let queue = &mut self.queues[usize::from(queue)];
        queue.downstream.advance(queue.rps, now);
    }

    /// The group's own limits in this queue; where it has none, those of every group in it.
    pub(super) fn limit_in_queue(&self, group: Slot, queue: u16) -> Limit {
        let queue = &self.queues[usize::from(queue)];
        let own = &self.groups[group as usize].limits.queues;
        match own.is_empty() {
            true => queue.per_group,
            false => own
                .get(&queue.name)
                .copied()
                .unwrap_or_default()
                .or(queue.per_group),
        }
    }

    pub(super) fn pair_limit(&self, group: Slot, queue: u16) -> PairLimit {
        let limit = self.limit_in_queue(group, queue);
        let length = self.limiter.length();
        PairLimit {
            rate: limit.rate.map(|rate| rate.in_windows(length)),
            max_running: limit.max_running,
        }
    }

    /// What keeps the group from starting its next job in this queue, if anything does; with `promised`, its ready jobs
    /// there start first.
    pub(super) fn pair_blocked(
        &mut self,
        group: Slot,
        queue: u16,
        promised: bool,
        now: Timestamp,
    ) -> Option<PairHeld> {
        let limit = self.pair_limit(group, queue);
        let window = self.limiter.window();
        let rps = self.queues[usize::from(queue)].rps;
        let counts = |pair: &Pair| {
            let ready = if promised { pair.ready } else { 0 };
            (pair.meter, ready, pair.running + ready)
        };
        let pair = self.groups[group as usize].pair(queue);
        let (meter, ready, running) = pair.map_or((Meter::default(), 0, 0), counts);
        let starts = meter.turned(limit.rate, window).charged(window) + u64::from(ready);
        // A window may allow nothing at all.
        if let Some(rate) = limit.rate.filter(|rate| starts >= rate.allowed(window)) {
            let until = self.limiter.start_of(meter.next(rate, window));
            return Some(PairHeld::Until(until));
        }
        if limit.max_running.is_some_and(|most| running >= most) {
            return Some(PairHeld::Running);
        }
        let pair = self.groups[group as usize].pair_mut(queue)?;
        let downstream = pair.downstream.as_mut()?;
        downstream.advance(rps, now);
        if downstream.room(now) > 0 {
            return None;
        }
        downstream.next_start(now).map(PairHeld::Until)
    }

    /// Takes the group's flows in this queue out of the order.
    pub(super) fn hold_pair(&mut self, group: Slot, queue: u16, why: PairHeld) {
        for flow in self.groups[group as usize].flows.clone() {
            if self.flows[flow as usize].queue == queue {
                self.leave_order(flow);
            }
        }
        let window = self.limiter.window();
        let entry = &mut self.groups[group as usize];
        let seq = entry.seq;
        let before = entry.pair_of(queue, window).held.replace(why);
        if let Some(PairHeld::Until(before)) = before {
            self.held_pairs.remove(&(before, seq, group, queue));
        }
        if let PairHeld::Until(until) = why {
            self.held_pairs.insert((until, seq, group, queue));
            self.signals.timer = true;
        }
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
        let Some(held) = entry.pair_mut(queue).and_then(|pair| pair.held.take()) else {
            return;
        };
        if let PairHeld::Until(until) = held {
            self.held_pairs.remove(&(until, seq, group, queue));
        }
        let flows = self.groups[group as usize].flows.clone();
        for flow in flows {
            if self.flows[flow as usize].queue == queue {
                self.enter_order(flow, now);
            }
        }
    }

    /// Puts the group's flows back into the orders of all queues for whose pairs this is true, queue by queue.
    pub(super) fn unhold_pairs_of(&mut self, group: Slot, which: impl Fn(PairHeld) -> bool, now: Timestamp) {
        let pairs = self.groups[group as usize].pairs.iter();
        let mut queues: Vec<u16> = pairs
            .filter(|pair| pair.held.is_some_and(&which))
            .map(|pair| pair.queue)
            .collect();
        queues.sort_unstable();
        for queue in queues {
            self.unhold_pair(group, queue, now);
        }
    }

    /// The limits of this queue's groups have changed: the next pick holds those again that are still at theirs. At most
    /// a thousand at once, those first that would have come back first; the others come when they would have.
    pub(super) fn unhold_pairs_in(&mut self, queue: u16, now: Timestamp) {
        let mut held = Vec::new();
        for (slot, group) in &self.groups {
            let until = match group.pair(queue).and_then(|pair| pair.held) {
                Some(PairHeld::Until(until)) => until,
                Some(PairHeld::Running) => Timestamp(u64::MAX),
                None => continue,
            };
            held.push((until, group.seq, slot as Slot));
        }
        held.sort_unstable();
        for (_, _, group) in held.into_iter().take(UNHOLD_PER_CALL) {
            self.unhold_pair(group, queue, now);
        }
    }

    /// When the next group may try again in this queue.
    pub(super) fn next_pair(&self, queue: u16) -> Option<Timestamp> {
        let of_queue = |(_, _, _, of): &&(_, _, _, u16)| *of == queue;
        self.held_pairs.iter().find(of_queue).map(|&(until, ..)| until)
    }

    /// A job of the group starts in this queue.
    pub(super) fn start_pair(&mut self, group: Slot, queue: u16, now: Timestamp) {
        let window = self.limiter.window();
        let pair = self.groups[group as usize].pair_of(queue, window);
        pair.running += 1;
        if let Some(downstream) = &mut pair.downstream {
            downstream.start(1, now);
        }
    }

    /// Counts a lease that began before this process.
    pub(super) fn restore_pair(&mut self, group: Slot, queue: u16) {
        let window = self.limiter.window();
        self.groups[group as usize].pair_of(queue, window).running += 1;
    }

    /// A job of the group goes to ready in this queue, or leaves it.
    pub(super) fn count_ready_in_pair(&mut self, group: Slot, queue: u16, change: i32) {
        let window = self.limiter.window();
        let pair = self.groups[group as usize].pair_of(queue, window);
        pair.ready = pair.ready.saturating_add_signed(change);
    }

    /// A lease of the group in this queue ends.
    pub(super) fn end_pair_lease(&mut self, group: Slot, queue: u16) {
        if let Some(pair) = self.groups[group as usize].pair_mut(queue) {
            pair.running -= 1;
        }
    }

    /// What was charged in this window is free again.
    pub(super) fn refund_pair(&mut self, group: Slot, queue: u16, cost: u32) {
        let window = self.limiter.window();
        if let Some(pair) = self.groups[group as usize].pair_mut(queue) {
            pair.meter.refund(window, cost);
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
        let Some(downstream) = &mut pair.downstream else {
            return;
        };
        let probing = downstream.is_probing();
        change(downstream);
        let (free, probes) = (downstream.is_free(), downstream.is_probing());
        if free {
            pair.downstream = None;
        }
        if free || probing && !probes {
            self.unhold_pair(group, queue, now);
        }
    }

    /// Whether the group started jobs in this window in a queue that limits the rate of each group.
    pub(super) fn is_metered(&self, group: Slot) -> bool {
        let window = self.limiter.window();
        let pairs = self.groups[group as usize].pairs.iter();
        let metered =
            |pair: &Pair| !pair.meter.is_over(window) && self.pair_limit(group, pair.queue).rate.is_some();
        pairs.into_iter().any(metered)
    }

    /// The group is about to be dropped.
    pub(super) fn forget_holds(&mut self, slot: Slot) {
        let group = &self.groups[slot as usize];
        if let Some(Held::Until(until)) = group.held {
            self.held_groups.remove(&(until, group.seq, slot));
        }
        for pair in &group.pairs {
            if let Some(PairHeld::Until(until)) = pair.held {
                self.held_pairs.remove(&(until, group.seq, slot, pair.queue));
            }
        }
    }

    /// Nobody follows a downstream any more: groups go on as if none had ever been overloaded.
    pub(super) fn forget_pairs(&mut self, now: Timestamp) {
        let overloaded = |group: &Group| group.pairs.iter().any(|pair| pair.downstream.is_some());
        let of_groups = self.groups.iter().filter(|(_, group)| overloaded(group));
        let slots: Vec<Slot> = of_groups.map(|(slot, _)| slot as Slot).collect();
        for slot in slots {
            for pair in &mut self.groups[slot as usize].pairs {
                pair.downstream = None;
            }
            self.signals.work = true;
        }
        for queue in 0..self.queues.len() {
            self.unhold_pairs_in(queue as u16, now);
        }
    }

    /// The group's own downstream is overloaded: it alone slows down.
    pub(super) fn overload_pair(&mut self, group: Slot, queue: u16, change: impl FnOnce(&mut Downstream)) {
        let window = self.limiter.window();
        let pair = self.groups[group as usize].pair_of(queue, window);
        change(pair.downstream.get_or_insert_default());
    }
}
