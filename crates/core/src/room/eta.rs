//! How long it takes until a position is let in, as a range that says how sure that is.
//!
//! Those ahead are let in at `p` per millisecond, and each of them gives up at `h` per millisecond, so of `k` people
//! `dk/dt = -(p + h·k)`, and nobody is left after `ln(1 + h·k / p) / h`, which is `k / p` if nobody gives up. People who
//! were let in and did not come need no term of their own: their slots are in `p` again.

use super::pace::Rates;
use crate::time::Millis;

/// What a pace is worth that was measured without error: rooms are not perfectly steady.
const UNSTEADY: f64 = 0.08;
/// How many standard deviations the range is wide, to each side.
const SPREAD: f64 = 1.6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eta {
    pub low: Millis,
    pub likely: Millis,
    pub high: Millis,
}

/// When somebody with so many ahead is let in, if it goes on as it went.
pub fn eta(ahead: u64, rates: &Rates) -> Eta {
    let people = ahead as f64 + 1.0;
    let likely = match rates.gone_per_ms * people / rates.per_ms {
        // The logarithm of almost 1 says nothing: nobody gives up.
        gone if gone < 1e-6 => people / rates.per_ms,
        gone => gone.ln_1p() / rates.gone_per_ms,
    };
    // Both the pace and the rest of the line are counts of chance events.
    let unsure = (1.0 / rates.admitted as f64 + 1.0 / people + UNSTEADY * UNSTEADY).sqrt();
    let factor = 1.0 + SPREAD * unsure;
    Eta {
        low: Millis((likely / factor) as u64),
        likely: Millis(likely as u64),
        high: Millis((likely * factor).ceil() as u64),
    }
}
