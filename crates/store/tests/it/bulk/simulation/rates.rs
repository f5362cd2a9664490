//! Operators who change rates at run time, and users who ask why their jobs wait.

use tidegate_core::bulk::views::{LimitsView, NoEstimate, Query, View, Wait, Why};
use tidegate_core::bulk::{
    ConfigureLimitsParams, GroupLimits, JobState, LimitsRecord, Set, SetLimit, SetQueueLimits,
};
use tidegate_core::ids::{JobId, QueueId};
use tidegate_core::limits::quota::{Limit, Quota};
use tidegate_store::bulk::LeasedJob;

use super::Simulation;
use super::oracle::{Allowed, Whose};

impl Simulation {
    /// The limits that hold for a job of this queue.
    pub(super) fn allowed(&self, job: &LeasedJob, queue: &QueueId) -> Allowed {
        let config = &self.profile.config;
        let record = self.limits.as_ref().map(|limits| LimitsRecord {
            global_rps: Some(limits.global_rps),
            queues: limits.queues.iter().cloned().collect(),
            ..LimitsRecord::default()
        });
        let record = record.unwrap_or_default();
        let group = self.group_index(&job.leased.group);
        let none = GroupLimits::default();
        let of_group = self.group_limits.get(&group).unwrap_or(&none);
        let of_queue = record.of_queue(config, queue);
        let in_queue = of_group.queues.get(queue).copied().unwrap_or_default();
        Allowed {
            window: config.backpressure.window(),
            limits: vec![
                (Whose::All, Limit::rate(record.rate(config, None))),
                (
                    Whose::Queue(queue.clone()),
                    Limit {
                        rate: Some(record.rate(config, Some(queue))),
                        max_running: of_queue.max_running,
                    },
                ),
                (Whose::Group(group), of_group.all),
                (Whose::Pair(group, queue.clone()), in_queue.or(of_queue.per_group)),
            ],
        }
    }

    /// After a change that may or may not have happened.
    pub(super) fn read_group_limits(&mut self, index: u64) {
        let limits = match self.read(Query::Group(self.group(index))) {
            Ok(View::Group(view)) => view.limits,
            _ => GroupLimits::default(),
        };
        self.group_limits.insert(index, limits);
    }

    pub(super) fn a_limit(&mut self) -> Limit {
        Limit {
            rate: self.rng.percent(40).then(|| self.a_quota()),
            max_running: self.rng.percent(40).then(|| self.rng.between(1, 5) as u32),
        }
    }

    /// From one start in ten seconds on.
    fn a_quota(&mut self) -> Quota {
        let text = match self.rng.below(3) {
            0 => format!("{}/min", self.rng.between(6, 200)),
            1 => format!("{}/h", self.rng.between(600, 9_000)),
            _ => format!("{}/s", self.rng.between(1, 80) as f64 / 10.0),
        };
        text.parse().expect("a rate")
    }

    fn a_number(&mut self) -> Set<u32> {
        match self.rng.below(10) {
            0..5 => Set::Keep,
            5..8 => Set::Reset,
            _ => Set::To(self.rng.between(1, 6) as u32),
        }
    }

    fn queue_limits(&mut self) -> SetQueueLimits {
        let rate = match self.rng.below(4) {
            0 => Set::Keep,
            1 | 2 => Set::Reset,
            _ => Set::To(self.a_quota()),
        };
        if self.profile.plain {
            return SetQueueLimits::rate(self.a_rate());
        }
        SetQueueLimits {
            all: SetLimit {
                rate: self.a_rate(),
                max_running: self.a_number(),
            },
            per_group: SetLimit {
                rate,
                max_running: self.a_number(),
            },
        }
    }

    /// Nothing but the configuration holds, so that everything can drain.
    pub(super) fn reset_limits(&mut self) {
        let reset = SetLimit {
            rate: Set::Reset,
            max_running: Set::Reset,
        };
        let set = SetQueueLimits {
            all: reset,
            per_group: reset,
        };
        let queues = self.profile.queues().into_iter();
        let params = ConfigureLimitsParams {
            queues: queues.map(|queue| (queue, set)).collect(),
            ..ConfigureLimitsParams::default()
        };
        self.sure(params).expect("a reset is never refused");
        self.limits = Some(self.read_limits());
    }

    fn read_limits(&mut self) -> LimitsView {
        match self.read(Query::Limits) {
            Ok(View::Limits(limits)) => limits,
            other => panic!("limits are answered with limits, not {other:?}"),
        }
    }

    fn a_rate(&mut self) -> Set<Quota> {
        match self.rng.below(10) {
            0..2 => Set::Keep,
            2..4 => Set::Reset,
            // No multiple of anything that a double holds exactly.
            _ => Set::To((self.rng.between(20, 400) as f64 / 10.0).into()),
        }
    }

    pub(super) fn change_rates(&mut self) {
        let before = self.read_limits();
        if let Some(last) = &self.limits {
            assert_eq!(*last, before, "what was answered holds");
        }
        let mut queues = self.profile.queues();
        queues.push(QueueId::new("nobody's").expect("a short name"));
        queues.retain(|_| self.rng.percent(40));
        let impossible = self.rng.percent(5);
        let mut params = ConfigureLimitsParams {
            global_rps: self.a_rate(),
            queues: queues
                .into_iter()
                .map(|queue| (queue, self.queue_limits()))
                .collect(),
            by: format!("operator {}", self.rng.below(3)),
            ..ConfigureLimitsParams::default()
        };
        if impossible {
            params.global_rps = Set::To(0.0.into());
        }
        let answer = self.risky(params);
        let after = self.read_limits();
        match answer {
            Some(Ok(())) => assert!(!impossible, "a rate of nothing was taken"),
            Some(Err(refusal)) => {
                assert!(impossible, "{refusal}");
                assert_eq!(before, after, "what is refused changes nothing");
            }
            // It may have happened.
            None => {}
        }
        self.limits = Some(after);
    }

    fn why(&mut self, query: Query) -> Option<Why> {
        match self.sure(query) {
            Ok(View::Why(why)) => Some(why),
            Ok(other) => panic!("a reason is answered with a reason, not {other:?}"),
            Err(_) => None,
        }
    }

    /// Every unfinished job that is not running has a reason. If time alone resolves it, the reason has a time.
    pub(super) fn ask_why(&mut self) {
        self.sure(Query::Queues).expect("queues are there");
        let index = self.rng.below(self.profile.groups);
        let group = self.group(index);
        if let Some(why) = self.why(Query::WhyGroup(group.clone())) {
            let Ok(View::Group(view)) = self.read(Query::Group(group.clone())) else {
                panic!("{group:?} is there");
            };
            assert_eq!(
                why.state.is_none(),
                view.counts.unfinished() == 0,
                "{why:?} {view:?}"
            );
            check(&why, view.paused);
        }
        let job = JobId::new(format!("job-{}", self.rng.below(self.next_job.max(1)))).expect("a short name");
        if let Some(why) = self.why(Query::WhyJob(group.clone(), job.clone())) {
            let Ok(View::Job(view)) = self.read(Query::Job(group, job)) else {
                panic!("the job is there");
            };
            assert_eq!(why.state, Some(view.state));
            check(&why, false);
        }
    }
}

fn check(why: &Why, group_paused: bool) {
    let rests = !matches!(
        why.state,
        Some(JobState::Waiting | JobState::Ready | JobState::Delayed)
    );
    let paused = |wait: &Wait| matches!(wait, Wait::GroupPaused | Wait::BatchPaused);
    let paused = why.waits.iter().any(paused);
    assert_eq!(why.waits.is_empty(), rests, "{why:?}");
    assert_eq!(why.starts.is_none(), rests, "{why:?}");
    assert!(!paused || why.starts == Some(Err(NoEstimate::Paused)), "{why:?}");
    assert!(rests || paused || !group_paused, "{why:?}");
}
