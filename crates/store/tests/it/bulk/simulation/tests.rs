//! Random histories by seed; see [`tidegate_testkit::seeds`] for how to run one again.

use tidegate_testkit::seeds::{self, say};

use super::run;

/// Seeds that once found a bug, with the number of steps.
const FOUND: [(u64, u64); 2] = [
    (15_548_334_250_039_923_118, 1_500),
    (8_032_363_690_594_860_121, 800),
];

#[test]
fn seeds_that_found_something_keep_every_promise() {
    for (seed, steps) in FOUND {
        run(seed, steps);
    }
}

#[test]
fn fixed_seeds_keep_every_promise() {
    for seed in seeds::fixed(60) {
        say(&format!("{:?}", run(seed, seeds::steps(800))));
    }
}

#[test]
fn fresh_seeds_keep_every_promise() {
    for seed in seeds::fresh(20) {
        say(&format!("fresh seed {seed}"));
        run(seed, seeds::steps(800));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 17, 4711] {
        assert_eq!(run(seed, 400), run(seed, 400));
    }
    assert_ne!(run(3, 400).trace, run(4, 400).trace);
}
