//! The real queue with workers, and what it said about the future.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_core::bulk::config::{BulkConfig, QueueConfig};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    Bulk, ConfigureGroupParams, DropFinishedParams, EnqueueParams, JobOutcome, LeaseParams, LeaseRef, NewJob,
    PauseParams, ReleaseDueParams, ResumeParams, Scope, SettleParams, Settlement, ThrottleScope,
    default_queue,
};
use tidegate_core::ids::{GroupId, JobId, JobType, Owner};
use tidegate_core::rng::Rng;
use tidegate_core::time::{Millis, Timestamp};

use super::{Arrival, Case, WARM_UP};
use crate::simulate::downstream::model::{Answer, Model};

/// All clocks begin at a whole hour.
const START: Timestamp = Timestamp(1_800_000_000_000);
/// How often workers look.
const TICK: Millis = Millis(20);
/// How often groups are asked.
const ASK: u64 = 2_000;

/// An answer, and what happened (s).
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) earliest: f64,
    pub(super) latest: f64,
    pub(super) actual: f64,
}

impl Sample {
    pub(super) fn held(&self) -> bool {
        (self.earliest..=self.latest).contains(&self.actual)
    }

    fn middle(&self) -> f64 {
        ((self.earliest + self.latest) / 2.0).max(0.001)
    }

    pub(super) fn width(&self) -> f64 {
        (self.latest - self.earliest) / self.middle()
    }

    pub(super) fn error(&self) -> f64 {
        (self.middle() - self.actual).abs() / self.actual.max(0.001)
    }
}

#[derive(Debug)]
struct Run {
    lease: LeaseRef,
    group: String,
    answer: Option<Answer>,
}

#[derive(Debug)]
pub(super) struct World {
    bulk: Bulk,
    rng: Rng,
    model: Option<Model>,
    free: u32,
    /// Runs by their end.
    running: BTreeMap<(Timestamp, u64), Run>,
    started: u64,
    /// Jobs that are not finished, by group, and how many there were.
    left: BTreeMap<String, u64>,
    given: u64,
    /// Answers that are not decided: the group, when, and the range (s).
    said: Vec<(String, Timestamp, f64, f64)>,
    samples: Vec<Sample>,
}

fn at(second: u64) -> Timestamp {
    START + Millis::from_secs(second)
}

impl World {
    pub(super) fn new(case: &Case) -> anyhow::Result<Self> {
        let mut config = BulkConfig::default();
        config.retention.finished_jobs_max = 1_000;
        if case.rps.is_some() {
            config.queues.insert(
                default_queue(),
                QueueConfig {
                    rate: case.rps.map(Into::into),
                    ..QueueConfig::default()
                },
            );
        }
        Ok(Self {
            bulk: Bulk::new(config, (0, 0))?,
            rng: Rng::new(7),
            model: case.capacity.clone().map(|capacity| Model::new(capacity, START)),
            free: case.workers,
            running: BTreeMap::new(),
            started: 0,
            left: BTreeMap::new(),
            given: 0,
            said: Vec::new(),
            samples: Vec::new(),
        })
    }

    /// Runs until every job is finished; returns the answers with what happened.
    pub(super) fn run(mut self, case: &Case) -> anyhow::Result<Vec<Sample>> {
        let mut arrivals = case.arrivals.clone();
        arrivals.sort_by_key(|arrival| std::cmp::Reverse(arrival.at));
        let mut pause = case.pause;
        let mut paused = false;
        for now in super::super::ticks(TICK).map(|elapsed| START + elapsed) {
            while arrivals.last().is_some_and(|arrival| at(arrival.at) <= now) {
                if let Some(arrival) = arrivals.pop() {
                    self.arrive(&arrival, now)?;
                }
            }
            if let Some((group, from, until)) = pause {
                let scope = Scope::Group(GroupId::new(group)?);
                if !paused && now >= at(from) {
                    paused = true;
                    self.bulk.call(PauseParams { scope }, now)?;
                } else if paused && now >= at(until) {
                    pause = None;
                    self.bulk.call(ResumeParams { scope }, now)?;
                }
            }
            self.finish(now);
            self.lease(case, now)?;
            let elapsed = now.since(START).0;
            if elapsed.is_multiple_of(100) {
                self.housekeep(now);
            }
            if elapsed.is_multiple_of(ASK) && elapsed >= 1_000 * WARM_UP.max(case.known_from) {
                self.ask(now)?;
            }
            if arrivals.is_empty() && self.left.values().all(|left| *left == 0) {
                return Ok(self.samples);
            }
        }
        super::super::never_over()
    }

    fn arrive(&mut self, arrival: &Arrival, now: Timestamp) -> anyhow::Result<()> {
        let group = GroupId::new(arrival.group)?;
        let kind = JobType::new("simulated")?;
        let configure = ConfigureGroupParams {
            group: group.clone(),
            base_priority: Some((-arrival.weight.log2() * 1e6).round() as i32),
            limits: None,
        };
        self.bulk.call(configure, now)?;
        let mut jobs = Vec::new();
        for n in 0..arrival.jobs {
            let due = arrival.due.map(|(from, until)| {
                let spread = (until - from) * 1_000 * (n + 1) / arrival.jobs;
                at(from) + Millis(spread)
            });
            jobs.push(NewJob {
                id: JobId::new((self.given + n).to_string())?,
                kind: kind.clone(),
                priority: arrival.priority,
                cost: 1,
                payload: Bytes::new(),
                run_at: due,
                expires_at: None,
            });
        }
        self.given += arrival.jobs;
        *self.left.entry(arrival.group.to_owned()).or_default() += arrival.jobs;
        for chunk in jobs.chunks(1_000) {
            let params = EnqueueParams {
                group: group.clone(),
                batch: None,
                base_priority: None,
                jobs: chunk.to_vec(),
            };
            self.bulk.call(params, now)?;
            self.bulk.take_changes();
        }
        Ok(())
    }

    fn lease(&mut self, case: &Case, now: Timestamp) -> anyhow::Result<()> {
        // A call that is throttled at once must not be repeated at once.
        while self.free > 0 {
            let params = LeaseParams {
                queue: default_queue(),
                max: self.free.min(10),
                owner: Owner::new("workers")?,
            };
            let leased = self.bulk.call(params, now).jobs;
            self.bulk.take_changes();
            if leased.is_empty() {
                return Ok(());
            }
            for job in leased {
                let (shortest, longest) = case.run;
                let run = Millis(self.rng.between(shortest.0, longest.0));
                let answer = self.model.as_mut().map(|model| model.call(0, now));
                self.free -= 1;
                self.started += 1;
                let run = (
                    now + run,
                    Run {
                        lease: job.lease,
                        group: job.group.as_str().to_owned(),
                        answer,
                    },
                );
                self.running.insert((run.0, self.started), run.1);
            }
        }
        Ok(())
    }

    fn finish(&mut self, now: Timestamp) {
        while let Some(entry) = self.running.first_entry()
            && entry.key().0 <= now
        {
            let run = entry.remove();
            self.free += 1;
            let outcome = match run.answer {
                Some(Answer::Throttled { retry_after, .. }) => JobOutcome::Throttled {
                    retry_after,
                    scope: ThrottleScope::Queue,
                },
                _ => JobOutcome::Completed { result: Bytes::new() },
            };
            let done = matches!(outcome, JobOutcome::Completed { .. });
            let answers = vec![Settlement {
                lease: run.lease,
                outcome,
                cost: None,
            }];
            self.bulk.call(SettleParams { answers }, now);
            self.bulk.take_changes();
            if done && let Some(left) = self.left.get_mut(&run.group) {
                *left -= 1;
                if *left == 0 {
                    self.decide(&run.group, now);
                }
            }
        }
    }

    /// The group has finished: what was said about it is right or wrong.
    fn decide(&mut self, group: &str, now: Timestamp) {
        let (decided, open) = std::mem::take(&mut self.said)
            .into_iter()
            .partition(|(of, ..)| of == group);
        self.said = open;
        let decided: Vec<(String, Timestamp, f64, f64)> = decided;
        self.samples
            .extend(decided.into_iter().map(|(_, said, earliest, latest)| Sample {
                earliest,
                latest,
                actual: now.since(said).as_secs_f64(),
            }));
    }

    fn ask(&mut self, now: Timestamp) -> anyhow::Result<()> {
        let open = self.left.iter().filter(|(_, left)| **left > 0);
        let groups: Vec<String> = open.map(|(group, _)| group.clone()).collect();
        for group in groups {
            let View::Group(view) = self.bulk.call(Query::Group(GroupId::new(&group)?), now)? else {
                anyhow::bail!("a group is answered with a group");
            };
            if let Ok(range) = view.estimate {
                let (earliest, latest) = (range.earliest.as_secs_f64(), range.latest.as_secs_f64());
                self.said.push((group, now, earliest, latest));
            }
        }
        Ok(())
    }

    fn housekeep(&mut self, now: Timestamp) {
        self.bulk.call(ReleaseDueParams { max: 10_000 }, now);
        let drop = DropFinishedParams {
            older_than: None,
            max: 10_000,
        };
        self.bulk.call(drop, now);
        self.bulk.take_changes();
    }
}
