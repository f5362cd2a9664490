//! Two stores side by side: every command goes to both, and both must answer the same. The reference is the pure state
//! machine.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// Both answers are equal; returns the answer. `context` says where in the history this is.
pub fn same<T: PartialEq + Debug>(context: &dyn Debug, request: &dyn Debug, reference: T, other: T) -> T {
    assert!(
        reference == other,
        "the stores differ: {context:?}\n   request: {request:?}\n reference: {reference:?}\n     other: {other:?}"
    );
    reference
}

/// What histories saw, so that a test can check what they covered.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    /// Counts this once more.
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Adds what another history saw.
    pub fn add(&mut self, other: Seen) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// The first of these that no history saw.
    pub fn missing<'a>(&self, wanted: &[&'a str]) -> Option<&'a str> {
        wanted.iter().copied().find(|what| !self.0.contains_key(what))
    }

    /// Panics if one of these was never seen.
    pub fn expect_all(&self, wanted: &[&str]) {
        if let Some(missing) = self.missing(wanted) {
            panic!("no history saw {missing:?}: {self:?}");
        }
    }
}
