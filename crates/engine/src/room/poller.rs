//! Reads the whole room: at once on a signal, and at least every second. Streams of visitors who no longer wait then
//! read their ticket. Every other stream computes its position when its slice is due.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::room::pace::Pace;
use tidegate_store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::broadcast::BroadcastSchedule;
use super::state::{RoomState, Seen};

/// Shortest time between two overviews, however often the room signals.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between two overviews of an empty room.
const IDLE: Duration = Duration::from_secs(5);
/// Time between two attempts on a room that cannot be read.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn poll(state: Arc<RoomState>, stop: CancellationToken) {
    let signal = state.store.signals().of(&state.name);
    let mut pace = Pace::default();
    let mut schedule = BroadcastSchedule::begin(Instant::now());
    let mut failures: u32 = 0;
    loop {
        let notified = signal.update.notified();
        tokio::pin!(notified);
        // Subscribe first, then read: no signal gets lost.
        notified.as_mut().enable();
        let read = state.store.overview(&state.name).await;
        let (now, streams) = (Instant::now(), state.registry.len());
        let turn = schedule.due(now, streams);
        let next = match read {
            Ok(view) => {
                failures = 0;
                pace.look(&view);
                state.note(&view);
                let nobody = streams == 0 && view.waiting() + view.early + view.granted + view.inside == 0;
                let seen = Arc::new(Seen {
                    rates: pace.rates(),
                    lately: pace.lately(),
                    view,
                    read: now,
                });
                // A stream that starts after this compares itself with this view.
                state.show(Some(seen.clone()));
                state.registry.compare(&seen.view);
                match nobody {
                    true => now + IDLE,
                    false => schedule.next(streams).max(now + PAUSE),
                }
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(%error, room = %state.name, "failed to read the room; it admits nobody, and nobody loses a ticket");
                }
                if matches!(error, StoreError::Closed) {
                    return;
                }
                now + AGAIN
            }
        };
        // Also after a failed read: streams use the schedule to show that they are alive.
        state.registry.beat(turn);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
            () = notified => tokio::time::sleep(PAUSE).await,
        }
    }
}
