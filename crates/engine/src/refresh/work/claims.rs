//! Claims on the records that this process works on. A heartbeat extends them; dropping one releases it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::ids::{Owner, RecordId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::BeginParams;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::refresh::shared::Shared;

/// Limit: claims in one call.
const BATCH: usize = 256;
/// Limit: claims that wait for release. Further ones expire on their own.
const MAX_ABANDONED: usize = 4_096;
/// Longest time that the last release may take at shutdown.
const LAST: Duration = Duration::from_millis(500);

type Name = (RecordId, Version);

#[derive(Debug, Default)]
struct Held {
    claims: HashMap<Name, Priority>,
    abandoned: Vec<Name>,
}

#[derive(Debug)]
pub(crate) struct Claims {
    shared: Arc<Shared>,
    held: Mutex<Held>,
}

/// A record that this process is working on.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    name: Name,
    settled: bool,
}

impl Claim {
    /// The store knows how the work ended, so there is nothing to release.
    pub(crate) fn settled(mut self) {
        self.settled = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.claims.held();
        held.claims.remove(&self.name);
        if !self.settled && held.abandoned.len() < MAX_ABANDONED {
            held.abandoned.push(self.name.clone());
        }
    }
}

impl Claims {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            held: Mutex::default(),
        })
    }

    pub(crate) fn params(&self, version: Version, priority: Priority) -> BeginParams {
        BeginParams {
            version,
            priority,
            owner: self.owner().clone(),
            claim_for: self.shared.options.work.claim_ms,
        }
    }

    /// Call this once the store has granted the claim.
    pub(crate) fn hold(self: &Arc<Self>, record: RecordId, version: Version, priority: Priority) -> Claim {
        let name = (record, version);
        self.held().claims.insert(name.clone(), priority);
        Claim {
            claims: self.clone(),
            name,
            settled: false,
        }
    }

    /// Runs until stopped, then releases the claims dropped last.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        // A third of the lease leaves time for two attempts before a claim expires.
        let every = Duration::from(self.shared.options.work.claim_ms) / 3;
        let mut extended = Instant::now();
        while !stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(every.min(Duration::from_secs(1))) => {}
                () = stop.cancelled() => {}
            }
            self.give_back().await;
            if extended.elapsed() >= every {
                extended = Instant::now();
                self.extend().await;
            }
        }
        let _ = tokio::time::timeout(LAST, self.give_back()).await;
    }

    async fn extend(&self) {
        let claims: Vec<_> = self
            .held()
            .claims
            .iter()
            .map(|((record, version), priority)| (record.clone(), self.params(*version, *priority)))
            .collect();
        for batch in claims.chunks(BATCH) {
            let extend = self.shared.options.store.extend(batch.to_vec());
            match self.shared.store_guard.call(extend).await {
                Ok(kept) => {
                    // A worker that lost its claim may still write: the version fences that write.
                    let lost = kept.iter().filter(|kept| !**kept).count() as u64;
                    self.shared.counters.claims_lost.add(lost);
                }
                Err(error) => tracing::debug!(%error, "failed to extend claims"),
            }
        }
    }

    async fn give_back(&self) {
        let abandoned = std::mem::take(&mut self.held().abandoned);
        for batch in abandoned.chunks(BATCH) {
            let named = |(record, version): &Name| (record.clone(), *version, self.owner().clone());
            let abandon = self
                .shared
                .options
                .store
                .abandon(batch.iter().map(named).collect());
            if let Err(error) = self.shared.store_guard.call(abandon).await {
                tracing::debug!(%error, "failed to release claims; they expire");
            }
        }
    }

    fn owner(&self) -> &Owner {
        &self.shared.options.owner
    }

    /// No code under this lock panics, so a poisoned lock is safe to use.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
