//! When jobs start and when a backlog is finished, as a range that shows how certain it is.
//!
//! The state machine and stores that keep state elsewhere collect the same facts; [`finish`] and [`start`] decide. The
//! pace of a queue is what it measured while jobs waited, at most what its limits allow. A group gets its share of it by
//! weight, or what it measured itself where something else holds it back.
//!
//! ```text
//!   jobs │╲  higher priorities wait: only the guaranteed minimum
//!        │  ‾ ‾ ╲
//!        │        ╲   the whole pace, shared by weight
//!        │          ╲
//!        └────────────┬──┬─ time
//!              earliest  latest
//! ```

use serde::{Deserialize, Serialize};

use super::command::Priority;
use crate::limits::throughput::{SLOT, Stretch, Throughput};
use crate::time::{Millis, Timestamp};

/// No range is narrower than this share of the time, on each side: queues are not perfectly steady.
const UNSTEADY: f64 = 0.04;
/// The half-width of a range in standard deviations.
const SPREAD: f64 = 1.6;
/// With fewer starts a pace is not known.
const FEW: u64 = 3;
/// A flow that was busy for a shorter time knows nothing of its own.
const OWN_BUSY: u64 = 2 * SLOT.0;
/// A measure of its own counts if it differs by more than this from the share by weight.
const DIFFERS: f64 = 1.3;
/// A queue in which nobody has asked for so long, and nothing runs, has no worker: idle ones ask every second or two.
const LATELY: Millis = Millis(5_000);
/// A queue that follows its downstream finds out more as time passes.
const FOLLOWS: f64 = 0.08;
/// The downstream was cut if it sustains less than what was measured by this factor.
const CUT: f64 = 1.3;
/// How uncertain a pace is that nobody has measured.
const UNMEASURED: f64 = 0.3;

/// From now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Range {
    pub earliest: Millis,
    pub latest: Millis,
}

/// Why there is no estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NoEstimate {
    /// Its group or batch is paused.
    Paused,
    /// No worker has asked for its jobs lately.
    NoWorker,
    /// Too few jobs have started, and the queue has no rate of its own.
    NotMeasured,
}

/// A range, or why there is none.
pub type Estimate = Result<Range, NoEstimate>;

type Estimated<T> = Result<T, NoEstimate>;

/// What is known of a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuePace {
    pub measured: Throughput,
    /// Starts per second that its limits allow, and whether one of them is its own.
    pub rate: f64,
    pub own_rate: bool,
    /// Starts per second that its downstream sustains, if that was ever less.
    pub sustained: Option<f64>,
    /// The length of a window: starts bunch at the beginning of each.
    pub window: Millis,
    /// The weight of the flows in the order (thousandths), by priority.
    pub weight: [u64; 3],
    /// Some flows of the order, by priority: the next ones to be served.
    pub standing: [Vec<Standing>; 3],
    /// The guaranteed minimum of each priority, in percent.
    pub minimum: [u32; 3],
    pub running: u64,
    /// The mean time to an answer.
    pub round_trip: Millis,
    /// When a worker last asked.
    pub asked: Timestamp,
    /// The downstream asked for no calls until then.
    pub held_until: Option<Timestamp>,
}

/// A flow in the order: its weight (thousandths), and its jobs that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub weight: u64,
    pub jobs: u64,
}

/// Limit: flows of one order that an estimate looks at. The others count as if they were like these.
pub const STANDING: usize = 64;

/// Delayed jobs: how many, when they are due on average (whole seconds), and when the last one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due {
    pub jobs: u64,
    pub seconds: u64,
    pub last: Timestamp,
}

impl Due {
    pub(super) fn add(&mut self, at: Timestamp) {
        self.jobs += 1;
        self.seconds += at.0 / 1_000;
        self.last = self.last.max(at);
    }

    pub(super) fn remove(&mut self, at: Timestamp) {
        self.jobs = self.jobs.saturating_sub(1);
        self.seconds = self.seconds.saturating_sub(at.0 / 1_000);
        if self.jobs == 0 {
            *self = Self::default();
        }
    }
}

/// What is known of one flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowPace {
    /// The index of its queue among the facts.
    pub queue: usize,
    pub priority: Priority,
    /// Unfinished jobs, and those of them that wait in the flow.
    pub unfinished: u64,
    pub waiting: u64,
    pub due: Due,
    pub measured: Throughput,
    /// Its weight is part of the order's.
    pub in_order: bool,
    /// The limit of its group in its queue.
    pub limit: PaceLimit,
}

/// A limit that a group has.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PaceLimit {
    pub per_second: Option<f64>,
    pub max_running: Option<u32>,
}

impl PaceLimit {
    /// Starts per second, when a run takes so long.
    fn pace(self, round_trip: Millis) -> Option<f64> {
        let trip = round_trip.as_secs_f64();
        let by_places = self.max_running.filter(|_| trip > 0.0);
        let by_places = by_places.map(|most| f64::from(most) / trip);
        self.per_second.into_iter().chain(by_places).reduce(f64::min)
    }
}

/// Everything that decides when the jobs of one group are finished.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupPace {
    pub now: Timestamp,
    pub paused: bool,
    pub running: u64,
    /// In thousandths.
    pub weight: u64,
    /// Over all its queues.
    pub limit: PaceLimit,
    pub flows: Vec<FlowPace>,
    pub queues: Vec<QueuePace>,
    /// Starts per second that the group's own downstream sustains in a queue.
    pub sustained: Vec<(usize, f64)>,
}

/// A pace in jobs per second, with its relative uncertainty for so many jobs to come.
#[derive(Debug, Clone, Copy)]
struct Pace {
    per_second: f64,
    starts: f64,
    /// The variance of counts, relative to that of random arrivals.
    dispersion: f64,
}

impl Pace {
    fn error(&self, jobs: f64) -> f64 {
        let known = self.dispersion * (1.0 / self.starts.max(1.0) + 1.0 / jobs.max(1.0));
        UNSTEADY + SPREAD * known.sqrt()
    }
}

/// The latest stretches in which the pace was the same.
fn recent(stretches: &[Stretch], window: Millis) -> Option<Pace> {
    let (mut starts, mut ms) = (0.0, 0.0);
    let mut slots: Vec<Stretch> = Vec::new();
    for (index, one) in stretches.iter().enumerate() {
        let (more, length) = (one.starts as f64, one.ms as f64);
        // The first two belong together: one of them has just begun. So do the windows of a slow limit.
        let together = index < 2 || ms < 3.0 * window.0 as f64;
        if !together {
            let expected = starts * length / ms;
            let error = 1.6 * (expected.max(more) * (1.0 + length / ms)).sqrt() + 0.1 * expected + 1.0;
            if (more - expected).abs() > error {
                break;
            }
        }
        starts += more;
        ms += length;
        if one.ms == SLOT.0 {
            slots.push(*one);
        }
    }
    if ms < 500.0 || starts < FEW as f64 {
        return None;
    }
    let mean = slots.iter().map(|slot| slot.starts as f64).sum::<f64>() / slots.len().max(1) as f64;
    let square = |slot: &Stretch| (slot.starts as f64 - mean) * (slot.starts as f64 - mean);
    let dispersion = if slots.len() < 3 || mean == 0.0 || window > SLOT {
        0.3
    } else {
        let variance = slots.iter().map(square).sum::<f64>() / (slots.len() - 1) as f64;
        // Whole numbers vary even where time does not.
        ((variance - 0.2) / mean).clamp(0.02, 9.0)
    };
    Some(Pace {
        per_second: starts * 1_000.0 / ms,
        starts,
        dispersion,
    })
}

impl QueuePace {
    /// How fast it starts jobs while enough wait.
    fn pace(&self, now: Timestamp) -> Estimated<Pace> {
        // A call that waits for a window, or for a slow rate, comes late.
        let patience = LATELY.0 + 2 * self.window.0 + (3_000.0 / self.rate) as u64;
        let since = self.asked.max(self.held_until.unwrap_or_default());
        if self.running == 0 && now.since(since).0 > patience {
            return Err(NoEstimate::NoWorker);
        }
        match recent(&self.measured.stretches(now), self.window) {
            Some(pace) => {
                // A rate that follows the downstream swings around it; much less than what was measured is new.
                let sustained = self.sustained.filter(|rate| pace.per_second > rate * CUT);
                let per_second = sustained.unwrap_or(pace.per_second).min(self.rate);
                Ok(Pace { per_second, ..pace })
            }
            None if self.own_rate || self.sustained.is_some() => Ok(Pace {
                per_second: self.sustained.unwrap_or(self.rate).min(self.rate),
                starts: 1.0 / (UNMEASURED * UNMEASURED),
                dispersion: 1.0,
            }),
            None => Err(NoEstimate::NotMeasured),
        }
    }

    /// Jobs of the order, or so many of each flow that all have got on equally far.
    fn jobs(&self, priority: usize, rounds: f64) -> f64 {
        let (mut seen, mut jobs) = (0.0, 0.0);
        for one in &self.standing[priority] {
            let weight = one.weight as f64;
            seen += weight;
            jobs += (one.jobs as f64).min(weight * rounds);
        }
        let others = if seen > 0.0 {
            self.weight[priority] as f64 / seen
        } else {
            1.0
        };
        jobs * others.max(1.0)
    }

    /// Jobs of higher priorities that wait.
    fn higher(&self, priority: usize) -> f64 {
        let jobs: f64 = (0..priority).map(|higher| self.jobs(higher, f64::MAX)).sum();
        (jobs - self.running as f64).max(0.0)
    }

    /// Guaranteed shares of the priorities below this one that wait.
    fn taken_below(&self, priority: usize) -> f64 {
        let below = (priority + 1..3).filter(|&below| self.weight[below] > 0);
        below.map(|below| f64::from(self.minimum[below])).sum::<f64>() / 100.0
    }

    /// Seconds until so many jobs of this priority have started, while the higher ones drain.
    fn seconds(&self, priority: usize, jobs: f64, pace: f64) -> f64 {
        let own = 1.0 - self.taken_below(priority);
        let higher = self.higher(priority);
        if higher == 0.0 {
            return jobs / (pace * own);
        }
        let minimum = f64::from(self.minimum[priority]) / 100.0;
        let drained = higher / (pace * (own - minimum).max(0.01));
        let meanwhile = drained * pace * minimum;
        if jobs <= meanwhile {
            jobs / (pace * minimum)
        } else {
            drained + (jobs - meanwhile) / (pace * own)
        }
    }
}

/// Seconds, with the relative error on each side and what no error says.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    seconds: f64,
    error: f64,
    slack: f64,
}

impl Span {
    fn range(self) -> Range {
        let ms = |seconds: f64| Millis((seconds * 1_000.0).clamp(0.0, 1e15) as u64);
        Range {
            earliest: ms(self.seconds * (1.0 - self.error).max(0.1) - self.slack),
            latest: ms((self.seconds * (1.0 + self.error) + self.slack).max(0.001)),
        }
    }
}

impl GroupPace {
    /// How long until `jobs` jobs that wait in the flow, or go to it, have started.
    fn until_started(&self, flow: &FlowPace, jobs: f64) -> Estimated<Span> {
        let queue = &self.queues[flow.queue];
        let pace = queue.pace(self.now)?;
        let priority = flow.priority as usize;
        let weight = self.weight.max(1) as f64;
        let others = queue.weight[priority] as f64 + if flow.in_order { 0.0 } else { weight };
        // Whoever has less finishes before; and when all of the priority is done, so is this.
        let order = self.order_until(queue, priority, jobs, flow.in_order);
        let order = order.max(jobs);
        let mut seconds = queue.seconds(priority, order, pace.per_second);
        let follows = if queue.sustained.is_some() { FOLLOWS } else { 0.0 };
        let mut error = pace.error(order) + follows;
        let by_share = self.pace_now(queue, priority, others, pace.per_second);
        if let Some(own) = recent(&flow.measured.stretches(self.now), queue.window)
            && flow.measured.idle_at == 0
            && self
                .now
                .0
                .saturating_sub(flow.measured.since + flow.measured.lost)
                >= OWN_BUSY
            && (own.per_second < by_share / DIFFERS
                || own.per_second > by_share * DIFFERS && queue.higher(priority) > 0.0)
        {
            // Something else decides how fast it gets on: more than its share it gets only from higher priorities that
            // come and go, or from groups that are not there any more.
            seconds = jobs / own.per_second;
            error = own.error(jobs) + 0.05;
        }
        let window = queue.window.as_secs_f64();
        let own_limits = [
            self.sustained
                .iter()
                .find(|(of, _)| *of == flow.queue)
                .map(|&(_, rate)| rate),
            self.limit.pace(queue.round_trip),
            flow.limit.pace(queue.round_trip),
        ];
        for limit in own_limits.into_iter().flatten() {
            seconds = seconds.max(jobs / limit.max(1e-6));
        }
        let held = queue.held_until.map_or(0, |until| until.since(self.now).0) as f64 / 1_000.0;
        Ok(Span {
            seconds: seconds + held,
            error,
            slack: window.min(1.0 / pace.per_second + seconds * 0.02) + 0.5 / pace.per_second,
        })
    }

    /// Jobs of the whole order that start until so many of this flow have.
    fn order_until(&self, queue: &QueuePace, priority: usize, jobs: f64, in_order: bool) -> f64 {
        let started = queue.jobs(priority, jobs / self.weight.max(1) as f64);
        started + if in_order { 0.0 } else { jobs }
    }

    /// Jobs per second that the flow gets by its share.
    fn pace_now(&self, queue: &QueuePace, priority: usize, others: f64, pace: f64) -> f64 {
        let share = (self.weight.max(1) as f64 / others.max(1.0)).min(1.0);
        let part = if queue.higher(priority) > 0.0 {
            f64::from(queue.minimum[priority]) / 100.0
        } else {
            1.0 - queue.taken_below(priority)
        };
        pace * part * share
    }

    /// How long until a share of the flow's jobs is finished.
    fn until_finished(&self, flow: &FlowPace, part: f64) -> Estimated<Span> {
        let queue = &self.queues[flow.queue];
        let trip = queue.round_trip.as_secs_f64();
        let beside = flow.unfinished.saturating_sub(flow.waiting);
        let running = beside.saturating_sub(flow.due.jobs).min(self.running);
        let all = (flow.unfinished - running.min(flow.unfinished)) as f64;
        let running = Span {
            seconds: 0.5 * trip,
            error: 0.0,
            slack: trip,
        };
        if all == 0.0 {
            return Ok(running);
        }
        let due = flow.due;
        let now_waiting = (all - due.jobs as f64).max(0.0);
        let jobs = (if due.jobs > 0 { all } else { now_waiting * part })
            .ceil()
            .max(1.0);
        let mut span = self.until_started(flow, jobs)?;
        if due.jobs > 0 {
            // As if they came due evenly around their mean. What waits now gets on meanwhile.
            let alone = due.jobs as f64 / queue.pace(self.now)?.per_second;
            let per_job = alone / due.jobs as f64;
            let last = due.last.since(self.now).as_secs_f64();
            let mean = (due.seconds as f64 / due.jobs as f64) - self.now.0 as f64 / 1_000.0;
            let first = (2.0 * mean - last).clamp(0.0, last);
            let drained = first.max(span.seconds - alone) + alone;
            if last >= drained {
                span = Span {
                    seconds: last + per_job,
                    error: 0.01,
                    slack: per_job + span.slack + 1.0,
                };
            } else {
                let busy = if span.seconds - alone > first {
                    drained
                } else {
                    alone
                };
                span.seconds = drained;
                span.error *= busy / drained.max(1e-9);
            }
        }
        // The last job has to run, too.
        span.seconds += trip;
        span.slack += 0.25 * trip;
        Ok(span)
    }
}

/// A batch of the group: the numbers that it and its last job got on arrival, and its unfinished jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    pub seq: u64,
    pub last: u64,
    pub unfinished: u64,
}

/// Limit: batches of a group that one estimate looks at, the latest ones.
pub const BATCHES: usize = 100;

/// The share of the group's unfinished jobs that came no later than the job of this number. Jobs of a batch came evenly.
pub fn part_until(batches: &[Before], last: u64, unfinished: u64) -> f64 {
    let came = |batch: &Before| {
        let length = batch.last.saturating_sub(batch.seq).max(1) as f64;
        let until = last.saturating_sub(batch.seq) as f64;
        batch.unfinished as f64 * (until / length).min(1.0)
    };
    let before: f64 = batches.iter().map(came).sum();
    (before / unfinished.max(1) as f64).clamp(0.0, 1.0)
}

/// When this share of the group's jobs that wait is finished.
pub fn finish(group: &GroupPace, part: f64) -> Estimate {
    let unfinished = |flow: &&FlowPace| flow.unfinished > 0;
    if group.paused && group.flows.iter().any(|flow| flow.unfinished > 0) {
        return Err(NoEstimate::Paused);
    }
    let mut whole = Range::default();
    for flow in group.flows.iter().filter(unfinished) {
        let range = group.until_finished(flow, part)?.range();
        whole.earliest = whole.earliest.max(range.earliest);
        whole.latest = whole.latest.max(range.latest);
    }
    Ok(whole)
}

/// When the job starts that has so many others before it in this flow, and may not start before `from`.
pub fn start(group: &GroupPace, flow: usize, ahead: u64, from: Timestamp) -> Estimate {
    let flow = &group.flows[flow];
    let held = group.queues[flow.queue].held_until.unwrap_or_default();
    let from = from.max(held).since(group.now);
    let found = group.until_started(flow, ahead as f64 + 1.0).map(Span::range);
    if ahead == 0 {
        // It is the next one: what holds it decides.
        let soon = match found {
            Err(NoEstimate::NotMeasured) => group.queues[flow.queue].window,
            other => other?.latest,
        };
        return Ok(Range {
            earliest: from,
            latest: Millis(from.0.saturating_add(soon.0)),
        });
    }
    let range = found?;
    Ok(Range {
        earliest: range.earliest.max(from),
        latest: range.latest.max(from),
    })
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
