//! Numbers that depend on nothing but a text: the same record has the same content on every machine.

use tidegate_core::hash::fnv1a;
use tidegate_core::rng::scramble;

/// A number for a text, scrambled so that similar keys are far apart.
pub(crate) fn number_of(text: &str) -> u64 {
    scramble(fnv1a(text.as_bytes()))
}
