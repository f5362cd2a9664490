//! Why a job is not running: the facts of its shard, and of the window that all shards share.

use tidegate_core::bulk::views::Why;
use tidegate_core::bulk::why::{
    GroupFacts, OwnFacts, QueueFacts, RateFacts, WhyFacts, WindowFacts, nothing, why,
};
use tidegate_redis::{Items, time};

use super::Shared;
use super::decode::{self, Common};
use crate::StoreError;

type StoreResult<T> = Result<T, StoreError>;

impl Shared {
    pub(super) async fn why(&self, mut items: Items, common: &Common) -> StoreResult<Why> {
        let state = items.int()?;
        if items.is_empty() {
            let state = if state == 0 {
                None
            } else {
                Some(decode::state(state)?)
            };
            return Ok(nothing(state));
        }
        let mut facts = facts(state, items, common)?;
        if self.shards > 1 {
            self.facts_of_all(&mut facts).await?;
        }
        Ok(why(&facts))
    }

    /// Adds what one shard cannot know: how much all of them have started.
    async fn facts_of_all(&self, facts: &mut WhyFacts) -> StoreResult<()> {
        let stats = self.bulk_stats().await?;
        let shared = self.ask_limit(0, 0, "").await?;
        facts.window.limit = shared.limit;
        facts.window.room = shared.room;
        facts.window.ready = stats.counts.ready;
        facts.group.share = (shared.limit / stats.active_groups.max(1)).max(1);
        if let Some(queue) = self.queues().await?.iter().find(|queue| queue.id == facts.queue) {
            let allowed = queue.rps * facts.window.length.as_secs_f64();
            facts.of_queue.limit = (allowed + 1e-9).floor().max(1.0) as u64;
            facts.of_queue.started = queue.started;
            facts.of_queue.ready = queue.ready;
        }
        Ok(())
    }
}

fn own(items: &mut Items) -> StoreResult<OwnFacts> {
    let (started, ready, running) = (items.unsigned()?, items.unsigned()?, items.unsigned()?);
    let (allowed, most, until) = (items.maybe()?, items.unsigned()?, items.time()?);
    Ok(OwnFacts {
        started,
        ready,
        running,
        rate: allowed.map(|allowed| RateFacts { allowed, most, until }),
        max_running: items.maybe()?,
    })
}

fn facts(state: i64, mut items: Items, common: &Common) -> StoreResult<WhyFacts> {
    let state = decode::state(state)?;
    let queue = items.name()?;
    let (group_paused, batch_paused) = (items.flag()?, items.flag()?);
    let (at, reason) = (time(items.unsigned()?), decode::delay_reason(items.int()?)?);
    let is_delayed = state == tidegate_core::bulk::JobState::Delayed;
    let ahead = items.unsigned()?;
    let group = GroupFacts {
        all: own(&mut items.items()?)?,
        in_queue: own(&mut items.items()?)?,
        share: common.per_group_limit,
        share_is_strict: items.flag()?,
    };
    let window = WindowFacts {
        length: common.window,
        ends: common.window_ends,
        until: items.time()?,
        limit: items.unsigned()?,
        room: items.unsigned()?,
        ready: items.unsigned()?,
    };
    let of_queue = QueueFacts {
        limit: items.unsigned()?,
        until: items.time()?,
        started: items.unsigned()?,
        ready: items.unsigned()?,
        ready_max: items.unsigned()?,
        running: items.unsigned()?,
        max_running: items.maybe()?,
    };
    let pace = common.paces.group(items.items()?, common.now)?;
    let flow = common
        .paces
        .position(&pace, items.unsigned()?, items.unsigned()?)?;
    Ok(WhyFacts {
        now: common.now,
        state,
        queue,
        group_paused,
        batch_paused,
        delayed: is_delayed.then_some((at, reason)),
        ahead,
        group,
        window,
        of_queue,
        pace,
        flow,
    })
}
