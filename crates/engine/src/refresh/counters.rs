//! Counters since the start: plain numbers that a metrics crate can read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::priority::Priority;
use tidegate_core::refresh::dead_letter::FailureReason;

use crate::histogram::{Histogram, HistogramView};

/// Every reason why an event may fail.
pub(crate) const REASONS: [FailureReason; 7] = [
    FailureReason::Api5xx,
    FailureReason::Api4xx,
    FailureReason::ParseError,
    FailureReason::TooLarge,
    FailureReason::Timeout,
    FailureReason::Redirected,
    FailureReason::UnknownSource,
];

/// The name of a reason in metrics.
pub fn reason_name(reason: FailureReason) -> &'static str {
    match reason {
        FailureReason::Api5xx => "API_5XX",
        FailureReason::Api4xx => "API_4XX",
        FailureReason::ParseError => "PARSE_ERROR",
        FailureReason::TooLarge => "TOO_LARGE",
        FailureReason::Timeout => "TIMEOUT",
        FailureReason::Redirected => "REDIRECTED",
        FailureReason::UnknownSource => "UNKNOWN_SOURCE",
    }
}

/// One number for each priority.
#[derive(Debug, Default)]
pub(crate) struct ByPriority([AtomicU64; 2]);

impl ByPriority {
    pub(crate) fn add(&self, priority: Priority, count: u64) {
        self.0[priority as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn view(&self) -> PriorityCounts {
        let get = |priority: Priority| self.0[priority as usize].load(Ordering::Relaxed);
        PriorityCounts {
            high: get(Priority::High),
            low: get(Priority::Low),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PriorityCounts {
    pub high: u64,
    pub low: u64,
}

impl PriorityCounts {
    pub fn of(self, priority: Priority) -> u64 {
        match priority {
            Priority::High => self.high,
            Priority::Low => self.low,
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) tokens_acquired: ByPriority,
    pub(crate) tokens_rejected: ByPriority,
    pub(crate) tokens_late: Count,
    pub(crate) published: ByPriority,
    pub(crate) upgraded: Count,
    pub(crate) coalesced: Count,
    pub(crate) just_refreshed: Count,
    pub(crate) conflicts: Count,
    pub(crate) requests_refused: Count,
    pub(crate) send_failed: Count,
    pub(crate) process: [Histogram; 2],
    pub(crate) attempts: ByPriority,
    pub(crate) updated: Count,
    pub(crate) unchanged: Count,
    pub(crate) superseded: Count,
    pub(crate) obsolete: Count,
    pub(crate) throttled: Count,
    pub(crate) parked: Count,
    pub(crate) retried: Count,
    pub(crate) failures: [Count; REASONS.len()],
    pub(crate) dead_letters: [Count; REASONS.len()],
    pub(crate) absent: Count,
    pub(crate) undecodable: Count,
    pub(crate) claims_lost: Count,
    pub(crate) prefetched: Count,
    pub(crate) due_retries: Count,
    pub(crate) replayed: Count,
    pub(crate) reads: Count,
    pub(crate) cache_hits: Count,
    pub(crate) read_errors: Count,
    pub(crate) settled: ByPriority,
    pub(crate) low_pauses: Count,
}

impl Counters {
    pub(crate) fn failure(&self, reason: FailureReason) {
        add_one(&self.failures, reason);
    }

    pub(crate) fn dead_letter(&self, reason: FailureReason) {
        add_one(&self.dead_letters, reason);
    }

    pub(crate) fn view(&self) -> CountersView {
        CountersView {
            tokens_acquired: self.tokens_acquired.view(),
            tokens_rejected: self.tokens_rejected.view(),
            tokens_late: self.tokens_late.get(),
            published: self.published.view(),
            upgraded: self.upgraded.get(),
            coalesced: self.coalesced.get(),
            just_refreshed: self.just_refreshed.get(),
            conflicts: self.conflicts.get(),
            requests_refused: self.requests_refused.get(),
            send_failed: self.send_failed.get(),
            process_high: self.process[Priority::High as usize].view(),
            process_low: self.process[Priority::Low as usize].view(),
            attempts: self.attempts.view(),
            updated: self.updated.get(),
            unchanged: self.unchanged.get(),
            superseded: self.superseded.get(),
            obsolete: self.obsolete.get(),
            throttled: self.throttled.get(),
            parked: self.parked.get(),
            retried: self.retried.get(),
            failures: by_reason(&self.failures),
            dead_letters: self.dead_letters.iter().map(Count::get).sum(),
            dead_letters_by_reason: by_reason(&self.dead_letters),
            absent: self.absent.get(),
            undecodable: self.undecodable.get(),
            claims_lost: self.claims_lost.get(),
            prefetched: self.prefetched.get(),
            due_retries: self.due_retries.get(),
            replayed: self.replayed.get(),
            reads: self.reads.get(),
            cache_hits: self.cache_hits.get(),
            read_errors: self.read_errors.get(),
            settled: self.settled.view(),
            low_pauses: self.low_pauses.get(),
        }
    }
}

fn add_one(counts: &[Count; REASONS.len()], reason: FailureReason) {
    if let Some(index) = REASONS.iter().position(|known| *known == reason) {
        counts[index].add(1);
    }
}

/// Lists every reason, including those that never occurred.
fn by_reason(counts: &[Count; REASONS.len()]) -> BTreeMap<FailureReason, u64> {
    let counts = REASONS.iter().zip(counts);
    counts.map(|(reason, count)| (*reason, count.get())).collect()
}

/// What this process has done since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountersView {
    /// Tokens that callers received: `rate_limiter_acquired_total`.
    pub tokens_acquired: PriorityCounts,
    /// Times that a budget had no token left: `rate_limiter_rejected_total`.
    pub tokens_rejected: PriorityCounts,
    /// Tokens that arrived too late to use.
    pub tokens_late: u64,
    /// Published events.
    pub published: PriorityCounts,
    /// Of those, HIGH events that replaced a LOW one: `dedup_upgrade_total`.
    pub upgraded: u64,
    /// Requests for a record with a refresh already in progress: `dedup_coalesce_hit_total`.
    pub coalesced: u64,
    /// Requests for a record whose refresh finished while they were in progress.
    pub just_refreshed: u64,
    /// Events whose record another worker was fetching: `dedup_lock_conflict_total`.
    pub conflicts: u64,
    /// Requests that could not be queued: the queue was full, or the store or the log was unavailable.
    pub requests_refused: u64,
    /// Events that the log did not confirm: `kafka_producer_send_failed_total`.
    pub send_failed: u64,
    /// From delivery to settlement: `update_process_duration_seconds`.
    pub process_high: HistogramView,
    pub process_low: HistogramView,
    /// Calls to upstreams, each with its own token.
    pub attempts: PriorityCounts,
    /// Snapshots that a refresh replaced.
    pub updated: u64,
    /// Snapshots that a refresh found unchanged.
    pub unchanged: u64,
    /// Fetched responses that a newer version had overtaken.
    pub superseded: u64,
    /// Obsolete events that workers skipped: `obsolete_event_skipped_total`.
    pub obsolete: u64,
    /// Responses that asked us to wait.
    pub throttled: u64,
    /// Events parked because they would have waited long.
    pub parked: u64,
    /// Attempts after the first one.
    pub retried: u64,
    /// Events that failed, by reason: `update_process_error_total`.
    pub failures: BTreeMap<FailureReason, u64>,
    /// Dead letters written.
    pub dead_letters: u64,
    /// The same by reason: how `dlq_message_count` grows.
    pub dead_letters_by_reason: BTreeMap<FailureReason, u64>,
    /// Of those, events whose record does not exist upstream: nothing needs repair.
    pub absent: u64,
    /// Of those, log records that could not be decoded.
    pub undecodable: u64,
    /// Claims that expired while the work continued.
    pub claims_lost: u64,
    /// Prefetched records.
    pub prefetched: u64,
    /// Records requested again because their retry was due.
    pub due_retries: u64,
    /// Dead letters replayed.
    pub replayed: u64,
    /// Record reads.
    pub reads: u64,
    /// Of those, served from memory.
    pub cache_hits: u64,
    /// Reads that the database did not answer in time.
    pub read_errors: u64,
    /// Events that reached a terminal state.
    pub settled: PriorityCounts,
    /// Times that LOW paused in favour of HIGH.
    pub low_pauses: u64,
}
