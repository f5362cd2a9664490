//! Follows one record until it is fresh: an item at once, then whenever something changed.

use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use tidegate_core::ids::RecordId;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::freshness::Freshness;
use tidegate_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::change_feed::Follower;
use super::error::RefreshError;
use super::reader::Reader;
use super::shared::Shared;
use super::view::RecordView;

/// What has to differ for a view to be worth telling.
type Told = (Freshness, Option<Timestamp>, bool, Option<Timestamp>);

#[derive(Debug)]
pub struct RecordFollower {
    reader: Arc<Reader>,
    record: RecordId,
    since: Option<Version>,
    follower: Follower,
    /// Writes of other processes are found by looking.
    every: Duration,
    stop: CancellationToken,
    told: Option<Told>,
    ended: bool,
}

impl RecordFollower {
    pub(crate) fn new(
        shared: &Shared,
        reader: Arc<Reader>,
        record: RecordId,
        since: Option<Version>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            reader,
            follower: shared.changes.follow(record.clone()),
            record,
            since,
            every: shared.options.watch.follow_every_ms.into(),
            stop,
            told: None,
            ended: false,
        }
    }

    /// The next change; none after the record was fresh, absent or given up, or when the service has ended. A database that
    /// cannot be read is waited for, but for the first item.
    pub async fn next(&mut self) -> Option<Result<RecordView, RefreshError>> {
        if self.ended {
            return None;
        }
        loop {
            let first = self.told.is_none();
            if !first {
                tokio::select! {
                    () = self.follower.changed() => {}
                    () = tokio::time::sleep(self.every) => {}
                    () = self.stop.cancelled() => {
                        self.ended = true;
                        return None;
                    }
                }
            }
            // The first look asks for a refresh if one is needed; so does each later one, in case it got lost.
            let view = match self.reader.read(&self.record, None).await {
                Ok(view) => view,
                Err(error) if first || !error.is_retryable() => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Err(_) => continue,
            };
            let status_at = view.status.as_ref().map(|status| status.updated_at);
            let told = (
                view.freshness,
                view.last_checked_at,
                view.update_queued(),
                status_at,
            );
            if self.told == Some(told) {
                continue;
            }
            self.told = Some(told);
            self.ended = view.is_final(self.since);
            return Some(Ok(view));
        }
    }

    /// Nothing comes after what was told last.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub fn into_stream(self) -> impl Stream<Item = Result<RecordView, RefreshError>> + Send {
        futures_util::stream::unfold(self, |mut follower| async move {
            let item = follower.next().await?;
            Some((item, follower))
        })
    }
}
