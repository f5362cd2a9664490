//! Progress of the refresh scene.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use tidegate_engine::refresh::RefreshHandle;
use tokio::task::JoinHandle;

use super::super::bars::Canvas;
use super::super::report::grouped;
use super::{FLOOD, LIMIT, USERS};

/// On standard error, like the bars of the jobs.
#[derive(Debug)]
pub(super) struct Bars {
    canvas: Canvas,
    bars: [ProgressBar; 2],
    updates: JoinHandle<()>,
}

impl Bars {
    /// `done` counts users whose record is fresh; the service counts prefetched records.
    pub(super) fn show(done: &Arc<AtomicU64>, handle: &RefreshHandle) -> Self {
        eprintln!(
            "A provider allows {LIMIT} calls per second. Tidegate prefetches {} stale records, while {USERS} users read \
             theirs.",
            grouped(FLOOD)
        );
        let canvas = Canvas::new();
        let bars = [canvas.bar(1, "HIGH", USERS), canvas.bar(0, "LOW ", FLOOD)];
        bars[0].set_message("users' records fresh");
        bars[1].set_message("prefetched");
        for bar in &bars {
            bar.tick();
        }
        let seen = (done.clone(), handle.clone());
        let updates = update(seen, bars.clone(), canvas.every(), canvas.plain);
        Self {
            canvas,
            bars,
            updates: tokio::spawn(updates),
        }
    }

    pub(super) async fn close(self, high: u64, low: u64) {
        self.updates.abort();
        // The task has ended, so no late redraw can overwrite the last positions.
        let _ = self.updates.await;
        self.bars[0].set_position(high);
        self.bars[1].set_position(low);
        self.canvas.close(&self.bars);
    }
}

async fn update(
    (done, handle): (Arc<AtomicU64>, RefreshHandle),
    bars: [ProgressBar; 2],
    every: Duration,
    plain: bool,
) {
    let mut ticks = tokio::time::interval(every);
    // The first tick is immediate, before there is any progress.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let low = handle.counters().settled.low.min(FLOOD);
        for (name, bar, at, all) in [
            ("HIGH", &bars[0], done.load(Ordering::Relaxed), USERS),
            ("LOW", &bars[1], low, FLOOD),
        ] {
            bar.set_position(at);
            if plain {
                eprintln!("{name}: {} of {}", grouped(at), grouped(all));
            }
        }
    }
}
