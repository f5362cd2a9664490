//! Event streams of visitors while processes die and machines vanish. A visitor who is let in gets the event from
//! whichever process has the stream by then. A second device takes over at once. A vanished visitor's ticket and slot
//! are released in time.
//!
//! The tests print figures with `--nocapture`.

mod processes;
mod promotions;
mod takeover;
#[cfg(target_os = "linux")]
mod vanished;
mod visitor;

use std::time::Duration;

/// Prints the times, and returns the longest. They are for people: the promise is one second, but a busy machine takes
/// longer.
fn print_times(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{what}: {} times, p50 {middle:.0?}, longest {longest:.0?}",
        times.len()
    );
    longest
}
