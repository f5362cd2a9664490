//! Waiting for a condition with a deadline.

use std::io;
use std::time::{Duration, Instant};

/// Asks every few milliseconds until there is an answer. An error ends the wait at once.
pub(super) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            let text = format!("{what}: not within {limit:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        pause(Duration::from_millis(5));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one pause between two looks at a condition"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
