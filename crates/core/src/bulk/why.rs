//! Why a job is not running: what holds it, nearest cause first, and when it starts.
//!
//! The state machine and stores that keep state elsewhere collect the same facts; [`why`] decides.

use super::Bulk;
use super::command::{DelayReason, Priority};
use super::estimate::{Estimate, GroupPace, NoEstimate, start};
use super::job::{Job, JobState, Spot};
use super::limiter::WindowLimiter;
use super::list::{BATCH, NIL, QUEUE, Slot};
use super::pick::Startable;
use super::views::{Wait, Why};
use crate::ids::QueueId;
use crate::limits::meter::Meter;
use crate::limits::rate::Rate;
use crate::time::{Millis, Timestamp};

/// Limit: jobs inspected to find a job's position in its flow, or the group's delayed job that is due first.
pub const MAX_INSPECTIONS: usize = 100_000;

/// Limit: jobs inspected in one flow for the first that may start.
pub const INSPECTIONS_PER_FLOW: usize = 1_000;

/// Everything that decides when one unfinished job starts.
#[derive(Debug, Clone, PartialEq)]
pub struct WhyFacts {
    pub now: Timestamp,
    pub state: JobState,
    pub queue: QueueId,
    pub group_paused: bool,
    pub batch_paused: bool,
    /// Until when and why, if it is delayed.
    pub delayed: Option<(Timestamp, DelayReason)>,
    /// Jobs ahead of it in its flow.
    pub ahead: u64,
    pub group: GroupFacts,
    pub window: WindowFacts,
    pub of_queue: QueueFacts,
    /// How fast its group gets on, and the index of its flow there.
    pub pace: GroupPace,
    pub flow: usize,
}

/// A limit of its own that a group has, and its use.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnFacts {
    /// Starts in this window.
    pub started: u64,
    pub ready: u64,
    pub running: u64,
    pub rate: Option<RateFacts>,
    pub max_running: Option<u64>,
}

/// A rate, in the current window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateFacts {
    /// Starts that this window allows.
    pub allowed: u64,
    /// The most that any window allows.
    pub most: u64,
    /// When the next window begins that allows a start.
    pub until: Timestamp,
}

impl RateFacts {
    fn of(rate: Rate, meter: Meter, limiter: &WindowLimiter) -> Self {
        let window = limiter.window();
        Self {
            allowed: rate.allowed(window),
            most: rate.most(),
            until: limiter.start_of(meter.next(rate, window)),
        }
    }
}

/// A group's limits and its share.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFacts {
    /// Over all queues.
    pub all: OwnFacts,
    /// In the queue of the job.
    pub in_queue: OwnFacts,
    /// The share of a window that each group gets if all want more, and whether it is a limit.
    pub share: u64,
    pub share_is_strict: bool,
}

/// The global window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowFacts {
    pub length: Millis,
    pub ends: Timestamp,
    /// When the next window begins that allows a start.
    pub until: Timestamp,
    pub limit: u64,
    /// The rest of the window, including what ready jobs have reserved.
    pub room: u64,
    /// Ready jobs of all queues: each has reserved a start in the window.
    pub ready: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct QueueFacts {
    /// Starts that its rate and its downstream allow in this window.
    pub limit: u64,
    /// When its rate allows the next start after this window.
    pub until: Timestamp,
    pub started: u64,
    pub ready: u64,
    pub ready_max: u64,
    pub running: u64,
    pub max_running: Option<u64>,
}

/// No cause: the job is running or finished, or there is none.
pub fn nothing(state: Option<JobState>) -> Why {
    Why {
        state,
        waits: Vec::new(),
        starts: None,
    }
}

/// The causes for which a job waits.
pub fn why(facts: &WhyFacts) -> Why {
    if facts.state == JobState::Running || facts.state.is_finished() {
        return nothing(Some(facts.state));
    }
    let mut waits = Vec::new();
    if let Some((until, reason)) = facts.delayed {
        waits.push(Wait::Delayed { until, reason });
    }
    if facts.group_paused {
        waits.push(Wait::GroupPaused);
    }
    if facts.batch_paused {
        waits.push(Wait::BatchPaused);
    }
    // A job of a paused batch has left its flow, or will when the picker finds it: nothing else holds it.
    if facts.delayed.is_none() && !facts.batch_paused {
        held_in_flow(facts, &mut waits);
    }
    let starts = starts(facts, &waits);
    Why {
        state: Some(facts.state),
        waits,
        starts: Some(starts),
    }
}

/// What holds a waiting or ready job. A job behind others waits for what holds the first of them.
fn held_in_flow(facts: &WhyFacts, waits: &mut Vec<Wait>) {
    let (group, window, queue) = (&facts.group, &facts.window, &facts.of_queue);
    // A ready job has reserved its start.
    let waiting = facts.state != JobState::Ready;
    let promised = |ready: u64| if waiting { ready } else { 0 };
    if facts.ahead > 0 {
        waits.push(Wait::Behind { jobs: facts.ahead });
    }
    let spent = |own: &OwnFacts| {
        let starts = own.started + promised(own.ready);
        own.rate.filter(|rate| starts >= rate.allowed)
    };
    let busy =
        |running: u64, ready: u64, most: Option<u64>| most.filter(|&most| running + promised(ready) >= most);
    let (all, pair) = (&group.all, &group.in_queue);
    if let Some(rate) = spent(all) {
        let (limit, until) = (rate.most, rate.until);
        waits.push(Wait::GroupSpent { limit, until });
    } else if group.share_is_strict && all.started + promised(all.ready) >= group.share {
        let (limit, until) = (group.share, window.ends);
        waits.push(Wait::GroupSpent { limit, until });
    }
    if let Some(rate) = spent(pair) {
        let (limit, until) = (rate.most, rate.until);
        waits.push(Wait::GroupInQueueSpent { limit, until });
    }
    if let Some(limit) = busy(all.running, all.ready, all.max_running) {
        waits.push(Wait::GroupBusy { limit });
    }
    if let Some(limit) = busy(pair.running, pair.ready, pair.max_running) {
        waits.push(Wait::GroupInQueueBusy { limit });
    }
    if let Some(limit) = busy(queue.running, queue.ready, queue.max_running) {
        waits.push(Wait::QueueBusy { limit });
    }
    let held_up = waits.iter().any(|wait| !matches!(wait, Wait::Behind { .. }));
    let spent_from = waits.len();
    if window.room <= promised(window.ready) {
        let (limit, until) = (window.limit, window.until);
        waits.push(Wait::WindowSpent { limit, until });
    }
    if queue.started + promised(queue.ready) >= queue.limit {
        let (limit, until) = (queue.limit, queue.until);
        waits.push(Wait::QueueSpent { limit, until });
    }
    if waiting && queue.ready >= queue.ready_max {
        waits.push(Wait::ReadyFull { ready: queue.ready });
    }
    // A ready job only waits for a worker, whatever happens to the window.
    if !held_up && (!waiting || waits.len() == spent_from) {
        let queue = facts.queue.clone();
        waits.push(Wait::Workers { queue });
    }
}

/// When it starts: not before what holds it ends, and not before the jobs ahead of it.
fn starts(facts: &WhyFacts, waits: &[Wait]) -> Estimate {
    if facts.group_paused || facts.batch_paused {
        return Err(NoEstimate::Paused);
    }
    let earliest = waits
        .iter()
        .filter_map(|wait| match wait {
            Wait::Delayed { until, .. }
            | Wait::GroupSpent { until, .. }
            | Wait::GroupInQueueSpent { until, .. }
            | Wait::WindowSpent { until, .. }
            | Wait::QueueSpent { until, .. } => Some(*until),
            _ => None,
        })
        .fold(facts.now, Timestamp::max);
    start(&facts.pace, facts.flow, facts.ahead, earliest)
}

impl Bulk {
    pub(super) fn why_job(&self, slot: Slot, now: Timestamp) -> Why {
        let job = &self.jobs[slot as usize];
        if job.state == JobState::Running || job.state.is_finished() {
            return nothing(Some(job.state));
        }
        let ahead = match job.state {
            JobState::Waiting => self.ahead_of(slot),
            _ => 0,
        };
        why(&self.why_facts(slot, ahead, now))
    }

    /// Explains the job of the group that would start next.
    pub(super) fn why_group(&self, group: Slot, now: Timestamp) -> Why {
        let next = self
            .first_ready(group)
            .or_else(|| self.first_in_flows(group, now))
            .or_else(|| self.first_parked(group))
            .or_else(|| self.first_due(group));
        match next {
            Some(slot) => why(&self.why_facts(slot, 0, now)),
            None => {
                let running = self.groups[group as usize].count(JobState::Running) > 0;
                nothing(running.then_some(JobState::Running))
            }
        }
    }

    fn why_facts(&self, slot: Slot, ahead: u64, now: Timestamp) -> WhyFacts {
        let job = &self.jobs[slot as usize];
        let flow = &self.flows[job.flow as usize];
        let (group, queue) = (
            &self.groups[flow.group as usize],
            &self.queues[usize::from(flow.queue)],
        );
        let (window, length) = (self.limiter.window(), self.limiter.length());
        let pair = group.pair(flow.queue);
        let limit = self.pair_limit(flow.group, flow.queue);
        let rate_facts = |rate, meter| RateFacts::of(rate, meter, &self.limiter);
        let own_rate = group.limits.all.rate.map(|rate| rate.in_windows(length));
        let in_queue = pair.map_or(Meter::default(), |pair| pair.meter.turned(limit.rate, window));
        WhyFacts {
            now,
            state: job.state,
            queue: queue.name.clone(),
            group_paused: group.paused,
            batch_paused: self.batches[job.batch as usize].paused,
            delayed: (job.state == JobState::Delayed).then_some((job.at, job.delay)),
            ahead,
            group: GroupFacts {
                all: OwnFacts {
                    started: self.started_by(group),
                    ready: u64::from(group.count(JobState::Ready)),
                    running: u64::from(group.count(JobState::Running)),
                    rate: own_rate.map(|rate| rate_facts(rate, group.meter)),
                    max_running: group.limits.all.max_running.map(u64::from),
                },
                in_queue: OwnFacts {
                    started: in_queue.charged(window),
                    ready: pair.map_or(0, |pair| u64::from(pair.ready)),
                    running: pair.map_or(0, |pair| u64::from(pair.running)),
                    rate: limit.rate.map(|rate| rate_facts(rate, in_queue)),
                    max_running: limit.max_running.map(u64::from),
                },
                share: self.per_group_limit(),
                share_is_strict: self.config.backpressure.strict_share,
            },
            window: WindowFacts {
                length: self.limiter.length(),
                ends: self.limiter.window_end(),
                until: self.limiter.until(),
                limit: self.limiter.limit(),
                room: self.limiter.room(),
                ready: self.ready,
            },
            flow: group.flows.iter().position(|&slot| slot == job.flow).unwrap_or(0),
            pace: self.group_pace(flow.group, now),
            of_queue: QueueFacts {
                limit: queue.allowed(window, now),
                until: rate_facts(queue.rate, queue.meter).until,
                started: queue.started(window),
                ready: u64::from(queue.ready.len),
                ready_max: u64::from(self.config.backpressure.ready_queue_max_size),
                running: queue.running,
                max_running: queue.max_running.map(u64::from),
            },
        }
    }

    /// Jobs ahead of it in its flow.
    fn ahead_of(&self, slot: Slot) -> u64 {
        let job = &self.jobs[slot as usize];
        let flow = &self.flows[job.flow as usize];
        let before = match job.spot {
            Spot::Returned => 0,
            Spot::Throttled => flow.returned.len,
            Spot::Fresh => flow.returned.len + flow.throttled.len,
            // Out of its flow until its batch is resumed.
            _ => return 0,
        };
        let mut prev = job.links[QUEUE].prev;
        let mut inspections = 0;
        while prev != NIL && inspections < MAX_INSPECTIONS {
            prev = self.jobs[prev as usize].links[QUEUE].prev;
            inspections += 1;
        }
        u64::from(before) + inspections as u64
    }

    /// The highest priority first, then the earliest arrival.
    fn next_of(&self, candidates: impl Iterator<Item = Slot>) -> Option<Slot> {
        let rank = |slot: &Slot| {
            let job: &Job = &self.jobs[*slot as usize];
            let priority: Priority = job.priority;
            (priority as usize, job.seq)
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
        if self.groups[group as usize].count(JobState::Ready) == 0 {
            return None;
        }
        let of_group = |slot: &Slot| self.flows[self.jobs[*slot as usize].flow as usize].group == group;
        let first = |queue: &super::Queue| self.chain(queue.ready.head, QUEUE).find(of_group);
        self.next_of(self.queues.iter().filter_map(first))
    }

    /// The first job of each flow that may start, or its first job if none of the inspected ones may.
    fn first_in_flows(&self, group: Slot, now: Timestamp) -> Option<Slot> {
        let first = |&flow: &Slot| {
            let flow = &self.flows[flow as usize];
            let jobs = [&flow.returned, &flow.throttled, &flow.fresh]
                .into_iter()
                .flat_map(|list| self.chain(list.head, QUEUE));
            let mut some = jobs.take(INSPECTIONS_PER_FLOW);
            some.find(|&slot| self.startable(slot, now) == Startable::Yes)
                .or(flow.front())
        };
        self.next_of(self.groups[group as usize].flows.iter().filter_map(first))
    }

    fn first_parked(&self, group: Slot) -> Option<Slot> {
        let batches = self.groups[group as usize].batches.iter();
        let parked = batches.flat_map(|&batch| &self.batches[batch as usize].parked);
        self.next_of(parked.filter_map(|(_, list)| list.front()))
    }

    /// The delayed job that is due first.
    fn first_due(&self, group: Slot) -> Option<Slot> {
        if self.groups[group as usize].count(JobState::Delayed) == 0 {
            return None;
        }
        let batches = self.groups[group as usize].batches.iter();
        let jobs = batches.flat_map(|&batch| self.chain(self.batches[batch as usize].jobs.head, BATCH));
        jobs.take(MAX_INSPECTIONS)
            .filter(|&slot| self.jobs[slot as usize].state == JobState::Delayed)
            .min_by_key(|&slot| {
                let job = &self.jobs[slot as usize];
                (job.at, job.seq)
            })
    }
}
