//! In-doubt publishes: events that the log did not confirm in time, so nobody knows whether it has them. Their
//! coalescer slots expire on their own. Until then this process does not report them as queued.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::RecordId;
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

/// Limit: the publishes that time out within the life of one entry. Batches and the send timeout keep them few.
#[derive(Debug, Default)]
pub(crate) struct InDoubt {
    events: Mutex<HashMap<RecordId, (Version, Timestamp)>>,
}

impl InDoubt {
    /// Holds one event for each record: an earlier event of that record has ended.
    pub(crate) fn raise(&self, doubtful: Vec<(RecordId, Version)>, until: Timestamp, now: Timestamp) {
        let mut events = self.events();
        events.retain(|_, (_, until)| now < *until);
        events.extend((doubtful.into_iter()).map(|(record, version)| (record, (version, until))));
    }

    pub(crate) fn about(&self, record: &RecordId, version: Version, now: Timestamp) -> bool {
        let events = self.events();
        let known = events.get(record);
        known.is_some_and(|(doubtful, until)| *doubtful == version && now < *until)
    }

    /// No code under this lock panics, so a poisoned lock is safe to use.
    fn events(&self) -> MutexGuard<'_, HashMap<RecordId, (Version, Timestamp)>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::ids::{RecordKey, SourceId};

    use super::*;

    #[test]
    fn a_doubt_is_about_one_event_and_ends() {
        let record = |key: &str| RecordId {
            source: SourceId::new("s").unwrap(),
            key: RecordKey::new(key).unwrap(),
        };
        let in_doubt = InDoubt::default();
        in_doubt.raise(vec![(record("a"), Version(7))], Timestamp(10), Timestamp(0));
        assert!(in_doubt.about(&record("a"), Version(7), Timestamp(9)));
        assert!(!in_doubt.about(&record("a"), Version(8), Timestamp(9)));
        assert!(!in_doubt.about(&record("b"), Version(7), Timestamp(9)));
        assert!(!in_doubt.about(&record("a"), Version(7), Timestamp(10)));
        in_doubt.raise(vec![(record("b"), Version(9))], Timestamp(20), Timestamp(10));
        assert_eq!(in_doubt.events().len(), 1, "what is over is forgotten");
    }
}
