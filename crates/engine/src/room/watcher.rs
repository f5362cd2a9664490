//! Reads the room as a whole: at once when it rings, and at least every second. Whoever no longer waits is told to look;
//! everybody else counts the position, once a second.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::room::pace::Pace;
use tidegate_store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::local::{Local, Seen};

/// Between two looks, however often it rings.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two times that everybody counts the position.
const SECOND: Duration = Duration::from_secs(1);
/// Between two looks at a room in which nobody is.
const IDLE: Duration = Duration::from_secs(5);

pub(super) async fn watch(local: Arc<Local>, stop: CancellationToken) {
    let bell = local.store.bells().of(&local.name);
    let (mut pace, mut shown) = (Pace::default(), None::<Instant>);
    let mut failures: u32 = 0;
    loop {
        let rang = bell.tell.notified();
        tokio::pin!(rang);
        // Listen first, then look.
        rang.as_mut().enable();
        let wait = match local.store.survey(&local.name).await {
            Ok(view) => {
                failures = 0;
                pace.look(&view);
                local.note(&view);
                let idle = view.waiting() + view.early + view.granted + view.inside == 0;
                let seen = Arc::new(Seen {
                    rates: pace.rates(),
                    lately: pace.lately(),
                    view,
                    read: Instant::now(),
                });
                let due = shown.is_none_or(|shown| shown.elapsed() >= SECOND);
                // Without waking anybody: whoever asks finds the latest. A stream that begins from here on compares itself with it.
                local.seen.send_if_modified(|held| {
                    *held = Some(seen.clone());
                    false
                });
                // Those who were let in come first; streams count once a second.
                local.registry.compare(&seen.view);
                if due {
                    local.seen.send_modify(|_| {});
                    shown = Some(Instant::now());
                }
                match idle {
                    true => IDLE,
                    false => shown.map_or(SECOND, |shown| SECOND.saturating_sub(shown.elapsed())),
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
                SECOND
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait.max(PAUSE)) => {}
            () = rang => tokio::time::sleep(PAUSE).await,
        }
    }
}
