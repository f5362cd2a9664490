//! Random histories by seed. `TIDEGATE_SIM_SEED=n` runs one seed again, `TIDEGATE_SIM_FRESH=n` that many
//! fresh ones, `TIDEGATE_SIM_STEPS=n` longer or shorter histories.

use tidegate_testkit::rng::fresh_seed;
use tidegate_testkit::simulation::run;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a whole number is needed")),
    )
}

/// Past the test runner's capture, so that a passing run's seeds are seen, too.
fn say(line: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "{line}").expect("stderr is there");
}

fn steps() -> u64 {
    number("TIDEGATE_SIM_STEPS").unwrap_or(800)
}

/// Seeds that have found something once, with the length that it took.
const FOUND: [(u64, u64); 1] = [(15_548_334_250_039_923_118, 1_500)];

#[test]
fn seeds_that_found_something_keep_every_promise() {
    for (seed, steps) in FOUND {
        run(seed, steps);
    }
}

#[test]
fn fixed_seeds_keep_every_promise() {
    let seeds = match number("TIDEGATE_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..60).collect(),
    };
    for seed in seeds {
        let report = run(seed, steps());
        say(&format!("{report:?}"));
    }
}

#[test]
fn fresh_seeds_keep_every_promise() {
    for _ in 0..number("TIDEGATE_SIM_FRESH").unwrap_or(20) {
        let seed = fresh_seed();
        say(&format!("fresh seed {seed}"));
        run(seed, steps());
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 17, 4711] {
        assert_eq!(run(seed, 400), run(seed, 400));
    }
    assert_ne!(run(3, 400).trace, run(4, 400).trace);
}
