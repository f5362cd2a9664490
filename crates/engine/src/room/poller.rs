//! Reads the room as a whole: at once when it signals, and at least every second. Whoever no longer waits is told to look;
//! everybody else counts the position when it is their turn.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::room::pace::Pace;
use tidegate_store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::broadcast::BroadcastSchedule;
use super::state::{RoomState, Seen};

/// Between two looks, however often it signals.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at a room in which nobody is.
const IDLE: Duration = Duration::from_secs(5);
/// Between two tries to look at a room that cannot be read.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn poll(state: Arc<RoomState>, stop: CancellationToken) {
    let signal = state.store.signals().of(&state.name);
    let mut pace = Pace::default();
    let mut schedule = BroadcastSchedule::begin(Instant::now());
    let mut failures: u32 = 0;
    loop {
        let notified = signal.tell.notified();
        tokio::pin!(notified);
        // Listen first, then look.
        notified.as_mut().enable();
        let read = state.store.survey(&state.name).await;
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
                // A stream that begins from here on compares itself with it.
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
                    tracing::warn!(%error, room = %state.name, "the room cannot be read; nobody is let in, and nobody loses a place");
                }
                if matches!(error, StoreError::Closed) {
                    return;
                }
                now + AGAIN
            }
        };
        // Also when nothing could be read: streams tell by their schedule that they live.
        state.registry.beat(turn);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
            () = notified => tokio::time::sleep(PAUSE).await,
        }
    }
}
