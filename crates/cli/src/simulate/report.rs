//! Output: one JSON object per line for machines, aligned columns and bars for people.

use std::io::Write;

use serde::Serialize;

/// Limit: columns of the longest bar.
const BAR_COLUMNS: f64 = 32.0;

pub(super) fn write_json_lines<T: Serialize>(rows: &[T], out: &mut impl Write) -> anyhow::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *out, row)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Writes lines of equally many cells. The first `words` columns and the last are text, aligned left; those between
/// are numbers, aligned right.
pub(super) fn write_table(lines: &[Vec<String>], words: usize, out: &mut impl Write) -> anyhow::Result<()> {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for line in lines {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let cell = if column < words || column + 1 == columns {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            };
            text.push_str(&cell);
            text.push_str("  ");
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// A bar for `value` where `longest` is the whole width, in eighths of a column.
pub(super) fn bar(value: f64, longest: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (value / longest * BAR_COLUMNS * 8.0).round().max(1.0) as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(1.0, 1.0).chars().count(), 32);
        assert_eq!(bar(1.0, 64.0), "▌");
        assert_eq!(bar(0.0, 1.0), "▏");
    }

    #[test]
    fn numbers_are_aligned_right_and_words_left() {
        let lines = [["a", "1", "x"], ["bb", "22", ""]].map(|line| line.map(str::to_owned).to_vec());
        let mut out = Vec::new();
        write_table(&lines, 1, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a    1  x\nbb  22\n");
    }
}
