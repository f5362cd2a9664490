//! A group: its settings, its counts, whether it is held, and its flows.

use super::Bulk;
use super::command::{Ceilings, ConfigureGroupParams, Priority};
use super::job::JobState;
use super::line::Line;
use super::list::Slot;
use super::policy::{self, MAX_BASE_PRIORITY, PriorityCalculator, PriorityInput};
use super::record::{Change, GroupRecord, GroupSeq};
use super::refusal::Refusal;
use super::stats::CongestionStats;
use crate::config::FairPolicy;
use crate::ids::GroupId;
use crate::time::Timestamp;

/// Why a group is out of the order although it has jobs. A held group never hides others from the picker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Paused,
    /// At its limit of starts in this window; held until the window turns.
    Window(u64),
    /// At its limit of running jobs; held until a lease ends.
    Leased,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) seq: GroupSeq,
    pub(super) id: GroupId,
    pub(super) base_priority: i32,
    pub(super) step: u64,
    pub(super) ceilings: Ceilings,
    pub(super) paused: bool,
    pub(super) held: Option<Held>,
    pub(super) created_at: Timestamp,
    pub(super) idle_since: Timestamp,
    /// Jobs per state; finished ones as long as the store keeps them.
    pub(super) counts: [u32; 6],
    /// Jobs delayed by congestion, not by schedule.
    pub(super) congested: u32,
    /// The window and the starts counted in it.
    pub(super) started: (u64, u32),
    pub(super) lines: Vec<Slot>,
    pub(super) batches: Vec<Slot>,
    pub(super) open_batch: Option<Slot>,
    pub(super) stats: CongestionStats,
}

impl Group {
    pub(super) fn count(&self, state: JobState) -> u32 {
        self.counts[state as usize]
    }

    /// Has unfinished jobs, and so counts in the shares.
    pub(super) fn is_active(&self) -> bool {
        [
            JobState::Waiting,
            JobState::Ready,
            JobState::Running,
            JobState::Delayed,
        ]
        .iter()
        .any(|&p| self.count(p) > 0)
    }

    pub(super) fn started_in(&self, window: u64) -> u32 {
        if self.started.0 == window {
            self.started.1
        } else {
            0
        }
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
            ceilings: Ceilings::default(),
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
            ceilings: record.ceilings.clone(),
            paused: record.paused,
            held: record.paused.then_some(Held::Paused),
            created_at: record.created_at,
            idle_since: now,
            counts: [0; 6],
            congested: 0,
            started: (0, 0),
            lines: Vec::new(),
            batches: Vec::new(),
            open_batch: None,
            stats: CongestionStats::default(),
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
            ceilings: group.ceilings.clone(),
            created_at: group.created_at,
        }));
    }

    pub(super) fn configure_group(&mut self, p: ConfigureGroupParams, now: Timestamp) -> Result<(), Refusal> {
        let base_priority = p.base_priority.map(checked_base_priority).transpose()?;
        p.ceilings.as_ref().map(Ceilings::check).transpose()?;
        let slot = self.find_or_create_group(&p.group, base_priority, now)?;
        let group = &mut self.groups[slot as usize];
        if let Some(base_priority) = base_priority {
            group.base_priority = base_priority;
            group.step = policy::step(base_priority);
        }
        if let Some(ceilings) = p.ceilings {
            group.ceilings = ceilings;
        }
        self.put_group(slot);
        // A raised ceiling takes effect at once; if the group is still at a ceiling, the next pick holds it
        // again.
        self.unhold(slot, now);
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
        let gave_up = from == Some(JobState::Ready) && to != Some(JobState::Running);
        if gave_up && self.groups[group as usize].held == Some(Held::Leased) {
            self.unhold(group, now);
        }
    }

    /// The share of a window that each group gets if all want more: `max(1, floor(limit / active groups))`.
    pub(super) fn per_group_limit(&self) -> u64 {
        (self.limiter.limit() / self.active_groups.max(1)).max(1)
    }

    /// The ceiling that keeps the group from starting one more job, if any, when `promised` of its ready jobs
    /// will start first.
    pub(super) fn at_ceiling(&self, group: Slot, promised: u32) -> Option<Held> {
        let group = &self.groups[group as usize];
        let window = self.limiter.window();
        let starts = u64::from(group.started_in(window)) + u64::from(promised);
        let share = self
            .config
            .backpressure
            .strict_share
            .then(|| self.per_group_limit());
        let ceiling = group.ceilings.starts_per_window.map(u64::from);
        if share.is_some_and(|most| starts >= most) || ceiling.is_some_and(|most| starts >= most) {
            return Some(Held::Window(window));
        }
        let leased = group.count(JobState::Running) + promised;
        group
            .ceilings
            .leased_at_once
            .is_some_and(|most| leased >= most)
            .then_some(Held::Leased)
    }

    /// Takes all flows of the group out of the order.
    pub(super) fn hold(&mut self, group: Slot, why: Held) {
        for line in self.groups[group as usize].lines.clone() {
            self.leave_order(line);
        }
        let entry = &mut self.groups[group as usize];
        entry.held = Some(why);
        if let Held::Window(window) = why {
            self.held_until_turn.push_back((window, group, entry.seq));
        }
    }

    /// Puts a group's flows back into the order, unless the group is paused.
    pub(super) fn unhold(&mut self, group: Slot, now: Timestamp) {
        let entry = &mut self.groups[group as usize];
        entry.held = entry.paused.then_some(Held::Paused);
        if entry.held.is_none() {
            for line in entry.lines.clone() {
                self.enter_order(line, now);
            }
        }
    }

    /// Puts back groups whose window has turned; at most `max`, in the order in which they were held.
    pub(super) fn unhold_turned(&mut self, max: usize, now: Timestamp) {
        self.unhold_before(self.limiter.window(), max, now);
    }

    /// Puts back groups that were held in a window before `end`.
    pub(super) fn unhold_before(&mut self, end: u64, max: usize, now: Timestamp) {
        for _ in 0..max {
            let Some(&(window, slot, seq)) = self.held_until_turn.front() else {
                return;
            };
            if window >= end {
                return;
            }
            self.held_until_turn.pop_front();
            let same = |g: &Group| g.seq == seq && g.held == Some(Held::Window(window));
            if self.groups.get(slot as usize).is_some_and(same) {
                self.unhold(slot, now);
            }
        }
    }

    /// The group's flow in this queue and priority; creates it if needed.
    pub(super) fn line(&mut self, group: Slot, queue: u16, priority: Priority) -> Slot {
        let wanted = |&&line: &&Slot| {
            let line = &self.lines[line as usize];
            line.queue == queue && line.priority == priority
        };
        if let Some(&line) = self.groups[group as usize].lines.iter().find(wanted) {
            return line;
        }
        let line = self.lines.insert(Line::new(group, queue, priority)) as Slot;
        self.groups[group as usize].lines.push(line);
        line
    }

    /// Counts one more unfinished job of the flow.
    pub(super) fn line_gains(&mut self, slot: Slot) {
        let line = &mut self.lines[slot as usize];
        if line.unfinished == 0 {
            let (queue, priority, tag) = (line.queue, line.priority, line.tag);
            self.queues[usize::from(queue)].orders[priority as usize].recall(slot, tag);
        }
        line.unfinished += 1;
    }

    pub(super) fn line_loses(&mut self, slot: Slot) {
        let line = &mut self.lines[slot as usize];
        line.unfinished -= 1;
        if line.unfinished > 0 {
            return;
        }
        let (queue, priority, tag) = (line.queue, line.priority, line.tag);
        let order = &mut self.queues[usize::from(queue)].orders[priority as usize];
        if !order.remember(slot, tag) {
            self.forget_line(slot);
        }
        self.forget_lines(queue, priority);
    }

    /// Drops remembered flows that virtual time has caught up with.
    pub(super) fn forget_lines(&mut self, queue: u16, priority: Priority) {
        while let Some(line) = self.queues[usize::from(queue)].orders[priority as usize].forgettable() {
            self.forget_line(line);
        }
    }

    fn forget_line(&mut self, slot: Slot) {
        let line = self.lines.remove(slot as usize);
        self.groups[line.group as usize]
            .lines
            .retain(|&other| other != slot);
    }

    pub(super) fn leave_order(&mut self, slot: Slot) {
        let line = &self.lines[slot as usize];
        let order = &mut self.queues[usize::from(line.queue)].orders[line.priority as usize];
        order.remove(&mut self.lines, slot);
    }

    /// Puts a flow into the order if it has jobs, its group is not held and it is not there yet. A flow already
    /// in the order does not move: arrivals never change the order.
    pub(super) fn enter_order(&mut self, slot: Slot, now: Timestamp) {
        let line = &mut self.lines[slot as usize];
        let group = &self.groups[line.group as usize];
        if line.place.is_some() || group.held.is_some() || line.len() == 0 {
            return;
        }
        let order = &mut self.queues[usize::from(line.queue)].orders[line.priority as usize];
        line.tag = order.arrival_tag(line.tag);
        line.since = now;
        line.served = 0;
        let key = match self.config.fair_queue.policy {
            FairPolicy::Fair => line.tag as i64,
            FairPolicy::Score => score(self.config.fair_queue.alpha, line, group),
        };
        order.insert(&mut self.lines, slot, key);
        self.signals.work = true;
    }

    /// Moves a served flow back: virtual time advances, and the flow gets its next tag.
    pub(super) fn reenter_order(&mut self, slot: Slot, now: Timestamp) {
        self.leave_order(slot);
        let line = &mut self.lines[slot as usize];
        let group = &self.groups[line.group as usize];
        let (queue, priority) = (line.queue, line.priority);
        let order = &mut self.queues[usize::from(queue)].orders[priority as usize];
        order.advance(line.tag);
        line.tag += group.step;
        line.since = now;
        line.served += 1;
        if order.needs_rebase(group.step) {
            let same = |(_, l): &(usize, &mut Line)| l.queue == queue && l.priority == priority;
            let lines = self
                .lines
                .iter_mut()
                .filter(same)
                .map(|(slot, line)| (slot as Slot, line));
            order.rebase(lines);
        }
        let line = &self.lines[slot as usize];
        if line.len() > 0 {
            let key = match self.config.fair_queue.policy {
                FairPolicy::Fair => line.tag as i64,
                FairPolicy::Score => score(self.config.fair_queue.alpha, line, group),
            };
            order.insert(&mut self.lines, slot, key);
        }
        self.forget_lines(queue, priority);
    }

    /// Reverts the advance of a pick whose job did not start.
    pub(super) fn refund_pick(&mut self, slot: Slot) {
        let line = &mut self.lines[slot as usize];
        let step = self.groups[line.group as usize].step;
        line.tag = line.tag.saturating_sub(step);
    }
}

fn score(alpha: f64, line: &Line, group: &Group) -> i64 {
    PriorityCalculator { alpha }.calculate(PriorityInput {
        since_ms: line.since.0,
        base_priority: group.base_priority,
        total_jobs: line.served + line.len(),
        done_jobs: line.served,
    })
}

impl Ceilings {
    /// Rejects a ceiling of zero: it would hold a group forever.
    pub fn check(&self) -> Result<(), Refusal> {
        for (what, value) in [
            ("starts_per_window", self.starts_per_window),
            ("leased_at_once", self.leased_at_once),
        ] {
            if value == Some(0) {
                return Err(Refusal::ZeroCeiling {
                    what: what.to_owned(),
                });
            }
        }
        Ok(())
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
