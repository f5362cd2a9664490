//! Waiting for a condition with a deadline.

use std::io;
use std::time::{Duration, Instant};

/// Polls every few milliseconds until there is a value. An error ends the wait at once.
pub(super) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut poll: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
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
    reason = "the one pause between two polls of a condition"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
