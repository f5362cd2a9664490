//! One event from delivery to its end.
//!
//! ```text
//!   decode ─► look ─► token ─► begin ─► fetch ─► write ─► settle ─► done
//!     │         │       ▲        │        │ Throttled: hold the target, wait, or park
//!     │         │       └────────│────────┤ Transient: back off, again
//!     │         └ Obsolete: done ┘        └ Absent, Permanent: dead letter ─► status ─► settle ─► done
//!     └ not readable: dead letter ─► done
//! ```
//! LOW takes this path; HIGH begins before it waits for the token (`turn`).
//!
//! The worker waits for everything but the upstream: an unavailable store, database or log blocks the event in
//! place, and with it its partition. None of these outages leads to a dead letter. A row that the database rejects
//! while it accepts others does.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tidegate_core::budget::LimitedBy;
use tidegate_core::ids::RecordId;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RecordState, SettleOutcome, SettleParams, Settlement,
};
use tidegate_core::refresh::dead_letter::FailureReason;
use tidegate_core::refresh::event::RefreshEvent;
use tidegate_core::refresh::status::FailureKind;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_log::Delivered;
use tidegate_snapshots::{Failure, StatusState, Write, WriteOutcome};
use tidegate_source::{FetchOutcome, FetchParams, PermanentCode, Projected, TransientCode, pack};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claims::{Claim, Claims};
use super::dead_letter_writer::{DeadLetterWriter, Undeliverable, Why};
use super::token_dispenser::TokenDispenser;
use super::turn::{Permit, Turn};
use super::writer::{Writer, Written};
use crate::batcher::Batcher;
use crate::refresh::options::SourceOptions;
use crate::refresh::publish::events::{decode, encode};
use crate::refresh::read::activity::Activity;
use crate::refresh::shared::{Shared, record_ref};

/// Wait after the first throttling response without a Retry-After; doubles each time.
const FIRST_THROTTLE: Millis = Millis(1_000);

/// Status code of a record parked because the daily quota is used up.
const DAY_QUOTA: &str = "DAY_QUOTA";

pub(crate) type Inspections = Batcher<RecordId, Option<RecordState>>;
pub(crate) type Begins = Batcher<(RecordId, BeginParams), BeginOutcome>;
pub(crate) type Settles = Batcher<(RecordId, SettleParams), SettleOutcome>;

/// Everything that an event needs on its way.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) shared: Arc<Shared>,
    pub(crate) token_dispenser: TokenDispenser,
    pub(crate) claims: Arc<Claims>,
    pub(crate) inspections: Inspections,
    pub(crate) begins: Begins,
    pub(crate) settles: Settles,
    pub(crate) writer: Writer,
    pub(crate) dead_letters: DeadLetterWriter,
    pub(crate) activity: Activity,
}

/// Why the worker could not refresh a record.
struct AttemptFailure {
    kind: FailureKind,
    reason: FailureReason,
    code: String,
    message: String,
    /// Errors of the earlier attempts, in order.
    earlier: Vec<String>,
    retries: u32,
}

/// How an event ended.
enum Attempted {
    /// The settlement is durable; the claim covered it.
    Durable(Claim, Settlement),
    /// A later event covers this one.
    Obsolete,
}

/// One event in flight.
pub(super) struct Attempt<'a> {
    pub(super) event: &'a RefreshEvent,
    pub(super) record: RecordId,
    pub(super) source: &'a SourceOptions,
    /// Cancelled when the partition is lost or the grace period is over.
    pub(super) lost: &'a CancellationToken,
    begun: Instant,
}

impl Work {
    /// True when the event is done and may be committed. False: the worker dropped it, and the log delivers it again.
    pub(crate) async fn handle(&self, delivered: Delivered, lost: &CancellationToken) -> bool {
        self.refresh(delivered, lost).await.is_some()
    }

    async fn refresh(&self, delivered: Delivered, lost: &CancellationToken) -> Option<()> {
        let begun = Instant::now();
        let event = match decode(&delivered.value).and_then(check_version) {
            Ok(event) => event,
            Err(error) => {
                self.shared.counters.undecodable.add(1);
                self.shared.counters.failure(FailureReason::ParseError);
                let undeliverable = Undeliverable::Raw(delivered.key, delivered.value);
                let why = Why::at_once(FailureReason::ParseError, &error);
                return self.dead_letters.write(undeliverable, why, lost).await;
            }
        };
        let priority = event.priority;
        let record = event.record();
        let Some(source) = self.shared.options.sources.get(&event.source) else {
            let failure = unknown_source(&event);
            let settlement = self.dead_letter(&event, lost, failure).await?;
            return self.settle(&event, settlement).await;
        };
        let attempt = Attempt {
            event: &event,
            record,
            source,
            lost,
            begun,
        };
        let (claim, settlement) = match self.attempt(&attempt).await? {
            Attempted::Durable(claim, settlement) => (claim, settlement),
            Attempted::Obsolete => {
                self.shared.counters.obsolete.add(1);
                return Some(());
            }
        };
        self.settle(&event, settlement).await?;
        claim.settled();
        self.shared.counters.process[priority as usize].observe(begun.elapsed());
        Some(())
    }

    /// Calls, waits and retries until the event is settled durably or obsolete.
    async fn attempt(&self, attempt: &Attempt<'_>) -> Option<Attempted> {
        let work = &self.shared.options.work;
        let (mut retries, mut throttles) = (0, 0);
        let mut earlier = Vec::new();
        let mut held = None;
        loop {
            let (claim, permit) = match self.ready(attempt, held.take()).await? {
                Turn::Ready(claim, permit) => (claim, permit),
                Turn::Obsolete => return Some(Attempted::Obsolete),
            };
            let token = match permit {
                Permit::Token(token) => token,
                Permit::LongWait { wait, by } => {
                    return Some(Attempted::Durable(claim, self.park(attempt, wait, by).await?));
                }
            };
            let at = self.shared.now();
            let outcome = self.fetch(attempt, token.use_by()).await;
            if outcome != Some(FetchOutcome::NotSent) {
                self.shared.counters.attempts.add(attempt.event.priority, 1);
            }
            match outcome? {
                // No connection was ready while the token was valid; one is ready for the next token.
                FetchOutcome::NotSent => {
                    self.shared.counters.tokens_late.add(1);
                    held = Some(claim);
                }
                FetchOutcome::Fetched(projected) => {
                    return Some(Attempted::Durable(
                        claim,
                        self.store(attempt, projected, at).await?,
                    ));
                }
                FetchOutcome::Throttled { retry_after } => {
                    self.shared.counters.throttled.add(1);
                    let wait = throttle_wait(retry_after, throttles);
                    throttles += 1;
                    let wait = self.hold(attempt, wait).await?;
                    let waited = Millis(attempt.begun.elapsed().as_millis() as u64);
                    if wait > work.park_after_ms || waited > work.park_after_ms {
                        return Some(Attempted::Durable(
                            claim,
                            self.park(attempt, wait, LimitedBy::Hold).await?,
                        ));
                    }
                    // The budget lets nobody through before then.
                    held = self.stand_back(attempt, claim).await?.claim();
                }
                FetchOutcome::Transient { code, message } if retries < work.retries => {
                    earlier.push(format!("{code}: {message}"));
                    let pause = backoff(work.backoff_ms, retries, attempt.event.version.0);
                    retries += 1;
                    self.shared.counters.retried.add(1);
                    held = self.stand_back(attempt, claim).await?.claim();
                    attempt.sleep(pause).await?;
                }
                FetchOutcome::Transient { code, message } => {
                    let failure = AttemptFailure {
                        kind: FailureKind::Transient,
                        reason: transient_reason(code),
                        code: code.as_str().to_owned(),
                        message,
                        earlier,
                        retries,
                    };
                    return Some(Attempted::Durable(claim, self.fail(attempt, failure).await?));
                }
                FetchOutcome::Absent { code, message } => {
                    let failure = AttemptFailure {
                        kind: FailureKind::Absent,
                        reason: FailureReason::Api4xx,
                        code,
                        message,
                        earlier,
                        retries,
                    };
                    return Some(Attempted::Durable(claim, self.fail(attempt, failure).await?));
                }
                FetchOutcome::Permanent { code, message } => {
                    let failure = AttemptFailure {
                        kind: FailureKind::Permanent,
                        reason: permanent_reason(code),
                        code: code.as_str().to_owned(),
                        message,
                        earlier,
                        retries,
                    };
                    return Some(Attempted::Durable(claim, self.fail(attempt, failure).await?));
                }
            }
        }
    }

    /// Makes one attempt. A fetcher that panics counts as an unreadable response.
    async fn fetch(&self, attempt: &Attempt<'_>, send_by: Instant) -> Option<FetchOutcome> {
        let params = FetchParams {
            key: attempt.record.key.as_str().to_owned(),
            params: attempt.event.params.clone(),
            deadline: None,
            send_by: Some(send_by),
        };
        let fetch = AssertUnwindSafe(attempt.source.fetcher.fetch(params)).catch_unwind();
        let outcome = tokio::select! {
            outcome = fetch => outcome,
            () = attempt.lost.cancelled() => return None,
        };
        Some(outcome.unwrap_or_else(|panic| FetchOutcome::Permanent {
            code: PermanentCode::ParseError,
            message: format!("the fetcher panicked: {}", crate::tasks::panic_message(&*panic)),
        }))
    }

    async fn store(&self, attempt: &Attempt<'_>, projected: Projected, at: Timestamp) -> Option<Settlement> {
        let data = match pack(&projected.canonical) {
            Ok(data) => data.into(),
            Err(error) => return self.fail(attempt, not_storable(error.to_string())).await,
        };
        let write = Write::Full {
            record: record_ref(&attempt.record),
            version: attempt.event.version,
            data,
            hash: projected.hash,
            at,
        };
        match self.writer.write(write).await? {
            Written::Stored(outcome) => {
                let counters = &self.shared.counters;
                match outcome {
                    WriteOutcome::Updated => counters.updated.add(1),
                    WriteOutcome::Unchanged => counters.unchanged.add(1),
                    WriteOutcome::Stale { .. } => counters.superseded.add(1),
                }
                if let Some(active) = projected.activity {
                    // A provider's clock may be ahead. Cap the activity at the present, or its records would stay HOT.
                    self.activity.note(&attempt.record, active.min(self.shared.now()));
                }
                self.shared.written(&attempt.record);
                Some(Settlement::Done)
            }
            Written::Refused(reason) => self.fail(attempt, not_storable(reason)).await,
        }
    }

    /// The target asked for a pause: holds it for every caller, for as long as its budget allows.
    async fn hold(&self, attempt: &Attempt<'_>, wait: Millis) -> Option<Millis> {
        let (store, target) = (&self.shared.options.store, &attempt.source.target);
        self.shared
            .store_call(attempt.lost, || store.hold(target, wait))
            .await
    }

    /// Parks the event durably: it comes back on its own.
    async fn park(&self, attempt: &Attempt<'_>, wait: Millis, by: LimitedBy) -> Option<Settlement> {
        let now = self.shared.now();
        let (code, what) = match by {
            LimitedBy::Day => (DAY_QUOTA, "the calls of the day are used up"),
            _ => ("THROTTLED", "the upstream asked to wait"),
        };
        let failure = Failure {
            record: record_ref(&attempt.record),
            version: attempt.event.version,
            state: StatusState::Retrying,
            absent: false,
            error_code: code.to_owned(),
            error_message: format!("{what}; next try in {} s", wait.0.div_ceil(1_000)),
            next_retry_at: Some(now + wait),
            event: Some(encode(attempt.event)),
            at: now,
        };
        if let Err(reason) = self.note(&attempt.record, Write::Parked(failure)).await? {
            // The retry would have nowhere to come back from: the event must not settle without a trace.
            return self.fail(attempt, not_storable(reason)).await;
        }
        self.shared.counters.parked.add(1);
        Some(Settlement::Parked)
    }

    async fn fail(&self, attempt: &Attempt<'_>, failure: AttemptFailure) -> Option<Settlement> {
        self.dead_letter(attempt.event, attempt.lost, failure).await
    }

    /// The event cannot succeed. The dead letter comes first, so that nothing is lost without a trace; then the status.
    async fn dead_letter(
        &self,
        event: &RefreshEvent,
        lost: &CancellationToken,
        failure: AttemptFailure,
    ) -> Option<Settlement> {
        let record = event.record();
        self.shared.counters.failure(failure.reason);
        let why = Why {
            reason: failure.reason,
            message: &failure.message,
            earlier: &failure.earlier,
            retries: failure.retries,
        };
        self.dead_letters
            .write(Undeliverable::Event(event), why, lost)
            .await?;
        if failure.kind == FailureKind::Absent {
            self.shared.counters.absent.add(1);
        }
        let next_retry_at = self.next_retry(&record, failure.kind, lost).await?;
        let failure = Failure {
            record: record_ref(&record),
            version: event.version,
            state: StatusState::Failed,
            absent: failure.kind == FailureKind::Absent,
            error_code: failure.code,
            error_message: failure.message,
            next_retry_at: Some(next_retry_at),
            event: None,
            at: self.shared.now(),
        };
        if let Err(error) = self.note(&record, Write::Failed(failure)).await? {
            // The dead letter has the event. All that is missing is the backoff that keeps readers off the record.
            tracing::error!(%record, %error, "failed to store the status of a record");
        }
        Some(Settlement::Failed)
    }

    /// Moves further into the future with every failure in a row.
    async fn next_retry(
        &self,
        record: &RecordId,
        kind: FailureKind,
        lost: &CancellationToken,
    ) -> Option<Timestamp> {
        let records = [record_ref(record)];
        let read = || self.shared.options.snapshots.read(&records);
        let rows = self.shared.write_guard.retry_until_available(lost, read).await?;
        let before = rows.ok().and_then(|rows| rows.into_iter().next()?.status);
        let config = &self.shared.options.config.status;
        Some(crate::refresh::status::next_retry(
            config,
            before.as_ref(),
            kind,
            self.shared.now(),
        ))
    }

    /// The inner error means that the database rejects the row.
    async fn note(&self, record: &RecordId, write: Write) -> Option<Result<(), String>> {
        let noted = match self.writer.write(write).await? {
            Written::Stored(_) => Ok(()),
            Written::Refused(reason) => Err(reason),
        };
        self.shared.written(record);
        Some(noted)
    }

    async fn settle(&self, event: &RefreshEvent, settlement: Settlement) -> Option<()> {
        let params = SettleParams {
            version: event.version,
            priority: event.priority,
            settlement,
        };
        self.settles.call((event.record(), params)).await?;
        self.shared.counters.settled.add(event.priority, 1);
        Some(())
    }
}

impl Attempt<'_> {
    /// None: this process lost the event.
    pub(super) async fn sleep(&self, pause: Duration) -> Option<()> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => None,
            () = tokio::time::sleep(pause) => Some(()),
        }
    }
}

/// The database rejects the fetched data, or the parked status.
fn not_storable(message: String) -> AttemptFailure {
    AttemptFailure {
        kind: FailureKind::Permanent,
        reason: FailureReason::ParseError,
        code: "NOT_STORABLE".to_owned(),
        message,
        earlier: Vec::new(),
        retries: 0,
    }
}

/// The source was removed from the settings, or never configured.
fn unknown_source(event: &RefreshEvent) -> AttemptFailure {
    AttemptFailure {
        kind: FailureKind::Permanent,
        reason: FailureReason::UnknownSource,
        code: "UNKNOWN_SOURCE".to_owned(),
        message: format!("there is no source {:?}", event.source),
        earlier: Vec::new(),
        retries: 0,
    }
}

/// A damaged event must not push a record to the end of its version range.
fn check_version(event: RefreshEvent) -> Result<RefreshEvent, String> {
    match event.version <= Version::LAST_FROM_OUTSIDE {
        true => Ok(event),
        false => Err(format!(
            "version {} is above {}",
            event.version,
            Version::LAST_FROM_OUTSIDE
        )),
    }
}

fn throttle_wait(said: Option<Millis>, before: u32) -> Millis {
    let guess = Millis(FIRST_THROTTLE.0 << before.min(5));
    said.unwrap_or(guess).max(Millis(100))
}

/// Doubles with each retry; jitter separates records that failed together.
fn backoff(base: Millis, retries: u32, seed: u64) -> Duration {
    let pause = base.0.saturating_mul(1 << retries.min(10));
    Duration::from_millis(pause + seed % (pause / 4 + 1))
}

fn transient_reason(code: TransientCode) -> FailureReason {
    match code {
        TransientCode::Api5xx => FailureReason::Api5xx,
        TransientCode::Timeout | TransientCode::Connection => FailureReason::Timeout,
    }
}

fn permanent_reason(code: PermanentCode) -> FailureReason {
    match code {
        PermanentCode::Api4xx | PermanentCode::BadKey | PermanentCode::MissingParam => FailureReason::Api4xx,
        PermanentCode::TooLarge => FailureReason::TooLarge,
        PermanentCode::Redirect => FailureReason::Redirected,
        PermanentCode::ParseError | PermanentCode::WrongType | PermanentCode::MissingField => {
            FailureReason::ParseError
        }
    }
}
