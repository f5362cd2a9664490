//! Requests the records whose retry is due, each with a new version.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::priority::Priority;
use tidegate_core::refresh::event::Reason;
use tidegate_core::time::Millis;
use tidegate_snapshots::{Retry, SnapshotsError};
use tokio_util::sync::CancellationToken;

use crate::refresh::publish::events::decode;
use crate::refresh::publish::publisher::{Ask, BATCH, PublishWorker};
use crate::refresh::shared::{Shared, record_id};

/// How long this process claims a record. If its request fails, the retry is due again after that.
const CLAIM: Millis = Millis(60_000);

pub(crate) async fn run(shared: Arc<Shared>, publish_worker: Arc<PublishWorker>, stop: CancellationToken) {
    let every = Duration::from(shared.options.watch.retry_every_ms);
    while !stop.is_cancelled() {
        let more = match take_up(&shared, &publish_worker).await {
            Ok(taken) => taken >= shared.options.watch.retry_batch as usize,
            Err(error) => {
                tracing::warn!(%error, "failed to claim due retries");
                false
            }
        };
        if more {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = stop.cancelled() => {}
        }
    }
}

async fn take_up(shared: &Shared, publish_worker: &PublishWorker) -> Result<usize, SnapshotsError> {
    let now = shared.now();
    let max = shared.options.watch.retry_batch;
    let due = shared
        .options
        .snapshots
        .claim_retries(now, now + CLAIM, max)
        .await?;
    let asks: Vec<Ask> = due.iter().map(|retry| ask(shared, retry)).collect();
    for asks in asks.chunks(BATCH) {
        let outcomes = publish_worker.carry_out(asks.to_vec()).await;
        let queued = outcomes.iter().filter(|outcome| outcome.is_queued()).count() as u64;
        shared.counters.due_retries.add(queued);
    }
    Ok(due.len())
}

fn ask(shared: &Shared, retry: &Retry) -> Ask {
    let event = retry.status.event.as_ref().and_then(|event| decode(event).ok());
    Ask {
        record: record_id(&retry.record),
        params: event
            .as_ref()
            .map(|event| event.params.clone())
            .unwrap_or_default(),
        priority: event.as_ref().map_or(Priority::Low, |event| event.priority),
        reason: Reason::Retry,
        // The version must exceed the failed one, and so the snapshot's, whatever the store remembers. Earlier
        // settlements do not matter: they did not end the status.
        snapshot_version: Some(retry.status.version),
        read_at: shared.now(),
        correlation: event.map(|event| event.correlation_id),
    }
}
