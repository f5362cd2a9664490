//! Notifies followers in this process when somebody writes a record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::RecordId;
use tokio::sync::watch;

type Followed = HashMap<RecordId, watch::Sender<()>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeFeed {
    followed: Arc<Mutex<Followed>>,
}

/// Waits for changes of one record.
#[derive(Debug)]
pub(crate) struct Follower {
    record: RecordId,
    feed: ChangeFeed,
    changes: watch::Receiver<()>,
}

impl ChangeFeed {
    /// Sees changes from this call on.
    pub(crate) fn follow(&self, record: RecordId) -> Follower {
        let changes = match self.followed().entry(record.clone()) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.get().subscribe(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(watch::Sender::new(())).subscribe()
            }
        };
        Follower {
            record,
            feed: self.clone(),
            changes,
        }
    }

    pub(crate) fn notify(&self, record: &RecordId) {
        if let Some(sender) = self.followed().get(record) {
            sender.send_replace(());
        }
    }

    /// No code under this lock panics, so a poisoned lock is safe to use.
    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Resolves when somebody wrote the record after the last call.
    pub(crate) async fn changed(&mut self) {
        // The sender lives as long as the record has a follower.
        let _ = self.changes.changed().await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followed = self.feed.followed();
        // The count still includes this follower.
        let last = |sender: &watch::Sender<()>| sender.receiver_count() <= 1;
        if followed.get(&self.record).is_some_and(last) {
            followed.remove(&self.record);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tidegate_core::ids::{RecordKey, SourceId};

    use super::*;

    #[tokio::test]
    async fn followers_are_notified_and_forgotten() {
        let record = RecordId {
            source: SourceId::new("s").unwrap(),
            key: RecordKey::new("k").unwrap(),
        };
        let changes = ChangeFeed::default();
        let (mut first, second) = (changes.follow(record.clone()), changes.follow(record.clone()));
        assert!(first.changed().now_or_never().is_none());
        changes.notify(&record);
        assert!(first.changed().now_or_never().is_some());
        assert!(first.changed().now_or_never().is_none());
        drop(first);
        assert_eq!(changes.followed().len(), 1);
        drop(second);
        assert!(changes.followed().is_empty());
    }
}
