//! Serves recently read rows from memory, bounded in entries, bytes and age.
//!
//! All entries live equally long, so eviction always starts with the oldest, whatever the reason.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tidegate_core::ids::RecordId;
use tidegate_core::refresh::coalescer::RequestOutcome;
use tidegate_core::time::Timestamp;
use tidegate_snapshots::Row;
use tokio::time::Instant;

use crate::refresh::options::QuerySettings;

/// Approximate bytes that an entry needs beside its data.
const OVERHEAD: usize = 512;

/// A row, and when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) row: Row,
    /// In store time, taken before the database query.
    pub(crate) read_at: Timestamp,
    /// The refresh already queued because of this row; readers need not request it again.
    pub(crate) queued: OnceLock<RequestOutcome>,
}

/// Detects whether somebody wrote a record after a read of it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadBegun(u64);

#[derive(Debug)]
struct Entry {
    seen: Arc<Seen>,
    stamp: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<RecordId, Entry>,
    /// Oldest first. If a stamp differs from its entry's, that entry was replaced or forgotten.
    order: VecDeque<(RecordId, u64, Instant)>,
    bytes: usize,
    stamp: u64,
    /// Recently invalidated records with their stamps. A read that began earlier must not bring them back.
    forgotten: VecDeque<(u64, RecordId)>,
    /// The list no longer holds invalidations up to this stamp.
    unlisted: u64,
}

/// Limit: invalidations in the list. The cache does not keep a read that began before the oldest of them.
const FORGOTTEN: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Cache {
    ttl: Duration,
    max_entries: usize,
    max_bytes: usize,
    inner: Mutex<Inner>,
}

impl Cache {
    pub(crate) fn new(settings: &QuerySettings) -> Self {
        Self {
            ttl: settings.cache_ttl_ms.into(),
            max_entries: settings.cache_entries,
            max_bytes: settings.cache_bytes,
            inner: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, record: &RecordId) -> Option<Arc<Seen>> {
        let mut inner = self.inner();
        self.drop_old(&mut inner);
        inner.entries.get(record).map(|entry| entry.seen.clone())
    }

    /// Call this before the database query.
    pub(crate) fn begin(&self) -> ReadBegun {
        ReadBegun(self.inner().stamp)
    }

    /// Keeps the row, unless somebody wrote the record in the meantime.
    pub(crate) fn keep(&self, record: &RecordId, seen: Arc<Seen>, begun: ReadBegun) {
        let mut inner = self.inner();
        let mut since = inner
            .forgotten
            .iter()
            .rev()
            .take_while(|(stamp, _)| *stamp > begun.0);
        let overtaken = inner.unlisted > begun.0 || since.any(|(_, forgotten)| forgotten == record);
        if overtaken {
            return;
        }
        inner.remove(record);
        let data = seen
            .row
            .snapshot
            .as_ref()
            .map_or(0, |snapshot| snapshot.data.len());
        let bytes = OVERHEAD + data;
        inner.stamp += 1;
        let stamp = inner.stamp;
        inner.bytes += bytes;
        inner.entries.insert(record.clone(), Entry { seen, stamp, bytes });
        inner.order.push_back((record.clone(), stamp, Instant::now()));
        self.drop_old(&mut inner);
    }

    pub(crate) fn forget(&self, record: &RecordId) {
        let mut inner = self.inner();
        inner.stamp += 1;
        let stamp = inner.stamp;
        inner.remove(record);
        inner.forgotten.push_back((stamp, record.clone()));
        if inner.forgotten.len() > FORGOTTEN
            && let Some((oldest, _)) = inner.forgotten.pop_front()
        {
            inner.unlisted = oldest;
        }
    }

    fn drop_old(&self, inner: &mut Inner) {
        while let Some((record, stamp, kept)) = inner.order.front() {
            let live = inner
                .entries
                .get(record)
                .is_some_and(|entry| entry.stamp == *stamp);
            let over = inner.entries.len() > self.max_entries || inner.bytes > self.max_bytes;
            if live && !over && kept.elapsed() < self.ttl {
                return;
            }
            let Some((record, ..)) = inner.order.pop_front() else {
                return;
            };
            if live {
                inner.remove(&record);
            }
        }
    }

    /// No code under this lock panics, so a poisoned lock is safe to use.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remove(&mut self, record: &RecordId) {
        if let Some(entry) = self.entries.remove(record) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::ids::{RecordKey, SourceId};
    use tidegate_core::time::Millis;

    use super::*;

    fn cache(entries: usize) -> Cache {
        Cache::new(&QuerySettings {
            cache_entries: entries,
            cache_ttl_ms: Millis(1_000),
            ..QuerySettings::default()
        })
    }

    fn record(name: &str) -> RecordId {
        RecordId {
            source: SourceId::new("s").unwrap(),
            key: RecordKey::new(name).unwrap(),
        }
    }

    fn seen() -> Arc<Seen> {
        Arc::new(Seen {
            row: Row::default(),
            read_at: Timestamp(1),
            queued: OnceLock::new(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn entries_end_by_age_and_by_number() {
        let cache = cache(2);
        for name in ["a", "b", "c"] {
            cache.keep(&record(name), seen(), cache.begin());
        }
        assert!(cache.get(&record("a")).is_none());
        assert!(cache.get(&record("b")).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get(&record("c")).is_none());
        assert_eq!(cache.inner().bytes, 0);
        assert!(cache.inner().order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_a_write_overtook_is_not_kept() {
        let cache = cache(10);
        let begun = cache.begin();
        cache.forget(&record("a"));
        cache.keep(&record("a"), seen(), begun);
        assert!(cache.get(&record("a")).is_none());
        cache.keep(&record("b"), seen(), begun);
        assert!(cache.get(&record("b")).is_some());
        cache.keep(&record("a"), seen(), cache.begin());
        assert!(cache.get(&record("a")).is_some());
    }
}
