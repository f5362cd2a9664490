//! Shows the effective settings to people: hides secrets, and names the source of each setting.

use std::fmt::Write;

use toml::{Table, Value};

use super::{Config, Loaded};

impl Config {
    /// The settings as TOML, with hidden secrets. Settings without a value are absent.
    pub fn shown(&self) -> Table {
        match Value::try_from(self) {
            Ok(Value::Table(table)) => table,
            // Unreachable: every setting serializes to TOML.
            _ => Table::new(),
        }
    }
}

impl Loaded {
    /// A file with the same settings, except for the hidden secrets. A comment names the source of each setting that is not
    /// a default.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        self.section(&mut out, "", "", &self.config.shown());
        out
    }

    /// `at` is the section's name in its header, `path` its name in `from`.
    fn section(&self, out: &mut String, at: &str, path: &str, table: &Table) {
        let below = |at: &str, key: &str| match at {
            "" => key.to_owned(),
            at => format!("{at}.{key}"),
        };
        for (key, value) in table.iter().filter(|(_, value)| !is_section(value)) {
            let source = self.source(&below(path, key));
            let comment = source.map(|source| format!("  # {source}")).unwrap_or_default();
            let _ = writeln!(out, "{} = {value}{comment}", quoted(key));
        }
        for (key, value) in table.iter().filter(|(_, value)| is_section(value)) {
            let (at, path) = (below(at, &quoted(key)), below(path, key));
            let rows = match value {
                Value::Table(table) => vec![(format!("[{at}]"), table)],
                Value::Array(rows) => {
                    let tables = rows.iter().filter_map(Value::as_table);
                    tables.map(|table| (format!("[[{at}]]"), table)).collect()
                }
                _ => Vec::new(),
            };
            for (header, table) in rows {
                // A section of sections only needs no header of its own.
                if table.values().any(|value| !is_section(value)) {
                    let gap = if out.is_empty() { "" } else { "\n" };
                    let _ = writeln!(out, "{gap}{header}");
                }
                self.section(out, &at, &path, table);
            }
        }
    }

    /// The source of a setting, or of the section or list that contains it.
    fn source(&self, path: &str) -> Option<&String> {
        let mut path = path;
        loop {
            if let Some(source) = self.from.get(path) {
                return Some(source);
            }
            path = path.rsplit_once('.')?.0;
        }
    }
}

fn is_section(value: &Value) -> bool {
    match value {
        Value::Table(_) => true,
        Value::Array(rows) => !rows.is_empty() && rows.iter().all(Value::is_table),
        _ => false,
    }
}

/// A key as TOML writes it.
fn quoted(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(plain) {
        return key.to_owned();
    }
    Value::String(key.to_owned()).to_string()
}
