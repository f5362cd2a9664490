//! Two backlogged groups never differ by more than two picks, in proportion to their weights.

use std::collections::BTreeMap;

use tidegate_core::bulk::policy;
use tidegate_core::bulk::views::GroupView;

/// Picks of each group against each other, counted while both are backlogged.
#[derive(Debug, Default)]
pub(super) struct FairShares {
    backlogged: Vec<String>,
    /// (a, b) → how far a is ahead of b, in steps of virtual time.
    ahead: BTreeMap<(String, String), i64>,
    picked: BTreeMap<String, i64>,
}

impl FairShares {
    /// A pick of `group`, before [`FairShares::look`] closes the step.
    pub(super) fn picked(&mut self, group: &str) {
        *self.picked.entry(group.to_owned()).or_default() += 1;
    }

    /// Resets the counts, because the picks are no longer known.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Counts the picks of a step. Only pairs that were backlogged before and after it are comparable.
    pub(super) fn look(&mut self, groups: &[GroupView]) {
        let now: BTreeMap<String, i64> = groups
            .iter()
            .filter(|group| group.counts.waiting > 0 && !group.held)
            .map(|group| {
                (
                    group.id.as_str().to_owned(),
                    policy::step(group.base_priority) as i64,
                )
            })
            .collect();
        let stayed = |group: &String| now.contains_key(group) && self.backlogged.contains(group);
        let picked = std::mem::take(&mut self.picked);
        let mut ahead = BTreeMap::new();
        for (a, step_a) in now.iter().filter(|(a, _)| stayed(a)) {
            for (b, step_b) in now.iter().filter(|(b, _)| stayed(b)) {
                let gained = |group, step| picked.get(group).copied().unwrap_or(0) * step;
                let before = self.ahead.get(&(a.clone(), b.clone())).copied().unwrap_or(0);
                let lead = before + gained(a, step_a) - gained(b, step_b);
                assert!(
                    lead <= 2 * step_a.max(step_b),
                    "{a:?} is {lead} ahead of {b:?}; steps are {step_a} and {step_b}"
                );
                ahead.insert((a.clone(), b.clone()), lead);
            }
        }
        self.ahead = ahead;
        self.backlogged = now.into_keys().collect();
    }
}
