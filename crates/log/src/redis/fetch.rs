//! Reads ahead into the bounded buffer of a member.
//!
//! No single command can wait for streams on several servers of a Cluster, so this polls: at once after records
//! arrived, else at growing intervals.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::consumer::Joined;
use super::server::Lease;
use crate::{LogError, Position};

const SHORTEST: Duration = Duration::from_millis(2);
/// Limit: how late the consumer sees a record.
const LONGEST: Duration = Duration::from_millis(50);
/// Pause after a failed read.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(250);

/// Reads until the consumer is gone.
pub(super) async fn fetch_for_ever(joined: Arc<Joined>) {
    let mut pause = SHORTEST;
    loop {
        // Subscribe first, then read: no signal gets lost.
        let changed = joined.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match joined.fetch().await {
            Ok(0) => {
                let _ = tokio::time::timeout(pause, changed).await;
                pause = (pause * 2).min(LONGEST);
            }
            Ok(_) => pause = SHORTEST,
            Err(error) => {
                tracing::debug!(%error, "failed to read records");
                joined.report(error);
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

impl Joined {
    /// One round over all partitions with free capacity. Returns how many records arrived.
    async fn fetch(&self) -> Result<usize, LogError> {
        let wants = self.assignment().wants(self.max_buffered);
        let reads = wants.into_iter().map(|want| async move {
            let keys = self.shared.keys.partition(self.topic, want.partition);
            let from = Position {
                partition: want.partition,
                offset: want.from,
            };
            let lease = Lease {
                group: &self.group,
                member: &self.member,
                fence: want.fence,
            };
            let range = self.shared.server.range(&keys, Some(&lease), from, want.max);
            (want, range.await)
        });
        let (mut came, mut failure) = (0, Ok(()));
        for (want, found) in join_all(reads).await {
            match found {
                Ok(Some(records)) => {
                    came += records.len();
                    self.assignment().read(want, records);
                }
                Ok(None) => {
                    self.assignment().lose_under(want.partition, want.fence);
                    self.filled.notify_waiters();
                }
                Err(error) => failure = Err(error),
            }
        }
        if came > 0 {
            self.filled.notify_waiters();
        }
        failure.map(|()| came)
    }
}
