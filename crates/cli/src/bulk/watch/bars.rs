//! Progress bars, one per name; none without a terminal.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::table::visible;

/// Limit: characters shown of a name.
const NAME: usize = 24;

#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Bars {
    /// Absent without a terminal.
    all: Option<MultiProgress>,
    headline: Option<ProgressBar>,
    /// In order of appearance.
    bars: Vec<(String, ProgressBar)>,
}

impl Bars {
    pub(crate) fn new(hidden: bool) -> Self {
        let drawn = !hidden && std::io::stderr().is_terminal();
        Self {
            all: drawn.then(MultiProgress::new),
            headline: None,
            bars: Vec::new(),
        }
    }

    /// False without a terminal.
    pub(crate) fn headline(&mut self, text: &str) -> bool {
        let Some(all) = &self.all else { return false };
        let bar = self.headline.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{msg}").expect("a constant template");
            all.insert(0, ProgressBar::new_spinner().with_style(style))
        });
        bar.set_message(text.to_owned());
        bar.tick();
        true
    }

    /// False without a terminal.
    pub(crate) fn show(&mut self, name: &str, state: &Bar) -> bool {
        let Some(all) = &self.all else { return false };
        let found = self.bars.iter().position(|(known, _)| known == name);
        let index = found.unwrap_or_else(|| {
            let look = "{prefix:24} {bar:30} {human_pos:>9} of {human_len:9} {msg}";
            let style = ProgressStyle::with_template(look)
                .expect("a constant template")
                .progress_chars("━╸─");
            let bar = all.add(ProgressBar::new(state.total).with_style(style));
            bar.set_prefix(visible(name).chars().take(NAME).collect::<String>());
            self.bars.push((name.to_owned(), bar));
            self.bars.len() - 1
        });
        let bar = &self.bars[index].1;
        bar.set_length(state.total);
        bar.set_position(state.done);
        bar.set_message(state.text.clone());
        true
    }

    /// Removes the bars of other names.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        if let Some(all) = &self.all {
            self.bars.retain(|(name, bar)| {
                let wanted = wanted(name);
                if !wanted {
                    all.remove(bar);
                }
                wanted
            });
        }
    }

    /// Leaves the bars on the screen.
    pub(crate) fn close(self) {
        for (_, bar) in self.bars {
            bar.abandon();
        }
        if let Some(bar) = self.headline {
            bar.abandon();
        }
    }
}
