//! Numbers of the scripts: Lua has doubles only.

use tidegate_core::time::Timestamp;

/// Limit: numbers that a double holds exactly, with room to add a time.
pub const MAX_NUMBER: u64 = 1 << 52;

/// A time beyond the numbers of the scripts becomes "never".
pub fn time(ms: u64) -> Timestamp {
    Timestamp(if ms >= MAX_NUMBER { u64::MAX } else { ms })
}
