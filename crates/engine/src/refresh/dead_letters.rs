//! Reads dead letters: list, replay or purge them. A log cannot delete a single record, so the database marks the
//! dead letters that somebody handled.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::priority::Priority;
use tidegate_core::refresh::coalescer::RequestOutcome;
use tidegate_core::refresh::dead_letter::{DeadLetter, Original};
use tidegate_core::refresh::event::Reason;
use tidegate_core::time::Timestamp;
use tidegate_log::{Delivered, Position, Topic};
use tidegate_snapshots::{DeadLetterMark, DeadLetterPosition, Handled};

use super::error::RefreshError;
use super::publish::events::decode_dead;
use super::publish::publisher::{Ask, PublishOutcome, PublishWorker};
use super::shared::{Shared, record_ref};

/// Limit: dead letters scanned for one page.
const MOST_LOOKED_AT: usize = 5_000;
/// Limit: dead letters in one read of the log.
const SLICE: usize = 200;

/// Limit: marks deleted in one call.
const FORGET: u32 = 1_000;
/// The consumer group whose lag counts the dead letters. It never commits, so its lag covers all that the log retains.
pub(crate) const READERS: &str = "dead-letters";

/// A dead letter as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterView {
    pub position: DeadLetterPosition,
    pub written_at: Timestamp,
    /// The raw bytes, if they cannot be decoded.
    pub dead_letter: Result<DeadLetter, Bytes>,
    /// How, by whom and when it was handled.
    pub handled: Option<DeadLetterMark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadLetterQuery {
    /// Where the previous page ended; none = start at the beginning.
    pub after: Option<DeadLetterPosition>,
    pub max: usize,
    /// Include handled dead letters.
    pub handled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetterPage {
    /// Ordered by partition; oldest first within one.
    pub dead_letters: Vec<DeadLetterView>,
    /// Where the next page begins; none at the end. A page may be short although a next one follows.
    pub next: Option<DeadLetterPosition>,
}

/// Deletes the marks of dead letters that the log no longer retains.
pub(crate) async fn forget_old(shared: &Shared) -> Result<(), RefreshError> {
    let lag = shared.options.log.lag(Topic::Dead, READERS).await?;
    for partition in lag.partitions.iter().filter(|partition| partition.start > 0) {
        let snapshots = &shared.options.snapshots;
        while snapshots
            .forget_handled(partition.partition, partition.start, FORGET)
            .await?
            == u64::from(FORGET)
        {}
    }
    Ok(())
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// A refresh with its own version is in progress, or one finished in the meantime.
    Replayed(PublishOutcome),
    /// Nothing was queued; the dead letter stays unhandled.
    NotQueued(PublishOutcome),
    AlreadyHandled(DeadLetterMark),
    /// No such dead letter exists, or the log no longer retains it.
    NotFound,
    /// It holds no event that could be replayed.
    NotReadable,
}

#[derive(Debug, Clone)]
pub struct DeadLetterReader {
    shared: Arc<Shared>,
    publish_worker: Arc<PublishWorker>,
}

impl DeadLetterReader {
    pub(crate) fn new(shared: Arc<Shared>, publish_worker: Arc<PublishWorker>) -> Self {
        Self {
            shared,
            publish_worker,
        }
    }

    pub async fn list(&self, query: DeadLetterQuery) -> Result<DeadLetterPage, RefreshError> {
        let partitions = self.shared.options.log.settings().partitions(Topic::Dead);
        let mut from = match query.after {
            Some(after) => Position {
                partition: after.partition,
                offset: after.offset + 1,
            },
            None => Position {
                partition: 0,
                offset: 0,
            },
        };
        let mut page = DeadLetterPage::default();
        let mut looked_at = 0;
        while from.partition < partitions {
            let slice = self.shared.options.log.read(Topic::Dead, from, SLICE).await?;
            let Some(last) = slice.last().map(|delivered| delivered.position) else {
                from = Position {
                    partition: from.partition + 1,
                    offset: 0,
                };
                continue;
            };
            looked_at += slice.len();
            for view in self.views(slice).await? {
                if page.dead_letters.len() >= query.max {
                    return Ok(page);
                }
                page.next = Some(view.position);
                if query.handled || view.handled.is_none() {
                    page.dead_letters.push(view);
                }
            }
            if looked_at >= MOST_LOOKED_AT {
                return Ok(page);
            }
            from.offset = last.offset + 1;
        }
        page.next = None;
        Ok(page)
    }

    /// One dead letter; none if it does not exist or the log no longer retains it.
    pub async fn inspect(
        &self,
        position: DeadLetterPosition,
    ) -> Result<Option<DeadLetterView>, RefreshError> {
        let from = Position {
            partition: position.partition,
            offset: position.offset,
        };
        if position.partition >= self.shared.options.log.settings().partitions(Topic::Dead) {
            return Ok(None);
        }
        let found = self.shared.options.log.read(Topic::Dead, from, 1).await?;
        // The read starts at the oldest retained record, which may be another one.
        let exact: Vec<Delivered> = found
            .into_iter()
            .filter(|delivered| delivered.position == from)
            .collect();
        Ok(self.views(exact).await?.pop())
    }

    /// Requests the record again through the coalescer, with its own version, and marks the dead letter as handled.
    pub async fn replay(
        &self,
        position: DeadLetterPosition,
        by: &str,
    ) -> Result<ReplayOutcome, RefreshError> {
        let Some(view) = self.inspect(position).await? else {
            return Ok(ReplayOutcome::NotFound);
        };
        if let Some(mark) = view.handled {
            return Ok(ReplayOutcome::AlreadyHandled(mark));
        }
        let Ok(DeadLetter {
            original: Original::Event(event),
            ..
        }) = view.dead_letter
        else {
            return Ok(ReplayOutcome::NotReadable);
        };
        let record = event.record();
        let rows = self.shared.options.snapshots.read(&[record_ref(&record)]).await?;
        let row = rows.into_iter().next().unwrap_or_default();
        // The new version must exceed everything known of the record, whatever the store remembers.
        let known = [
            Some(event.version),
            row.snapshot.map(|snapshot| snapshot.version),
            row.status.map(|status| status.version),
        ];
        let ask = Ask {
            record,
            params: event.params.clone(),
            priority: Priority::High,
            reason: Reason::Replay,
            snapshot_version: known.into_iter().flatten().max(),
            // The exact store time, not the cached one: it must be later than the settlement that wrote the dead
            // letter.
            read_at: self.shared.options.store.now().await?,
            correlation: Some(event.correlation_id.clone()),
        };
        let outcome = self.publish_worker.carry_out(vec![ask]).await.pop();
        let outcome = outcome.unwrap_or(PublishOutcome::Unknown);
        let came = match outcome {
            PublishOutcome::Queued(came) => came,
            PublishOutcome::JustRefreshed { at, settlement } => {
                RequestOutcome::JustRefreshed { at, settlement }
            }
            outcome => return Ok(ReplayOutcome::NotQueued(outcome)),
        };
        if !came.makes_good(event.version) {
            let why = "its failure is only just being settled; replay it again in a moment".to_owned();
            return Ok(ReplayOutcome::NotQueued(PublishOutcome::Refused { why }));
        }
        self.mark(&[position], Handled::Replayed, by).await?;
        self.shared.counters.replayed.add(1);
        Ok(ReplayOutcome::Replayed(outcome))
    }

    /// Marks dead letters as handled without a replay. Returns how many this call marked.
    pub async fn purge(&self, positions: &[DeadLetterPosition], by: &str) -> Result<u64, RefreshError> {
        self.mark(positions, Handled::Purged, by).await
    }

    async fn mark(
        &self,
        positions: &[DeadLetterPosition],
        how: Handled,
        by: &str,
    ) -> Result<u64, RefreshError> {
        let at = self.shared.now();
        let mark = |position: &DeadLetterPosition| DeadLetterMark {
            position: *position,
            how,
            at,
            by: by.to_owned(),
        };
        let marks: Vec<_> = positions.iter().map(mark).collect();
        Ok(self.shared.options.snapshots.mark_handled(&marks).await?)
    }

    async fn views(&self, found: Vec<Delivered>) -> Result<Vec<DeadLetterView>, RefreshError> {
        let positions: Vec<DeadLetterPosition> = found
            .iter()
            .map(|delivered| DeadLetterPosition {
                partition: delivered.position.partition,
                offset: delivered.position.offset,
            })
            .collect();
        let handled = self.shared.options.snapshots.handled(&positions).await?;
        let view = |((delivered, position), handled): ((Delivered, DeadLetterPosition), _)| DeadLetterView {
            position,
            written_at: delivered.appended_at,
            dead_letter: decode_dead(&delivered.value).map_err(|_| delivered.value),
            handled,
        };
        Ok(found.into_iter().zip(positions).zip(handled).map(view).collect())
    }
}
