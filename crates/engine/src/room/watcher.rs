//! Reads the room as a whole: at once when it rings, and at least every second. Whoever no longer waits is told to look;
//! everybody else counts the position when it is their turn.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::room::pace::Pace;
use tidegate_store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::local::{Local, Seen};
use super::turns::Turns;

/// Between two looks, however often it rings.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at a room in which nobody is.
const IDLE: Duration = Duration::from_secs(5);
/// Between two tries to look at a room that cannot be read.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn watch(local: Arc<Local>, stop: CancellationToken) {
    let bell = local.store.bells().of(&local.name);
    let mut pace = Pace::default();
    let mut turns = Turns::begin(Instant::now());
    let mut failures: u32 = 0;
    loop {
        let rang = bell.tell.notified();
        tokio::pin!(rang);
        // Listen first, then look.
        rang.as_mut().enable();
        let read = local.store.survey(&local.name).await;
        let (now, streams) = (Instant::now(), local.registry.len());
        let turn = turns.due(now, streams);
        let next = match read {
            Ok(view) => {
                failures = 0;
                pace.look(&view);
                local.note(&view);
                let nobody = streams == 0 && view.waiting() + view.early + view.granted + view.inside == 0;
                let seen = Arc::new(Seen {
                    rates: pace.rates(),
                    lately: pace.lately(),
                    view,
                    read: now,
                });
                // A stream that begins from here on compares itself with it.
                local.show(Some(seen.clone()));
                local.registry.compare(&seen.view);
                match nobody {
                    true => now + IDLE,
                    false => turns.next(streams).max(now + PAUSE),
                }
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(%error, room = %local.name, "the room cannot be read; nobody is let in, and nobody loses a place");
                }
                if matches!(error, StoreError::Closed) {
                    return;
                }
                now + AGAIN
            }
        };
        // Also when nothing could be read: streams tell by their turns that they live.
        local.registry.beat(turn);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
            () = rang => tokio::time::sleep(PAUSE).await,
        }
    }
}
