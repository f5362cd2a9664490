//! The version of a refresh: it orders the events of one record, and is the fencing token for writes to its
//! snapshot.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Grows with every event of a record, even after the issuing store has forgotten the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// Limit: scripts count exactly up to here. Store time reaches it in the year 2248.
    pub const MAX: Version = Version((1 << 53) - 1);
    /// Limit: larger versions from outside are rejected. The rest up to [`Version::MAX`] is room to grow, so that a damaged
    /// event cannot exhaust a record's versions.
    pub const LAST_FROM_OUTSIDE: Version = Version(Self::MAX.0 / 8 * 7);
    /// Versions that one record may get in one millisecond before they run ahead of time.
    pub const PER_MILLI: u64 = 1_024;

    /// The smallest version that time alone allows: a store that forgot continues above what it issued before.
    pub fn floor(now: Timestamp) -> Version {
        Version(now.0.saturating_mul(Self::PER_MILLI)).min(Self::MAX)
    }

    /// The next version of a record: above the issued one, the snapshot's, and the one that time alone gives.
    /// Stays at [`Version::MAX`], which only damaged data can reach.
    pub fn next(issued: Version, snapshot: Option<Version>, now: Timestamp) -> Version {
        let above = issued.max(snapshot.unwrap_or_default());
        Version(above.0.saturating_add(1))
            .max(Self::floor(now))
            .min(Self::MAX)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_above_what_was_issued_what_is_stored_and_time() {
        let now = Timestamp(1_790_000_000_000);
        let floor = Version::floor(now);
        assert_eq!(Version::next(Version(0), None, now), floor);
        assert_eq!(Version::next(floor, None, now), Version(floor.0 + 1));
        assert_eq!(
            Version::next(floor, Some(Version(floor.0 + 7)), Timestamp(5)),
            Version(floor.0 + 8)
        );
        assert!(floor < Version::MAX);
    }
}
