//! Reads the settings: defaults, then one TOML file, then the environment, then flags. The later source wins.
//!
//! Environment: `REDIS_HOST` and `REDIS_PORT`, then `TIDEGATE__SECTION__FIELD=value`. Two underscores separate levels. Sections
//! and fields may have any case; names of targets, queues, job types and callbacks keep theirs. A value that is not TOML is a
//! string. Every error names the line, the variable or the flag that it comes from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_core::clock::{Clock, SystemClock};
use toml::{Table, Value};

use super::{Config, ConfigError};

/// The default file, if it is in the working directory and no other file is named.
pub const FILE: &str = "tidegate.toml";

const PREFIX: &str = "TIDEGATE__";
/// Sections whose second level is a name that users choose.
const NAMED: &[&str] = &[
    "job_types",
    "queues",
    "targets",
    "callbacks",
    "budgets",
    "sources",
    "rooms",
];

/// A setting from the command line.
#[derive(Clone, PartialEq, Eq)]
pub struct Flag {
    /// The name of the flag, like `--listen`.
    pub flag: String,
    /// The setting, like `server.listen`. Names with characters other than letters, digits, `-` and `_` are in quotes.
    pub key: String,
    pub value: String,
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a secret.
        f.debug_tuple("Flag").field(&self.flag).field(&self.key).finish()
    }
}

/// The sources of the settings. Later ones override earlier ones.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file to read; it must exist.
    pub file: Option<PathBuf>,
    /// The folder of [`FILE`], which applies if no file is named.
    pub folder: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    pub flags: Vec<Flag>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold secrets.
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// Valid settings, and the source of each.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// The file that the settings were read from.
    pub file: Option<PathBuf>,
    /// The source of every setting that is not a default, by names like `server.listen`.
    pub from: BTreeMap<String, String>,
}

/// Reads all sources, and validates the result.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let file = match &sources.file {
        Some(file) => Some(file.clone()),
        None => Some(sources.folder.join(FILE)).filter(|file| file.is_file()),
    };
    let mut merged = Merged::default();
    if let Some(file) = &file {
        merged.file(file)?;
    }
    for setting in environment(&sources.env)? {
        merged.put(setting)?;
    }
    for flag in &sources.flags {
        merged.put(setting_of(flag)?)?;
    }
    let config = merged.config()?;
    config.validate()?;
    config.validate_at(SystemClock.now())?;
    Ok(Loaded {
        config,
        file,
        from: merged.from,
    })
}

/// One setting of the environment or the command line.
struct Setting {
    /// The variable or the flag.
    source: String,
    path: Vec<String>,
    value: String,
}

/// The settings of all sources so far.
#[derive(Default)]
struct Merged {
    table: Table,
    from: BTreeMap<String, String>,
    /// What is wrong with the table, and the error to report. It waits until the end, because a later source may complete
    /// an earlier one.
    wrong: Option<(Wrong, ConfigError)>,
}

impl Merged {
    fn file(&mut self, file: &Path) -> Result<(), ConfigError> {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| ConfigError(format!("{shown}: {error}")))?;
        let located = |error: toml::de::Error| {
            let line = error
                .span()
                .map(|span| 1 + text[..span.start].matches('\n').count());
            let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
            ConfigError(format!("{shown}{line}: {}", Wrong::new(error)))
        };
        self.table = toml::from_str(&text).map_err(located)?;
        // Parsed again from the text, because the table has no line numbers.
        let error = toml::from_str::<Config>(&text).err().map(located);
        self.wrong = wrong_with(&self.table).zip(error);
        leaves(&self.table, &[], &mut |path| {
            self.from.insert(path.join("."), shown.clone());
        });
        Ok(())
    }

    fn put(&mut self, setting: Setting) -> Result<(), ConfigError> {
        let Setting { source, path, value } = setting;
        let refused = |detail| ConfigError(format!("{source}: {detail}"));
        let text = Value::String(value.clone());
        let mut value = parsed(&value).unwrap_or_else(|| text.clone());
        let mut changed = self.table.clone();
        merge(&mut changed, &path, value.clone()).map_err(refused)?;
        let before = self.wrong.as_ref().map(|(wrong, _)| wrong);
        let mut after = wrong_with(&changed);
        // A value like a password of digits only is TOML, but the setting may need a string.
        if after.is_some() && after.as_ref() != before {
            let mut with_text = self.table.clone();
            merge(&mut with_text, &path, text.clone()).map_err(refused)?;
            if wrong_with(&with_text).as_ref() == before {
                (changed, after, value) = (with_text, before.cloned(), text);
            }
        }
        if after.as_ref() != before {
            self.wrong = after.map(|wrong| {
                let error = ConfigError(format!("{source}: {wrong}"));
                (wrong, error)
            });
        }
        self.table = changed;
        let mut name = |path: &[String]| {
            let path = path.join(".");
            self.from
                .retain(|known, _| !known.starts_with(&format!("{path}.")));
            self.from.insert(path, source.clone());
        };
        match value {
            Value::Table(table) => leaves(&table, &path, &mut name),
            _ => name(&path),
        }
        Ok(())
    }

    fn config(&self) -> Result<Config, ConfigError> {
        match &self.wrong {
            Some((_, error)) => Err(error.clone()),
            None => Config::deserialize(self.table.clone())
                .map_err(|error| ConfigError(Wrong::new(error).to_string())),
        }
    }
}

/// Why a table is invalid. It does not contain the text of the source, which may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrong {
    message: String,
    /// The section or the field.
    at: String,
}

impl Wrong {
    fn new(mut error: toml::de::Error) -> Self {
        // An error shows the path only without its input.
        error.set_input(None);
        let text = error.to_string();
        let at = text.trim_end().rsplit_once("\nin `").map_or("", |(_, at)| at);
        let message = error.message().trim_end().replace('\n', ", ");
        // A string of the wrong type is left out, because it may be a URL with a password.
        let around = message.split_once("string \"").and_then(|(before, rest)| {
            let (_, after) = rest.rsplit_once("\", expected ")?;
            Some(format!("{before}string, expected {after}"))
        });
        Self {
            message: around.unwrap_or(message),
            at: at.trim_end_matches('`').to_owned(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, at } = self;
        let Some(rest) = message.strip_prefix("unknown field `") else {
            let colon = if at.is_empty() { "" } else { ": " };
            return write!(f, "{at}{colon}{message}");
        };
        let (unknown, expected) = rest.split_once('`').unwrap_or((rest, ""));
        write!(f, "unknown field `{unknown}`")?;
        if !at.is_empty() {
            write!(f, " in [{at}]")?;
        }
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        match closest(unknown, &known) {
            Some(close) => write!(f, "; did you mean `{close}`?"),
            None => write!(f, "; known fields are {}", known.join(", ")),
        }
    }
}

fn closest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let unknown = unknown.to_lowercase().replace('-', "_");
    let rated = known.iter().map(|known| {
        // Ignores underscores, so that camelCase names match their snake_case form.
        let folded =
            strsim::normalized_damerau_levenshtein(&unknown.replace('_', ""), &known.replace('_', ""));
        (folded, *known)
    });
    let best = rated.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 > 0.6).then_some(best.1)
}

fn wrong_with(table: &Table) -> Option<Wrong> {
    Config::deserialize(table.clone()).err().map(Wrong::new)
}

/// Parses a TOML value.
fn parsed(value: &str) -> Option<Value> {
    let mut table: Table = toml::from_str(&format!("value = {value}")).ok()?;
    let value = table.remove("value")?;
    // A text with line ends may parse as more settings than the one value.
    table.is_empty().then_some(value)
}

/// Sets the setting that `path` names. Merges tables, and replaces everything else.
fn merge(table: &mut Table, path: &[String], value: Value) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        return Err("the name of the setting is empty; name one, like server.listen".into());
    };
    if rest.is_empty() {
        match (table.get_mut(first), value) {
            (Some(Value::Table(known)), Value::Table(more)) => {
                for (key, value) in more {
                    merge(known, &[key], value)?;
                }
            }
            (_, value) => {
                table.insert(first.clone(), value);
            }
        }
        return Ok(());
    }
    let below = table
        .entry(first.clone())
        .or_insert_with(|| Value::Table(Table::new()));
    match below {
        Value::Table(below) => merge(below, rest, value),
        _ => Err(format!(
            "`{first}` is not a section, so it cannot have a field `{}`",
            rest.join(".")
        )),
    }
}

fn leaves(table: &Table, at: &[String], each: &mut impl FnMut(&[String])) {
    for (key, value) in table {
        let path = [at, std::slice::from_ref(key)].concat();
        match value {
            Value::Table(below) => leaves(below, &path, each),
            _ => each(&path),
        }
    }
}

fn environment(env: &[(OsString, OsString)]) -> Result<Vec<Setting>, ConfigError> {
    let mut settings = Vec::new();
    for (variable, field) in [("REDIS_HOST", "host"), ("REDIS_PORT", "port")] {
        let Some((_, value)) = env.iter().find(|(name, _)| name == variable) else {
            continue;
        };
        let value = text(variable, value)?;
        // Kubernetes sets REDIS_PORT=tcp://10.0.0.1:6379 for every service named redis.
        if value.is_empty() || value.starts_with("tcp://") {
            continue;
        }
        settings.push(Setting {
            source: variable.into(),
            path: vec!["redis".into(), field.into()],
            value,
        });
    }
    let ours = env.iter().filter_map(|(name, value)| {
        let name = name.to_str()?;
        Some((name, name.strip_prefix(PREFIX)?, value))
    });
    // Sorted, so that a section comes before its fields and the result is deterministic.
    let ours: BTreeMap<_, _> = ours.map(|(name, path, value)| (name, (path, value))).collect();
    for (name, (path, value)) in ours {
        settings.push(Setting {
            source: name.into(),
            path: path_of(path),
            value: text(name, value)?,
        });
    }
    Ok(settings)
}

fn text(variable: &str, value: &OsString) -> Result<String, ConfigError> {
    let text = value.to_str().map(str::to_owned);
    text.ok_or_else(|| ConfigError(format!("{variable}: the value is not valid UTF-8; it must be")))
}

/// Splits the name of a variable into a path. Names that users choose and headers keep their case; the rest is lower-cased.
fn path_of(variable: &str) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for (level, part) in variable.split("__").enumerate() {
        let named = path
            .first()
            .is_some_and(|section| NAMED.contains(&section.as_str()));
        let verbatim = named && (level == 1 || level >= 3);
        path.push(if verbatim {
            part.into()
        } else {
            part.to_lowercase()
        });
    }
    path
}

fn setting_of(flag: &Flag) -> Result<Setting, ConfigError> {
    let Flag { flag, key, value } = flag;
    let bad = || {
        ConfigError(format!(
            "{flag}: {key:?} is not the name of a setting; it must be like server.listen"
        ))
    };
    // TOML's own rules for keys: `targets."a.b".url` has three levels.
    let mut table: Table = toml::from_str(&format!("{key} = 0")).map_err(|_| bad())?;
    let mut path = Vec::new();
    loop {
        let mut entries = std::mem::take(&mut table).into_iter();
        let (Some((part, below)), None) = (entries.next(), entries.next()) else {
            return Err(bad());
        };
        path.push(part);
        match below {
            Value::Table(below) => table = below,
            _ => break,
        }
    }
    Ok(Setting {
        source: flag.clone(),
        path,
        value: value.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LogConfig, LogFormat};

    fn read(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, String> {
        let folder = tempfile::tempdir().unwrap();
        if !file.is_empty() {
            std::fs::write(folder.path().join(FILE), file).unwrap();
        }
        let sources = Sources {
            file: None,
            folder: folder.path().into(),
            env: env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            flags: flags
                .iter()
                .map(|(key, value)| Flag {
                    flag: "--set".into(),
                    key: (*key).into(),
                    value: (*value).into(),
                })
                .collect(),
        };
        let shown = format!("{}/", folder.path().display());
        load(&sources).map_err(|error| error.to_string().replace(&shown, ""))
    }

    #[test]
    fn later_sources_win_and_leave_other_settings_alone() {
        let file = "[backpressure]\nglobal_rps = 1\nstrict_share = true\n[server]\nhosts = [\"a\"]\n\
                    [targets.Mail]\nurl = \"http://a/\"\ntypes = [\"SEND\"]";
        let env = [
            ("TIDEGATE__BACKPRESSURE__GLOBAL_RPS", "2"),
            ("TIDEGATE__Server__Listen", "127.0.0.1:1"),
            ("TIDEGATE__TARGETS__Mail__CONCURRENCY", "3"),
            ("TIDEGATE__TARGETS__Mail__HEADERS__X-Token", "12345"),
            ("TIDEGATE__SERVER__HOSTS", "['b', 'c']"),
            ("TIDEGATE__LOG", "{format = 'json'}"),
            ("REDIS_HOST", "redis.local"),
            ("REDIS_PORT", "7000"),
            ("TIDEGATE_LOG", "not a setting"),
        ];
        let loaded = read(
            file,
            &env,
            &[("backpressure.global_rps", "3"), ("targets.\"Mail\".rate", "4")],
        )
        .unwrap();
        let config = &loaded.config;
        assert_eq!(config.backpressure.global_rps, 3.0.into());
        assert!(config.backpressure.strict_share);
        assert_eq!(config.backpressure.ready_queue_max_size, 10_000);
        assert_eq!(config.server.listen.port(), 1);
        assert_eq!(config.server.hosts, ["b", "c"]);
        assert_eq!(config.log.filter, LogConfig::default().filter);
        assert_eq!(config.log.format, LogFormat::Json);
        assert_eq!(
            (config.redis.host.as_str(), config.redis.port),
            ("redis.local", 7000)
        );
        let target = &config.targets["Mail"];
        assert_eq!((target.concurrency, target.rate), (3, Some(4.0.into())));
        assert_eq!(target.headers["X-Token"].expose(), "12345");

        assert_eq!(loaded.from["backpressure.global_rps"], "--set");
        assert!(loaded.from["backpressure.strict_share"].ends_with(FILE));
        assert_eq!(loaded.from["log.format"], "TIDEGATE__LOG");
        assert_eq!(loaded.from["redis.port"], "REDIS_PORT");
        assert!(!loaded.from.contains_key("log.filter"));
        let shown = loaded.to_toml();
        assert!(shown.contains("global_rps = \"3/s\"  # --set\n"), "{shown}");
        assert!(
            shown.contains(
                "[targets.Mail.headers]\nX-Token = \"***\"  # TIDEGATE__TARGETS__Mail__HEADERS__X-Token\n"
            ),
            "{shown}"
        );
        assert!(
            shown.contains("filter = \"info,fjall=warn,lsm_tree=warn\"\n"),
            "{shown}"
        );
    }

    #[test]
    fn the_shown_settings_can_be_loaded_again() {
        let file = "[[keys]]\nname = \"ops\"\nhash = \"sha256:0000000000000000000000000000000000000000000000000000000000000000\"\n\
                    roles = [\"admin\"]\n[queues.\"a b\"]\nrate = \"120/min\"\n[job_types.X]\nqueue = \"a b\"";
        let loaded = read(file, &[], &[]).unwrap();
        let again: Config = toml::from_str(&loaded.to_toml()).unwrap();
        assert_eq!(again, loaded.config);
    }

    #[test]
    fn invalid_settings_are_reported_with_their_location_and_the_remedy() {
        for (file, env, flags, expected) in [
            (
                "\n[backpressure]\nglobal_rqs = 5",
                &[][..],
                &[][..],
                "tidegate.toml, line 3: unknown field `global_rqs` in [backpressure]; did you mean `global_rps`?",
            ),
            (
                "[backpresure]",
                &[],
                &[],
                "tidegate.toml, line 1: unknown field `backpresure`; did you mean `backpressure`?",
            ),
            (
                "[workerPool]\n",
                &[],
                &[],
                "tidegate.toml, line 1: unknown field `workerPool`; did you mean `worker_pool`?",
            ),
            (
                "[log]\nqqq = 1",
                &[],
                &[],
                "tidegate.toml, line 2: unknown field `qqq` in [log]; known fields are format, filter",
            ),
            ("[log]\nformat = 1 2", &[], &[], "tidegate.toml, line 2: "),
            (
                "[server]\nmax_connections = -1",
                &[],
                &[],
                "tidegate.toml, line 2: server.max_connections: invalid value: integer `-1`, expected u32",
            ),
            (
                "[server]\nlisten = \"here\"",
                &[],
                &[],
                "tidegate.toml, line 2: server.listen: \"here\" is not an address and a port; it must be like \"127.0.0.1:7171\"",
            ),
            (
                "[targets.mail]\nurl = \"http://a\"",
                &[],
                &[],
                "tidegate.toml, line 1: targets.mail: missing field `types`",
            ),
            (
                "",
                &[("TIDEGATE__SERVER__LISTENS", "1")],
                &[],
                "TIDEGATE__SERVER__LISTENS: unknown field `listens` in [server]; did you mean `listen`?",
            ),
            (
                "[log]\nfilter = \"x\"",
                &[("TIDEGATE__STORE__KIND", "disk")],
                &[],
                "TIDEGATE__STORE__KIND: store.kind: unknown variant `disk`, expected `embedded` or `redis`",
            ),
            (
                "[tracing]\nqqq = 1\n[audit]\nrrr = 1",
                &[("TIDEGATE__STORE__DATA", "x")],
                &[],
                "tidegate.toml, line 4: unknown field `rrr` in [audit]",
            ),
            (
                "",
                &[("REDIS_PORT", "lots")],
                &[],
                "REDIS_PORT: redis.port: invalid type: string, expected u16",
            ),
            (
                "",
                &[],
                &[("server.open", "perhaps")],
                "--set: server.open: invalid type: string, expected a boolean",
            ),
            ("", &[], &[("server.listen.port", "1")], "--set: server.listen"),
            (
                "",
                &[],
                &[("a b", "1")],
                "--set: \"a b\" is not the name of a setting; it must be like server.listen",
            ),
            ("", &[], &[("", "1")], "--set: \"\" is not the name of a setting"),
            (
                "[server]\nhosts = [\"a\"]",
                &[],
                &[("server.hosts.a", "1")],
                "--set: `hosts` is not a section, so it cannot have a field `a`",
            ),
            (
                "[backpressure]\nglobal_rps = 0",
                &[],
                &[],
                "backpressure.global_rps = 0/s: it must be from 0.00001",
            ),
        ] {
            let error = read(file, env, flags).unwrap_err();
            assert!(
                error.starts_with(expected),
                "{error:?} should start with {expected:?}"
            );
        }
    }

    #[test]
    fn a_later_source_completes_an_earlier_one() {
        let file = "[targets.mail]\nurl = \"http://a/\"";
        let loaded = read(file, &[("TIDEGATE__TARGETS__mail__TYPES", "['SEND']")], &[]).unwrap();
        assert_eq!(loaded.config.targets["mail"].types.len(), 1);
        let error = read(file, &[("TIDEGATE__LOG__FILTER", "warn")], &[]).unwrap_err();
        assert!(
            error.starts_with("tidegate.toml, line 1: targets.mail: missing field"),
            "{error}"
        );
    }

    #[test]
    fn variables_for_another_purpose_are_ignored() {
        let env = [("REDIS_PORT", "tcp://10.0.0.1:6379"), ("REDIS_HOST", "")];
        assert_eq!(read("", &env, &[]).unwrap().config, Config::default());
    }

    #[test]
    fn a_named_file_must_exist() {
        let sources = Sources {
            file: Some("no such file".into()),
            ..Sources::default()
        };
        let error = load(&sources).unwrap_err().to_string();
        assert!(error.starts_with("no such file: "), "{error}");
    }

    #[test]
    fn errors_contain_no_secrets() {
        for file in [
            "[redis]\npassword = \"hunter2\"\nqqq = 1",
            "[redis]\npassword = { hunter2 = 1 }",
            "[redis]\nurls = \"redis://:hunter2@x\"",
            "redis = \"redis://:hunter2\\\", expected @x\"",
            "[targets.mail]\nheaders = \"hunter2\"",
            "[redis]\nurls = [\"redis://:hunter2@x\", \"http://:hunter2@y\"]\n[store]\nkind = \"redis\"",
            "[targets.mail]\ntypes = [\"A\"]\nurl = \"http://me:hunter2@host/\"",
            "[targets.mail]\ntypes = [\"A\"]\nurl = \"http://host/\"\nsecret = \"hunter2\"",
            "[targets.mail]\ntypes = [\"A\"]\nurl = \"http://host/\"\nheaders = { a = \"hunter2\\n\" }",
        ] {
            let error = read(file, &[], &[]).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
