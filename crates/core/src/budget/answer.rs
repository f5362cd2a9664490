//! What an answer of the target says about calling it again.

use crate::time::Millis;

/// Where an answer names no time.
const UNSAID: Millis = Millis(1_000);
/// A shorter time is none.
const SHORTEST: Millis = Millis(100);

/// Whether an answer asks everybody who calls the target to leave it alone: 429, or 503 that says for how long. Any other
/// 503 is the trouble of one call.
pub fn asks_for_time(status: u16, retry_after: Option<Millis>) -> bool {
    status == 429 || status == 503 && retry_after.is_some()
}

/// For how long, if it does.
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
