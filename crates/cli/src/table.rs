//! Plain text in columns. Control characters in users' names are escaped, so that they cannot move the cursor.

use std::fmt::Write;

use serde::Serialize;
use tidegate_client::{Estimate, NoEstimate};

/// Rows below a header. A head that begins with `>` aligns its column right.
#[derive(Debug)]
pub(super) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: &[&'static str]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows.push(cells.iter().map(|cell| visible(cell)).collect());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn text(&self) -> String {
        let heads: Vec<&str> = self
            .heads
            .iter()
            .map(|head| head.trim_start_matches('>'))
            .collect();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(heads[column].chars().count())
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let heads: Vec<String> = heads.into_iter().map(str::to_owned).collect();
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), head) in row.iter().zip(&widths).zip(&self.heads) {
                let written = if head.starts_with('>') {
                    write!(line, "{cell:>width$}  ")
                } else {
                    write!(line, "{cell:<width$}  ")
                };
                written.expect("text takes any text");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Names and values, one pair per line; pairs without a value are left out.
pub(super) fn details(lines: &[(&str, String)]) -> String {
    let lines = lines.iter().filter(|(_, value)| !value.is_empty());
    let width = lines.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in lines {
        writeln!(text, "{name:<width$}  {}", visible(value)).expect("text takes any text");
    }
    text
}

/// The text with control characters escaped.
pub(super) fn visible(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let shown = |char: char| {
        if char.is_control() {
            char.escape_default().to_string()
        } else {
            char.to_string()
        }
    };
    text.chars().map(shown).collect()
}

/// An enum value as the API writes it, or nothing.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The value as text, or nothing.
pub(super) fn maybe<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Whole numbers without decimals, others with two.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// A duration in its two largest units.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// An estimate as a range, or why there is none.
pub(super) fn range(estimate: &Estimate) -> String {
    match (estimate.range(), estimate.unknown) {
        (Some((earliest, latest)), _) if earliest == latest => span(latest),
        (Some((0, latest)), _) => format!("up to {}", span(latest)),
        (Some((earliest, latest)), _) if latest < 60 => format!("{earliest} to {latest} s"),
        (Some((earliest, latest)), _) => format!("{} to {}", span(earliest), span(latest)),
        (None, Some(NoEstimate::Paused)) => "paused".to_owned(),
        (None, Some(NoEstimate::NoWorker)) => "unknown: no worker has asked lately".to_owned(),
        (None, _) => "unknown: too few jobs have started".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_names_cannot_move_the_cursor() {
        let mut table = Table::new(&["GROUP", ">JOBS", "STATE"]);
        table.row(vec!["A".into(), "7".into(), "active".into()]);
        table.row(vec!["\u{1b}[2Jé".into(), "12345".into(), String::new()]);
        assert_eq!(
            table.text(),
            "GROUP        JOBS  STATE\nA               7  active\n\\u{1b}[2Jé  12345\n"
        );
        assert_eq!(
            details(&[
                ("a", "1".into()),
                ("none", String::new()),
                ("long", "x\ny".into())
            ]),
            "a     1\nlong  x\\ny\n"
        );
    }

    #[test]
    fn spans_and_numbers_are_short() {
        assert_eq!(span(59), "59 s");
        assert_eq!(span(61), "1 min 01 s");
        assert_eq!(span(7_260), "2 h 01 min");
        assert_eq!(span(90_000), "1 d 01 h");
        let within = |earliest, latest| {
            range(&Estimate {
                earliest_seconds: Some(earliest),
                latest_seconds: Some(latest),
                unknown: None,
            })
        };
        assert_eq!(within(0, 3), "up to 3 s");
        assert_eq!(within(38, 46), "38 to 46 s");
        assert_eq!(within(58, 65), "58 s to 1 min 05 s");
        let nobody = Estimate {
            unknown: Some(NoEstimate::NoWorker),
            ..Estimate::default()
        };
        assert_eq!(range(&nobody), "unknown: no worker has asked lately");
        assert_eq!((number(10.0), number(0.5)), ("10".into(), "0.50".into()));
    }
}
