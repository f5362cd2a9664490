//! Heartbeats: reports every live and every ended stream of this process to the store, and notifies streams here
//! when a newer one elsewhere supersedes them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::room::command::TouchParams;
use tidegate_store::StoreError;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::state::RoomState;

/// Limit: streams in one call.
const BATCH: usize = 256;
/// Pause after a failed round; the next round is the retry.
const AGAIN: Duration = Duration::from_millis(500);

/// Sends a heartbeat for every stream, three times per presence period.
pub(super) async fn keep(state: Arc<RoomState>, stop: CancellationToken) {
    loop {
        let wait = match round(&state).await {
            Ok(()) => state.presence() / 3,
            Err(error) => {
                tracing::debug!(%error, room = %state.name, "failed to send heartbeats");
                state.settling.lose(Instant::now());
                AGAIN
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Sends the heartbeats of all streams, the head of the queue first.
async fn round(state: &RoomState) -> Result<(), StoreError> {
    let begun = Instant::now();
    for people in state.registry.in_queue_order().chunks(BATCH) {
        // Read the registry again: a stream may have ended since the round began, and its end is already reported.
        let batch = state.registry.touches(people);
        let outcomes = state.store.touch(&state.name, batch.clone()).await?;
        for (touch, outcome) in batch.iter().zip(outcomes) {
            state.registry.touched(touch, outcome);
        }
    }
    state.settling.heartbeats_sent(begun);
    Ok(())
}

/// Reports streams as they end. On shutdown, also those that end within a moment.
pub(super) async fn ends(
    state: Arc<RoomState>,
    mut ended: mpsc::Receiver<TouchParams>,
    stop: CancellationToken,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let count = tokio::select! {
            biased;
            count = ended.recv_many(&mut batch, BATCH) => count,
            () = stop.cancelled() => {
                while let Ok(touch) = ended.try_recv() {
                    batch.push(touch);
                }
                let _ = state.store.touch(&state.name, std::mem::take(&mut batch)).await;
                return;
            }
        };
        if count == 0 {
            return;
        }
        // If the report fails, the missing heartbeats say the same later.
        if let Err(error) = state.store.touch(&state.name, std::mem::take(&mut batch)).await {
            tracing::debug!(%error, room = %state.name, "failed to report ended streams");
        }
    }
}

/// Notifies streams that a newer one superseded them, in whichever process that is. If this process misses a
/// notice, the store's reply to the next heartbeat reports it.
pub(super) async fn taken_over(state: Arc<RoomState>, stop: CancellationToken) {
    let mut notices = state.store.signals().of(&state.name).taken_over.subscribe();
    loop {
        let heard = tokio::select! {
            heard = notices.recv() => heard,
            () = stop.cancelled() => return,
        };
        match heard {
            Ok(notice) => state.registry.taken_over(&notice),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
