//! `tidegate.toml` in the repository names every setting once, with its default.

use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_server::config::Config;

const FILE: &str = include_str!("../../../../tidegate.toml");

/// Settings and sections are written as `# field = value` and `# [section]`; other comments are prose.
fn is_setting(line: &str) -> bool {
    let Some(text) = line.strip_prefix("# ") else {
        return false;
    };
    let name = text.split(" = ").next().unwrap_or(text);
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    text.starts_with('[') || (name.len() < text.len() && is_name)
}

fn uncommented() -> String {
    let lines = FILE
        .lines()
        .map(|line| if is_setting(line) { &line[2..] } else { line });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Collects the paths of all fields, including absent ones. Users choose the names of headers.
fn fields(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) if !at.ends_with(".headers") => {
            for (key, value) in object {
                fields(value, &format!("{at}.{key}"), found);
            }
        }
        Value::Array(rows) if at == ".keys" => rows.iter().for_each(|row| fields(row, at, found)),
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// Compares the fields that have a default.
fn same(default: &Value, shown: &Value, at: &str) {
    match (default, shown) {
        (Value::Null, _) => {}
        (Value::Object(default), Value::Object(shown)) => {
            for (key, value) in default {
                same(value, &shown[key], &format!("{at}.{key}"));
            }
        }
        _ => assert_eq!(default, shown, "{at}: the value in the file is not the default"),
    }
}

fn read(text: &str) -> Config {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn json(config: &Config) -> Value {
    serde_json::to_value(config).expect("settings serialize to JSON")
}

#[test]
fn the_file_changes_nothing() {
    assert_eq!(read(FILE), Config::default());
}

#[test]
fn every_setting_is_in_the_file() {
    let all = uncommented();
    // TOML itself refuses a duplicate field.
    let table: toml::Table = all.parse().unwrap_or_else(|error| panic!("uncommented: {error}"));
    let (mut shown, mut known) = (BTreeSet::new(), BTreeSet::new());
    fields(&serde_json::to_value(&table).unwrap(), "", &mut shown);
    fields(&json(&read(&all)), "", &mut known);
    assert_eq!(shown, known);
    for section in [
        "job_types",
        "queues",
        "targets",
        "callbacks",
        "budgets",
        "sources",
        "rooms",
    ] {
        let entries = table[section].as_table().unwrap().len();
        assert_eq!(entries, 1, "one example of {section}");
    }
    read(&all).validate().unwrap();
}

#[test]
fn the_values_are_the_defaults() {
    let mut defaults = json(&Config::default());
    // The file has an example, but there is none by default.
    defaults.as_object_mut().unwrap().remove("keys");
    let shown = json(&read(&uncommented()));
    same(&defaults, &shown, "");
    // Only the required fields.
    let least = read(
        "[targets.mail]\nurl = \"https://mail.example.com/jobs\"\ntypes = [\"SEND_MAIL\"]\n\
         [callbacks.shop]\nurl = \"https://shop.example.com/done\"\n[budgets.nexon]\n\
         [rooms.concert]\n[sources.character]\ntarget = \"nexon\"\nfields = [\"character_name\", \"character_level\", \"character_guild_name\"]\n\
         url = \"https://open.api.nexon.com/maplestory/v1/character/basic?ocid={key}\"\n",
    );
    let mut least = json(&least);
    for (section, entry) in [
        ("targets", "mail"),
        ("callbacks", "shop"),
        ("budgets", "nexon"),
        ("sources", "character"),
        ("rooms", "concert"),
    ] {
        // The file has examples of these, but they have no default.
        for field in ["headers", "texts", "colours"] {
            least[section][entry].as_object_mut().unwrap().remove(field);
        }
        same(&least[section], &shown[section], section);
    }
}

#[test]
fn settings_without_a_default_say_so() {
    let defaults = json(&Config::default());
    let (mut section, mut prose) = (String::new(), String::new());
    for line in FILE.lines() {
        if let Some(name) = line.trim_start_matches("# ").strip_prefix('[') {
            section = name.trim_matches(['[', ']']).to_owned();
        }
        if is_setting(line) && !line.starts_with("# [") {
            let field = line[2..].split(' ').next().unwrap_or_default();
            let none = defaults.get(&section).and_then(|section| section.get(field)) == Some(&Value::Null);
            assert!(
                prose.contains("No default") || !none,
                "{section}.{field} has no default, but the file does not say so"
            );
        }
        let is_prose = line.starts_with('#') && !is_setting(line);
        prose = if is_prose { prose + line } else { String::new() };
    }
}

/// Operators rely on these names and values, so a change must be deliberate.
#[test]
fn the_documented_defaults_hold() {
    let shown = json(&read(&uncommented()));
    for (path, value) in [
        ("/redis/host", "\"localhost\""),
        ("/redis/port", "6379"),
        ("/redis/db", "0"),
        ("/redis/key_prefix", "\"bulk-action:\""),
        ("/fair_queue/alpha", "10000.0"),
        ("/backpressure/global_rps", "\"10000/s\""),
        ("/backpressure/ready_queue_max_size", "10000"),
        ("/backpressure/rate_limit_window_sec", "1.0"),
        ("/backpressure/dispatch_interval_ms", "100"),
        ("/backpressure/dispatch_batch_size", "100"),
        ("/backpressure/default_backoff_ms", "1000"),
        ("/backpressure/max_backoff_ms", "60000"),
        ("/congestion/enabled", "true"),
        ("/congestion/adaptive", "true"),
        ("/congestion/base_backoff_ms", "1000"),
        ("/congestion/max_backoff_ms", "120000"),
        ("/congestion/stats_retention_ms", "3600000"),
        ("/congestion/snapshot_interval_ms", "10000"),
        ("/worker_pool/worker_count", "10"),
        ("/worker_pool/fetch_interval_ms", "200"),
        ("/worker_pool/fetch_batch_size", "50"),
        ("/worker_pool/worker_timeout_sec", "5.0"),
        ("/worker_pool/job_timeout_ms", "30000"),
        ("/worker_pool/max_retry_count", "3"),
        ("/worker_pool/shutdown_grace_period_ms", "30000"),
    ] {
        let shown = shown.pointer(path).map(ToString::to_string);
        assert_eq!(shown.as_deref(), Some(value), "{path}");
    }
}

/// The TOML blocks of a page, in order. Pages leave secrets out.
fn examples(page: &str) -> Vec<String> {
    let secret = format!("whsec_{}", "A".repeat(32));
    let blocks = page.split("```toml\n").skip(1);
    let text = |block: &str| {
        let example = block.split("```").next().unwrap_or_default();
        example.replace("whsec_…", &secret)
    };
    blocks.map(text).collect()
}

fn add(to: &mut toml::Table, more: toml::Table) {
    for (key, value) in more {
        match (to.get_mut(&key), value) {
            (Some(toml::Value::Table(to)), toml::Value::Table(more)) => add(to, more),
            (_, value) => drop(to.insert(key, value)),
        }
    }
}

/// Later examples of a page may extend earlier ones.
#[test]
fn every_example_of_the_documentation_is_a_valid_configuration() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let mut pages: Vec<_> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    let mut seen = 0;
    for path in pages {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut page = toml::Table::new();
        for example in examples(&std::fs::read_to_string(&path).unwrap()) {
            let table: toml::Table = example
                .parse()
                .unwrap_or_else(|error| panic!("{name}: {error}\n{example}"));
            add(&mut page, table);
            let config: Config = page
                .clone()
                .try_into()
                .unwrap_or_else(|error| panic!("{name}: {error}\n{example}"));
            config
                .validate()
                .unwrap_or_else(|error| panic!("{name}: {error}\n{example}"));
            seen += 1;
        }
    }
    assert!(seen >= 5, "found only {seen} examples");
}
