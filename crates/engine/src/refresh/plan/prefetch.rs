//! Requests records before anybody reads them: the most overdue first, within the calls that the day has left and
//! that workers can make in time.
//!
//! One process plans each tick of a target. The processes elect it through the claim protocol: the tick is a
//! version of a dedicated record, which one process begins and settles while the others find it claimed. While the
//! lag is unknown, nobody plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::ids::{RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{BeginOutcome, BeginParams, SettleParams, Settlement};
use tidegate_core::refresh::event::Reason;
use tidegate_core::refresh::freshness::Tier;
use tidegate_core::refresh::prefetch::{PlanParams, plan};
use tidegate_core::time::Timestamp;
use tidegate_snapshots::{PrefetchParams, PrefetchTier};
use tokio_util::sync::CancellationToken;

use super::pressure::LagWatcher;
use crate::refresh::error::RefreshError;
use crate::refresh::options::SourceOptions;
use crate::refresh::publish::publisher::{Ask, BATCH, PublishWorker};
use crate::refresh::shared::{Shared, record_id};

/// The source of the records that stand for ticks; no configured source can have this name.
const TICKS: &str = "\u{0}prefetch";

pub(crate) struct Prefetch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) publish_worker: Arc<PublishWorker>,
    pub(crate) lags: Arc<LagWatcher>,
    pub(crate) stop: CancellationToken,
}

impl Prefetch {
    pub(crate) async fn run(self) {
        let tick = self.shared.options.config.prefetch.tick_ms;
        while !self.stop.is_cancelled() {
            // Wake at whole ticks of the store's time, so that all processes mean the same tick.
            let wait = tick.0 - self.shared.now().0 % tick.0;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
                () = self.stop.cancelled() => return,
            }
            for (target, sources) in self.targets() {
                if let Err(error) = self.tick(&target, &sources).await {
                    tracing::warn!(%error, %target, "nothing is prefetched in this tick");
                }
            }
        }
    }

    fn targets(&self) -> BTreeMap<TargetId, Vec<(SourceId, SourceOptions)>> {
        let mut targets: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, source) in &self.shared.options.sources {
            if source.prefetch {
                let sources = targets.entry(source.target.clone()).or_default();
                sources.push((id.clone(), source.clone()));
            }
        }
        targets
    }

    async fn tick(
        &self,
        target: &TargetId,
        sources: &[(SourceId, SourceOptions)],
    ) -> Result<(), RefreshError> {
        let shared = &self.shared;
        let (store, config) = (&shared.options.store, &shared.options.config.prefetch);
        let now = shared.now();
        // The plan must fit after the events that already wait. A process that cannot see the lag leaves the tick
        // to others.
        let Some(low) = self.lags.low_known() else {
            tracing::warn!(%target, "nothing is prefetched in this tick: the lag is unknown");
            return Ok(());
        };
        let number = now.0 / config.tick_ms.0;
        // The start of the tick, not its number: after a change of the tick length, versions must still increase.
        let version = Version(number * config.tick_ms.0);
        let record = RecordId {
            source: SourceId::new(TICKS).expect("short and not empty"),
            key: RecordKey::new(target.as_str()).expect("as short as a target"),
        };
        let begin = BeginParams {
            version,
            priority: Priority::Low,
            owner: shared.options.owner.clone(),
            claim_for: config.tick_ms,
        };
        let begun = store.begin(vec![(record.clone(), begin)]).await?;
        if begun != [BeginOutcome::Go] {
            return Ok(());
        }
        let budget = store.budget(target).await?;
        let Some((_, first)) = sources.first() else {
            return Ok(());
        };
        let params = PlanParams {
            day_left: budget.day_left_low,
            day_ends: budget.day_ends,
            queued: low.records,
            milli_rate: low.milli_rate,
            zone: first.zone,
        };
        // While the target is on hold, workers would only park these requests.
        let mut left = match budget.hold_until > now {
            true => 0,
            false => plan(config, params, now),
        };
        // Each tick starts with another source, so that none is always last.
        let turn = number as usize % sources.len();
        for (id, source) in sources[turn..].iter().chain(&sources[..turn]) {
            left -= self.ask_for(id, source, left, now).await?;
        }
        let settle = SettleParams {
            version,
            priority: Priority::Low,
            settlement: Settlement::Done,
        };
        store.settle(vec![(record, settle)]).await?;
        Ok(())
    }

    /// Requests up to `most` records of one source. Returns how many it found.
    async fn ask_for(
        &self,
        id: &SourceId,
        source: &SourceOptions,
        most: u64,
        now: Timestamp,
    ) -> Result<u64, RefreshError> {
        let config = &self.shared.options.config.prefetch;
        let mut asked = 0;
        while asked < most && !self.stop.is_cancelled() {
            let max = (most - asked).min(BATCH as u64) as u32;
            let params = PrefetchParams {
                source: id.clone(),
                tiers: tiers(source, now),
                max,
                now,
                // A request that is queued but not written by then was lost or still waits: the coalescer knows which.
                claim_until: now + config.tick_ms + config.tick_ms,
            };
            let due = self.shared.options.snapshots.claim_stale(&params).await?;
            let asks: Vec<Ask> = due
                .iter()
                .map(|due| Ask {
                    record: record_id(&due.record),
                    params: BTreeMap::new(),
                    priority: Priority::Low,
                    reason: Reason::Prefetch,
                    snapshot_version: Some(due.version).filter(|version| version.0 > 0),
                    read_at: now,
                    correlation: None,
                })
                .collect();
            let got = asks.len() as u64;
            let outcomes = self.publish_worker.carry_out(asks).await;
            let queued = outcomes.iter().filter(|outcome| outcome.is_queued()).count() as u64;
            self.shared.counters.prefetched.add(queued);
            asked += got;
            if got < u64::from(max) {
                break;
            }
        }
        Ok(asked)
    }
}

fn tiers(source: &SourceOptions, now: Timestamp) -> Vec<PrefetchTier> {
    let tiers = &source.tiers;
    let tier = |tier: Tier| PrefetchTier {
        active_since: match tier {
            Tier::Hot => now - tiers.hot_active_ms,
            Tier::Warm => now - tiers.warm_active_ms,
            Tier::Cold => Timestamp(0),
        },
        checked_before: now - tiers.interval(tier),
    };
    Tier::ALL.map(tier).into()
}
