//! Reads the settings: defaults, then one TOML file, then the environment, then flags; the later one wins.
//!
//! Environment: `REDIS_HOST` and `REDIS_PORT`, then `TIDEGATE__SECTION__FIELD=value`. Two underscores separate
//! levels; sections and fields in any case, names of targets, queues, job types and callbacks as they are. Values
//! are TOML; what is none is a string. Every error names the line, the variable or the flag that it comes from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_store::{Clock, SystemClock};
use toml::{Table, Value};

use super::{Config, ConfigError};

/// Used if it is in the working directory and no other file is named.
pub const FILE: &str = "tidegate.toml";

const PREFIX: &str = "TIDEGATE__";
/// Sections whose second level are names that users give.
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
    /// As it is called, like `--listen`.
    pub flag: String,
    /// Like `server.listen`; names with other than letters, digits, `-` and `_` in quotes.
    pub key: String,
    pub value: String,
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a secret.
        f.debug_tuple("Flag").field(&self.flag).field(&self.key).finish()
    }
}

/// Where settings come from, the weakest first.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file to read; it must be there.
    pub file: Option<PathBuf>,
    /// Where [`FILE`] is looked for if none is named.
    pub folder: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    pub flags: Vec<Flag>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold anybody's secrets.
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// Settings that are valid, and where they come from.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Who said so, per setting that is said somewhere, like `server.listen`.
    pub from: BTreeMap<String, String>,
}

/// Reads all sources and checks the result.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let file = match &sources.file {
        Some(file) => Some(file.clone()),
        None => Some(sources.folder.join(FILE)).filter(|file| file.is_file()),
    };
    let mut said = Said::default();
    if let Some(file) = &file {
        said.file(file)?;
    }
    for setting in environment(&sources.env)? {
        said.put(setting)?;
    }
    for flag in &sources.flags {
        said.put(setting_of(flag)?)?;
    }
    let config = said.config()?;
    config.validate()?;
    config.validate_at(SystemClock.now())?;
    Ok(Loaded {
        config,
        file,
        from: said.from,
    })
}

/// One setting that is not from the file.
struct Setting {
    /// The variable or the flag.
    source: String,
    path: Vec<String>,
    value: String,
}

/// What the sources so far say together.
#[derive(Default)]
struct Said {
    table: Table,
    from: BTreeMap<String, String>,
    /// What is wrong with it, as it is told. Kept until the end, because a later source may complete what an
    /// earlier one began.
    wrong: Option<(Wrong, ConfigError)>,
}

impl Said {
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
        // Read once more from the text, which knows the lines.
        let told = toml::from_str::<Config>(&text).err().map(located);
        self.wrong = wrong_with(&self.table).zip(told);
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
        // A password of digits only is a string all the same.
        if after.is_some() && after.as_ref() != before {
            let mut with_text = self.table.clone();
            merge(&mut with_text, &path, text.clone()).map_err(refused)?;
            if wrong_with(&with_text).as_ref() == before {
                (changed, after, value) = (with_text, before.cloned(), text);
            }
        }
        if after.as_ref() != before {
            self.wrong = after.map(|wrong| {
                let told = ConfigError(format!("{source}: {wrong}"));
                (wrong, told)
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
            Some((_, told)) => Err(told.clone()),
            None => Config::deserialize(self.table.clone())
                .map_err(|error| ConfigError(Wrong::new(error).to_string())),
        }
    }
}

/// What a table is refused for. The text of the source is not part of it: it may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrong {
    message: String,
    /// The section or the field.
    at: String,
}

impl Wrong {
    fn new(mut error: toml::de::Error) -> Self {
        // Only without its text does an error tell the path.
        error.set_input(None);
        let text = error.to_string();
        let at = text.trim_end().rsplit_once("\nin `").map_or("", |(_, at)| at);
        let message = error.message().trim_end().replace('\n', ", ");
        // A string in the wrong place is told without its text: it may be an address with a password.
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
            None => write!(f, "; there are {}", known.join(", ")),
        }
    }
}

fn closest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let unknown = unknown.to_lowercase().replace('-', "_");
    let rated = known.iter().map(|known| {
        // The original's names are the same but for their case.
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

/// A TOML value, if it is one.
fn parsed(value: &str) -> Option<Value> {
    let mut table: Table = toml::from_str(&format!("value = {value}")).ok()?;
    let value = table.remove("value")?;
    // More than a value: a text with line ends that happens to look like settings.
    table.is_empty().then_some(value)
}

/// Sets what `path` names; tables are joined, everything else is replaced.
fn merge(table: &mut Table, path: &[String], value: Value) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        return Err("no setting is named".into());
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
            "`{first}` is no section, so there is no `{}` in it",
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
    // Sorted, so that a section comes before its fields and the result is the same every time.
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
    text.ok_or_else(|| ConfigError(format!("{variable}: the value is not valid UTF-8")))
}

/// Names of users keep their case, and so do headers; everything else is ours.
fn path_of(variable: &str) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for (level, part) in variable.split("__").enumerate() {
        let named = path
            .first()
            .is_some_and(|section| NAMED.contains(&section.as_str()));
        let kept = named && (level == 1 || level >= 3);
        path.push(if kept { part.into() } else { part.to_lowercase() });
    }
    path
}

fn setting_of(flag: &Flag) -> Result<Setting, ConfigError> {
    let Flag { flag, key, value } = flag;
    let bad = || {
        ConfigError(format!(
            "{flag}: {key:?} is not the name of a setting, like server.listen"
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
    fn later_sources_win_and_keep_what_they_do_not_name() {
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
            &[("backpressure.global_rps", "3"), ("targets.\"Mail\".rps", "4")],
        )
        .unwrap();
        let config = &loaded.config;
        assert_eq!(config.backpressure.global_rps, 3.0);
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
        assert_eq!((target.concurrency, target.rps), (3, Some(4.0)));
        assert_eq!(target.headers["X-Token"].expose(), "12345");

        assert_eq!(loaded.from["backpressure.global_rps"], "--set");
        assert!(loaded.from["backpressure.strict_share"].ends_with(FILE));
        assert_eq!(loaded.from["log.format"], "TIDEGATE__LOG");
        assert_eq!(loaded.from["redis.port"], "REDIS_PORT");
        assert!(!loaded.from.contains_key("log.filter"));
        let shown = loaded.to_toml();
        assert!(shown.contains("global_rps = 3.0  # --set\n"), "{shown}");
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
    fn what_is_shown_can_be_read_again() {
        let file = "[[keys]]\nname = \"ops\"\nhash = \"sha256:0000000000000000000000000000000000000000000000000000000000000000\"\n\
                    roles = [\"admin\"]\n[queues.\"a b\"]\nrps = 2\n[job_types.X]\nqueue = \"a b\"";
        let loaded = read(file, &[], &[]).unwrap();
        let again: Config = toml::from_str(&loaded.to_toml()).unwrap();
        assert_eq!(again, loaded.config);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place_and_what_would_be_right() {
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
                "tidegate.toml, line 2: unknown field `qqq` in [log]; there are format, filter",
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
                "tidegate.toml, line 2: server.listen: \"here\" is not an address and a port, like \"127.0.0.1:7171\"",
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
                "--set: \"a b\" is not the name of a setting, like server.listen",
            ),
            ("", &[], &[("", "1")], "--set: \"\" is not the name of a setting"),
            (
                "[server]\nhosts = [\"a\"]",
                &[],
                &[("server.hosts.a", "1")],
                "--set: `hosts` is no section, so there is no `a` in it",
            ),
            (
                "[backpressure]\nglobal_rps = 0",
                &[],
                &[],
                "backpressure.global_rps = 0: it must be above 0",
            ),
        ] {
            let error = read(file, env, flags).unwrap_err();
            assert!(
                error.starts_with(expected),
                "{error:?} should begin with {expected:?}"
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
    fn what_others_set_for_another_purpose_is_left_alone() {
        let env = [("REDIS_PORT", "tcp://10.0.0.1:6379"), ("REDIS_HOST", "")];
        assert_eq!(read("", &env, &[]).unwrap().config, Config::default());
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let sources = Sources {
            file: Some("no such file".into()),
            ..Sources::default()
        };
        let error = load(&sources).unwrap_err().to_string();
        assert!(error.starts_with("no such file: "), "{error}");
    }

    #[test]
    fn errors_tell_no_secrets() {
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
