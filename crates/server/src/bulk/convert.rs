//! Converts the types of the state machine to those of the API, and back.

use base64::Engine as _;
use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_api as api;
use tidegate_core::bulk as core;
use tidegate_core::bulk::{congestion, views};
use tidegate_core::ids::QueueId;
use tidegate_core::limits::quota::{Limit, NoQuota, Quota};
use tidegate_core::time::Timestamp;
use tidegate_store::bulk::{JobDetails, JobRun};

use crate::extract::cursor_text;
use crate::problem::{ApiError, ApiResult};

pub(crate) fn time(at: Timestamp) -> api::Time {
    api::Time(at.0)
}

macro_rules! same_variants {
    ($($name:ident: $from:ty => $to:ty { $($variant:ident),+ })+) => {
        $(pub(crate) fn $name(value: $from) -> $to {
            match value { $(<$from>::$variant => <$to>::$variant,)+ }
        })+
    };
}

same_variants! {
    priority: core::Priority => api::JobPriority { High, Normal, Low }
    core_priority: api::JobPriority => core::Priority { High, Normal, Low }
    state: core::JobState => api::JobState { Waiting, Ready, Running, Delayed, Completed, Dead }
    core_state: api::JobState => core::JobState { Waiting, Ready, Running, Delayed, Completed, Dead }
    run_outcome: core::record::RunOutcome => api::RunOutcome {
        Completed, Failed, Retry, Throttled, LeaseExpired
    }
    delay_reason: core::DelayReason => api::DelayReason {
        RateLimited, ApiThrottled, TransientError, LeaseExpired, Scheduled
    }
    death_reason: core::DeathReason => api::DeathReason { Failed, AttemptsUsedUp, Expired, Cancelled }
    core_death_reason: api::DeathReason => core::DeathReason { Failed, AttemptsUsedUp, Expired, Cancelled }
    status: core::BatchStatus => api::BatchStatus {
        Created, Dispatched, Running, Aggregating, Completed, Failed, Cancelled
    }
    congestion_level: congestion::CongestionLevel => api::CongestionLevel { None, Low, Moderate, High, Critical }
}

pub(crate) fn counts(counts: views::StateCounts) -> api::StateCounts {
    api::StateCounts {
        waiting: counts.waiting,
        ready: counts.ready,
        running: counts.running,
        delayed: counts.delayed,
        completed: counts.completed,
        dead: counts.dead,
    }
}

pub(crate) fn batch_counts(counts: core::BatchCounts) -> api::BatchCounts {
    api::BatchCounts {
        total: counts.total,
        success: counts.success,
        failed: counts.failed,
    }
}

/// In whole seconds that contain the range.
pub(crate) fn estimate(estimate: views::Estimate) -> api::Estimate {
    match estimate {
        Ok(range) => api::Estimate {
            earliest_seconds: Some(range.earliest.0 / 1_000),
            latest_seconds: Some(range.latest.0.div_ceil(1_000)),
            unknown: None,
        },
        Err(why) => api::Estimate {
            unknown: Some(no_estimate(why)),
            ..api::Estimate::default()
        },
    }
}

fn no_estimate(why: views::NoEstimate) -> api::NoEstimate {
    match why {
        views::NoEstimate::Paused => api::NoEstimate::Paused,
        views::NoEstimate::NoWorker => api::NoEstimate::NoWorker,
        views::NoEstimate::NotMeasured => api::NoEstimate::NotMeasured,
    }
}

/// Converts `base_priority` to a weight: −1,000,000 doubles it, +1,000,000 halves it. Five digits are what a whole
/// `base_priority` can express.
pub(crate) fn weight(base_priority: i32) -> f64 {
    let weight = (-f64::from(base_priority) / 1e6).exp2();
    let digits = 10f64.powi(4 - weight.log10().floor() as i32);
    (weight * digits).round() / digits
}

pub(crate) fn base_priority(weight: f64) -> i32 {
    (-weight.log2() * 1e6).round() as i32
}

fn rate(quota: Quota) -> api::Rate {
    api::Rate(quota.to_string())
}

fn limit(limit: Limit) -> api::Limit {
    api::Limit {
        rate: limit.rate.map(rate),
        max_running: limit.max_running,
    }
}

fn own_limits(limits: core::GroupLimits) -> api::OwnLimits {
    let queues = limits.queues.into_iter();
    api::OwnLimits {
        rate: limits.all.rate.map(rate),
        max_running: limits.all.max_running,
        queues: queues
            .map(|(queue, of_queue)| (queue.into(), limit(of_queue)))
            .collect(),
    }
}

/// A rate of a request.
pub(crate) fn quota(rate: &api::Rate) -> ApiResult<Quota> {
    rate.0
        .parse()
        .map_err(|error: NoQuota| ApiError::invalid(error.to_string()))
}

fn given_limit(rate: Option<&api::Rate>, max_running: Option<u32>) -> ApiResult<Limit> {
    Ok(Limit {
        rate: rate.map(quota).transpose()?,
        max_running,
    })
}

/// The limits of a group in a request.
pub(crate) fn given_limits(limits: &api::OwnLimits) -> ApiResult<core::GroupLimits> {
    let of_queue = |(queue, limit): (&String, &api::Limit)| {
        let limit = given_limit(limit.rate.as_ref(), limit.max_running)?;
        Ok((QueueId::new(queue.as_str())?, limit))
    };
    Ok(core::GroupLimits {
        all: given_limit(limits.rate.as_ref(), limits.max_running)?,
        queues: limits.queues.iter().map(of_queue).collect::<ApiResult<_>>()?,
    })
}

pub(crate) fn group(view: views::GroupView) -> api::Group {
    api::Group {
        id: view.id.into(),
        weight: weight(view.base_priority),
        base_priority: view.base_priority,
        limits: own_limits(view.limits),
        paused: view.paused,
        held: view.held,
        active: view.active,
        counts: counts(view.counts),
        batches: view.batches.into_iter().map(Into::into).collect(),
        waiting_since: view.waiting_since.map(time),
        estimate: estimate(view.estimate),
    }
}

pub(crate) fn batch(view: views::BatchView) -> api::Batch {
    let summary = view
        .summary
        .map(|bytes| serde_json::from_slice(&bytes).unwrap_or_else(|_| base64_value(&bytes)));
    api::Batch {
        group: view.group.into(),
        id: view.id.into(),
        status: match view.status {
            open if open.is_open() && (view.paused || view.group_paused) && !view.cancelled => {
                api::BatchStatus::Paused
            }
            other => status(other),
        },
        sealed: view.sealed,
        paused: view.paused,
        group_paused: view.group_paused,
        cancelled: view.cancelled,
        counts: batch_counts(view.counts),
        errors: view.errors,
        summary,
        callback: view.callback,
        created_at: time(view.created_at),
        finished_at: view.finished_at.map(time),
        estimate: estimate(view.estimate),
    }
}

fn base64_value(bytes: &[u8]) -> serde_json::Value {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    serde_json::json!({ "$base64": text })
}

/// Converts bytes to JSON. Payloads from HTTP are JSON; a program that uses the library may store anything.
pub(crate) fn raw(bytes: &Bytes) -> Box<RawValue> {
    if bytes.is_empty() {
        return RawValue::NULL.to_owned();
    }
    serde_json::from_slice::<Box<RawValue>>(bytes).unwrap_or_else(|_| {
        serde_json::value::to_raw_value(&base64_value(bytes)).expect("an object with one string is JSON")
    })
}

/// Converts JSON to bytes; null becomes no bytes.
pub(crate) fn bytes(value: Option<Box<RawValue>>) -> Bytes {
    match value {
        Some(value) if value.get() != "null" => {
            let text: Box<str> = value.into();
            Bytes::from(String::from(text))
        }
        _ => Bytes::new(),
    }
}

pub(crate) fn job(group: &str, details: JobDetails) -> api::Job {
    let JobDetails {
        id,
        view,
        created_at,
        runs: history,
        payload,
        result,
        error,
    } = details;
    let runs = view.runs();
    let started_at = history.last().and_then(|run| run.started_at);
    let (worker, progress, cancelled) = match view.running.clone() {
        Some(running) => (Some(running.worker.into()), running.progress, running.cancelled),
        None => (None, None, false),
    };
    api::Job {
        group: group.to_owned(),
        batch: view.batch.into(),
        id: id.into(),
        runs,
        created_at: time(created_at),
        started_at: started_at.map(time),
        worker,
        progress: progress.map(|progress| api::JobProgress {
            percent: progress.percent,
            text: progress.text,
        }),
        cancelled,
        history: history.into_iter().map(run).collect(),
        kind: view.kind.into(),
        queue: view.queue.into(),
        priority: priority(view.priority),
        state: state(view.state),
        attempts: view.attempts,
        max_attempts: view.max_attempts,
        throttles: view.throttles,
        delayed_until: view.delayed.map(|(until, _)| time(until)),
        delay_reason: view.delayed.map(|(_, reason)| delay_reason(reason)),
        deadline: view.deadline.map(time),
        death_reason: view.dead.map(death_reason),
        finished_at: view.finished_at.map(time),
        payload: raw(&payload),
        result: result.as_ref().map(raw),
        error,
    }
}

fn run(run: JobRun) -> api::JobRun {
    api::JobRun {
        number: run.number,
        started_at: run.started_at.map(time),
        ended_at: run.ended_at.map(time),
        worker: run.worker.into(),
        outcome: run.outcome.map(run_outcome),
        error: run.error,
    }
}

pub(crate) fn congestion(state: views::CongestionState) -> api::Congestion {
    api::Congestion {
        group: state.group.into(),
        non_ready_count: state.non_ready_count,
        rate_limit_speed: state.rate_limit_speed,
        current_backoff_ms: state.current_backoff_ms.0,
        congestion_level: congestion_level(state.congestion_level),
        total_throttle_count: state.total_throttle_count,
        last_throttle_at: state.last_throttle_at.map(time),
        last_backoff_ms: state.last_backoff_ms.0,
        avg_throttle_per_job: state.avg_throttle_per_job,
    }
}

pub(crate) fn limits(view: views::LimitsView) -> api::Limits {
    api::Limits {
        rate: rate(view.global_rps),
        configured_rate: rate(view.configured_global_rps),
        limit_per_window: view.limit_per_window,
        window_ms: view.window_ms.0,
        adaptive: view.adaptive,
        queues: view
            .queues
            .into_iter()
            .map(|(queue, limits)| api::QueueLimits {
                queue: queue.into(),
                rate: limits.rate.map(rate),
                max_running: limits.max_running,
                per_group: limit(limits.per_group),
            })
            .collect(),
        changes: view
            .changes
            .into_iter()
            .map(|change| api::LimitChange {
                at: time(change.at),
                by: change.by,
                why: change.why,
                queue: change.queue.map(Into::into),
                setting: match change.setting {
                    core::LimitSetting::Rate => api::LimitSetting::Rate,
                    core::LimitSetting::GroupRate => api::LimitSetting::GroupRate,
                    core::LimitSetting::GroupMaxRunning => api::LimitSetting::GroupMaxRunning,
                    core::LimitSetting::MaxRunning => api::LimitSetting::MaxRunning,
                    core::LimitSetting::Adaptive => api::LimitSetting::Adaptive,
                },
                from: change.from,
                to: change.to,
            })
            .collect(),
    }
}

pub(crate) fn page<A, B>(page: views::Page<A>, convert: impl FnMut(A) -> B) -> api::Page<B> {
    api::Page {
        items: page.items.into_iter().map(convert).collect(),
        next: page.next.map(cursor_text),
    }
}

/// Writes a lease for its worker. It is a text, because its numbers do not fit a JavaScript number.
pub(crate) fn lease_text(lease: core::LeaseRef) -> String {
    format!("{:x}.{:x}", lease.job.0, lease.fence.0)
}

pub(crate) fn lease(text: &str) -> Option<core::LeaseRef> {
    let (job, fence) = text.split_once('.')?;
    let number = |hex: &str| {
        let plain = !hex.is_empty() && hex.len() <= 16 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(hex, 16).ok()).flatten()
    };
    Some(core::LeaseRef {
        job: core::JobSeq(number(job)?),
        fence: core::Fence(number(fence)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_base_priorities_convert_into_each_other() {
        for (priority, wanted) in [
            (-1_000_000, 2.0),
            (0, 1.0),
            (1_000_000, 0.5),
            (6_000_000, 1.0 / 64.0),
        ] {
            assert!((weight(priority) - wanted).abs() < 1e-6);
            assert_eq!(base_priority(wanted), priority);
        }
        for wanted in [3.0, 7.0, 10.0, 63.0, 0.3, 0.05, 1.25] {
            assert_eq!(weight(base_priority(wanted)), wanted, "as it was set");
        }
    }

    #[test]
    fn bytes_that_are_not_json_become_base64() {
        assert_eq!(raw(&Bytes::from_static(b"{\"a\": 1}")).get(), "{\"a\": 1}");
        assert_eq!(raw(&Bytes::new()).get(), "null");
        assert_eq!(raw(&Bytes::from_static(b"\xff")).get(), "{\"$base64\":\"/w==\"}");
    }

    #[test]
    fn leases_survive_a_round_trip_through_text() {
        let one = core::LeaseRef {
            job: core::JobSeq(77),
            fence: core::Fence(u64::MAX),
        };
        assert_eq!(lease(&lease_text(one)), Some(one));
        for odd in [
            "",
            ".",
            "1",
            "1.",
            ".1",
            "+1.1",
            "1.1.1",
            "g.1",
            "1.11111111111111111",
        ] {
            assert_eq!(lease(odd), None, "{odd}");
        }
    }
}
