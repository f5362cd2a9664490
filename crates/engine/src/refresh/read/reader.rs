//! Reads records from the database alone, through a small cache. A read never waits for the store, the log or an
//! upstream; it requests stale or missing records in the background.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::ids::{CorrelationId, RecordId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::event::Reason;
use tidegate_core::refresh::freshness::{Tier, is_stale};
use tidegate_core::time::Timestamp;
use tidegate_snapshots::{Row, Status, StatusState};

use super::activity::Activity;
use super::cache::Seen;
use super::view::{Queued, RecordView, ViewParams};
use crate::refresh::error::RefreshError;
use crate::refresh::options::SourceOptions;
use crate::refresh::plan::pressure::LagWatcher;
use crate::refresh::publish::events::decode;
use crate::refresh::publish::publisher::{Ask, PublishOutcome, Publisher};
use crate::refresh::shared::{Shared, record_ref};
use crate::refresh::single_flight::SingleFlight;

/// Limit: records in one read of the database.
const BATCH: usize = 64;
/// Reads of the database in flight.
const SIDE_BY_SIDE: usize = 4;
/// Limit: reads that wait for the database.
const QUEUE: usize = 16_384;

type Read = Result<Arc<Seen>, RefreshError>;

#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    publisher: Publisher,
    activity: Activity,
    lags: Arc<LagWatcher>,
    reads: SingleFlight<RecordId, (), Read>,
}

/// Whether a record needs a refresh, as far as the row alone shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Refresh,
    Nothing,
    /// It failed; a request before then is pointless.
    Held(Timestamp),
    /// It is parked, with a durable retry at this time.
    Retry(Timestamp),
}

impl Reader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        publisher: Publisher,
        activity: Activity,
        lags: Arc<LagWatcher>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (reads, flight_worker) = SingleFlight::new(QUEUE);
        let reading = shared.clone();
        let running = flight_worker.run(SIDE_BY_SIDE, BATCH, move |batch| {
            let shared = reading.clone();
            async move { read_batch(&shared, batch.into_iter().map(|(record, ())| record).collect()).await }
        });
        let reader = Self {
            shared,
            publisher,
            activity,
            lags,
            reads,
        };
        (reader, running)
    }

    /// Answers from the snapshot, and requests a refresh if it is stale or missing.
    pub(crate) async fn read(
        &self,
        record: &RecordId,
        correlation: Option<CorrelationId>,
    ) -> Result<RecordView, RefreshError> {
        let source = self.shared.options.source(record)?;
        let seen = self.see(record).await?;
        let now = self.shared.now();
        self.note_use(record, &seen.row, now);
        let need = need(source, &seen.row, now);
        let queued = match need {
            Need::Nothing | Need::Held(_) => Queued::No,
            Need::Retry(_) => Queued::Yes,
            Need::Refresh if seen.queued.get().is_some() => Queued::Yes,
            Need::Refresh => match self.ask_for(record, &seen, correlation).await {
                PublishOutcome::Queued(outcome) => {
                    let _ = seen.queued.set(outcome);
                    Queued::Yes
                }
                // The cached row is out of date.
                PublishOutcome::JustRefreshed { .. } => return self.look_again(record, source).await,
                PublishOutcome::Unknown => Queued::Unknown,
                PublishOutcome::NotBefore { .. } | PublishOutcome::Refused { .. } => Queued::No,
            },
        };
        Ok(self.view(record, source, &seen, queued, need))
    }

    pub(crate) async fn read_many(&self, records: &[RecordId]) -> Vec<Result<RecordView, RefreshError>> {
        join_all(records.iter().map(|record| self.read(record, None))).await
    }

    /// Reads the record without requesting a refresh.
    pub(crate) async fn peek(&self, record: &RecordId) -> Result<RecordView, RefreshError> {
        let source = self.shared.options.source(record)?;
        self.look_again(record, source).await
    }

    /// A user's own request: HIGH, even for a fresh record, but not for one that failed a moment ago.
    pub(crate) async fn request(
        &self,
        record: &RecordId,
        correlation: Option<CorrelationId>,
        wait: Duration,
    ) -> Result<PublishOutcome, RefreshError> {
        let source = self.shared.options.source(record)?;
        // The row serves only for backoff and fencing: an unavailable database does not stop the request.
        let row = self
            .see(record)
            .await
            .map(|seen| seen.row.clone())
            .unwrap_or_default();
        let now = self.shared.now();
        self.note_use(record, &row, now);
        if let Need::Held(at) | Need::Retry(at) = need(source, &row, now) {
            return Ok(PublishOutcome::NotBefore { at });
        }
        let ask = Ask {
            record: record.clone(),
            params: BTreeMap::new(),
            priority: Priority::High,
            reason: Reason::UserRequest,
            snapshot_version: seen_version(&row),
            read_at: now,
            correlation,
        };
        Ok(self.asked(ask, wait).await)
    }

    async fn ask_for(
        &self,
        record: &RecordId,
        seen: &Seen,
        correlation: Option<CorrelationId>,
    ) -> PublishOutcome {
        let ask = Ask {
            record: record.clone(),
            params: BTreeMap::new(),
            priority: Priority::High,
            reason: if seen.row.snapshot.is_some() {
                Reason::Stale
            } else {
                Reason::CacheMiss
            },
            snapshot_version: seen_version(&seen.row),
            read_at: seen.read_at,
            correlation,
        };
        self.asked(ask, self.shared.options.query.request_wait_ms.into())
            .await
    }

    async fn asked(&self, ask: Ask, wait: Duration) -> PublishOutcome {
        let Some(flight) = self.publisher.ask(ask) else {
            let why = "too many requests wait to be queued".to_owned();
            return PublishOutcome::Refused { why };
        };
        match tokio::time::timeout(wait, flight).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => PublishOutcome::Refused {
                why: "the refresh service has ended".to_owned(),
            },
            Err(_) => PublishOutcome::Unknown,
        }
    }

    async fn look_again(
        &self,
        record: &RecordId,
        source: &SourceOptions,
    ) -> Result<RecordView, RefreshError> {
        self.shared.cache.forget(record);
        let seen = self.see(record).await?;
        let need = need(source, &seen.row, self.shared.now());
        let queued = match need {
            Need::Retry(_) => Queued::Yes,
            _ => Queued::No,
        };
        Ok(self.view(record, source, &seen, queued, need))
    }

    /// Reads from the cache, or from the database within the time limit.
    async fn see(&self, record: &RecordId) -> Read {
        self.shared.counters.reads.add(1);
        if let Some(seen) = self.shared.cache.get(record) {
            self.shared.counters.cache_hits.add(1);
            return Ok(seen);
        }
        let limit = self.shared.options.query.read_timeout_ms;
        let flight = self.reads.join_or_start(record.clone(), || ());
        let read = async {
            match flight {
                Some(flight) => flight.await.unwrap_or(Err(RefreshError::Closed)),
                None if self.reads.has_ended() => Err(RefreshError::Closed),
                None => Err(RefreshError::Overloaded),
            }
        };
        let read = tokio::time::timeout(limit.into(), read).await;
        let read = read.unwrap_or(Err(RefreshError::ReadTimeout(limit.0)));
        if read.is_err() {
            self.shared.counters.read_errors.add(1);
        }
        read
    }

    /// Only for known records: a caller that invents keys registers nothing.
    fn note_use(&self, record: &RecordId, row: &Row, now: Timestamp) {
        let every = self.shared.options.query.active_every_ms;
        let recent = row.active_at.is_some_and(|at| now.since(at) < every);
        if row.snapshot.is_some() && !recent {
            self.activity.note(record, now);
        }
    }

    fn view(
        &self,
        record: &RecordId,
        source: &SourceOptions,
        seen: &Seen,
        queued: Queued,
        need: Need,
    ) -> RecordView {
        let now = self.shared.now();
        let estimate = match need {
            Need::Retry(at) => Some(at.since(now)),
            _ => self.lags.estimate(),
        };
        RecordView::new(ViewParams {
            record,
            tiers: &source.tiers,
            row: &seen.row,
            queued,
            estimate,
            now,
        })
    }
}

fn need(source: &SourceOptions, row: &Row, now: Timestamp) -> Need {
    let held = row
        .status
        .as_ref()
        .and_then(|status| Some((status, status.next_retry_at.filter(|at| now < *at)?)));
    match held {
        Some((
            Status {
                state: StatusState::Failed,
                ..
            },
            at,
        )) => return Need::Held(at),
        Some((status, at)) if !only_low_waits(status) => {
            return match is_due(source, row, now) {
                true => Need::Retry(at),
                false => Need::Nothing,
            };
        }
        _ => {}
    }
    match is_due(source, row, now) {
        true => Need::Refresh,
        false => Need::Nothing,
    }
}

fn is_due(source: &SourceOptions, row: &Row, now: Timestamp) -> bool {
    let Some(snapshot) = &row.snapshot else {
        return true;
    };
    let absent = row.status.as_ref().is_some_and(|status| status.absent);
    let tier = Tier::of(&source.tiers, row.active_at, now);
    absent || is_stale(&source.tiers, tier, snapshot.last_checked_at, now)
}

/// The parked event is LOW. A reader's HIGH replaces it, and is parked in its place if it has to wait, too.
fn only_low_waits(status: &Status) -> bool {
    let event = status.event.as_ref().and_then(|event| decode(event).ok());
    event.is_some_and(|event| event.priority == Priority::Low)
}

/// The last version that a reader knows of. A parked LOW is settled but refreshed nothing: it must not look like a
/// refresh that the reader missed.
fn seen_version(row: &Row) -> Option<Version> {
    let snapshot = row.snapshot.as_ref().map(|snapshot| snapshot.version);
    let aside = row.status.as_ref().filter(|status| only_low_waits(status));
    snapshot.max(aside.map(|status| status.version))
}

async fn read_batch(shared: &Shared, records: Vec<RecordId>) -> Vec<Read> {
    let begun = shared.cache.begin();
    let read_at = shared.now();
    let refs: Vec<_> = records.iter().map(record_ref).collect();
    let limit = shared.options.query.read_timeout_ms;
    let read = tokio::time::timeout(limit.into(), shared.options.snapshots.read(&refs)).await;
    let rows = match read {
        Ok(Ok(rows)) => rows,
        Ok(Err(error)) => return vec![Err(error.into()); records.len()],
        Err(_) => return vec![Err(RefreshError::ReadTimeout(limit.0)); records.len()],
    };
    let keep = |(record, row): (&RecordId, Row)| {
        let queued = OnceLock::new();
        let seen = Arc::new(Seen { row, read_at, queued });
        shared.cache.keep(record, seen.clone(), begun);
        Ok(seen)
    };
    records.iter().zip(rows).map(keep).collect()
}
