//! A group: its settings, its counts, whether it is held, and its flows.

use super::Bulk;
use super::command::{ConfigureGroupParams, GroupLimits, MAX_QUEUES_OF_GROUP, Priority};
use super::config::FairPolicy;
use super::flow::Flow;
use super::job::JobState;
use super::list::{List, QUEUE, Slot};
use super::paces::weight;
use super::pair::{Pair, PairHeld};
use super::pick::UNHOLD_PER_CALL;
use super::policy::{self, MAX_BASE_PRIORITY, PriorityCalculator, PriorityInput};
use super::record::{Change, GroupRecord, GroupSeq};
use super::refusal::Refusal;
use super::stats::CongestionStats;
use crate::ids::GroupId;
use crate::limits::meter::Meter;
use crate::limits::quota::Limit;
use crate::limits::throughput::Throughput;
use crate::time::{Millis, Timestamp};

/// Why a group is out of the order although it has jobs. A held group never hides others from the picker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Paused,
    /// Its rate, or its share, allows nothing until then.
    Until(Timestamp),
    /// As many of its jobs run as may; held until a lease ends.
    Running,
}

/// Where a limit of its own holds a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    Everywhere(Held),
    InQueue(PairHeld),
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) seq: GroupSeq,
    pub(super) id: GroupId,
    pub(super) base_priority: i32,
    pub(super) step: u64,
    pub(super) limits: GroupLimits,
    pub(super) paused: bool,
    pub(super) held: Option<Held>,
    pub(super) created_at: Timestamp,
    pub(super) idle_since: Timestamp,
    /// Jobs per state; finished ones as long as the store keeps them.
    pub(super) counts: [u32; 6],
    /// Jobs delayed by congestion, not by schedule.
    pub(super) congested: u32,
    pub(super) meter: Meter,
    pub(super) flows: Vec<Slot>,
    pub(super) batches: Vec<Slot>,
    pub(super) open_batch: Option<Slot>,
    /// Its undecided batches that remember jobs which retention dropped.
    pub(super) remembering: Vec<Slot>,
    /// Its finished jobs, in the order of finishing.
    pub(super) finished: List<QUEUE>,
    pub(super) stats: CongestionStats,
    /// The queues in which it runs, or did a moment ago.
    pub(super) pairs: Vec<Pair>,
}

impl Group {
    pub(super) fn count(&self, state: JobState) -> u32 {
        self.counts[state as usize]
    }

    pub(super) fn unfinished(&self) -> u64 {
        [
            JobState::Waiting,
            JobState::Ready,
            JobState::Running,
            JobState::Delayed,
        ]
        .iter()
        .map(|&state| u64::from(self.count(state)))
        .sum()
    }

    /// Has unfinished jobs, and so counts in the shares.
    pub(super) fn is_active(&self) -> bool {
        self.unfinished() > 0
    }
}

impl Bulk {
    pub(super) fn find_group(&self, id: &GroupId) -> Result<Slot, Refusal> {
        self.group_slots
            .get(id)
            .copied()
            .ok_or_else(|| Refusal::UnknownGroup(id.clone()))
    }

    pub(super) fn find_or_create_group(
        &mut self,
        id: &GroupId,
        base_priority: Option<i32>,
        now: Timestamp,
    ) -> Result<Slot, Refusal> {
        if let Some(&slot) = self.group_slots.get(id) {
            return Ok(slot);
        }
        let base_priority = checked_base_priority(base_priority.unwrap_or(0))?;
        let record = GroupRecord {
            seq: GroupSeq(self.give_seq()),
            id: id.clone(),
            base_priority,
            paused: false,
            limits: GroupLimits::default(),
            created_at: now,
        };
        let slot = self.insert_group(&record, now);
        self.changes.push(Change::PutGroup(record));
        Ok(slot)
    }

    pub(super) fn insert_group(&mut self, record: &GroupRecord, now: Timestamp) -> Slot {
        let slot = self.groups.insert(Group {
            seq: record.seq,
            id: record.id.clone(),
            base_priority: record.base_priority,
            step: policy::step(record.base_priority),
            limits: record.limits.clone(),
            paused: record.paused,
            held: record.paused.then_some(Held::Paused),
            created_at: record.created_at,
            idle_since: now,
            counts: [0; 6],
            congested: 0,
            meter: Meter::default(),
            flows: Vec::new(),
            batches: Vec::new(),
            open_batch: None,
            remembering: Vec::new(),
            finished: List::default(),
            stats: CongestionStats::default(),
            pairs: Vec::new(),
        }) as Slot;
        self.group_slots.insert(record.id.clone(), slot);
        self.groups_by_seq.insert(record.seq, slot);
        self.idle_groups.insert((now, record.seq, slot));
        slot
    }

    pub(super) fn put_group(&mut self, slot: Slot) {
        let group = &self.groups[slot as usize];
        self.changes.push(Change::PutGroup(GroupRecord {
            seq: group.seq,
            id: group.id.clone(),
            base_priority: group.base_priority,
            paused: group.paused,
            limits: group.limits.clone(),
            created_at: group.created_at,
        }));
    }

    pub(super) fn configure_group(&mut self, p: ConfigureGroupParams, now: Timestamp) -> Result<(), Refusal> {
        let base_priority = p.base_priority.map(checked_base_priority).transpose()?;
        let length = self.limiter.length();
        let limits = p.limits.map(|limits| limits.checked(length)).transpose()?;
        let slot = self.find_or_create_group(&p.group, base_priority, now)?;
        let group = &mut self.groups[slot as usize];
        if let Some(base_priority) = base_priority {
            group.base_priority = base_priority;
            group.step = policy::step(base_priority);
        }
        if let Some(limits) = limits {
            group.limits = limits;
        }
        self.put_group(slot);
        // A raised limit takes effect at once; if the group is still at a limit, the next pick holds it again.
        self.unhold(slot, now);
        self.unhold_pairs_of(slot, |_| true, now);
        Ok(())
    }

    /// Counts a job's transition from one state to another.
    pub(super) fn shift(
        &mut self,
        group: Slot,
        from: Option<JobState>,
        to: Option<JobState>,
        now: Timestamp,
    ) {
        let entry = &mut self.groups[group as usize];
        let was_active = entry.is_active();
        if let Some(from) = from {
            entry.counts[from as usize] -= 1;
            self.totals.counts[from as usize] -= 1;
        }
        if let Some(to) = to {
            entry.counts[to as usize] += 1;
            self.totals.counts[to as usize] += 1;
        }
        match (was_active, entry.is_active()) {
            (false, true) => {
                self.active_groups += 1;
                self.idle_groups.remove(&(entry.idle_since, entry.seq, group));
            }
            (true, false) => {
                self.active_groups -= 1;
                entry.idle_since = now;
                self.idle_groups.insert((now, entry.seq, group));
            }
            _ => {}
        }
        // A ready job that does not start frees its place for the next one, and no ending lease will signal
        // that.
        let not_started = from == Some(JobState::Ready) && to != Some(JobState::Running);
        if not_started {
            if self.groups[group as usize].held == Some(Held::Running) {
                self.unhold(group, now);
            }
            self.unhold_pairs_of(group, |held| held == PairHeld::Running, now);
        }
    }

    /// The share of a window that each group gets if all want more: `max(1, floor(limit / active groups))`.
    pub(super) fn per_group_limit(&self) -> u64 {
        (self.limiter.rate().most() / self.active_groups.max(1)).max(1)
    }

    /// Starts in one window that the group gets, if all want more, in the slowest queue that has jobs of it.
    pub(super) fn speed(&self, group: Slot) -> u64 {
        let flows = self.groups[group as usize].flows.iter();
        let shares = flows
            .map(|&flow| &self.flows[flow as usize])
            .filter(|flow| flow.unfinished > 0)
            .map(|flow| self.queues[usize::from(flow.queue)].share());
        shares.fold(self.per_group_limit(), u64::min)
    }

    /// The limit over all queues that keeps the group from starting one more job, if any, when `promised` of its ready
    /// jobs will start first.
    fn group_blocked(&self, group: Slot, promised: u32) -> Option<Held> {
        let group = &self.groups[group as usize];
        let window = self.limiter.window();
        let limit = group.limits.all;
        let rate = limit.rate.map(|rate| rate.in_windows(self.limiter.length()));
        let starts = group.meter.turned(rate, window).charged(window) + u64::from(promised);
        if let Some(rate) = rate.filter(|rate| starts >= rate.allowed(window)) {
            let next = group.meter.next(rate, window);
            return Some(Held::Until(self.limiter.start_of(next)));
        }
        if self.config.backpressure.strict_share && starts >= self.per_group_limit() {
            return Some(Held::Until(self.limiter.window_end()));
        }
        let running = group.count(JobState::Running) + promised;
        let full = limit.max_running.is_some_and(|most| running >= most);
        full.then_some(Held::Running)
    }

    /// The limit of its own that keeps the group from starting one more job in this queue, if any. With `promised`, its
    /// ready jobs start first.
    pub(super) fn blocked(
        &mut self,
        group: Slot,
        queue: u16,
        promised: bool,
        now: Timestamp,
    ) -> Option<Blocked> {
        let ready = match promised {
            true => self.groups[group as usize].count(JobState::Ready),
            false => 0,
        };
        match self.group_blocked(group, ready) {
            Some(held) => Some(Blocked::Everywhere(held)),
            None => self
                .pair_blocked(group, queue, promised, now)
                .map(Blocked::InQueue),
        }
    }

    /// Takes the group out of the order, everywhere or in this queue.
    pub(super) fn block(&mut self, group: Slot, queue: u16, blocked: Blocked) {
        match blocked {
            Blocked::Everywhere(held) => self.hold(group, held),
            Blocked::InQueue(held) => self.hold_pair(group, queue, held),
        }
    }

    /// Takes all flows of the group out of the order.
    pub(super) fn hold(&mut self, group: Slot, why: Held) {
        for flow in self.groups[group as usize].flows.clone() {
            self.leave_order(flow);
        }
        self.set_held(group, Some(why));
    }

    fn set_held(&mut self, group: Slot, held: Option<Held>) {
        let entry = &mut self.groups[group as usize];
        if let Some(Held::Until(until)) = entry.held {
            self.held_groups.remove(&(until, entry.seq, group));
        }
        entry.held = held;
        if let Some(Held::Until(until)) = held {
            self.held_groups.insert((until, entry.seq, group));
        }
    }

    /// Puts a group's flows back into the order, unless the group is paused.
    pub(super) fn unhold(&mut self, group: Slot, now: Timestamp) {
        let paused = self.groups[group as usize].paused.then_some(Held::Paused);
        self.set_held(group, paused);
        if paused.is_none() {
            for flow in self.groups[group as usize].flows.clone() {
                self.enter_order(flow, now);
            }
        }
    }

    /// Puts back groups that may try again; at most a thousand, those first that were to come back first.
    pub(super) fn unhold_due(&mut self, now: Timestamp) {
        self.unhold_pairs(UNHOLD_PER_CALL, now);
        self.unhold_groups(now, now);
    }

    /// Puts back groups that are held until `end` at the latest; at most a thousand.
    pub(super) fn unhold_groups(&mut self, end: Timestamp, now: Timestamp) {
        for _ in 0..UNHOLD_PER_CALL {
            match self.held_groups.first() {
                Some(&(until, _, group)) if until <= end => self.unhold(group, now),
                _ => return,
            }
        }
    }

    /// The group's flow in this queue and priority; creates it if needed.
    pub(super) fn flow(&mut self, group: Slot, queue: u16, priority: Priority) -> Slot {
        let wanted = |&&flow: &&Slot| {
            let flow = &self.flows[flow as usize];
            flow.queue == queue && flow.priority == priority
        };
        if let Some(&flow) = self.groups[group as usize].flows.iter().find(wanted) {
            return flow;
        }
        let flow = self.flows.insert(Flow::new(group, queue, priority)) as Slot;
        self.groups[group as usize].flows.push(flow);
        flow
    }

    /// Counts one more unfinished job of the flow.
    pub(super) fn flow_gains(&mut self, slot: Slot) {
        let flow = &mut self.flows[slot as usize];
        if flow.unfinished == 0 {
            // How fast it was before its last job ended says little.
            flow.throughput = Throughput::default();
            let (group, queue, priority, tag) = (flow.group, flow.queue, flow.priority, flow.tag);
            let comes = !self.has_jobs_in(group, queue);
            let queue = &mut self.queues[usize::from(queue)];
            queue.orders[priority as usize].recall(slot, tag);
            queue.groups += u64::from(comes);
        }
        let flow = &mut self.flows[slot as usize];
        flow.unfinished += 1;
        self.queues[usize::from(flow.queue)].unfinished += 1;
    }

    /// Whether the group has unfinished jobs in this queue.
    fn has_jobs_in(&self, group: Slot, queue: u16) -> bool {
        let flows = self.groups[group as usize].flows.iter();
        flows
            .map(|&flow| &self.flows[flow as usize])
            .any(|flow| flow.queue == queue && flow.unfinished > 0)
    }

    pub(super) fn flow_loses(&mut self, slot: Slot) {
        let flow = &mut self.flows[slot as usize];
        flow.unfinished -= 1;
        self.queues[usize::from(flow.queue)].unfinished -= 1;
        if flow.unfinished > 0 {
            return;
        }
        let (group, queue, priority, tag) = (flow.group, flow.queue, flow.priority, flow.tag);
        if !self.has_jobs_in(group, queue) {
            self.queues[usize::from(queue)].groups -= 1;
        }
        let order = &mut self.queues[usize::from(queue)].orders[priority as usize];
        if !order.remember(slot, tag) {
            self.forget_flow(slot);
        }
        self.forget_flows(queue, priority);
    }

    /// Drops remembered flows that virtual time has caught up with.
    pub(super) fn forget_flows(&mut self, queue: u16, priority: Priority) {
        while let Some(flow) = self.queues[usize::from(queue)].orders[priority as usize].forgettable() {
            self.forget_flow(flow);
        }
    }

    fn forget_flow(&mut self, slot: Slot) {
        let flow = self.flows.remove(slot as usize);
        self.groups[flow.group as usize]
            .flows
            .retain(|&other| other != slot);
    }

    pub(super) fn leave_order(&mut self, slot: Slot) {
        let flow = &self.flows[slot as usize];
        let order = &mut self.queues[usize::from(flow.queue)].orders[flow.priority as usize];
        order.remove(&mut self.flows, slot);
    }

    /// Puts a flow into the order if it has jobs, neither its group nor the group in
    /// this queue is held, and it is not there yet. A flow already
    /// in the order does not move: arrivals never change the order.
    pub(super) fn enter_order(&mut self, slot: Slot, now: Timestamp) {
        let flow = &mut self.flows[slot as usize];
        let group = &self.groups[flow.group as usize];
        if flow.place.is_some() || group.held.is_some() || group.pair_held(flow.queue) || flow.len() == 0 {
            return;
        }
        let order = &mut self.queues[usize::from(flow.queue)].orders[flow.priority as usize];
        flow.tag = order.arrival_tag(flow.tag);
        flow.since = now;
        flow.served = 0;
        let key = match self.config.fair_queue.policy {
            FairPolicy::Fair => flow.tag as i64,
            FairPolicy::Score => score(self.config.fair_queue.alpha, flow, group),
        };
        order.insert(&mut self.flows, slot, key, weight(group.step));
        self.signals.work = true;
    }

    /// Moves a served flow back: virtual time advances, and the flow gets its next tag.
    pub(super) fn reenter_order(&mut self, slot: Slot, now: Timestamp) {
        self.leave_order(slot);
        let flow = &mut self.flows[slot as usize];
        let group = &self.groups[flow.group as usize];
        let (queue, priority) = (flow.queue, flow.priority);
        let order = &mut self.queues[usize::from(queue)].orders[priority as usize];
        order.advance(flow.tag);
        flow.tag += group.step;
        flow.since = now;
        flow.served += 1;
        if order.needs_rebase(group.step) {
            let same = |(_, l): &(usize, &mut Flow)| l.queue == queue && l.priority == priority;
            let flows = self
                .flows
                .iter_mut()
                .filter(same)
                .map(|(slot, flow)| (slot as Slot, flow));
            order.rebase(flows);
        }
        let flow = &self.flows[slot as usize];
        if flow.len() > 0 {
            let key = match self.config.fair_queue.policy {
                FairPolicy::Fair => flow.tag as i64,
                FairPolicy::Score => score(self.config.fair_queue.alpha, flow, group),
            };
            order.insert(&mut self.flows, slot, key, weight(group.step));
        }
        self.forget_flows(queue, priority);
    }

    /// Reverts the advance of a pick whose job did not start.
    pub(super) fn refund_pick(&mut self, slot: Slot) {
        let flow = &mut self.flows[slot as usize];
        let step = self.groups[flow.group as usize].step;
        flow.tag = flow.tag.saturating_sub(step);
    }
}

fn score(alpha: f64, flow: &Flow, group: &Group) -> i64 {
    PriorityCalculator { alpha }.calculate(PriorityInput {
        since_ms: flow.since.0,
        base_priority: group.base_priority,
        total_jobs: flow.served + flow.len(),
        done_jobs: flow.served,
    })
}

impl GroupLimits {
    /// Rejects what would hold a group forever, or cannot be counted in windows of this length. Limits that limit nothing
    /// are left out.
    pub fn checked(mut self, window: Millis) -> Result<Self, Refusal> {
        self.queues.retain(|_, limit| !limit.is_none());
        if self.queues.len() > MAX_QUEUES_OF_GROUP {
            return Err(Refusal::TooManyQueuesOfGroup {
                max: MAX_QUEUES_OF_GROUP as u64,
            });
        }
        check_limit(self.all, window, "of the group")?;
        for (queue, limit) in &self.queues {
            check_limit(*limit, window, &format!("of the group in queue {queue:?}"))?;
        }
        Ok(self)
    }
}

/// Rejects a limit that cannot work; `of` says whose it is.
pub(super) fn check_limit(limit: Limit, window: Millis, of: &str) -> Result<(), Refusal> {
    if let Some(rate) = limit.rate
        && let Some(right) = rate.error(window)
    {
        return Err(Refusal::Rate {
            what: format!("rate {of}"),
            value: rate.to_string(),
            right,
        });
    }
    match limit.max_running {
        Some(0) => Err(Refusal::ZeroLimit {
            what: format!("max_running {of}"),
        }),
        _ => Ok(()),
    }
}

/// Checks that a base priority is within its range.
pub fn checked_base_priority(base_priority: i32) -> Result<i32, Refusal> {
    if (-MAX_BASE_PRIORITY..=MAX_BASE_PRIORITY).contains(&base_priority) {
        Ok(base_priority)
    } else {
        Err(Refusal::BasePriority(base_priority))
    }
}
