//! Counters per group, for a bounded number of groups.
//!
//! A group with a *place* is counted under its name, all others together as `other`. The first `max_groups` to
//! come get a place at once; as many again are for groups that have most to do. A group keeps its place after it
//! has left the top, until somebody in the top needs it: then what it counted goes to `other`. So no counter ever
//! goes down, their sum is always what was counted, and there are at most `2 × max_groups + 1` of each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use tidegate_core::bulk::views::CongestionState;
use tidegate_core::config::CongestionConfig;
use tidegate_core::ids::GroupId;

use super::add;

/// The label of all groups without a place. A group of this name is counted with them.
pub(super) const OTHER: &str = "other";
/// A group that was in the top this recently keeps its place: near the edge of the top groups come and go, and
/// every move is a step of `other` that looks like a burst.
const STAY: Duration = Duration::from_secs(300);
/// Upper bounds of the buckets of backoffs; one more bucket takes what is above.
pub(super) const BACKOFF_MS: [u64; 9] = [
    1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000,
];

/// What is counted for one group.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) allowed: AtomicU64,
    pub(super) denied_global: AtomicU64,
    pub(super) denied_per_group: AtomicU64,
    pub(super) backoffs: [AtomicU64; BACKOFF_MS.len() + 1],
    pub(super) backoff_sum_ms: AtomicU64,
    pub(super) at_max: AtomicU64,
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

#[derive(Debug)]
struct Place {
    counts: Counts,
    /// When the group was last among those with most to do, or got its place.
    in_top: Instant,
}

impl Place {
    fn new(now: Instant) -> Self {
        Self {
            counts: Counts::default(),
            in_top: now,
        }
    }
}

/// Invariant: counts are added while the lock is held for reading, so none is missed when a place is taken.
#[derive(Debug)]
pub(super) struct Groups {
    places: RwLock<HashMap<GroupId, Place>>,
    other: Counts,
    /// Places that whoever comes first gets.
    at_once: usize,
}

impl Groups {
    pub(super) fn new(max_groups: usize) -> Self {
        Self {
            places: RwLock::default(),
            other: Counts::default(),
            at_once: max_groups,
        }
    }

    fn most(&self) -> usize {
        self.at_once.saturating_mul(2)
    }

    /// Counts a batch: one lookup per group in it, whatever its size.
    pub(super) fn count_each<'a>(
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
            let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = places.get(group) {
                return count(&place.counts);
            }
            if places.len() >= self.at_once || group.as_str() == OTHER {
                return count(&self.other);
            }
        }
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        // Others may have come in between.
        if places.len() >= self.at_once && !places.contains_key(group) {
            return count(&self.other);
        }
        let place = places
            .entry(group.clone())
            .or_insert_with(|| Place::new(Instant::now()));
        count(&place.counts);
    }

    /// Gives places to the groups that have most to do.
    pub(super) fn refresh<'a>(&self, top: impl Iterator<Item = &'a GroupId>, now: Instant) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let mut without = Vec::new();
        for group in top.filter(|group| group.as_str() != OTHER) {
            match places.get_mut(group) {
                Some(place) => place.in_top = now,
                None => without.push(group),
            }
        }
        for group in without {
            if places.len() >= self.most() {
                let longest_out = places
                    .iter()
                    .filter(|(_, place)| now.saturating_duration_since(place.in_top) >= STAY)
                    .min_by_key(|(_, place)| place.in_top);
                let Some((gone, _)) = longest_out else { return };
                let gone = gone.clone();
                if let Some(place) = places.remove(&gone) {
                    self.other.take_over(&place.counts);
                }
            }
            places.insert(group.clone(), Place::new(now));
        }
    }

    /// Throttles of a group since it was last looked at, all with the latest backoff.
    pub(super) fn throttled(&self, (state, throttles): &(CongestionState, u64), config: &CongestionConfig) {
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

    /// Every group with a place, then all others together.
    pub(super) fn read(&self, mut each: impl FnMut(&str, &Counts)) {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        for (group, place) in places.iter() {
            each(group.as_str(), &place.counts);
        }
        each(OTHER, &self.other);
    }
}
