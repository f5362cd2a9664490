//! The frame of a simulation: a world that a seed determines, played step by step, checked after every step.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A system under test, with its users and its failures.
pub trait World {
    /// What a run has seen, so that a test can check what it covered.
    type Report: Debug;

    /// One step: somebody acts, time passes, something fails. An error names the broken promise; it may panic instead.
    fn step(&mut self) -> Result<(), String>;

    /// Nothing fails any more: everything that was promised must come true.
    fn finish(&mut self) -> Result<Self::Report, String>;
}

/// Plays one seed; returns what is wrong with it, if anything.
pub fn play<W: World>(seed: u64, steps: u64, begin: impl FnOnce(u64) -> W) -> Result<W::Report, String> {
    let mut world = begin(seed);
    for step in 0..steps {
        world
            .step()
            .map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    world
        .finish()
        .map_err(|why| format!("seed {seed}, at the end: {why}"))
}

/// Plays one seed in which every promise holds. Panics otherwise, and says how to play it again.
pub fn holds<W: World>(seed: u64, steps: u64, begin: impl FnOnce(u64) -> W) -> W::Report {
    let played = catch_unwind(AssertUnwindSafe(|| play(seed, steps, begin)));
    let hint = || eprintln!("seed {seed} failed; run it again with TIDEGATE_SIM_SEED={seed}");
    match played {
        Ok(Ok(report)) => report,
        Ok(Err(why)) => {
            hint();
            panic!("{why}")
        }
        Err(panic) => {
            hint();
            resume_unwind(panic)
        }
    }
}

/// A wrong system is found within these seeds, and the reason contains `says`.
pub fn caught<W: World>(seeds: std::ops::Range<u64>, steps: u64, says: &str, begin: impl Fn(u64) -> W) {
    let found: Vec<String> = seeds.filter_map(|seed| play(seed, steps, &begin).err()).collect();
    assert!(!found.is_empty(), "no seed finds the fault");
    assert!(
        found.iter().any(|why| why.contains(says)),
        "it should say {says:?}: {}",
        found[0]
    );
}
