//! Streams of visitors over processes that die and machines that vanish: who is let in hears of it wherever
//! they are by then, a second device takes over at once, and whoever is gone without a word gives everything back in time.
//!
//! Figures are printed with `--nocapture`.

mod brokers;
mod promotions;
mod takeover;
#[cfg(target_os = "linux")]
mod vanished;
mod visitor;

use std::time::Duration;

/// Prints how long it took, and gives back the longest. That is for people: a second is what is promised, but a machine that
/// is busy with something else takes longer.
fn told_after(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{what}: {} times, p50 {middle:.0?}, longest {longest:.0?}",
        times.len()
    );
    longest
}
