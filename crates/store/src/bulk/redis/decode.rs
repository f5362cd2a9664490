//! Decodes script replies to outcomes.

use tidegate_core::bulk::congestion::{Backoff, CongestionLevel};
use tidegate_core::bulk::estimate::{Range, finish, part_until};
use tidegate_core::bulk::views::*;
use tidegate_core::bulk::*;
use tidegate_core::ids::{BatchId, GroupId};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_redis::Items;

use super::blob::Blob;
use super::paces::{self, Paces};
use crate::StoreError;
use crate::bulk::LeasedJob;

type StoreResult<T> = Result<T, StoreError>;

fn odd(what: &str, found: impl std::fmt::Debug) -> StoreError {
    StoreError::Corrupt(format!("a script answered {found:?} as {what}"))
}

pub(super) fn one_of<T: Copy>(what: &str, all: &[T], index: i64) -> StoreResult<T> {
    usize::try_from(index)
        .ok()
        .and_then(|index| all.get(index))
        .copied()
        .ok_or_else(|| odd(what, index))
}

fn congestion_level(index: i64) -> StoreResult<CongestionLevel> {
    use CongestionLevel::*;
    one_of(
        "a congestion level",
        &[None, Low, Moderate, High, Critical],
        index,
    )
}

pub(super) fn delay_reason(index: i64) -> StoreResult<DelayReason> {
    use DelayReason::*;
    let all = [RateLimited, ApiThrottled, TransientError, LeaseExpired, Scheduled];
    one_of("a reason of delay", &all, index)
}

pub(super) fn death_reason(index: i64) -> StoreResult<DeathReason> {
    use DeathReason::*;
    one_of(
        "a reason of death",
        &[Failed, AttemptsUsedUp, Expired, Cancelled],
        index,
    )
}

pub(super) fn batch_status(index: i64) -> StoreResult<BatchStatus> {
    use BatchStatus::*;
    let all = [
        Created,
        Dispatched,
        Running,
        Aggregating,
        Completed,
        Failed,
        Cancelled,
    ];
    one_of("the status of a batch", &all, index)
}

/// States and priorities count from one.
pub(super) fn state(number: i64) -> StoreResult<JobState> {
    use JobState::*;
    one_of(
        "a state",
        &[Waiting, Ready, Running, Delayed, Completed, Dead],
        number - 1,
    )
}

pub(super) fn stop(items: &mut Items) -> StoreResult<Stop> {
    let (why, until) = (items.text()?, items.time()?);
    Ok(match why.as_str() {
        "enough" => Stop::Enough,
        "empty" => Stop::Empty,
        "full" => Stop::Full,
        "busy" => Stop::Busy,
        "more" => Stop::More,
        "limited" => Stop::Limited { until },
        "held" => Stop::Held { until },
        other => return Err(odd("a reason to stop", other)),
    })
}

/// Decodes a refusal of the scripts, with the names from the request.
pub(super) fn refusal(
    said: &str,
    group: &GroupId,
    batch: Option<&BatchId>,
    job: Option<&tidegate_core::ids::JobId>,
) -> StoreResult<Refusal> {
    let of_batch = || batch.cloned().ok_or_else(|| odd("a refusal", said));
    let of_job = || job.cloned().ok_or_else(|| odd("a refusal", said));
    let group = group.clone();
    Ok(match said {
        "no group" => Refusal::UnknownGroup(group),
        "no batch" => Refusal::UnknownBatch {
            group,
            batch: of_batch()?,
        },
        "no job" => Refusal::UnknownJob {
            group,
            job: of_job()?,
        },
        "none open" => Refusal::NoOpenBatch(group),
        "sealed" => Refusal::Sealed(of_batch()?),
        "cancelled" => Refusal::Cancelled(of_batch()?),
        "finished" => Refusal::BatchFinished(of_batch()?),
        "not dead" => Refusal::NotDead(of_job()?),
        "lost" => Refusal::ClaimLost(of_batch()?),
        "cursor lost" => Refusal::CursorLost,
        other => return Err(odd("a refusal", other)),
    })
}

/// Converts numbers of one shard to numbers of the whole store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) shard: u64,
    pub(super) shards: u64,
}

impl Numbers {
    pub(super) fn job(self, local: u64) -> JobSeq {
        JobSeq(local * self.shards + self.shard)
    }

    fn fence(self, local: u64) -> Fence {
        Fence(local * self.shards + self.shard)
    }
}

pub(super) fn enqueue(
    mut items: Items,
    p: &EnqueueParams,
    numbers: Numbers,
    limits: &tidegate_core::bulk::config::LimitsConfig,
) -> StoreResult<Result<EnqueueOutcome, Refusal>> {
    let said = items.text()?;
    let batch: BatchId = items.name()?;
    if said != "ok" {
        return Ok(Err(refusal(&said, &p.group, Some(&batch), None)?));
    }
    let total_jobs = items.unsigned()?;
    let mut answers = items.items()?;
    let mut jobs = Vec::with_capacity(p.jobs.len());
    for job in &p.jobs {
        jobs.push(match answers.value()? {
            redis::Value::Int(0) => Enqueued::Duplicate(None),
            redis::Value::Int(seq) if seq < 0 => Enqueued::Duplicate(Some(numbers.job(seq.unsigned_abs()))),
            redis::Value::Int(seq) => Enqueued::Accepted(numbers.job(seq as u64)),
            redis::Value::BulkString(why) => Enqueued::Refused(match &why[..] {
                b"large" => JobRefusal::PayloadTooLarge {
                    len: job.payload.len() as u64,
                    max: limits.max_payload_bytes,
                },
                b"cost" => JobRefusal::Cost {
                    cost: job.cost,
                    max: MAX_COST,
                },
                b"full" => JobRefusal::Full {
                    max: limits.max_queued_jobs,
                },
                b"crowded" => JobRefusal::GroupFull {
                    max: limits.max_queued_jobs_per_group,
                },
                b"unknown" => JobRefusal::UnknownType(job.kind.clone()),
                b"expired" => JobRefusal::AlreadyExpired {
                    expires_at: job.expires_at.unwrap_or_default(),
                },
                other => return Err(odd("a refusal of a job", other)),
            }),
            other => return Err(odd("the answer to a job", other)),
        });
    }
    Ok(Ok(EnqueueOutcome {
        batch,
        total_jobs,
        jobs,
    }))
}

/// A shard's report on one of its queues.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InQueue {
    pub(super) ready: u64,
    /// Of the groups in its order, in thousandths.
    pub(super) weight: u64,
}

impl InQueue {
    fn read(items: &mut Items) -> StoreResult<Self> {
        Ok(Self {
            ready: items.unsigned()?,
            weight: items.unsigned()?,
        })
    }
}

pub(super) fn admit(mut items: Items, numbers: Numbers) -> StoreResult<(AdmitOutcome, InQueue)> {
    let mut ids = items.items()?;
    let mut admitted = Vec::with_capacity(ids.len());
    while !ids.is_empty() {
        admitted.push(numbers.job(ids.unsigned()?));
    }
    let denied = items.items()?.each(|one| -> Result<_, StoreError> {
        Ok(Denied {
            job: numbers.job(one.unsigned()?),
            group: one.name()?,
            backoff: Backoff {
                wait: Millis(one.unsigned()?),
                uncapped: Millis(one.unsigned()?),
                level: congestion_level(one.int()?)?,
            },
            global: (one.unsigned()?, one.unsigned()?),
            share: (one.unsigned()?, one.unsigned()?),
        })
    })?;
    let outcome = AdmitOutcome {
        admitted,
        denied,
        stop: stop(&mut items)?,
    };
    Ok((outcome, InQueue::read(&mut items)?))
}

/// A shard's report on itself, part of every reply.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    pub(super) active: u64,
    /// Of the active groups, in thousandths.
    pub(super) weight: u64,
    pub(super) unfinished: u64,
    pub(super) ready: u64,
    pub(super) now: u64,
    /// Finished jobs that the shard keeps.
    pub(super) finished: u64,
}

/// The signals that were sent, and the facts.
pub(super) fn facts(items: &mut Items) -> StoreResult<(i64, Facts)> {
    let mut facts = items.items()?;
    let bits = facts.int()?;
    Ok((
        bits,
        Facts {
            active: facts.unsigned()?,
            weight: facts.unsigned()?,
            unfinished: facts.unsigned()?,
            ready: facts.unsigned()?,
            now: facts.unsigned()?,
            finished: facts.unsigned()?,
        },
    ))
}

/// Leases of one shard, with the rest of its grant.
#[derive(Debug)]
pub(super) struct ShardLeases {
    pub(super) jobs: Vec<LeasedJob>,
    pub(super) stop: Stop,
    pub(super) unused: u64,
    pub(super) queue: InQueue,
}

pub(super) fn lease(mut items: Items, numbers: Numbers) -> StoreResult<ShardLeases> {
    let stop = stop(&mut items)?;
    let unused = items.unsigned()?;
    let mut named = items.items()?;
    let of: Vec<(GroupId, BatchId)> = (0..named.len() / 2)
        .map(|_| Ok((named.name()?, named.name()?)))
        .collect::<StoreResult<_>>()?;
    let mut values = items.items()?;
    let mut jobs = Vec::with_capacity(values.len() / 7);
    while !values.is_empty() {
        let lease = LeaseRef {
            job: numbers.job(values.unsigned()?),
            fence: numbers.fence(values.unsigned()?),
        };
        let index = values.unsigned()? as usize;
        let (group, batch) = index
            .checked_sub(1)
            .and_then(|index| of.get(index))
            .cloned()
            .ok_or_else(|| odd("a batch of a lease", index))?;
        let (attempt, deadline) = (values.small()?, values.time()?);
        let timeout = Millis(values.unsigned()?);
        let blob = Blob::read(values.bytes()?)?;
        jobs.push(LeasedJob {
            leased: Leased {
                lease,
                group,
                batch,
                kind: blob.kind,
                priority: blob.priority,
                attempt,
                deadline,
                timeout,
            },
            id: blob.id,
            payload: blob.payload,
        });
    }
    Ok(ShardLeases {
        jobs,
        stop,
        unused,
        queue: InQueue::read(&mut items)?,
    })
}

pub(super) fn settled(one: &mut Items) -> StoreResult<Settled> {
    Ok(match one.text()?.as_str() {
        "completed" => Settled::Completed {
            batch_complete: one.flag()?,
        },
        "dead" => Settled::Dead {
            reason: death_reason(one.int()?)?,
            batch_complete: one.flag()?,
        },
        "delayed" => Settled::Delayed {
            until: one.time()?,
            reason: delay_reason(one.int()?)?,
        },
        "released" => Settled::Released,
        "stale" => Settled::Stale,
        other => return Err(odd("what an answer did", other)),
    })
}

fn counts(items: &mut Items) -> StoreResult<BatchCounts> {
    Ok(BatchCounts {
        total: items.unsigned()?,
        success: items.unsigned()?,
        failed: items.unsigned()?,
    })
}

fn texts(mut items: Items) -> StoreResult<Vec<String>> {
    (0..items.len()).map(|_| Ok(items.text()?)).collect()
}

pub(super) fn aggregation(one: &mut Items) -> StoreResult<Aggregation> {
    let (group, batch) = (one.name()?, one.name()?);
    let claim = one.unsigned()?;
    let counts = counts(one)?;
    let keep_results = one.flag()?;
    let status = batch_status(one.int()?)?;
    Ok(Aggregation {
        group,
        batch,
        claim,
        counts,
        errors: texts(one.items()?)?,
        keep_results,
        callback: one.maybe_text()?,
        finished: status.is_finished().then_some(status),
    })
}

/// What every view may need: the time, the share of a group, the end of the window, the queues of estimates.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) now: Timestamp,
    pub(super) per_group_limit: u64,
    pub(super) window_ends: Timestamp,
    pub(super) window: Millis,
    pub(super) paces: Paces,
}

impl Common {
    pub(super) fn read(items: &mut Items, window: Millis) -> StoreResult<Self> {
        let mut common = items.items()?;
        Ok(Self {
            now: common.time()?,
            per_group_limit: common.unsigned()?,
            window_ends: common.time()?,
            window,
            paces: Paces::read(common.items()?, window)?,
        })
    }
}

pub(super) fn state_counts(mut items: Items) -> StoreResult<StateCounts> {
    Ok(StateCounts {
        waiting: items.unsigned()?,
        ready: items.unsigned()?,
        running: items.unsigned()?,
        delayed: items.unsigned()?,
        completed: items.unsigned()?,
        dead: items.unsigned()?,
    })
}

pub(super) fn group_limits(text: &str) -> StoreResult<GroupLimits> {
    match text {
        "" => Ok(GroupLimits::default()),
        text => serde_json::from_str(text).map_err(|_| odd("the limits of a group", text)),
    }
}

/// With the group's number, for the cursor.
pub(super) fn group_view(one: &mut Items, common: &Common) -> StoreResult<(GroupView, u64)> {
    let id = one.name()?;
    let base_priority =
        i32::try_from(one.int()?).map_err(|_| odd("a base priority", "too large a number"))?;
    let limits = group_limits(&one.text()?)?;
    let (paused, held, active) = (one.flag()?, one.flag()?, one.flag()?);
    let counts = state_counts(one.items()?)?;
    let mut names = one.items()?;
    let batches = (0..names.len()).map(|_| names.name()).collect::<Result<_, _>>()?;
    let view = GroupView {
        id,
        base_priority,
        limits,
        paused,
        held,
        active,
        counts,
        batches,
        waiting_since: one.maybe()?.map(Timestamp),
        estimate: finish(&common.paces.group(one.items()?, common.now)?, 1.0),
    };
    Ok((view, one.unsigned()?))
}

pub(super) fn batch_view(mut items: Items, group: &GroupId, common: &Common) -> StoreResult<BatchView> {
    let id = items.name()?;
    let status = batch_status(items.int()?)?;
    let (sealed, paused, group_paused) = (items.flag()?, items.flag()?, items.flag()?);
    let cancelled = items.flag()?;
    let counts = counts(&mut items.items()?)?;
    let errors = texts(items.items()?)?;
    let created_at = items.time()?;
    let finished_at = items.maybe()?.map(Timestamp);
    let (summary, callback) = (items.maybe_bytes()?, items.maybe_text()?);
    let unfinished = items.unsigned()?;
    let pace = common.paces.group(items.items()?, common.now)?;
    let (last, before) = paces::before(items.items()?)?;
    let estimate = match unfinished {
        0 => Ok(Range::default()),
        _ if paused => Err(NoEstimate::Paused),
        _ => {
            let of_group = pace.flows.iter().map(|flow| flow.unfinished).sum();
            finish(&pace, part_until(&before, last, of_group))
        }
    };
    Ok(BatchView {
        group: group.clone(),
        id,
        status,
        sealed,
        paused,
        group_paused,
        cancelled,
        counts,
        errors,
        summary,
        created_at,
        finished_at,
        callback,
        estimate,
    })
}

pub(super) fn bulk_stats(mut items: Items) -> StoreResult<BulkStats> {
    let mut standing = items.items()?;
    let (high, normal, low) = (standing.unsigned()?, standing.unsigned()?, standing.unsigned()?);
    Ok(BulkStats {
        high_priority_groups: high,
        normal_priority_groups: normal,
        low_priority_groups: low,
        total_groups: high + normal + low,
        active_groups: items.unsigned()?,
        counts: state_counts(items.items()?)?,
        started: items.unsigned()?,
        most_started_per_window: items.unsigned()?,
        limit_per_window: items.unsigned()?,
        throttles: items.unsigned()?,
        saved_spins: items.unsigned()?,
        groups_in_memory: items.unsigned()?,
        batches_in_memory: items.unsigned()?,
        flows_in_memory: items.unsigned()?,
        tags_remembered: items.unsigned()?,
    })
}

/// With the group's number, for the cursor.
pub(super) fn congestion_state(one: &mut Items) -> StoreResult<(CongestionState, u64)> {
    let group = one.name()?;
    let (non_ready_count, rate_limit_speed) = (one.unsigned()?, one.unsigned()?);
    let current_backoff_ms = Millis(one.unsigned()?);
    let congestion_level = congestion_level(one.int()?)?;
    let total_throttle_count = one.unsigned()?;
    let last_throttle_at = one.maybe()?.map(Timestamp);
    let last_backoff_ms = Millis(one.unsigned()?);
    let (completed, throttles) = (one.unsigned()?, one.unsigned()?);
    let hundredths = (throttles * 100).checked_div(completed).unwrap_or(0);
    let state = CongestionState {
        group,
        non_ready_count,
        rate_limit_speed,
        current_backoff_ms,
        congestion_level,
        total_throttle_count,
        last_throttle_at,
        last_backoff_ms,
        avg_throttle_per_job: hundredths as f64 / 100.0,
    };
    Ok((state, one.unsigned()?))
}

/// Items with the number of their group, and whether there are more.
type Numbered<T> = (Vec<(T, u64)>, bool);

pub(super) fn summary(mut items: Items) -> StoreResult<(CongestionSummary, Numbered<CongestionState>)> {
    let active_group_count = items.unsigned()?;
    let total_non_ready_count = items.unsigned()?;
    let worst_congestion_level = congestion_level(items.int()?)?;
    let worst = items.text()?;
    let states = items.items()?.each(congestion_state)?;
    let summary = CongestionSummary {
        active_group_count,
        total_non_ready_count,
        worst_congestion_level,
        worst_congestion_group: GroupId::new(worst).ok(),
        groups: Page {
            items: Vec::new(),
            next: None,
        },
    };
    Ok((summary, (states, items.flag()?)))
}

pub(super) fn snapshot(one: &mut Items) -> StoreResult<CongestionSnapshot> {
    Ok(CongestionSnapshot {
        timestamp: one.time()?,
        non_ready_count: one.small()?,
        backoff_ms: Millis(one.unsigned()?),
        rate_limit_speed: one.unsigned()?,
    })
}
