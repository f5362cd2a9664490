//! How long to wait before the next attempt at something that is unavailable.

use std::time::Duration;

/// The pause after the first failure; each further one makes it longer by as much.
const STEP: Duration = Duration::from_millis(50);
/// Limit: the pause between two attempts. An end of the outage is noticed within it.
const LONGEST: Duration = Duration::from_secs(2);

/// The pause after this many failures in a row.
pub fn pause(failures: u32) -> Duration {
    STEP.saturating_mul(failures).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert_eq!(pause(1), Duration::from_millis(50));
        assert_eq!(pause(2), Duration::from_millis(100));
        assert_eq!(pause(40), Duration::from_secs(2));
        assert_eq!(pause(u32::MAX), Duration::from_secs(2));
    }
}
