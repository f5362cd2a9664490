//! Heartbeats: the store hears of every stream of this process, and of those that have ended; and streams of this
//! process hear of newer ones elsewhere.

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
/// Of a call that failed: the next round is the next try, and this one before it.
const AGAIN: Duration = Duration::from_millis(500);

/// Tells that streams are alive, a third of the time that counts apart.
pub(super) async fn keep(state: Arc<RoomState>, stop: CancellationToken) {
    loop {
        let wait = match round(&state).await {
            Ok(()) => state.presence() / 3,
            Err(error) => {
                tracing::debug!(%error, room = %state.name, "heartbeats do not get through");
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

/// Heartbeats of all streams, those first who stand first.
async fn round(state: &RoomState) -> Result<(), StoreError> {
    let begun = Instant::now();
    for people in state.registry.in_line().chunks(BATCH) {
        // As it is by now: some may have gone since the round began, and that was told already.
        let batch = state.registry.touches(people);
        let outcomes = state.store.touch(&state.name, batch.clone()).await?;
        for (touch, outcome) in batch.iter().zip(outcomes) {
            state.registry.touched(touch, outcome);
        }
    }
    state.settling.told(begun);
    Ok(())
}

/// Tells that streams have ended, as they do. At a stop, those that end within a moment as well.
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
        // What does not get through is said by the heartbeats that do not come.
        if let Err(error) = state.store.touch(&state.name, std::mem::take(&mut batch)).await {
            tracing::debug!(%error, room = %state.name, "ends of streams do not get through");
        }
    }
}

/// Tells streams that another one took over, in whichever process that is. A notice that is missed is told by the store's
/// answer to the next heartbeat.
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
