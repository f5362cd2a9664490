//! Why a job is not running: what holds it, the nearest first, and when it should start.
//!
//! The state machine and stores that keep state elsewhere collect the same facts; [`why`] decides.

use super::Bulk;
use super::command::{DelayReason, Level};
use super::group::Held;
use super::job::{Job, Phase, Spot};
use super::list::{ACTION, NIL, QUEUE, Slot};
use super::pick::Startable;
use super::views::{Wait, Why};
use crate::ids::LaneId;
use crate::time::{Millis, Timestamp};

/// Limit: jobs looked at to find a job's place in its line, or the delayed job of a group that is due first.
pub const MAX_LOOKS: usize = 100_000;

/// Limit: jobs looked at in one line for the first that may start.
pub const LOOKS_PER_LINE: usize = 1_000;

/// Everything that decides when one unfinished job starts.
#[derive(Debug, Clone, PartialEq)]
pub struct WhyFacts {
    pub now: Timestamp,
    pub phase: Phase,
    pub lane: LaneId,
    pub group_paused: bool,
    pub action_paused: bool,
    /// Until when and why, if it is delayed.
    pub delayed: Option<(Timestamp, DelayReason)>,
    /// Jobs that stand before it in its line.
    pub ahead: u64,
    pub group: GroupFacts,
    pub window: WindowFacts,
    pub of_lane: LaneFacts,
}

/// What a group has of the window and of leases.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFacts {
    /// Starts in this window.
    pub started: u64,
    pub ready: u64,
    pub leased: u64,
    pub starts_per_window: Option<u64>,
    pub leased_at_once: Option<u64>,
    /// Out of the order until the window turns.
    pub held: bool,
    /// What every group gets of a window if all want more, and whether that is a ceiling.
    pub share: u64,
    pub share_is_strict: bool,
}

/// The window that everything starts in.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowFacts {
    pub length: Millis,
    pub ends: Timestamp,
    pub limit: u64,
    /// What is left of it, also for jobs in ready.
    pub room: u64,
    /// Jobs in ready over all lanes: each has its place in the window.
    pub ready: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LaneFacts {
    /// Starts that its pace allows in a window.
    pub limit: u64,
    pub started: u64,
    pub ready: u64,
    pub ready_max: u64,
}

/// Nothing to wait for: it runs, is finished, or there is none.
pub fn nothing(phase: Option<Phase>) -> Why {
    Why {
        phase,
        waits: Vec::new(),
        starts_at: None,
    }
}

/// What a job waits for.
pub fn why(facts: &WhyFacts) -> Why {
    if facts.phase == Phase::Leased || facts.phase.is_finished() {
        return nothing(Some(facts.phase));
    }
    let mut waits = Vec::new();
    if let Some((until, reason)) = facts.delayed {
        waits.push(Wait::Delayed { until, reason });
    }
    if facts.group_paused {
        waits.push(Wait::GroupPaused);
    }
    if facts.action_paused {
        waits.push(Wait::ActionPaused);
    }
    // A job of a paused action has left its line, or will when it is met there: nothing else holds it.
    if facts.delayed.is_none() && !facts.action_paused {
        held_in_line(facts, &mut waits);
    }
    let starts_at = (!facts.group_paused && !facts.action_paused).then(|| starts_at(facts, &waits));
    Why {
        phase: Some(facts.phase),
        waits,
        starts_at,
    }
}

/// What holds a job that waits or is ready. Behind others it waits for what holds the first of them.
fn held_in_line(facts: &WhyFacts, waits: &mut Vec<Wait>) {
    let (group, window, lane) = (&facts.group, &facts.window, &facts.of_lane);
    let until = window.ends;
    // A job in ready has its place among those that are promised.
    let waiting = facts.phase != Phase::Ready;
    let promised = |ready: u64| if waiting { ready } else { 0 };
    if facts.ahead > 0 {
        waits.push(Wait::Behind { jobs: facts.ahead });
    }
    let strict = group.share_is_strict.then_some(group.share);
    let ceiling = group.starts_per_window.into_iter().chain(strict).min();
    if let Some(ceiling) = ceiling
        && (group.held || group.started + promised(group.ready) >= ceiling)
    {
        waits.push(Wait::ShareUsedUp { ceiling, until });
    }
    if let Some(ceiling) = group.leased_at_once
        && group.leased + promised(group.ready) >= ceiling
    {
        waits.push(Wait::GroupBusy { ceiling });
    }
    let held_by_group = waits.iter().any(|wait| !matches!(wait, Wait::Behind { .. }));
    let spent_from = waits.len();
    if window.room <= promised(window.ready) {
        let limit = window.limit;
        waits.push(Wait::WindowSpent { limit, until });
    }
    if lane.started + promised(lane.ready) >= lane.limit {
        let limit = lane.limit;
        waits.push(Wait::LaneSpent { limit, until });
    }
    if waiting && lane.ready >= lane.ready_max {
        waits.push(Wait::ReadyFull { ready: lane.ready });
    }
    // A job in ready has only to be fetched, whatever becomes of the window.
    if !held_by_group && (!waiting || waits.len() == spent_from) {
        let lane = facts.lane.clone();
        waits.push(Wait::Workers { lane });
    }
}

/// When it should start: at the earliest time that is known, and a window later for every share that stands
/// before it.
fn starts_at(facts: &WhyFacts, waits: &[Wait]) -> Timestamp {
    let earliest = waits
        .iter()
        .filter_map(|wait| match wait {
            Wait::Delayed { until, .. }
            | Wait::ShareUsedUp { until, .. }
            | Wait::WindowSpent { until, .. }
            | Wait::LaneSpent { until, .. } => Some(*until),
            _ => None,
        })
        .fold(facts.now, Timestamp::max);
    let group = &facts.group;
    let own = group.starts_per_window.unwrap_or(u64::MAX);
    let speed = group.share.min(own).min(facts.of_lane.limit).max(1);
    let rounds = facts.ahead / speed;
    earliest + Millis(rounds.saturating_mul(facts.window.length.0))
}

impl Bulk {
    pub(super) fn why_job(&self, slot: Slot, now: Timestamp) -> Why {
        let job = &self.jobs[slot as usize];
        if job.phase == Phase::Leased || job.phase.is_finished() {
            return nothing(Some(job.phase));
        }
        let ahead = match job.phase {
            Phase::Waiting => self.ahead_of(slot),
            _ => 0,
        };
        why(&self.why_facts(slot, ahead, now))
    }

    /// About the job that would start next.
    pub(super) fn why_group(&self, group: Slot, now: Timestamp) -> Why {
        let next = self
            .first_ready(group)
            .or_else(|| self.first_in_line(group, now))
            .or_else(|| self.first_parked(group))
            .or_else(|| self.first_due(group));
        match next {
            Some(slot) => why(&self.why_facts(slot, 0, now)),
            None => {
                let leased = self.groups[group as usize].count(Phase::Leased) > 0;
                nothing(leased.then_some(Phase::Leased))
            }
        }
    }

    fn why_facts(&self, slot: Slot, ahead: u64, now: Timestamp) -> WhyFacts {
        let job = &self.jobs[slot as usize];
        let line = &self.lines[job.line as usize];
        let (group, lane) = (
            &self.groups[line.group as usize],
            &self.lanes[usize::from(line.lane)],
        );
        let window = self.limiter.window();
        WhyFacts {
            now,
            phase: job.phase,
            lane: lane.name.clone(),
            group_paused: group.paused,
            action_paused: self.actions[job.action as usize].paused,
            delayed: (job.phase == Phase::Delayed).then_some((job.at, job.delay)),
            ahead,
            group: GroupFacts {
                started: u64::from(group.started_in(window)),
                ready: u64::from(group.count(Phase::Ready)),
                leased: u64::from(group.count(Phase::Leased)),
                starts_per_window: group.ceilings.starts_per_window.map(u64::from),
                leased_at_once: group.ceilings.leased_at_once.map(u64::from),
                held: group.held == Some(Held::Window(window)),
                share: self.per_group_limit(),
                share_is_strict: self.config.backpressure.strict_share,
            },
            window: WindowFacts {
                length: self.limiter.length(),
                ends: self.limiter.window_end(),
                limit: self.limiter.limit(),
                room: self.limiter.room(),
                ready: self.ready,
            },
            of_lane: LaneFacts {
                limit: lane.pace.at(now).limit(now, self.limiter.length()),
                started: lane.started,
                ready: u64::from(lane.ready.len),
                ready_max: u64::from(self.config.backpressure.ready_queue_max_size),
            },
        }
    }

    /// Jobs that stand before it in its line.
    fn ahead_of(&self, slot: Slot) -> u64 {
        let job = &self.jobs[slot as usize];
        let line = &self.lines[job.line as usize];
        let before = match job.spot {
            Spot::Returned => 0,
            Spot::Throttled => line.returned.len,
            Spot::Fresh => line.returned.len + line.throttled.len,
            // Out of its line until its action is resumed.
            _ => return 0,
        };
        let mut prev = job.links[QUEUE].prev;
        let mut looks = 0;
        while prev != NIL && looks < MAX_LOOKS {
            prev = self.jobs[prev as usize].links[QUEUE].prev;
            looks += 1;
        }
        u64::from(before) + looks as u64
    }

    /// The highest level first, then who came first.
    fn next_of(&self, candidates: impl Iterator<Item = Slot>) -> Option<Slot> {
        let rank = |slot: &Slot| {
            let job: &Job = &self.jobs[*slot as usize];
            let level: Level = job.level;
            (level as usize, job.seq)
        };
        candidates.min_by_key(rank)
    }

    fn chain(&self, head: Slot, list: usize) -> impl Iterator<Item = Slot> + '_ {
        let start = (head != NIL).then_some(head);
        std::iter::successors(start, move |&slot| {
            let next = self.jobs[slot as usize].links[list].next;
            (next != NIL).then_some(next)
        })
    }

    fn first_ready(&self, group: Slot) -> Option<Slot> {
        if self.groups[group as usize].count(Phase::Ready) == 0 {
            return None;
        }
        let of_group = |slot: &Slot| self.lines[self.jobs[*slot as usize].line as usize].group == group;
        let first = |lane: &super::Lane| self.chain(lane.ready.head, QUEUE).find(of_group);
        self.next_of(self.lanes.iter().filter_map(first))
    }

    /// Of each line the first job that may start, or its first job if none of those looked at may.
    fn first_in_line(&self, group: Slot, now: Timestamp) -> Option<Slot> {
        let first = |&line: &Slot| {
            let line = &self.lines[line as usize];
            let jobs = [&line.returned, &line.throttled, &line.fresh]
                .into_iter()
                .flat_map(|list| self.chain(list.head, QUEUE));
            let mut some = jobs.take(LOOKS_PER_LINE);
            some.find(|&slot| self.startable(slot, now) == Startable::Yes)
                .or(line.front())
        };
        self.next_of(self.groups[group as usize].lines.iter().filter_map(first))
    }

    fn first_parked(&self, group: Slot) -> Option<Slot> {
        let actions = self.groups[group as usize].actions.iter();
        let parked = actions.flat_map(|&action| &self.actions[action as usize].parked);
        self.next_of(parked.filter_map(|(_, list)| list.front()))
    }

    /// Of the delayed jobs the one that is due first.
    fn first_due(&self, group: Slot) -> Option<Slot> {
        if self.groups[group as usize].count(Phase::Delayed) == 0 {
            return None;
        }
        let actions = self.groups[group as usize].actions.iter();
        let jobs = actions.flat_map(|&action| self.chain(self.actions[action as usize].jobs.head, ACTION));
        jobs.take(MAX_LOOKS)
            .filter(|&slot| self.jobs[slot as usize].phase == Phase::Delayed)
            .min_by_key(|&slot| {
                let job = &self.jobs[slot as usize];
                (job.at, job.seq)
            })
    }
}
