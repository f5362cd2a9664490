//! Lists the dead jobs of all shards, and purges one.

use std::cmp::Reverse;

use futures_util::future::join_all;
use tidegate_core::bulk::dead::MAX_PAGE;
use tidegate_core::bulk::views::{Cursor, DeadFilter, FoundView, Page, Query};
use tidegate_core::bulk::{JobSeq, PurgeParams, Refusal};
use tidegate_core::time::Timestamp;
use tidegate_redis::Args;

use super::{Shared, decode, jobs, scripts};
use crate::StoreError;
use crate::bulk::FoundJob;

/// The time of death, and the job.
type Death = (Timestamp, JobSeq);

impl Shared {
    /// The pages of all shards, merged; only that of the group's own shard if the filter names a group.
    pub(super) async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let max = max.clamp(1, MAX_PAGE);
        let shards = match &filter.group {
            Some(group) => self.shard_of(group)..self.shard_of(group) + 1,
            None => 0..self.shards,
        };
        let pages = join_all(shards.map(|shard| self.dead_of(shard, filter, after, max))).await;
        let pages = pages.into_iter().collect::<Result<Vec<_>, StoreError>>()?;
        // A shard that stopped early may have further jobs behind this point.
        let reached = pages.iter().filter_map(|(_, next)| *next).max();
        let mut items: Vec<FoundJob> = pages.into_iter().flat_map(|(items, _)| items).collect();
        items.sort_unstable_by_key(|dead| Reverse(death(dead)));
        let whole = items.len();
        items.retain(|dead| reached.is_none_or(|reached| death(dead) >= reached));
        items.truncate(max as usize);
        let next = match (items.len() < whole, reached) {
            (false, reached) => reached,
            (true, Some(reached)) if (items.len() as u32) < max => Some(reached),
            (true, _) => items.last().map(death),
        };
        Ok(Page {
            items,
            next: next.map(|(at, job)| Cursor::of_death(at, job)),
        })
    }

    /// One shard's page, and the last job that it inspected if there are more.
    async fn dead_of(
        &self,
        shard: u32,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<(Vec<FoundJob>, Option<Death>), StoreError> {
        let numbers = self.numbers(shard);
        let local = |cursor: Cursor| {
            let (at, job) = cursor.death();
            // The first number of this shard that is not below: those before it come next.
            let from = job.0.saturating_sub(numbers.shard).div_ceil(numbers.shards);
            Cursor::of_death(at, JobSeq(from))
        };
        let query = Query::Dead {
            filter: filter.clone(),
            after: after.map(local),
            max,
        };
        let mut items = self.look(shard, &query).await?;
        let dead = items.items()?.each(|one| -> Result<_, StoreError> {
            Ok(FoundJob {
                group: one.name()?,
                details: jobs::details(&mut one.items()?, numbers)?,
            })
        })?;
        let next = items.maybe()?.zip(items.maybe()?);
        Ok((dead, next.map(|(at, local)| (Timestamp(at), numbers.job(local)))))
    }

    pub(super) async fn purge(&self, p: PurgeParams) -> Result<Result<(), Refusal>, StoreError> {
        let mut args = Args::default();
        args.text(p.group.as_str()).text(p.job.as_str());
        let shard = self.shard_of(&p.group);
        let mut items = self.call(shard, &scripts::PURGE, &args).await?;
        Ok(match items.text()?.as_str() {
            "ok" => Ok(()),
            "kept" => Err(Refusal::ResultsKept(items.name()?)),
            said => Err(decode::refusal(said, &p.group, None, Some(&p.job))?),
        })
    }
}

fn death(dead: &FoundJob) -> Death {
    let view = &dead.details.view;
    (view.finished_at.unwrap_or_default(), view.seq)
}

/// The same page as the state machine returns it.
pub(super) fn without_bodies(page: Page<FoundJob>) -> Page<FoundView> {
    let view = |dead: FoundJob| FoundView {
        group: dead.group,
        job: dead.details.view,
    };
    Page {
        items: page.items.into_iter().map(view).collect(),
        next: page.next,
    }
}
