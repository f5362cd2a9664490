//! Encodes transitions as arguments of their scripts.

use tidegate_core::bulk::views::Query;
use tidegate_core::bulk::*;
use tidegate_core::limits::quota::Limit;
use tidegate_redis::Args;

use super::{blob, jobs, settings};

/// One shard's call: jobs and leases carry the numbers of that shard.
pub(super) fn enqueue(p: &EnqueueParams, max_payload: u64) -> Args {
    let mut args = Args::default();
    let base_priority = p.base_priority.unwrap_or(0);
    args.text(p.group.as_str());
    args.number(base_priority).big(settings::step(base_priority));
    args.text(p.batch.as_ref().map_or("", |batch| batch.as_str()));
    let mut kinds: Vec<&str> = Vec::new();
    let indexes: Vec<usize> = p
        .jobs
        .iter()
        .map(|job| {
            let kind = job.kind.as_str();
            kinds.iter().position(|&other| other == kind).unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            })
        })
        .collect();
    args.number(kinds.len() as i64);
    for kind in &kinds {
        args.text(kind);
    }
    let mut packed = Vec::new();
    for (job, kind) in p.jobs.iter().zip(indexes) {
        let too_large = job.payload.len() as u64 > max_payload;
        let impossible = !(1..=MAX_COST).contains(&job.cost);
        let refused = i64::from(too_large) * 32 + i64::from(impossible) * 64;
        let flags = i64::from(blob::flags(job)) + refused + kind as i64 * 128;
        packed.clear();
        blob::pack(job, if too_large { &[] } else { &job.payload }, &mut packed);
        args.text(job.id.as_str()).number(flags).bytes(&packed);
    }
    args
}

pub(super) fn open_batch(p: &OpenBatchParams) -> Args {
    let mut args = Args::default();
    let base_priority = p.base_priority.unwrap_or(0);
    args.text(p.group.as_str());
    args.number(base_priority).big(settings::step(base_priority));
    args.text(p.batch.as_str());
    args.number(p.options.failure_threshold_percent)
        .flag(p.options.keep_results)
        .text(p.options.callback.as_deref().unwrap_or_default());
    args
}

pub(super) fn settle<'a>(
    answers: impl Iterator<Item = &'a Settlement>,
    max_result: u64,
    shards: u64,
) -> Args {
    let mut args = Args::default();
    for answer in answers {
        lease(&mut args, answer.lease, shards);
        let cut = |error: &String| {
            let mut error = error.clone();
            cut_error(&mut error);
            error
        };
        match &answer.outcome {
            JobOutcome::Completed { result } => {
                let len = result.len() as u64;
                if len > max_result {
                    let error = format!("the result has {len} bytes; at most {max_result} are allowed");
                    args.text("b").text("").text(&error);
                } else {
                    args.text("d").text("").bytes(result);
                }
            }
            JobOutcome::Failed { error } => {
                args.text("f").text("").text(&cut(error));
            }
            JobOutcome::Throttled { retry_after, scope } => {
                let code = match scope {
                    ThrottleScope::Queue => "t",
                    ThrottleScope::Group => "g",
                };
                args.text(code).option(*retry_after, |args, after| {
                    args.span(after);
                });
                args.text("");
            }
            JobOutcome::Retry {
                error,
                after,
                overloaded,
            } => {
                args.text(if *overloaded { "o" } else { "r" })
                    .option(*after, |args, after| {
                        args.span(after);
                    });
                args.text(&cut(error));
            }
            JobOutcome::Released => {
                args.text("x").text("").text("");
            }
        }
        // A start was charged to the window that all shards share.
        args.option(answer.cost.filter(|_| shards == 1), |args, cost| {
            args.number(cost.min(MAX_COST));
        });
    }
    args
}

/// A lease by the numbers of its shard.
pub(super) fn lease(args: &mut Args, lease: LeaseRef, shards: u64) {
    // No lease has fencing token 0, so a token of another shard matches nothing.
    let same = lease.job.0 % shards == lease.fence.0 % shards;
    let fence = if same { lease.fence.0 / shards } else { 0 };
    args.big(lease.job.0 / shards).big(fence);
}

pub(super) fn scope(scope: &Scope) -> Args {
    let mut args = Args::default();
    match scope {
        Scope::Group(group) => args.text(group.as_str()).text(""),
        Scope::Batch(group, batch) => args.text(group.as_str()).text(batch.as_str()),
    };
    args
}

pub(super) fn configure_group(p: &ConfigureGroupParams) -> Args {
    let mut args = Args::default();
    args.text(p.group.as_str());
    args.option(p.base_priority, |args, base_priority| {
        args.number(base_priority);
    });
    args.big(settings::step(p.base_priority.unwrap_or(0)));
    args.flag(p.limits.is_some());
    if let Some(limits) = &p.limits {
        group_limits(&mut args, limits);
    }
    args
}

/// As text, and as the scripts use them.
pub(super) fn group_limits(args: &mut Args, limits: &GroupLimits) {
    let limit = |args: &mut Args, limit: &Limit| {
        args.option(limit.rate, |args, rate| {
            args.text(&rate.per_second().to_string());
        });
        args.option(limit.max_running, |args, most| {
            args.number(most);
        });
    };
    args.text(&match *limits == GroupLimits::default() {
        true => String::new(),
        false => serde_json::to_string(limits).expect("limits are plain values"),
    });
    limit(args, &limits.all);
    args.number(limits.queues.len() as i64);
    for (queue, of_queue) in &limits.queues {
        args.text(queue.as_str());
        limit(args, of_queue);
    }
}

pub(super) fn query(query: &Query) -> Args {
    let mut args = Args::default();
    let cursor = |args: &mut Args, after: &Option<views::Cursor>| {
        args.option(*after, |args, cursor| {
            args.big(cursor.0 as u64);
        });
    };
    match query {
        Query::Group(group) => {
            args.text("group").text(group.as_str());
        }
        Query::Groups { after, max } => {
            args.text("groups");
            cursor(&mut args, after);
            args.number(*max);
        }
        Query::Batch(group, batch) => {
            args.text("batch").text(group.as_str()).text(batch.as_str());
        }
        Query::Job(group, job) => {
            args.text("job").text(group.as_str()).text(job.as_str());
        }
        Query::BatchJobs {
            group,
            batch,
            after,
            max,
        } => {
            args.text("jobs").text(group.as_str()).text(batch.as_str());
            cursor(&mut args, after);
            args.number(*max);
        }
        Query::Dead { filter, after, max } => {
            match after.map(views::Cursor::death) {
                Some((died_at, job)) => args.big(died_at.0).big(job.0),
                None => args.text("").text(""),
            };
            args.number(*max).number(dead::MAX_INSPECTIONS);
            args.text(filter.group.as_ref().map_or("", |group| group.as_str()));
            args.text(filter.kind.as_ref().map_or("", |kind| kind.as_str()));
            args.option(filter.reason, |args, reason| {
                args.number(reason as i64);
            });
        }
        Query::Jobs { filter, after, max } => {
            match after.map(jobs::place) {
                Some((batch, job)) => args.big(batch).big(job),
                None => args.text("").text(""),
            };
            args.number(*max).number(listing::MAX_INSPECTIONS);
            args.text(filter.group.as_ref().map_or("", |group| group.as_str()));
            args.text(filter.batch.as_ref().map_or("", |batch| batch.as_str()));
            args.text(filter.queue.as_ref().map_or("", |queue| queue.as_str()));
            args.text(filter.kind.as_ref().map_or("", |kind| kind.as_str()));
            args.option(filter.state, |args, state| {
                args.number(state as i64 + 1);
            });
            for at in [filter.created_after, filter.created_before] {
                args.option(at, |args, at| {
                    args.big(at.0 / 1_000);
                });
            }
        }
        Query::Backlog => {
            args.number(backlog::MAX_FLOWS_INSPECTED as i64);
        }
        Query::BulkStats => {
            args.text("stats");
        }
        // These have their own scripts.
        Query::WhyJob(group, job) => {
            args.text(group.as_str()).text(job.as_str());
        }
        Query::WhyGroup(group) => {
            args.text(group.as_str()).text("");
        }
        Query::Queues | Query::Limits => {}
        Query::LimitStatus(group) => {
            args.text("limit").text(group.as_str());
        }
        Query::Congestion(group) => {
            args.text("congestion").text(group.as_str());
        }
        Query::CongestionSummary { after, max } => {
            args.text("summary");
            cursor(&mut args, after);
            args.number(*max);
        }
        Query::CongestionHistory { group, max } => {
            args.text("history").text(group.as_str()).number(*max);
        }
    }
    args
}
