//! Converts the types of the refresh module to those of the API, and back.

use serde_json::value::RawValue;
use tidegate_api as api;
use tidegate_core::budget::BudgetConfig;
use tidegate_core::refresh::breaker::BreakerState;
use tidegate_core::refresh::dead_letter::{FailureReason, Original};
use tidegate_core::refresh::freshness::{Freshness, Tier};
use tidegate_core::refresh::status::UpdateState;
use tidegate_core::time::Timestamp;
use tidegate_engine::refresh::{
    CountersView, DeadLetterView, FreshnessCensus, LagView, Lags, PriorityCounts, Queued, RecordView,
    reason_name,
};
use tidegate_snapshots::{DeadLetterMark, DeadLetterPosition, Handled, StatusState};

use crate::bulk::convert::time;
use crate::refresh::{SeenBudget, until};

macro_rules! same_variants {
    ($($name:ident: $from:ty => $to:ty { $($variant:ident),+ })+) => {
        $(pub(crate) fn $name(value: $from) -> $to {
            match value { $(<$from>::$variant => <$to>::$variant,)+ }
        })+
    };
}

same_variants! {
    freshness: Freshness => api::Freshness { Fresh, Stale, Updating, NotFound, Unavailable }
    tier: Tier => api::Tier { Hot, Warm, Cold }
    state: UpdateState => api::UpdateState { Success, Pending, Retrying, Failed }
    breaker: BreakerState => api::BreakerState { Closed, Open, HalfOpen }
    reason: FailureReason => api::FailureReason {
        Api5xx, Api4xx, ParseError, TooLarge, Timeout, Redirected, UnknownSource
    }
    command: Handled => api::DeadLetterHandling { Replayed, Purged }
}

/// Converts a record without its snapshot.
pub(crate) fn record(view: &RecordView, budget: Option<&SeenBudget>, now: Timestamp) -> api::Record {
    api::Record {
        snapshot: None,
        source: view.record.source.as_str().to_owned(),
        key: view.record.key.as_str().to_owned(),
        freshness: freshness(view.freshness),
        last_updated_at: view.last_updated_at.map(time),
        last_checked_at: view.last_checked_at.map(time),
        update_queued: view.update_queued(),
        estimated_wait_ms: view.estimated_wait.map(|wait| wait.0),
        version: view.snapshot.as_ref().map(|snapshot| snapshot.version.0),
        state: state(view.state),
        tier: tier(view.tier),
        why: hold(view, budget, now),
    }
}

/// What delays a refresh: the record itself, its provider, or this service.
fn hold(view: &RecordView, budget: Option<&SeenBudget>, now: Timestamp) -> Option<api::Hold> {
    let hold = |code, detail: String, until: Option<Timestamp>| {
        Some(api::Hold {
            code,
            detail,
            until: until.map(time),
        })
    };
    if let Some(status) = &view.status
        && let Some(at) = status.next_retry_at.and_then(|at| until(at, now))
    {
        let code = match status.state {
            _ if status.absent => api::HoldCode::Absent,
            StatusState::Failed => api::HoldCode::Failed,
            StatusState::Retrying => api::HoldCode::Retry,
        };
        let detail = format!("{}: {}", status.last_error_code, status.last_error_message);
        return hold(code, detail, Some(at));
    }
    if view.freshness == Freshness::Fresh {
        return None;
    }
    match view.queued {
        Queued::Yes => {
            let budget = &budget?.view;
            if let Some(at) = until(budget.hold_until, now) {
                let detail = "the provider sent Retry-After";
                return hold(api::HoldCode::TargetHeld, detail.to_owned(), Some(at));
            }
            if budget.day_left_high == 0 {
                let detail = "the provider's calls of the day are used up";
                return hold(api::HoldCode::DayUsedUp, detail.to_owned(), Some(budget.day_ends));
            }
            None
        }
        Queued::No if view.freshness == Freshness::NotFound => None,
        Queued::No => {
            let detail = "the refresh could not be queued; reading the record again requests it again";
            hold(api::HoldCode::NotQueued, detail.to_owned(), None)
        }
        Queued::Unknown => {
            let detail = "the log did not confirm in time whether the refresh is queued";
            hold(api::HoldCode::NotKnown, detail.to_owned(), None)
        }
    }
}

pub(crate) fn budget(name: &str, config: &BudgetConfig, seen: Option<SeenBudget>) -> api::BudgetState {
    api::BudgetState {
        name: name.to_owned(),
        rate: config.rate,
        hard_limit: config.hard_limit,
        burst: config.burst,
        low_burst: config.low_burst,
        low_cap: config.low_cap,
        per_day: config.per_day,
        day_reserve: config.day_reserve,
        seen: seen.map(|seen| api::BudgetSeen {
            at: time(seen.at),
            calls_per_second: seen.calls_per_second,
            tokens: seen.view.tokens,
            low_tokens: seen.view.low_tokens,
            day_used: seen.view.day_used,
            day_left_high: seen.view.day_left_high,
            day_left_low: seen.view.day_left_low,
            day_ends: time(seen.view.day_ends),
            hold_until: until(seen.view.hold_until, seen.at).map(time),
        }),
    }
}

pub(crate) fn lag(lags: Lags) -> api::RefreshLag {
    let one = |view: LagView| api::LagState {
        records: view.records,
        oldest_ms: view.oldest.map(|oldest| oldest.0),
        rate: view.milli_rate as f64 / 1_000.0,
    };
    api::RefreshLag {
        high: one(lags.high),
        low: one(lags.low),
        dead: lags.dead,
        low_paused: lags.low_paused,
        measured_at: lags.measured_at.map(time),
    }
}

pub(crate) fn census(census: FreshnessCensus) -> api::FreshnessCounts {
    api::FreshnessCounts {
        fresh: census.fresh,
        stale: census.stale,
        missing: census.missing,
        retrying: census.retrying,
        failed: census.failed,
        counted_at: time(census.counted_at),
    }
}

pub(crate) fn counters(view: CountersView) -> api::RefreshCounters {
    let both = |counts: PriorityCounts| api::ByPriority {
        high: counts.high,
        low: counts.low,
    };
    let failures = view.failures.iter();
    api::RefreshCounters {
        reads: view.reads,
        cache_hits: view.cache_hits,
        read_errors: view.read_errors,
        published: both(view.published),
        upgraded: view.upgraded,
        coalesced: view.coalesced,
        just_refreshed: view.just_refreshed,
        requests_refused: view.requests_refused,
        send_failed: view.send_failed,
        tokens_acquired: both(view.tokens_acquired),
        tokens_rejected: both(view.tokens_rejected),
        attempts: both(view.attempts),
        settled: both(view.settled),
        updated: view.updated,
        unchanged: view.unchanged,
        superseded: view.superseded,
        obsolete: view.obsolete,
        throttled: view.throttled,
        parked: view.parked,
        retried: view.retried,
        conflicts: view.conflicts,
        prefetched: view.prefetched,
        due_retries: view.due_retries,
        dead_letters: view.dead_letters,
        replayed: view.replayed,
        failures: failures
            .map(|(reason, count)| (reason_name(*reason).to_owned(), *count))
            .collect(),
    }
}

/// Writes the position of a dead letter as the API shows it.
pub(crate) fn position_text(position: DeadLetterPosition) -> String {
    format!("{}-{}", position.partition, position.offset)
}

pub(crate) fn position(text: &str) -> Option<DeadLetterPosition> {
    let (partition, offset) = text.split_once('-')?;
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (plain(partition) && plain(offset)).then_some(())?;
    Some(DeadLetterPosition {
        partition: partition.parse().ok()?,
        // Limit: the databases count in signed numbers.
        offset: offset.parse().ok().filter(|offset| *offset < 1 << 62)?,
    })
}

fn handled(mark: DeadLetterMark) -> api::DeadLetterHandled {
    api::DeadLetterHandled {
        how: command(mark.how),
        at: time(mark.at),
        by: mark.by,
    }
}

pub(crate) fn dead_letter(view: DeadLetterView) -> api::DeadLetter {
    let mut rendered = api::DeadLetter {
        position: position_text(view.position),
        written_at: time(view.written_at),
        failure_reason: None,
        error_message: None,
        stack_trace: Vec::new(),
        retry_count: 0,
        failed_at: None,
        worker_id: None,
        source: None,
        key: None,
        original_event: None,
        raw_event: None,
        handled: view.handled.map(handled),
    };
    let dead_letter = match view.dead_letter {
        Ok(dead_letter) => dead_letter,
        Err(bytes) => {
            rendered.raw_event = Some(hex(&bytes));
            return rendered;
        }
    };
    rendered.failure_reason = Some(reason(dead_letter.failure_reason));
    rendered.error_message = Some(dead_letter.error_message);
    rendered.stack_trace = dead_letter.causes;
    rendered.retry_count = dead_letter.retry_count;
    rendered.failed_at = Some(time(dead_letter.failed_at));
    rendered.worker_id = Some(dead_letter.worker_id.into());
    match dead_letter.original {
        Original::Event(event) => {
            rendered.original_event = raw(&*event);
            rendered.source = Some(event.source.into());
            rendered.key = Some(event.key.into());
        }
        Original::Raw(bytes) => rendered.raw_event = Some(hex(&bytes)),
    }
    rendered
}

fn raw(event: &impl serde::Serialize) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(event).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_a_round_trip_through_text() {
        let one = DeadLetterPosition {
            partition: 11,
            offset: 4_000_000_000,
        };
        assert_eq!(position(&position_text(one)), Some(one));
        for odd in [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "+1-1",
            "1-+1",
            "1--1",
            "a-1",
            "1-99999999999999999999",
        ] {
            assert_eq!(position(odd), None, "{odd}");
        }
    }
}
