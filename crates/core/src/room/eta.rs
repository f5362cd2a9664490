//! Estimates when a position is admitted, as a range that shows how certain it is.
//!
//! The room admits those ahead at `p` per millisecond, and each of them gives up at `h` per millisecond. So for
//! `k` people `dk/dt = -(p + h·k)`, and nobody is left after `ln(1 + h·k / p) / h`, which is `k / p` if nobody
//! gives up. No-shows need no term of their own: their slots count in `p` again.

use super::pace::Rates;
use crate::time::Millis;

/// The relative error of a pace measured without error: rooms are not perfectly steady.
const UNSTEADY: f64 = 0.08;
/// The half-width of the range in standard deviations.
const SPREAD: f64 = 1.6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eta {
    pub low: Millis,
    pub likely: Millis,
    pub high: Millis,
}

/// When a ticket with this many ahead is admitted, at the current rates.
pub fn eta(ahead: u64, rates: &Rates) -> Eta {
    let people = ahead as f64 + 1.0;
    let likely = match rates.gone_per_ms * people / rates.per_ms {
        // The logarithm of almost 1 is too inexact: assume that nobody gives up.
        gone if gone < 1e-6 => people / rates.per_ms,
        gone => gone.ln_1p() / rates.gone_per_ms,
    };
    // Both the pace and the rest of the queue are counts of random events.
    let unsure = (1.0 / rates.admitted as f64 + 1.0 / people + UNSTEADY * UNSTEADY).sqrt();
    let factor = 1.0 + SPREAD * unsure;
    Eta {
        low: Millis((likely / factor) as u64),
        likely: Millis(likely as u64),
        high: Millis((likely * factor).ceil() as u64),
    }
}
