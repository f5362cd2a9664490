//! The actors of the simulated world: submitters, workers, sweepers, aggregators, operators, and crashes.

use bytes::Bytes;
use tidegate_core::bulk::views::{BatchView, Query, View};
use tidegate_core::bulk::{
    AdmitParams, BatchOptions, CancelParams, ClaimAggregationParams, ConfigureGroupParams,
    ConfirmCompletionParams, DropFinishedParams, EnqueueParams, Enqueued, ExpireLeasesParams, ExtendParams,
    FinishAggregationParams, GroupLimits, JobOutcome, JobState, LeaseParams, NewJob, OpenBatchParams, Opened,
    PauseParams, Priority, ReleaseDueParams, ResumeParams, Scope, SealBatchParams, SettleParams, Settlement,
    SnapshotCongestionParams, Stop, ThrottleScope,
};
use tidegate_core::ids::{BatchId, JobId, Owner, QueueId};
use tidegate_core::time::Millis;

use super::Simulation;
use super::oracle::{self, Accepted};

impl Simulation {
    pub(super) fn act(&mut self) {
        match self.rng.below(100) {
            0..20 => self.submit(),
            20..44 => self.work(),
            44..66 => self.answer(),
            66..74 => self.release(),
            74..77 => self.expire(),
            77..82 => self.admit(),
            82..85 => self.watch(),
            85..88 => self.seal(),
            88..92 => self.operate(),
            92 => self.forget(),
            93 => self.change_jobs(),
            94 => self.extend(),
            95 => self.change_rates(),
            96 if self.profile.crashes => self.crash(),
            97 if self.profile.clock_steps => self.step_clock(),
            98 => self.bury(),
            99 => self.ask_why(),
            _ => {
                self.sure(SnapshotCongestionParams {});
            }
        }
        if self.rng.percent(60) {
            let by = Millis(self.rng.below(400));
            self.move_time(by);
        }
        self.look();
    }

    fn submit(&mut self) {
        let index = self.rng.below(self.profile.groups);
        let group = self.group(index);
        let batch = self.rng.percent(60).then(|| {
            if self.next_batch == 0 || self.rng.percent(20) {
                self.next_batch += 1;
            }
            let name = format!(
                "batch-{}",
                self.next_batch - self.rng.below(self.next_batch.min(3))
            );
            BatchId::new(name).expect("a short name")
        });
        if let Some(batch) = batch.clone().filter(|_| self.rng.percent(30)) {
            let options = BatchOptions {
                keep_results: self.rng.percent(50),
                callback: self.rng.percent(50).then(|| format!("of {batch}")),
                ..Default::default()
            };
            let base_priority = self.profile.base_priority(index);
            let callback = options.callback.clone();
            let opened = self.risky(OpenBatchParams {
                group: group.clone(),
                batch: batch.clone(),
                base_priority,
                options,
            });
            if opened == Some(Ok(Opened::New)) {
                self.oracle.callbacks.insert((index, batch), callback);
            }
        }
        let jobs: Vec<NewJob> = (0..self.rng.between(1, 8)).map(|_| self.new_job()).collect();
        let params = EnqueueParams {
            group,
            batch,
            base_priority: self.profile.base_priority(index),
            jobs,
        };
        let mut again = false;
        // A client whose call failed does not know the result, and repeats the call.
        let outcome = loop {
            match self.risky(params.clone()) {
                Some(outcome) => break outcome,
                None => again = true,
            }
        };
        let Ok(outcome) = outcome else { return };
        for (job, answer) in params.jobs.iter().zip(outcome.jobs) {
            let accepted = Accepted {
                group: index,
                id: &job.id,
                batch: &outcome.batch,
                kind: &job.kind,
                priority: job.priority,
                cost: job.cost,
                // Scheduled jobs start when they are due, expiring ones may never start.
                in_order: job.run_at.is_none() && job.expires_at.is_none(),
            };
            match answer {
                // The ids of cancelled jobs are free again.
                Enqueued::Accepted(seq) => {
                    let may_repeat = self.profile.forgetful || self.oracle.disordered.contains(&index);
                    self.oracle.accept(seq, accepted, may_repeat);
                }
                // Accepted before the crash, although the answer was lost.
                Enqueued::Duplicate(Some(seq)) if !self.oracle.jobs.contains_key(&seq) => {
                    assert!(again, "{:?} of {index} is no duplicate", job.id);
                    self.oracle.accept(seq, accepted, true);
                }
                Enqueued::Duplicate(_) | Enqueued::Refused(_) => {}
            }
        }
    }

    fn new_job(&mut self) -> NewJob {
        let repeated = self.next_job > 0 && self.rng.percent(8);
        let number = if repeated {
            self.rng.below(self.next_job)
        } else {
            self.next_job
        };
        self.next_job += u64::from(!repeated);
        let id = JobId::new(format!("job-{number}")).expect("a short name");
        let priority = if self.profile.plain {
            Priority::Normal
        } else {
            *self.rng.pick(&Priority::ALL)
        };
        let run_at = self
            .rng
            .percent(8)
            .then(|| self.wall + Millis(self.rng.below(3_000)));
        let expires_at = self
            .rng
            .percent(5)
            .then(|| self.wall + Millis(self.rng.between(500, 8_000)));
        NewJob {
            payload: Bytes::copy_from_slice(id.as_str().as_bytes()),
            kind: self.rng.pick(&self.profile.kinds.clone()).clone(),
            id,
            priority,
            run_at,
            expires_at,
            // The same whenever it is sent.
            cost: match number % 7 {
                3 if !self.profile.plain => 2 + (number % 4) as u32,
                _ => 1,
            },
        }
    }

    fn work(&mut self) {
        let queue = self.rng.pick(&self.profile.queues()).clone();
        let max = self.rng.between(1, 6) as u32;
        self.lease(queue, max);
    }

    fn lease(&mut self, queue: QueueId, max: u32) -> usize {
        let owner = Owner::new("worker").expect("a short name");
        let params = LeaseParams {
            queue: queue.clone(),
            max,
            owner,
        };
        let asked = format!("{params:?}");
        let answer = self.runtime.block_on(self.store.lease(params));
        self.trace.add(self.wall.0, &asked, &answer);
        let outcome = answer.unwrap_or_else(|error| panic!("the store failed: {error}"));
        for job in &outcome.jobs {
            let allowed = self.allowed(job, &queue);
            self.oracle.leased(job, self.profile.lease_time(), &allowed);
            let admitted_before = self
                .ready
                .as_mut()
                .is_some_and(|ready| ready.remove(&job.leased.lease.job));
            if !admitted_before {
                self.fair.picked(job.leased.group.as_str());
            }
        }
        if self.profile.plain && outcome.stop == Stop::Empty {
            // Nothing is wasted: a worker gets no job only when none waits.
            let waiting: u64 = self.groups().iter().map(|group| group.counts.waiting).sum();
            assert_eq!(waiting, 0, "{waiting} jobs wait, and a worker got none");
        }
        outcome.jobs.len()
    }

    fn answer(&mut self) {
        let current = self.oracle.current_leases();
        let mut answers = Vec::new();
        for _ in 0..self.rng.between(1, 5) {
            let late = self.rng.percent(15) && !self.old_leases.is_empty();
            let from = if late || current.is_empty() {
                &self.old_leases
            } else {
                &current
            };
            if from.is_empty() {
                return;
            }
            let lease = *self.rng.pick(from);
            let outcome = match self.rng.below(100) {
                0..60 => JobOutcome::Completed {
                    result: Bytes::from_static(b"fine"),
                },
                60..66 => JobOutcome::Failed { error: "no".into() },
                66..78 => {
                    let retry_after = self.rng.percent(50).then(|| Millis(self.rng.below(2_000)));
                    let scope = if !self.profile.plain && self.rng.percent(50) {
                        ThrottleScope::Group
                    } else {
                        ThrottleScope::Queue
                    };
                    JobOutcome::Throttled { retry_after, scope }
                }
                78..92 => JobOutcome::Retry {
                    error: "not now".into(),
                    after: None,
                    overloaded: self.rng.percent(30),
                },
                _ => JobOutcome::Released,
            };
            let corrected = !self.profile.plain && self.rng.percent(10);
            let cost = corrected.then(|| self.rng.below(7) as u32);
            answers.push(Settlement { lease, outcome, cost });
        }
        self.settle(answers);
    }

    fn settle(&mut self, answers: Vec<Settlement>) {
        let now = self.wall;
        match self.risky(SettleParams {
            answers: answers.clone(),
        }) {
            Some(settled) => {
                for (answer, settled) in answers.iter().zip(settled) {
                    // The store's time may be ahead of the wall after a step back; then a lease may be over
                    // earlier than the wall says, so only a lease that is over by neither is checked.
                    let now = if self.profile.clock_steps {
                        tidegate_core::time::Timestamp(u64::MAX)
                    } else {
                        now
                    };
                    self.oracle
                        .settled(answer.lease, &answer.outcome, settled, answer.cost, now);
                    self.old_leases.push(answer.lease);
                }
            }
            None => {
                for answer in &answers {
                    self.oracle.unsettled(answer.lease, &answer.outcome);
                }
            }
        }
    }

    fn release(&mut self) {
        let max = self.rng.between(1, 20) as u32;
        let outcome = self.sure(ReleaseDueParams { max });
        if outcome.recalled > 0 {
            // Their picks were reverted, and the reply does not say which they were.
            self.ready = None;
            self.fair.reset();
        }
    }

    fn expire(&mut self) {
        let max = self.rng.between(1, 20) as u32;
        self.risky(ExpireLeasesParams { max });
    }

    fn admit(&mut self) {
        let queue = self.rng.pick(&self.profile.queues()).clone();
        let (max, ready_cap) = (self.rng.between(1, 8) as u32, self.rng.between(1, 12) as u32);
        let outcome = self.sure(AdmitParams {
            queue,
            max,
            ready_cap,
        });
        for seq in outcome.admitted {
            let known = self.oracle.jobs.get(&seq).expect("admitted jobs are known");
            let group = self.group(known.group);
            self.fair.picked(group.as_str());
            if let Some(ready) = &mut self.ready {
                ready.insert(seq);
            }
        }
    }

    fn watch(&mut self) {
        let owner = Owner::new("aggregator").expect("a short name");
        let params = ClaimAggregationParams {
            owner,
            max: 3,
            claim_for: Millis(2_000),
        };
        let claimed = self.sure(params);
        for aggregation in claimed {
            // Some aggregators die here.
            if self.rng.percent(20) {
                continue;
            }
            let (group, batch) = (aggregation.group.clone(), aggregation.batch.clone());
            let index = self.group_index(&group);
            let expected = self.oracle.callbacks.get(&(index, batch.clone()));
            // A dropped batch may have been opened again without a callback.
            if let Some(callback) = expected.filter(|_| !self.profile.forgetful) {
                assert_eq!(&aggregation.callback, callback, "{batch:?} of {index}");
            }
            if aggregation.finished.is_none() {
                let params = FinishAggregationParams {
                    group: group.clone(),
                    batch: batch.clone(),
                    claim: aggregation.claim,
                    summary: Ok(Bytes::from_static(b"{}")),
                };
                match self.risky(params) {
                    Some(Ok(_)) => self.oracle.decided(index, batch.clone()),
                    Some(Err(refusal)) => panic!("a claim that holds was refused: {refusal}"),
                    // Claims end with the process.
                    None => return,
                }
            }
            if self.rng.percent(80) {
                let confirmed = self.risky(ConfirmCompletionParams { group, batch });
                if confirmed.is_none() {
                    return;
                }
            }
        }
    }

    fn seal(&mut self) {
        let index = self.rng.below(self.profile.groups);
        let batch = (self.next_batch > 0 && self.rng.percent(70)).then(|| {
            let number = self.rng.between(1, self.next_batch);
            BatchId::new(format!("batch-{number}")).expect("a short name")
        });
        let _ = self.risky(SealBatchParams {
            group: self.group(index),
            batch,
        });
    }

    fn scope(&mut self) -> (u64, Scope) {
        let index = self.rng.below(self.profile.groups);
        let group = self.group(index);
        if self.next_batch > 0 && self.rng.percent(50) {
            let number = self.rng.between(1, self.next_batch);
            let batch = BatchId::new(format!("batch-{number}")).expect("a short name");
            (index, Scope::Batch(group, batch))
        } else {
            (index, Scope::Group(group))
        }
    }

    /// Operators act only in worlds without a fairness check.
    fn operate(&mut self) {
        if self.profile.plain {
            return;
        }
        let (index, scope) = self.scope();
        match self.rng.below(10) {
            0..3 => {
                self.oracle.disordered.insert(index);
                let _ = self.risky(PauseParams { scope });
            }
            3..7 => {
                let _ = self.risky(ResumeParams { scope });
            }
            7 => {
                let max = self.rng.between(1, 30) as u32;
                let _ = self.risky(CancelParams { scope, max });
                self.oracle.disordered.insert(index);
            }
            8 => {
                let queues = self.profile.queues();
                let limits = GroupLimits {
                    all: self.a_limit(),
                    queues: queues.into_iter().map(|queue| (queue, self.a_limit())).collect(),
                };
                let group = self.group(index);
                let _ = self.risky(ConfigureGroupParams {
                    group,
                    base_priority: None,
                    limits: Some(limits),
                });
                self.read_group_limits(index);
            }
            _ => self.replay(index),
        }
    }

    fn forget(&mut self) {
        if self.profile.forgetful {
            let max = self.rng.between(1, 30) as u32;
            let _ = self.risky(DropFinishedParams {
                max,
                older_than: None,
            });
        }
    }

    fn extend(&mut self) {
        let current = self.oracle.current_leases();
        if current.is_empty() {
            return;
        }
        // Shorter than a lease, so that the oracle's deadlines stay the latest possible.
        let leases = [*self.rng.pick(&current)];
        let by = Millis(self.rng.between(1, 200));
        let extensions = leases.iter().map(|&lease| self.extension(lease)).collect();
        for (lease, _) in leases.iter().zip(self.sure(ExtendParams {
            leases: extensions,
            by,
        })) {
            self.oracle.shortened(*lease);
        }
    }

    /// Drains the world: every accepted job ends.
    pub(super) fn drain(&mut self) {
        self.profile.crashes = false;
        for index in 0..self.profile.groups {
            let group = self.group(index);
            let _ = self.sure(ResumeParams {
                scope: Scope::Group(group.clone()),
            });
            let none = Some(GroupLimits::default());
            let _ = self.sure(ConfigureGroupParams {
                group,
                base_priority: None,
                limits: none,
            });
            self.read_group_limits(index);
        }
        self.reset_limits();
        for ((index, batch), _) in self.oracle.accepted.clone() {
            let group = self.group(index);
            let _ = self.sure(ResumeParams {
                scope: Scope::Batch(group.clone(), batch.clone()),
            });
            let _ = self.sure(SealBatchParams {
                group,
                batch: Some(batch),
            });
        }
        for _ in 0..20_000 {
            self.move_time(Millis(250));
            self.sure(ReleaseDueParams { max: 1_000 });
            self.sure(ExpireLeasesParams { max: 1_000 });
            for queue in self.profile.queues() {
                self.lease(queue, 50);
            }
            let done = JobOutcome::Completed {
                result: Bytes::from_static(b"fine"),
            };
            let answers = self.oracle.current_leases().into_iter();
            let answers = answers
                .map(|lease| Settlement {
                    lease,
                    outcome: done.clone(),
                    cost: None,
                })
                .collect();
            self.settle(answers);
            self.watch();
            if self.stats().counts.unfinished() == 0 && self.all_decided() {
                return self.check_end();
            }
        }
        panic!(
            "the world does not come to rest: {:?} {:?}",
            self.stats(),
            self.read(Query::Queues)
        );
    }

    fn all_decided(&mut self) -> bool {
        let batches: Vec<_> = self.oracle.accepted.keys().cloned().collect();
        batches.into_iter().all(|(index, batch)| {
            self.batch(index, &batch)
                .is_none_or(|view| view.status.is_finished())
        })
    }

    fn batch(&mut self, index: u64, batch: &BatchId) -> Option<BatchView> {
        match self.sure(Query::Batch(self.group(index), batch.clone())) {
            Ok(View::Batch(view)) => Some(view),
            Ok(other) => panic!("a batch is answered with a batch, not {other:?}"),
            Err(_) => {
                assert!(self.profile.forgetful, "{batch:?} of {index} is gone");
                None
            }
        }
    }

    /// Nothing lost, nothing counted twice, nothing left behind.
    fn check_end(&mut self) {
        let mut done: std::collections::BTreeMap<(u64, BatchId), u64> = Default::default();
        let jobs: Vec<oracle::Known> = self.oracle.jobs.values().cloned().collect();
        for known in jobs {
            let group = self.group(known.group);
            let details = self.runtime.block_on(self.store.job(&group, &known.id));
            match details.unwrap_or_else(|error| panic!("the store failed: {error}")) {
                Ok(job) if (self.profile.forgetful || known.purged) && job.view.seq != known.seq() => {}
                Ok(job) => {
                    let state = job.view.state;
                    assert!(state.is_finished(), "{known:?} is {state:?}");
                    if known.done {
                        assert_eq!(state, JobState::Completed, "{known:?} was answered as done");
                    }
                    if state == JobState::Completed {
                        assert!(
                            known.done || known.perhaps_done,
                            "nobody said that {known:?} is done"
                        );
                        *done.entry((known.group, known.batch)).or_default() += 1;
                    }
                }
                Err(refusal) => assert!(
                    self.profile.forgetful || known.purged,
                    "{known:?} is lost: {refusal}"
                ),
            }
        }
        for ((index, batch), total) in self.oracle.accepted.clone() {
            let Some(view) = self.batch(index, &batch) else {
                continue;
            };
            assert_eq!(
                view.counts.success + view.counts.failed,
                view.counts.total,
                "{view:?}"
            );
            if self.profile.forgetful {
                continue;
            }
            assert_eq!(view.counts.total, total, "{batch:?} of {index}: {view:?}");
            if !self.oracle.replayed.contains(&(index, batch.clone())) {
                let done = done.get(&(index, batch.clone())).copied().unwrap_or(0);
                assert_eq!(view.counts.success, done, "{batch:?} of {index}: {view:?}");
            }
        }
        let stats = self.stats();
        assert_eq!(
            (stats.flows_in_memory, stats.tags_remembered),
            (0, 0),
            "idle groups leave nothing: {stats:?}"
        );
    }
}
