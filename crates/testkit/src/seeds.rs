//! Which seeds a test runs. `TIDEGATE_SIM_SEED=n` runs one seed again, `TIDEGATE_SIM_FRESH=n` that many fresh ones,
//! `TIDEGATE_SIM_STEPS=n` longer or shorter histories.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text}: a whole number is needed")))
}

/// The one seed to run again, if there is one.
pub fn again() -> Option<u64> {
    number("TIDEGATE_SIM_SEED")
}

/// How long histories are.
pub fn steps(default: u64) -> u64 {
    number("TIDEGATE_SIM_STEPS").unwrap_or(default)
}

/// A seed that nobody has chosen.
pub fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Fixed seeds from 0 on, or the one to run again.
pub fn fixed(count: u64) -> Vec<u64> {
    again().map_or_else(|| (0..count).collect(), |seed| vec![seed])
}

/// Seeds that differ from run to run.
pub fn fresh(count: u64) -> Vec<u64> {
    let count = number("TIDEGATE_SIM_FRESH").unwrap_or(count);
    (0..count).map(|_| fresh_seed()).collect()
}

/// This many seeds, half of them fresh; or the one to run again.
pub fn half_fresh(count: u64) -> Vec<u64> {
    match again() {
        Some(seed) => vec![seed],
        None => (0..count / 2).chain(fresh(count - count / 2)).collect(),
    }
}

/// Prints past the test runner's capture, so that a passing run shows its seeds, too.
pub fn say(line: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}
