//! Follows one record until it is fresh: yields one item at once, then one for every change.

use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use tidegate_core::ids::RecordId;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::freshness::Freshness;
use tidegate_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::change_feed::Follower;
use super::reader::Reader;
use super::view::RecordView;
use crate::refresh::error::RefreshError;
use crate::refresh::shared::Shared;

/// A view is worth sending only if one of these differs from the last one.
type Sent = (Freshness, Option<Timestamp>, bool, Option<Timestamp>);

#[derive(Debug)]
pub struct RecordFollower {
    reader: Arc<Reader>,
    record: RecordId,
    since: Option<Version>,
    follower: Follower,
    /// Poll interval: polling finds the writes of other processes.
    every: Duration,
    stop: CancellationToken,
    sent: Option<Sent>,
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
            sent: None,
            ended: false,
        }
    }

    /// The next change; none after the record was fresh, absent or dead-lettered, or after the service ended. If the
    /// database is unavailable, the first item is an error; later ones wait until it responds.
    pub async fn next(&mut self) -> Option<Result<RecordView, RefreshError>> {
        if self.ended {
            return None;
        }
        loop {
            let first = self.sent.is_none();
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
            // The first read requests a refresh if the record needs one. Every later read does so again, in case
            // that one got lost.
            let view = match self.reader.read(&self.record, None).await {
                Ok(view) => view,
                Err(error) if first || !error.is_retryable() => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Err(_) => continue,
            };
            let status_at = view.status.as_ref().map(|status| status.updated_at);
            let sent = (
                view.freshness,
                view.last_checked_at,
                view.update_queued(),
                status_at,
            );
            if self.sent == Some(sent) {
                continue;
            }
            self.sent = Some(sent);
            self.ended = view.is_final(self.since);
            return Some(Ok(view));
        }
    }

    /// True if no further item follows the last one.
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
