//! Counts how fresh all records are, a slice at a time. Also cleans up: marks of dead letters that the log dropped,
//! and failures of keys that never existed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::ids::SourceId;
use tidegate_core::refresh::freshness::Tier;
use tidegate_core::refresh::status::lapsed_before;
use tidegate_core::time::Timestamp;
use tidegate_snapshots::{CountParams, FreshnessTier, LapsedParams, SnapshotsError};
use tokio_util::sync::CancellationToken;

use crate::refresh::dead_letters::forget_old;
use crate::refresh::options::SourceOptions;
use crate::refresh::shared::Shared;

/// Limit: records with a status that one census counts.
const MOST_STATUSES: u32 = 100_000;
/// Limit: failures inspected in one call.
const LAPSED_SLICE: u32 = 1_000;
/// Pause between two slices: the census is never in a hurry.
const PAUSE: Duration = Duration::from_millis(20);

/// How fresh the records of a source were at the last census.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreshnessCensus {
    pub fresh: u64,
    pub stale: u64,
    /// Known, but never fetched.
    pub missing: u64,
    pub retrying: u64,
    pub failed: u64,
    pub counted_at: Timestamp,
}

/// By source; a source without a census yet is not listed.
#[derive(Debug, Default)]
pub(crate) struct Censuses(Mutex<BTreeMap<SourceId, FreshnessCensus>>);

impl Censuses {
    pub(crate) fn view(&self) -> BTreeMap<SourceId, FreshnessCensus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn run(self: Arc<Self>, shared: Arc<Shared>, stop: CancellationToken) {
        let every = Duration::from(shared.options.watch.census_every_ms);
        while !stop.is_cancelled() {
            for (id, source) in &shared.options.sources {
                let count = count(&shared, id, source);
                let counted = tokio::select! {
                    counted = count => counted,
                    () = stop.cancelled() => return,
                };
                match counted {
                    Ok(census) => {
                        let mut censuses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                        censuses.insert(id.clone(), census);
                    }
                    Err(error) => tracing::warn!(%error, source = %id, "failed to count records"),
                }
            }
            if let Err(error) = forget_old(&shared).await {
                tracing::warn!(%error, "failed to delete marks of dropped dead letters");
            }
            let forget = forget_lapsed(&shared);
            tokio::select! {
                forgot = forget => if let Err(error) = forgot {
                    tracing::warn!(%error, "failed to delete lapsed failures");
                },
                () = stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

/// A caller that invents keys leaves one failure behind for each. This deletes those that nobody requested again.
async fn forget_lapsed(shared: &Shared) -> Result<(), SnapshotsError> {
    let mut params = LapsedParams {
        from: Timestamp(0),
        before: lapsed_before(&shared.options.config.status, shared.now()),
        max: LAPSED_SLICE,
    };
    loop {
        let lapsed = shared.options.snapshots.forget_lapsed(&params).await?;
        match lapsed.next {
            Some(next) => params.from = next,
            None => return Ok(()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn count(
    shared: &Shared,
    id: &SourceId,
    source: &SourceOptions,
) -> Result<FreshnessCensus, SnapshotsError> {
    let now = shared.now();
    let tiers = &source.tiers;
    let tier = |tier: Tier| FreshnessTier {
        active_since: match tier {
            Tier::Hot => now - tiers.hot_active_ms,
            Tier::Warm => now - tiers.warm_active_ms,
            Tier::Cold => Timestamp(0),
        },
        checked_since: now - tiers.fresh_for(tier),
    };
    let mut params = CountParams {
        source: id.clone(),
        tiers: Tier::ALL.map(tier).into(),
        after: None,
        max: shared.options.watch.census_slice,
    };
    let mut census = FreshnessCensus {
        counted_at: now,
        ..FreshnessCensus::default()
    };
    loop {
        let counts = shared.options.snapshots.counts(&params).await?;
        census.fresh += counts.fresh;
        census.stale += counts.stale;
        census.missing += counts.missing;
        params.after = counts.next;
        if params.after.is_none() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let statuses = shared.options.snapshots.status_counts(id, MOST_STATUSES).await?;
    census.retrying = statuses.retrying;
    census.failed = statuses.failed;
    Ok(census)
}
