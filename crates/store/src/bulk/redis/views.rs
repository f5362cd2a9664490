//! Views of one shard or all of them.

use redis::Value;
use tidegate_core::bulk::Refusal;
use tidegate_core::bulk::views::*;
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_redis::Items;

use super::decode::{self, Common};
use super::{Shared, dead, jobs};
use crate::StoreError;
use crate::bulk::JobDetails;

type StoreResult<T> = Result<T, StoreError>;

/// Limit: a cursor over the groups of several shards carries the shard in these bits and above.
const SHARD_BITS: u32 = 46;

impl Shared {
    pub(super) async fn query(&self, query: Query) -> StoreResult<Result<View, Refusal>> {
        let window = self.config().backpressure.window();
        let group = match &query {
            Query::Groups { after, max } => {
                let page = self.groups(*after, *max).await?;
                return Ok(Ok(View::Groups(page)));
            }
            Query::BulkStats => return Ok(Ok(View::BulkStats(self.bulk_stats().await?))),
            Query::CongestionSummary { after, max } => {
                let summary = self.congestion_summary(*after, *max).await?;
                return Ok(Ok(View::CongestionSummary(summary)));
            }
            Query::Job(group, job) => {
                let found = self.job(group, job).await?;
                return Ok(found.map(|details| View::Job(details.view)));
            }
            Query::BatchJobs {
                group,
                batch,
                after,
                max,
            } => {
                let found = self.jobs_of(group, batch, *after, *max).await?;
                return Ok(found.map(|page| {
                    View::BatchJobs(Page {
                        items: page.items.into_iter().map(|details| details.view).collect(),
                        next: page.next,
                    })
                }));
            }
            Query::Dead { filter, after, max } => {
                let page = self.dead(filter, *after, *max).await?;
                return Ok(Ok(View::Dead(dead::without_bodies(page))));
            }
            Query::Jobs { filter, after, max } => {
                let page = self.jobs(filter, *after, *max).await?;
                return Ok(Ok(View::Jobs(dead::without_bodies(page))));
            }
            Query::Backlog => return Ok(Ok(View::Backlog(self.backlog().await?))),
            Query::Queues => return Ok(Ok(View::Queues(self.queues().await?))),
            Query::Limits => return Ok(Ok(View::Limits(self.limits().await?))),
            Query::WhyJob(group, _)
            | Query::WhyGroup(group)
            | Query::Group(group)
            | Query::Batch(group, _)
            | Query::LimitStatus(group)
            | Query::Congestion(group)
            | Query::CongestionHistory { group, .. } => group,
        };
        let (batch, job) = match &query {
            Query::Batch(_, batch) => (Some(batch), None),
            Query::WhyJob(_, job) => (None, Some(job)),
            _ => (None, None),
        };
        let (mut items, common) = match self.look_at(group, &query).await? {
            Ok(found) => found,
            Err(said) => return Ok(Err(decode::refusal(&said, group, batch, job)?)),
        };
        let common = Common::read(&mut common_items(common), window)?;
        Ok(Ok(match &query {
            Query::Group(_) => View::Group(decode::group_view(&mut items.items()?, &common)?.0),
            Query::Batch(..) => View::Batch(decode::batch_view(items, group, &common)?),
            Query::WhyJob(..) | Query::WhyGroup(_) => View::Why(self.why(items, &common).await?),
            Query::Congestion(_) => View::Congestion(decode::congestion_state(&mut items.items()?)?.0),
            Query::CongestionHistory { .. } => {
                View::CongestionHistory(items.items()?.each(decode::snapshot)?)
            }
            _ => View::LimitStatus(self.limit_status(items, &common).await?),
        }))
    }

    /// The reply of the group's shard, or its refusal.
    async fn look_at(&self, group: &GroupId, query: &Query) -> StoreResult<Result<(Items, Value), String>> {
        let mut items = self.look(self.shard_of(group), query).await?;
        Ok(match items.value()? {
            Value::BulkString(said) => Err(String::from_utf8_lossy(&said).into_owned()),
            common => Ok((items, common)),
        })
    }

    async fn limit_status(&self, mut items: Items, common: &Common) -> StoreResult<LimitStatus> {
        let mut status = LimitStatus {
            global_count: items.unsigned()?,
            global_limit: items.unsigned()?,
            group_count: items.unsigned()?,
            per_group_limit: common.per_group_limit,
            active_group_count: items.unsigned()?,
            window_ends: common.window_ends,
        };
        if self.shards > 1 {
            let stats = self.bulk_stats().await?;
            status.active_group_count = stats.active_groups;
            status.per_group_limit = (status.global_limit / stats.active_groups.max(1)).max(1);
            status.global_count = self.ask_limit(0, 0, "").await?.granted;
        }
        Ok(status)
    }

    pub(super) async fn job(&self, group: &GroupId, job: &JobId) -> StoreResult<Result<JobDetails, Refusal>> {
        let query = Query::Job(group.clone(), job.clone());
        Ok(match self.look_at(group, &query).await? {
            Ok((mut items, _)) => {
                let numbers = self.numbers(self.shard_of(group));
                Ok(jobs::details(&mut items.items()?, numbers)?)
            }
            Err(said) => Err(decode::refusal(&said, group, None, Some(job))?),
        })
    }

    pub(super) async fn jobs_of(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> StoreResult<Result<Page<JobDetails>, Refusal>> {
        let numbers = self.numbers(self.shard_of(group));
        let query = Query::BatchJobs {
            group: group.clone(),
            batch: batch.clone(),
            after: after.map(|cursor| Cursor(cursor.0 / u128::from(numbers.shards))),
            max,
        };
        let mut items = match self.look_at(group, &query).await? {
            Ok((items, _)) => items,
            Err(said) => return Ok(Err(decode::refusal(&said, group, Some(batch), None)?)),
        };
        let jobs = items.items()?.each(|one| jobs::details(one, numbers))?;
        let more = items.flag()?;
        let next = jobs
            .last()
            .filter(|_| more)
            .map(|last| Cursor(last.view.seq.0.into()));
        Ok(Ok(Page { items: jobs, next }))
    }

    async fn groups(&self, after: Option<Cursor>, max: u32) -> StoreResult<Page<GroupView>> {
        let window = self.config().backpressure.window();
        let query = |after, max| Query::Groups { after, max };
        self.pages(after, max, query, |mut items| {
            let common = Common::read(&mut items, window)?;
            let views = items.items()?.each(|one| decode::group_view(one, &common))?;
            Ok((views, items.flag()?))
        })
        .await
    }

    /// Pages over the groups of all shards, one shard after the other.
    async fn pages<T>(
        &self,
        after: Option<Cursor>,
        max: u32,
        query: impl Fn(Option<Cursor>, u32) -> Query,
        read: impl Fn(Items) -> StoreResult<(Vec<(T, u64)>, bool)>,
    ) -> StoreResult<Page<T>> {
        let mut page = Page {
            items: Vec::new(),
            next: None,
        };
        let first = after.map_or(0, |cursor| cursor.0 >> SHARD_BITS) as u32;
        let mut within = after.map(|cursor| Cursor(cursor.0 & ((1 << SHARD_BITS) - 1)));
        let max = max.max(1);
        for shard in first..self.shards {
            let left = max - page.items.len() as u32;
            let (items, more) = read(self.look(shard, &query(within.take(), left)).await?)?;
            let mut last = 0;
            for (item, number) in items {
                page.items.push(item);
                last = number;
            }
            if more {
                page.next = Some(group_cursor(shard, last));
                break;
            }
            if page.items.len() as u32 == max && shard + 1 < self.shards {
                page.next = Some(group_cursor(shard + 1, 0));
                break;
            }
        }
        Ok(page)
    }

    pub(super) async fn bulk_stats(&self) -> StoreResult<BulkStats> {
        let mut whole: Option<BulkStats> = None;
        for shard in 0..self.shards {
            let mut items = self.look(shard, &Query::BulkStats).await?;
            items.value()?;
            let one = decode::bulk_stats(items)?;
            whole = Some(whole.map_or(one, |whole| added(whole, one)));
        }
        let mut whole = whole.expect("there is at least one shard");
        if self.shards > 1 {
            whole.most_started_per_window = self.ask_limit(0, 0, "").await?.most;
        }
        Ok(whole)
    }

    async fn congestion_summary(&self, after: Option<Cursor>, max: u32) -> StoreResult<CongestionSummary> {
        let query = |after, max| Query::CongestionSummary { after, max };
        let groups = self
            .pages(after, max, query, |mut items| {
                items.value()?;
                Ok(decode::summary(items)?.1)
            })
            .await?;
        let mut whole: Option<CongestionSummary> = None;
        for shard in 0..self.shards {
            let mut items = self.look(shard, &query(None, 1)).await?;
            items.value()?;
            let (one, ..) = decode::summary(items)?;
            whole = Some(match whole {
                None => one,
                Some(whole) => worse(whole, one),
            });
        }
        let mut whole = whole.expect("there is at least one shard");
        whole.groups = groups;
        Ok(whole)
    }
}

fn group_cursor(shard: u32, number: u64) -> Cursor {
    Cursor((u64::from(shard) << SHARD_BITS | number).into())
}

fn common_items(common: Value) -> Items {
    Items::of(Value::Array(vec![common])).expect("an array was made")
}

fn added(one: BulkStats, other: BulkStats) -> BulkStats {
    BulkStats {
        high_priority_groups: one.high_priority_groups + other.high_priority_groups,
        normal_priority_groups: one.normal_priority_groups + other.normal_priority_groups,
        low_priority_groups: one.low_priority_groups + other.low_priority_groups,
        total_groups: one.total_groups + other.total_groups,
        active_groups: one.active_groups + other.active_groups,
        counts: StateCounts {
            waiting: one.counts.waiting + other.counts.waiting,
            ready: one.counts.ready + other.counts.ready,
            running: one.counts.running + other.counts.running,
            delayed: one.counts.delayed + other.counts.delayed,
            completed: one.counts.completed + other.counts.completed,
            dead: one.counts.dead + other.counts.dead,
        },
        started: one.started + other.started,
        most_started_per_window: one.most_started_per_window.max(other.most_started_per_window),
        limit_per_window: one.limit_per_window,
        throttles: one.throttles + other.throttles,
        saved_spins: one.saved_spins + other.saved_spins,
        groups_in_memory: one.groups_in_memory + other.groups_in_memory,
        batches_in_memory: one.batches_in_memory + other.batches_in_memory,
        flows_in_memory: one.flows_in_memory + other.flows_in_memory,
        tags_remembered: one.tags_remembered + other.tags_remembered,
    }
}

fn worse(one: CongestionSummary, other: CongestionSummary) -> CongestionSummary {
    let (active, total) = (
        one.active_group_count + other.active_group_count,
        one.total_non_ready_count + other.total_non_ready_count,
    );
    let worst = if other.worst_congestion_level > one.worst_congestion_level {
        other
    } else {
        one
    };
    CongestionSummary {
        active_group_count: active,
        total_non_ready_count: total,
        ..worst
    }
}
