//! Lists the dead jobs of all shards, and purges one.

use tidegate_core::bulk::dead::MAX_PAGE;
use tidegate_core::bulk::views::{Cursor, DeadFilter, DeadView, Page, Query};
use tidegate_core::bulk::{PurgeParams, Refusal};
use tidegate_redis::Args;

use super::views::SHARD_BITS;
use super::{Shared, decode, scripts};
use crate::StoreError;
use crate::bulk::DeadJob;

/// Above every sequence number of a shard: a listing there begins with the most recently accepted job.
const FROM_THE_LAST: u64 = (1 << SHARD_BITS) - 1;

impl Shared {
    /// One shard after the other; only the group's own if the filter names a group. The cursor carries the
    /// shard.
    pub(super) async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<DeadJob>, StoreError> {
        let max = max.clamp(1, MAX_PAGE);
        let (begun, within) = after.map_or((0, FROM_THE_LAST), |cursor| {
            (cursor.0 >> SHARD_BITS, cursor.0 & FROM_THE_LAST)
        });
        let begun = u32::try_from(begun).unwrap_or(u32::MAX);
        let shards = match &filter.group {
            Some(group) => self.shard_of(group)..self.shard_of(group) + 1,
            None => begun..self.shards,
        };
        let last = shards.end;
        let mut page = Page {
            items: Vec::new(),
            next: None,
        };
        for shard in shards {
            let query = Query::Dead {
                filter: filter.clone(),
                after: Some(Cursor(if shard == begun { within } else { FROM_THE_LAST })),
                max: max - page.items.len() as u32,
            };
            let mut items = self.look(shard, &query).await?;
            let numbers = self.numbers(shard);
            page.items
                .extend(items.items()?.each(|one| -> Result<_, StoreError> {
                    Ok(DeadJob {
                        group: one.name()?,
                        batch: one.name()?,
                        details: decode::job(&mut one.items()?, numbers)?,
                    })
                })?);
            if let Some(local) = items.maybe()? {
                page.next = Some(cursor(shard, local));
                break;
            }
            if page.items.len() as u32 == max && shard + 1 < last {
                page.next = Some(cursor(shard + 1, FROM_THE_LAST));
                break;
            }
        }
        Ok(page)
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

fn cursor(shard: u32, local: u64) -> Cursor {
    Cursor(u64::from(shard) << SHARD_BITS | local)
}

/// The same page as the state machine returns it.
pub(super) fn without_bodies(page: Page<DeadJob>) -> Page<DeadView> {
    let view = |dead: DeadJob| DeadView {
        group: dead.group,
        batch: dead.batch,
        job: dead.details.view,
    };
    Page {
        items: page.items.into_iter().map(view).collect(),
        next: page.next,
    }
}
