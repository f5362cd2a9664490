//! Publishes refresh requests: coalesce → append to the log → confirm, in batches and off the read path.
//!
//! Fails closed: while the store or the log is unavailable, the publisher queues nothing and reports that at once.
//! An event that the log did not confirm in time is in doubt: the log may have it. The publisher leaves its slot to
//! expire. Freeing it would let a second event of the same record into the log, and cause a second call.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::ids::{CorrelationId, RecordId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{RequestOutcome, RequestParams, Settlement};
use tidegate_core::refresh::event::Reason;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_log::LogError;
use tidegate_store::StoreError;

use super::events::{EventParams, event, record};
use crate::refresh::shared::Shared;
use crate::refresh::single_flight::{Flight, SingleFlight};

/// Limit: requests in one call to the store.
pub(crate) const BATCH: usize = 256;
/// Batches in flight: a slow append delays only the requests in its own batch.
const SIDE_BY_SIDE: usize = 4;
/// Shortest time between two warnings that nothing can be queued.
const WARN_EVERY: Millis = Millis(5_000);

/// A request to refresh a record.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) record: RecordId,
    /// The upstream's name for the record, if the requester knows it.
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) priority: Priority,
    pub(crate) reason: Reason,
    pub(crate) snapshot_version: Option<Version>,
    pub(crate) read_at: Timestamp,
    pub(crate) correlation: Option<CorrelationId>,
}

/// The result of a refresh request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishOutcome {
    /// A refresh is in progress, through this request or an earlier one.
    Queued(RequestOutcome),
    /// A refresh settled after the requester read the record.
    JustRefreshed { at: Timestamp, settlement: Settlement },
    /// A request before then is pointless: the record failed, or waits for its retry.
    NotBefore { at: Timestamp },
    /// Nothing was queued; request again later.
    Refused { why: String },
    /// In doubt: no confirmation in time, so it may be queued or not.
    Unknown,
}

impl PublishOutcome {
    pub fn is_queued(&self) -> bool {
        matches!(self, PublishOutcome::Queued(_))
    }

    /// The version of the event in progress.
    pub fn version(&self) -> Option<Version> {
        match self {
            PublishOutcome::Queued(
                RequestOutcome::Published { version }
                | RequestOutcome::Upgraded { version }
                | RequestOutcome::AlreadyProcessing { version },
            ) => Some(*version),
            _ => None,
        }
    }
}

/// The single-flight key. A user's request never joins a reader's: it does not depend on what a reader saw.
type Subject = (RecordId, bool);

#[derive(Debug)]
pub(crate) struct Publisher {
    publish_worker: Arc<PublishWorker>,
    single_flight: SingleFlight<Subject, Ask, PublishOutcome>,
}

impl Publisher {
    pub(crate) fn new(shared: Arc<Shared>) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (single_flight, flight_worker) = SingleFlight::new(shared.options.query.max_requests);
        let publish_worker = Arc::new(PublishWorker::new(shared));
        let publisher = Self {
            publish_worker: publish_worker.clone(),
            single_flight,
        };
        let running = flight_worker.run(SIDE_BY_SIDE, BATCH, move |batch| {
            let publish_worker = publish_worker.clone();
            async move {
                let asks = batch.into_iter().map(|(_, ask)| ask).collect();
                publish_worker.carry_out(asks).await
            }
        });
        (publisher, running)
    }

    /// Never waits. None: the queue is full.
    pub(crate) fn ask(&self, ask: Ask) -> Option<Flight<PublishOutcome>> {
        let subject = (ask.record.clone(), ask.reason == Reason::UserRequest);
        let flight = self.single_flight.join_or_start(subject, || ask);
        if flight.is_none() {
            self.publish_worker.shared.counters.requests_refused.add(1);
        }
        flight
    }
}

/// Takes batches of requests through the coalescer to the log.
#[derive(Debug)]
pub(crate) struct PublishWorker {
    shared: Arc<Shared>,
    /// Time of the last warning that nothing can be queued, in milliseconds.
    warned_at: AtomicU64,
}

impl PublishWorker {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            warned_at: AtomicU64::new(0),
        }
    }

    /// Returns one outcome for each request, in order.
    pub(crate) async fn carry_out(&self, asks: Vec<Ask>) -> Vec<PublishOutcome> {
        let outcomes = match self.coalesce(&asks).await {
            Ok(outcomes) => outcomes,
            Err(why) => {
                self.shared.counters.requests_refused.add(asks.len() as u64);
                return vec![PublishOutcome::Refused { why }; asks.len()];
            }
        };
        self.count(&asks, &outcomes);
        let to_send: Vec<(usize, Version)> = outcomes
            .iter()
            .enumerate()
            .filter_map(|(index, outcome)| Some((index, outcome.to_send()?)))
            .collect();
        let mut answers: Vec<PublishOutcome> = asks
            .iter()
            .zip(outcomes)
            .map(|(ask, outcome)| self.answer(&ask.record, outcome))
            .collect();
        if !to_send.is_empty() {
            self.send(&asks, &to_send, &mut answers).await;
        }
        answers
    }

    async fn coalesce(&self, asks: &[Ask]) -> Result<Vec<RequestOutcome>, String> {
        let params = |ask: &Ask| {
            let params = RequestParams {
                priority: ask.priority,
                snapshot_version: ask.snapshot_version,
                read_at: ask.read_at,
            };
            (ask.record.clone(), params)
        };
        let request = self
            .shared
            .options
            .store
            .request(asks.iter().map(params).collect());
        let answer = self.shared.store_guard.call(self.in_time(request)).await;
        answer.map_err(|error| error.to_string())
    }

    async fn send(&self, asks: &[Ask], to_send: &[(usize, Version)], answers: &mut [PublishOutcome]) {
        let now = self.shared.now();
        let make = |(index, version): &(usize, Version)| {
            let ask = &asks[*index];
            record(&event(EventParams {
                record: ask.record.clone(),
                params: ask.params.clone(),
                priority: ask.priority,
                reason: ask.reason,
                requested_at: now,
                correlation: ask.correlation.clone(),
                version: *version,
            }))
        };
        let sent = self.append(to_send.iter().map(make).collect()).await;
        let (mut confirmed, mut failed, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
        for ((index, version), result) in to_send.iter().zip(sent) {
            let named = (asks[*index].record.clone(), *version);
            let Err(error) = result else {
                confirmed.push(named);
                continue;
            };
            if failed.is_empty() && doubtful.is_empty() && self.may_warn() {
                tracing::warn!(record = %named.0, %error, "failed to queue refreshes, such as this one");
            }
            if matches!(error, LogError::Timeout(_)) {
                answers[*index] = PublishOutcome::Unknown;
                doubtful.push(named);
            } else {
                let why = error.to_string();
                answers[*index] = PublishOutcome::Refused { why };
                failed.push(named);
            }
        }
        let unconfirmed = (failed.len() + doubtful.len()) as u64;
        self.shared.counters.send_failed.add(unconfirmed);
        self.shared.counters.requests_refused.add(unconfirmed);
        if !doubtful.is_empty() {
            let until = now + self.shared.options.config.coalescer.send_timeout_ms;
            self.shared.in_doubt.raise(doubtful, until, now);
        }
        // If either call fails, the slot expires on its own. A worker that receives the event confirms it, too.
        let store = &self.shared.options.store;
        let guard = &self.shared.store_guard;
        if !confirmed.is_empty() {
            let _ = guard.call(self.in_time(store.confirm_sent(confirmed))).await;
        }
        if !failed.is_empty() {
            let _ = guard.call(self.in_time(store.send_failed(failed))).await;
        }
    }

    async fn append(&self, records: Vec<tidegate_log::Record>) -> Vec<Result<(), LogError>> {
        let (count, limit) = (records.len(), self.limit());
        match tokio::time::timeout(limit, self.shared.options.log.append(records)).await {
            Ok(results) => results.into_iter().map(|result| result.map(drop)).collect(),
            Err(_) => vec![Err(LogError::Timeout(limit.as_millis() as u64)); count],
        }
    }

    /// Readers keep requesting while the log is unavailable. One line at intervals reports it; the counter has the
    /// number.
    fn may_warn(&self) -> bool {
        let now = self.shared.now().0;
        let last = self.warned_at.load(Ordering::Relaxed);
        let due = now.abs_diff(last) >= WARN_EVERY.0;
        if due {
            self.warned_at.store(now, Ordering::Relaxed);
        }
        due
    }

    fn limit(&self) -> Duration {
        self.shared.options.query.request_timeout_ms.into()
    }

    /// Treats a store that does not answer in time as unavailable.
    async fn in_time<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let limit = self.limit();
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable {
                server: "the store".into(),
                reason: format!("no answer within {} ms", limit.as_millis()),
            })
        })
    }

    fn answer(&self, record: &RecordId, outcome: RequestOutcome) -> PublishOutcome {
        match outcome {
            RequestOutcome::JustRefreshed { at, settlement } => {
                PublishOutcome::JustRefreshed { at, settlement }
            }
            RequestOutcome::AlreadyProcessing { version }
                if self.shared.in_doubt.about(record, version, self.shared.now()) =>
            {
                PublishOutcome::Unknown
            }
            queued => PublishOutcome::Queued(queued),
        }
    }

    fn count(&self, asks: &[Ask], outcomes: &[RequestOutcome]) {
        let counters = &self.shared.counters;
        for (ask, outcome) in asks.iter().zip(outcomes) {
            match outcome {
                RequestOutcome::Published { .. } => counters.published.add(ask.priority, 1),
                RequestOutcome::Upgraded { .. } => {
                    counters.published.add(ask.priority, 1);
                    counters.upgraded.add(1);
                }
                RequestOutcome::AlreadyProcessing { .. } => counters.coalesced.add(1),
                RequestOutcome::JustRefreshed { .. } => counters.just_refreshed.add(1),
            }
        }
    }
}
