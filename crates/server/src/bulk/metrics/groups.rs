//! Counters per group, for a bounded number of groups.
//!
//! A group with a *label* has its own counters; all others share `other`. The first `max_groups` groups get a label at once.
//! Another `max_groups` labels are for the busiest groups. A group that is no longer among the busiest keeps its label until
//! a busier one needs it; then its counts move to `other`. So no counter ever decreases, their sum is always the number of
//! counted events, and there are at most `2 × max_groups + 1` series of each metric.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use tidegate_core::bulk::config::CongestionConfig;
use tidegate_core::bulk::views::CongestionState;
use tidegate_core::ids::GroupId;

use crate::metrics::add;

/// The label that all groups without their own share. A group of this name shares it, too.
pub(crate) const OTHER: &str = "other";
/// A group that was among the busiest this recently keeps its label. Groups at the edge of the busiest come and go, and every
/// move to `other` looks like a burst there.
const STAY: Duration = Duration::from_secs(300);
/// Upper bounds of the buckets of backoffs. One more bucket counts everything above.
pub(crate) const BACKOFF_MS: [u64; 9] = [
    1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000,
];

/// The counters of one group.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) allowed: AtomicU64,
    pub(crate) denied_global: AtomicU64,
    pub(crate) denied_per_group: AtomicU64,
    pub(crate) backoffs: [AtomicU64; BACKOFF_MS.len() + 1],
    pub(crate) backoff_sum_ms: AtomicU64,
    pub(crate) at_max: AtomicU64,
}

impl Counts {
    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        let single = [
            &self.allowed,
            &self.denied_global,
            &self.denied_per_group,
            &self.backoff_sum_ms,
            &self.at_max,
        ];
        single.into_iter().chain(&self.backoffs)
    }

    fn take_over(&self, from: &Counts) {
        for (to, from) in self.all().zip(from.all()) {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// A group with a label of its own.
#[derive(Debug)]
struct Labelled {
    counts: Counts,
    /// When the group was last among the busiest, or got its label.
    in_top: Instant,
}

impl Labelled {
    fn new(now: Instant) -> Self {
        Self {
            counts: Counts::default(),
            in_top: now,
        }
    }
}

/// Invariant: threads count under the read lock, so a group that loses its label under the write lock loses no count.
#[derive(Debug)]
pub(crate) struct Groups {
    labelled: RwLock<HashMap<GroupId, Labelled>>,
    other: Counts,
    /// How many groups get a label as soon as they appear.
    at_once: usize,
}

impl Groups {
    pub(crate) fn new(max_groups: usize) -> Self {
        Self {
            labelled: RwLock::default(),
            other: Counts::default(),
            at_once: max_groups,
        }
    }

    fn most(&self) -> usize {
        self.at_once.saturating_mul(2)
    }

    /// Counts several jobs with one lookup per group.
    pub(crate) fn count_each<'a>(
        &self,
        groups: impl Iterator<Item = &'a GroupId>,
        count: impl Fn(&Counts, usize),
    ) {
        let mut jobs: HashMap<&GroupId, usize> = HashMap::new();
        for group in groups {
            *jobs.entry(group).or_default() += 1;
        }
        for (group, jobs) in jobs {
            self.count(group, |counts| count(counts, jobs));
        }
    }

    fn count(&self, group: &GroupId, count: impl FnOnce(&Counts)) {
        {
            let labelled = self.labelled.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(own) = labelled.get(group) {
                return count(&own.counts);
            }
            if labelled.len() >= self.at_once || group.as_str() == OTHER {
                return count(&self.other);
            }
        }
        let mut labelled = self.labelled.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have given the last label between the two locks.
        if labelled.len() >= self.at_once && !labelled.contains_key(group) {
            return count(&self.other);
        }
        let own = labelled
            .entry(group.clone())
            .or_insert_with(|| Labelled::new(Instant::now()));
        count(&own.counts);
    }

    /// Gives labels to the busiest groups.
    pub(crate) fn refresh<'a>(&self, top: impl Iterator<Item = &'a GroupId>, now: Instant) {
        let mut labelled = self.labelled.write().unwrap_or_else(PoisonError::into_inner);
        let mut without = Vec::new();
        for group in top.filter(|group| group.as_str() != OTHER) {
            match labelled.get_mut(group) {
                Some(own) => own.in_top = now,
                None => without.push(group),
            }
        }
        for group in without {
            if labelled.len() >= self.most() {
                let longest_out = labelled
                    .iter()
                    .filter(|(_, own)| now.saturating_duration_since(own.in_top) >= STAY)
                    .min_by_key(|(_, own)| own.in_top);
                let Some((gone, _)) = longest_out else { return };
                let gone = gone.clone();
                if let Some(own) = labelled.remove(&gone) {
                    self.other.take_over(&own.counts);
                }
            }
            labelled.insert(group.clone(), Labelled::new(now));
        }
    }

    /// Counts the throttles of a group since its last reading, all with the latest backoff.
    pub(crate) fn throttled(&self, (state, throttles): &(CongestionState, u64), config: &CongestionConfig) {
        if *throttles == 0 {
            return;
        }
        let (backoff, throttles) = (state.last_backoff_ms, *throttles as usize);
        let above = BACKOFF_MS.iter().position(|edge| backoff.0 <= *edge);
        self.count(&state.group, |counts| {
            add(&counts.backoffs[above.unwrap_or(BACKOFF_MS.len())], throttles);
            add(&counts.backoff_sum_ms, backoff.0 as usize * throttles);
            if config.enabled && backoff >= config.max_backoff_ms {
                add(&counts.at_max, throttles);
            }
        });
    }

    /// Visits every group with a label, then all others together.
    pub(crate) fn read(&self, mut each: impl FnMut(&str, &Counts)) {
        let labelled = self.labelled.read().unwrap_or_else(PoisonError::into_inner);
        for (group, own) in labelled.iter() {
            each(group.as_str(), &own.counts);
        }
        each(OTHER, &self.other);
    }
}
