//! Admits people. Every process that serves the room does this; the store ensures that nobody is admitted twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::clock::Clock;
use tidegate_core::room::command::{PromoteOutcome, ReapParams, Stop};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::service::RoomOptions;
use super::state::RoomState;
use crate::alarm::Alarm;

/// Limit: calls in one turn; other rooms run in between.
const CALLS: usize = 20;

pub(super) async fn promote(
    state: Arc<RoomState>,
    options: RoomOptions,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let signal = state.store.signals().of(&state.name);
    let mut alarm = Alarm::new(clock);
    let longest = Duration::from(options.sweep_ms);
    let mut heard = None;
    loop {
        let notified = signal.promote.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        let wait = match turn(&state, &options, &mut heard).await {
            Ok(Turn::Settling { until }) => until.saturating_duration_since(Instant::now()).min(longest),
            Ok(Turn::Over(Stop::More)) => Duration::ZERO,
            Ok(Turn::Over(Stop::Rate { until } | Stop::NotOpen { at: until })) => alarm.wait(until, longest),
            Ok(Turn::Over(_)) => longest,
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::debug!(%error, room = %state.name, "failed to admit people");
                state.settling.lose(Instant::now());
                longest
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            () = notified => {}
        }
    }
}

/// How a turn ended.
enum Turn {
    Over(Stop),
    /// Nobody is admitted before then: people ahead may be present but unable to report it.
    Settling {
        until: Instant,
    },
}

/// Ends what has expired, then admits people, both in bounded steps. Streams from before an outage or a restart
/// get one round of heartbeats before anybody counts as lost. Slots still expire meanwhile, because their deadlines
/// do not depend on heartbeats.
///
/// `heard` is the store's time at the last response. If it has advanced by more than heartbeats allow, then this
/// process, its machine or the store was frozen. Nobody could report presence then, although no call failed.
async fn turn(
    state: &RoomState,
    options: &RoomOptions,
    heard: &mut Option<Timestamp>,
) -> Result<Turn, StoreError> {
    let mut more = true;
    for _ in 0..CALLS {
        let still = Duration::from(options.sweep_ms) + state.presence() / 3;
        let in_time = heard.map(|heard| heard + Millis(still.as_millis() as u64));
        let sees_absence = state.settling.sees_absence(state.presence(), Instant::now());
        let params = ReapParams {
            max: options.chunk,
            absent_by: in_time.filter(|_| sees_absence),
        };
        let reaped = state.store.reap(&state.name, params).await?;
        *heard = Some(reaped.now);
        if in_time.is_some_and(|in_time| reaped.now > in_time) {
            tracing::warn!(room = %state.name, "time passed without heartbeats; waiting people get time for one");
            state.settling.lose(Instant::now());
        }
        more = reaped.more;
        if !more {
            break;
        }
    }
    if let Some(until) = state.settling.settling_until(state.presence(), Instant::now()) {
        let view = state.store.overview(&state.name).await?;
        if view.waiting() + view.early > 0 {
            return Ok(if more {
                Turn::Over(Stop::More)
            } else {
                Turn::Settling { until }
            });
        }
        state.settling.nobody_waits();
    }
    for _ in 0..CALLS {
        let begun = Instant::now();
        let promoted = state.store.promote(&state.name, options.chunk).await;
        // A failed call takes time, too.
        state.counters.promotions.observe(begun.elapsed());
        let PromoteOutcome { granted, stop } = promoted?;
        state
            .counters
            .promoted
            .fetch_add(granted.len() as u64, Ordering::Relaxed);
        if stop != Stop::More {
            // Expired slots free capacity, so take another turn at once.
            return Ok(Turn::Over(if more { Stop::More } else { stop }));
        }
    }
    Ok(Turn::Over(Stop::More))
}
