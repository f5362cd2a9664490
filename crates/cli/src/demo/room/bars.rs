//! Progress of the room scene.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::task::JoinHandle;

use super::super::bars::Canvas;
use super::super::report::grouped;
use super::visitor::Stage;
use super::{INSIDE, LATE, PER_SECOND, ROOM, RUSH, SEATS};

/// On standard error, like the bars of the jobs.
#[derive(Debug)]
pub(super) struct Bars {
    stage: Arc<Stage>,
    canvas: Canvas,
    bars: [ProgressBar; 3],
    updates: JoinHandle<()>,
}

impl Bars {
    pub(super) fn show(stage: &Arc<Stage>, url: &str) -> Self {
        eprintln!(
            "A concert has {SEATS} seats; {INSIDE} people may be inside at once, {PER_SECOND} are let in per second. {RUSH} join \
             before the doors open, {LATE} after."
        );
        eprintln!("Join the queue yourself: {url}/rooms/{ROOM}   The operator's page: {url}/#/rooms/{ROOM}");
        let canvas = Canvas::new();
        let bars = [
            canvas.bar(0, "waiting", RUSH + LATE),
            canvas.bar(1, "inside ", INSIDE),
            canvas.bar(1, "bought ", SEATS),
        ];
        bars[0].set_message("the doors are closed");
        for bar in &bars {
            bar.tick();
        }
        let updates = update(stage.clone(), bars.clone(), canvas.every(), canvas.plain);
        Self {
            stage: stage.clone(),
            canvas,
            bars,
            updates: tokio::spawn(updates),
        }
    }

    pub(super) fn opened(&self) {
        self.bars[0].set_message("");
        if self.canvas.plain {
            eprintln!("the doors open");
        }
    }

    pub(super) async fn close(self) {
        self.updates.abort();
        // The task has ended, so no late redraw can overwrite the last positions.
        let _ = self.updates.await;
        draw(&self.stage, &self.bars);
        self.canvas.close(&self.bars);
    }
}

/// Name, value and maximum of each bar.
fn counts(stage: &Stage) -> [(&'static str, u64, u64); 3] {
    let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    [
        ("waiting", count(&stage.waiting), RUSH + LATE),
        ("inside", count(&stage.inside), INSIDE),
        ("bought", count(&stage.bought), SEATS),
    ]
}

fn draw(stage: &Stage, bars: &[ProgressBar; 3]) {
    for (bar, (_, count, _)) in bars.iter().zip(counts(stage)) {
        bar.set_position(count);
    }
    let (disconnected, left) = (
        stage.disconnected.load(Ordering::Relaxed),
        stage.left.load(Ordering::Relaxed),
    );
    if disconnected + left > 0 {
        bars[0].set_message(format!("{disconnected} disconnected, {left} left"));
    }
}

async fn update(stage: Arc<Stage>, bars: [ProgressBar; 3], every: Duration, plain: bool) {
    let mut ticks = tokio::time::interval(every);
    // The first tick is immediate, before there is any progress.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        draw(&stage, &bars);
        if plain {
            for (name, count, all) in counts(&stage) {
                eprintln!("{name}: {} of {}", grouped(count), grouped(all));
            }
        }
    }
}
