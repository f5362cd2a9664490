//! Progress of the scenes: bars on a terminal, otherwise a line every few seconds. The bars of the bulk scene.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinHandle;

use super::{Scene, colours, report};

const REDRAW: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Where bars are drawn, and how.
#[derive(Debug)]
pub(super) struct Canvas {
    all: MultiProgress,
    looks: [&'static str; 2],
    /// No terminal: lines instead of bars.
    pub(super) plain: bool,
}

impl Canvas {
    pub(super) fn new() -> Self {
        let stderr = std::io::stderr();
        let plain = !std::io::IsTerminal::is_terminal(&stderr);
        let target = if plain {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let looks = if colours(&stderr) {
            [
                "{prefix:.bold} {bar:44.cyan/black.bright} {human_pos:>7} of {human_len:7} {msg}",
                "{prefix:.bold} {bar:44.green/black.bright} {human_pos:>7} of {human_len:7} {msg}",
            ]
        } else {
            ["{prefix} {bar:44} {human_pos:>7} of {human_len:7} {msg}"; 2]
        };
        Self {
            all: MultiProgress::with_draw_target(target),
            looks,
            plain,
        }
    }

    /// Adds a bar below the others; `look` is 0 for a large customer, 1 for a small one.
    pub(super) fn bar(&self, look: usize, name: &'static str, length: u64) -> ProgressBar {
        let style = ProgressStyle::with_template(self.looks[look])
            .expect("a constant template")
            .progress_chars("━╸─");
        let bar = self.all.add(ProgressBar::new(length));
        bar.set_style(style);
        bar.set_prefix(name);
        bar
    }

    /// Time between two updates.
    pub(super) fn every(&self) -> Duration {
        if self.plain { LINE_EVERY } else { REDRAW }
    }

    /// Leaves the bars on the screen.
    pub(super) fn close(&self, bars: &[ProgressBar]) {
        for bar in bars {
            bar.abandon();
        }
        if !self.plain {
            // Ends the last bar's line.
            eprintln!();
        }
        eprintln!();
    }
}

/// Bars on standard error, so that the figures can be piped on their own.
#[derive(Debug)]
pub(super) struct Bars {
    scene: Arc<Scene>,
    canvas: Canvas,
    bars: Vec<ProgressBar>,
    updates: JoinHandle<()>,
}

impl Bars {
    pub(super) fn show(scene: &Arc<Scene>, rate: f64) -> Self {
        let canvas = Canvas::new();
        let jobs: Vec<String> = scene.jobs.iter().map(|&jobs| report::grouped(jobs)).collect();
        eprintln!(
            "Customers A, B and C with {}, {} and {} jobs share {} starts per second.",
            jobs[0],
            jobs[1],
            jobs[2],
            report::grouped(rate as u64)
        );
        let bars: Vec<ProgressBar> = (0..scene.names.len())
            .map(|customer| {
                let look = usize::from(customer > 0);
                let bar = canvas.bar(look, scene.names[customer], scene.jobs[customer]);
                bar.set_message(if customer == 0 {
                    "submitting"
                } else {
                    "submits later"
                });
                bar
            })
            .collect();
        for bar in &bars {
            bar.tick();
        }
        let updates = update(scene.clone(), bars.clone(), canvas.every(), canvas.plain);
        Self {
            scene: scene.clone(),
            canvas,
            bars,
            updates: tokio::spawn(updates),
        }
    }

    /// A is accepted; B and C submit.
    pub(super) fn accepted(&self) {
        self.bars[0].set_message("accepted, running");
        for bar in &self.bars[1..] {
            bar.set_message("submitting");
        }
    }

    pub(super) fn finished(&self, customer: usize, took: Duration) {
        let text = format!("done in {:.2} s", took.as_secs_f64());
        if self.canvas.plain {
            eprintln!("{}: {text}", self.scene.names[customer]);
        }
        let bar = &self.bars[customer];
        bar.set_position(self.scene.jobs[customer]);
        bar.set_message(text);
    }

    pub(super) async fn close(self) {
        self.updates.abort();
        // The task has ended, so no late redraw can overwrite the last positions.
        let _ = self.updates.await;
        self.canvas.close(&self.bars);
    }
}

async fn update(scene: Arc<Scene>, bars: Vec<ProgressBar>, every: Duration, plain: bool) {
    let mut ticks = tokio::time::interval(every);
    // The first tick is immediate, before there is any progress.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        for (customer, bar) in bars.iter().enumerate() {
            let (done, jobs) = (scene.done[customer].load(Ordering::Relaxed), scene.jobs[customer]);
            bar.set_position(done);
            // A finished customer has had its last line.
            if plain && done < jobs {
                let name = scene.names[customer];
                eprintln!("{name}: {} of {}", report::grouped(done), report::grouped(jobs));
            }
        }
    }
}
