//! Exponential backoff with jitter between attempts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// Returns the wait before the next attempt: the service's Retry-After, or the backoff if that is longer.
    pub(crate) fn pause(&mut self, said: Option<Duration>) -> Duration {
        let guess = self.next;
        self.next = (guess * 2).min(LONGEST);
        // Jitter between half of it and all of it: clients that lost the service at the same moment must not all
        // return at the same moment.
        let share = 500 + RandomState::new().hash_one(0) % 501;
        let guess = guess * share as u32 / 1_000;
        guess.max(said.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_heed_the_service() {
        let mut backoff = Backoff::default();
        let first = backoff.pause(None);
        assert!(first >= FIRST / 2 && first <= FIRST);
        for _ in 0..20 {
            let pause = backoff.pause(None);
            assert!(pause <= LONGEST);
        }
        assert!(backoff.pause(None) >= LONGEST / 2);
        let said = Duration::from_secs(60);
        assert_eq!(backoff.pause(Some(said)), said);
    }
}
