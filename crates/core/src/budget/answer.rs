//! What a response of the target says about further calls.

use crate::time::Millis;

/// The hold if a response names no time.
const UNSAID: Millis = Millis(1_000);
/// The minimum hold; a shorter one is raised to it.
const SHORTEST: Millis = Millis(100);

/// Whether a response asks every caller of the target to back off: 429, or 503 with Retry-After. Any other 503
/// is a failure of one call.
pub fn asks_for_time(status: u16, retry_after: Option<Millis>) -> bool {
    status == 429 || status == 503 && retry_after.is_some()
}

/// The hold that the response asks for, if any.
pub fn asked_hold(status: u16, retry_after: Option<Millis>) -> Option<Millis> {
    asks_for_time(status, retry_after).then(|| retry_after.unwrap_or(UNSAID).max(SHORTEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_429_and_a_503_with_a_time_hold_everybody() {
        let minute = Some(Millis(60_000));
        assert_eq!(asked_hold(429, minute), minute);
        assert_eq!(asked_hold(503, minute), minute);
        assert_eq!(asked_hold(429, None), Some(Millis(1_000)));
        assert_eq!(asked_hold(429, Some(Millis(0))), Some(Millis(100)));
        for (status, retry_after) in [(503, None), (500, minute), (404, minute), (200, minute)] {
            assert_eq!(asked_hold(status, retry_after), None, "{status}");
        }
    }
}
