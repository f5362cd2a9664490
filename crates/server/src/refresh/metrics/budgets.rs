//! Metrics of budgets, and of the store that holds them.

use tidegate_core::budget::BudgetConfig;
use tidegate_core::refresh::breaker::BreakerState;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::{PriorityCounts, TokenCounts, TokensView};

use crate::metrics::scrape::label;
use crate::metrics::series::{Buckets, Exposition, Labels};
use crate::refresh::SeenBudget;
use crate::state::App;

/// Scrapes leave out a reading that is older than this, because tokens change within a second.
const FRESH_FOR: Millis = Millis(10_000);

/// One budget.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) target: String,
    pub(crate) config: BudgetConfig,
    pub(crate) counts: TokenCounts,
    /// `None` before the first reading.
    pub(crate) seen: Option<SeenBudget>,
}

#[derive(Debug)]
pub(crate) struct Budgeted {
    pub(crate) now: Timestamp,
    pub(crate) began: Timestamp,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) taken: TokensView,
}

impl Budgeted {
    pub(crate) fn take(app: &App) -> Option<Self> {
        let budgets = app.budgets.as_ref()?;
        let taken = budgets.taken();
        let all = app.config.budgets.iter().map(|(target, config)| Budget {
            target: target.as_str().to_owned(),
            config: config.clone(),
            counts: taken.tokens.get(target).copied().unwrap_or_default(),
            seen: budgets.of(target),
        });
        Some(Self {
            now: app.now(),
            began: app.metrics.started_at,
            budgets: all.collect(),
            taken,
        })
    }

    pub(crate) fn render(&self, all: &mut Exposition) {
        self.tokens(all);
        self.rates(all);
        self.days(all);
        all.gauge(
            "tidegate_store_breaker_state",
            "Circuit breaker around the store: 0 closed, 1 half-open, 2 open",
            state(self.taken.store),
        );
        all.histogram(
            "tidegate_refresh_store_call_duration_seconds",
            "How long calls of the store for budgets and refresh requests took",
            Buckets::durations([(Labels::new(), &self.taken.store_calls)]),
        );
    }

    fn tokens(&self, all: &mut Exposition) {
        all.counters(
            "tidegate_budget_acquired_tokens",
            "Tokens that callers acquired",
            self.by_priority(|counts| counts.acquired),
        );
        all.counters(
            "tidegate_budget_rejections",
            "Times that the budget had no token",
            self.by_priority(|counts| counts.rejected),
        );
        all.counter(
            "tidegate_budget_late_tokens",
            "Tokens that came too late to be used",
            self.taken.late as f64,
        );
        let buckets = |(labels, seen): (Labels, &SeenBudget)| {
            let tokens = [("global", seen.view.tokens), ("low_cap", seen.view.low_tokens)];
            tokens.map(|(bucket, tokens)| (with(&labels, "bucket", bucket), tokens as f64))
        };
        all.gauges(
            "tidegate_budget_available_tokens",
            "Tokens that are available now",
            self.seen().flat_map(buckets),
        );
    }

    fn rates(&self, all: &mut Exposition) {
        all.gauges(
            "tidegate_budget_calls_per_second",
            "Calls per second that the budget let through over the last seconds",
            self.seen()
                .filter_map(|(target, seen)| Some((target, seen.calls_per_second?))),
        );
        all.gauges(
            "tidegate_budget_peak_calls_per_second",
            "Most tokens that this process handed out within one second of the last minute or two",
            self.each(|budget| budget.counts.peak),
        );
        all.gauges(
            "tidegate_budget_configured_calls_per_second",
            "Most calls per second that the budget lets through",
            self.each(|budget| budget.config.rate),
        );
        all.gauges(
            "tidegate_budget_hard_limit_calls_per_second",
            "Calls that the provider allows within any second",
            self.each(|budget| budget.config.hard_limit),
        );
        all.gauges(
            "tidegate_budget_hold_seconds",
            "How long the service still makes no calls, because the target asked for a pause",
            self.seen().map(|(labels, seen)| {
                let left = seen.view.hold_until.since(self.now);
                (labels, left.as_secs_f64())
            }),
        );
        let age = |budget: &Budget| {
            let at = budget.seen.as_ref().map_or(self.began, |seen| seen.at);
            (target(budget), self.now.since(at).as_secs_f64())
        };
        all.gauges(
            "tidegate_budget_observation_age_seconds",
            "How long ago this process last read the budget",
            self.budgets.iter().map(age),
        );
    }

    /// Metrics of budgets with a daily quota.
    fn days(&self, all: &mut Exposition) {
        let limited = || self.budgets.iter().filter(|budget| budget.config.per_day > 0);
        all.gauges(
            "tidegate_budget_day_quota_calls",
            "Calls that the provider allows in a day",
            limited().map(|budget| (target(budget), budget.config.per_day as f64)),
        );
        all.gauges(
            "tidegate_budget_day_reserved_calls",
            "Calls of the day that low priority leaves to high",
            limited().map(|budget| (target(budget), budget.config.day_reserve as f64)),
        );
        all.gauges(
            "tidegate_budget_day_used_calls",
            "Calls of the current day",
            self.seen()
                .map(|(labels, seen)| (labels, seen.view.day_used as f64)),
        );
        let left = |budget: &Budget| {
            let view = self.recent(budget)?.view;
            let left = [("high", view.day_left_high), ("low", view.day_left_low)];
            let labels = target(budget);
            Some(left.map(|(priority, left)| (with(&labels, "priority", priority), left as f64)))
        };
        all.gauges(
            "tidegate_budget_day_remaining_calls",
            "Calls that the current day has left for a priority",
            limited().filter_map(left).flatten(),
        );
    }

    /// The last reading of the budget, if it is fresh.
    fn recent<'a>(&self, budget: &'a Budget) -> Option<&'a SeenBudget> {
        let seen = budget.seen.as_ref()?;
        (self.now.since(seen.at) <= FRESH_FOR).then_some(seen)
    }

    fn seen(&self) -> impl Iterator<Item = (Labels, &SeenBudget)> {
        let budgets = self.budgets.iter();
        budgets.filter_map(|budget| Some((target(budget), self.recent(budget)?)))
    }

    fn each(&self, value: fn(&Budget) -> u64) -> impl Iterator<Item = (Labels, f64)> {
        let budgets = self.budgets.iter();
        budgets.map(move |budget| (target(budget), value(budget) as f64))
    }

    /// Both priorities of every target, including counts of zero.
    fn by_priority(&self, counts: fn(&TokenCounts) -> PriorityCounts) -> Vec<(Labels, f64)> {
        let each = |budget: &Budget| by_priority(&target(budget), counts(&budget.counts));
        self.budgets.iter().flat_map(each).collect()
    }
}

fn target(budget: &Budget) -> Labels {
    label("target", &budget.target)
}

pub(crate) fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

pub(crate) fn by_priority(labels: &Labels, counts: PriorityCounts) -> [(Labels, f64); 2] {
    [("high", counts.high), ("low", counts.low)]
        .map(|(priority, count)| (with(labels, "priority", priority), count as f64))
}

/// The value of a breaker's state. A higher one is worse.
pub(crate) fn state(breaker: BreakerState) -> f64 {
    match breaker {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 1.0,
        BreakerState::Open => 2.0,
    }
}
