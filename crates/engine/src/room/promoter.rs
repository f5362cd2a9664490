//! Lets people in. Every process that has the room does this; the store sees to it that nobody is let in twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::room::command::{PromoteOutcome, ReapParams, Stop};
use tidegate_store::{Clock, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::local::Local;
use super::service::RoomOptions;
use crate::alarm::Alarm;

/// Limit: calls in one turn; other rooms have theirs in between.
const CALLS: usize = 20;

pub(super) async fn promote(
    local: Arc<Local>,
    options: RoomOptions,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let bell = local.store.bells().of(&local.name);
    let mut alarm = Alarm::new(clock);
    let longest = Duration::from(options.sweep_ms);
    // Streams of before an outage, or of before this start, have one round of signs of life before anybody counts as lost.
    // Slots come back meanwhile: their deadlines are their own.
    let mut blind = Instant::now();
    loop {
        let rang = bell.promote.notified();
        tokio::pin!(rang);
        rang.as_mut().enable();
        let turn = turn(&local, &options, blind.elapsed() >= local.presence()).await;
        let wait = match turn {
            Ok(Stop::More) => Duration::ZERO,
            Ok(Stop::Rate { until } | Stop::NotOpen { at: until }) => alarm.wait(until, longest),
            Ok(_) => longest,
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::debug!(%error, room = %local.name, "nobody can be let in now");
                blind = Instant::now();
                longest
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            () = rang => {}
        }
    }
}

/// Ends what time has ended, those who are absent only if so, then lets people in, each in bounded steps.
async fn turn(local: &Local, options: &RoomOptions, absent: bool) -> Result<Stop, StoreError> {
    let params = ReapParams {
        max: options.chunk,
        absent,
    };
    for _ in 0..CALLS {
        if !local.store.reap(&local.name, params).await?.more {
            break;
        }
    }
    for _ in 0..CALLS {
        let begun = Instant::now();
        let promoted = local.store.promote(&local.name, options.chunk).await;
        // One that failed took its time, too.
        local.counters.promotions.observe(begun.elapsed());
        let PromoteOutcome { granted, stop } = promoted?;
        local
            .counters
            .promoted
            .fetch_add(granted.len() as u64, Ordering::Relaxed);
        if stop != Stop::More {
            return Ok(stop);
        }
    }
    Ok(Stop::More)
}
