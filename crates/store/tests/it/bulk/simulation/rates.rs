//! Operators who change rates at run time, and users who ask why their jobs wait.

use tidegate_core::bulk::views::{LimitsView, NoEstimate, Query, View, Wait, Why};
use tidegate_core::bulk::{ConfigureLimitsParams, JobState, Set, SetQueueLimits};
use tidegate_core::ids::{JobId, QueueId};

use super::Simulation;

impl Simulation {
    /// Starts that a window allows.
    pub(super) fn limit(&self) -> u64 {
        match &self.limits {
            Some(limits) => limits.limit_per_window,
            None => self.profile.config.backpressure.limit_per_window(),
        }
    }

    fn read_limits(&mut self) -> LimitsView {
        match self.read(Query::Limits) {
            Ok(View::Limits(limits)) => limits,
            other => panic!("limits are answered with limits, not {other:?}"),
        }
    }

    fn a_rate(&mut self) -> Set<f64> {
        match self.rng.below(10) {
            0..2 => Set::Keep,
            2..4 => Set::Reset,
            // No multiple of anything that a double holds exactly.
            _ => Set::To(self.rng.between(20, 400) as f64 / 10.0),
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
                .map(|queue| (queue, SetQueueLimits::rps(self.a_rate())))
                .collect(),
            by: format!("operator {}", self.rng.below(3)),
            ..ConfigureLimitsParams::default()
        };
        if impossible {
            params.global_rps = Set::To(0.0);
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
