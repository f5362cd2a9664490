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
    loop {
        let rang = bell.promote.notified();
        tokio::pin!(rang);
        rang.as_mut().enable();
        let wait = match turn(&local, &options).await {
            Ok(Turn::Blind { until }) => until.saturating_duration_since(Instant::now()).min(longest),
            Ok(Turn::Over(Stop::More)) => Duration::ZERO,
            Ok(Turn::Over(Stop::Rate { until } | Stop::NotOpen { at: until })) => alarm.wait(until, longest),
            Ok(Turn::Over(_)) => longest,
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::debug!(%error, room = %local.name, "nobody can be let in now");
                local.sight.lose(Instant::now());
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

/// How a turn ended.
enum Turn {
    Over(Stop),
    /// Nobody is let in before that: who stands ahead may be there without having been able to say so.
    Blind {
        until: Instant,
    },
}

/// Ends what time has ended, then lets people in, each in bounded steps. Streams of before an outage, or of before this
/// start, have one round of signs of life before anybody counts as lost; slots come back meanwhile, for their deadlines
/// are their own.
async fn turn(local: &Local, options: &RoomOptions) -> Result<Turn, StoreError> {
    let params = ReapParams {
        max: options.chunk,
        absent: local.sight.sees_absence(local.presence(), Instant::now()),
    };
    for _ in 0..CALLS {
        if !local.store.reap(&local.name, params).await?.more {
            break;
        }
    }
    if let Some(until) = local.sight.blind_until(local.presence(), Instant::now()) {
        let view = local.store.survey(&local.name).await?;
        if view.waiting() + view.early > 0 {
            return Ok(Turn::Blind { until });
        }
        local.sight.nobody_waits();
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
            return Ok(Turn::Over(stop));
        }
    }
    Ok(Turn::Over(Stop::More))
}
