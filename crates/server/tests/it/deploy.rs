//! The files of `deploy/` match the program: its metrics, its settings and its operations page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tidegate_server::config::Config;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The metrics that `docs/metrics.md` documents. A test beside the code compares it with the exposed metrics.
fn documented() -> BTreeSet<String> {
    let document = read("docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next())
        .map(str::to_owned)
        .collect()
}

/// Every word of a text that looks like the name of a metric of this program, without the suffixes of histograms.
fn used(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| {
        ["bulk_action_", "tidegate_", "process_"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
    });
    let base = |word: &str| {
        let suffix = ["_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|suffix| word.strip_suffix(suffix));
        suffix
            .filter(|base| documented().contains(*base))
            .unwrap_or(word)
            .to_owned()
    };
    ours.map(base).collect()
}

#[test]
fn rules_and_dashboard_use_metrics_that_exist() {
    let documented = documented();
    for path in [
        "deploy/prometheus/tidegate.rules.yml",
        "deploy/prometheus/tidegate.rules.test.yml",
        "deploy/grafana/tidegate.json",
    ] {
        let used = used(&read(path));
        assert!(used.len() > 10, "{path} uses only {used:?}");
        let unknown: Vec<&String> = used.difference(&documented).collect();
        assert!(unknown.is_empty(), "{path} uses {unknown:?}");
    }
}

#[test]
fn every_alert_has_a_runbook_and_a_test() {
    let (rules, page) = (
        read("deploy/prometheus/tidegate.rules.yml"),
        read("docs/operations.md"),
    );
    let tests = read("deploy/prometheus/tidegate.rules.test.yml");
    let after = |mark: &str| -> Vec<String> {
        let lines = rules.lines().filter_map(|line| line.split_once(mark));
        lines
            .map(|(_, rest)| rest.trim().trim_matches('"').to_owned())
            .collect()
    };
    let (alerts, runbooks) = (after("- alert: "), after("runbook: \"docs/operations.md: "));
    assert_eq!(alerts.len(), runbooks.len());
    for heading in runbooks {
        assert!(
            page.contains(&format!("\n### {heading}\n")),
            "docs/operations.md has no heading {heading:?}"
        );
    }
    for alert in alerts {
        assert!(
            tests.contains(&format!("alertname: {alert}\n")),
            "{alert} has no test"
        );
    }
}

/// The text of each rule, by its alert.
fn rules() -> Vec<(String, String)> {
    let rules = read("deploy/prometheus/tidegate.rules.yml");
    let each = rules.split("- alert: ").skip(1);
    let named = each.filter_map(|rule| rule.split_once('\n'));
    named
        .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
        .collect()
}

#[test]
fn alerts_page_with_the_agreed_severity() {
    let paged: Vec<(String, String)> = rules()
        .into_iter()
        .filter(|(_, rule)| rule.contains("page: "))
        .collect();
    for (alert, rule) in &paged {
        let (critical, first) = (rule.contains("severity: critical"), rule.contains("page: P1"));
        assert_eq!(critical, first, "{alert}: critical is P1, and P1 is critical");
    }
    let page = |alert: &str| {
        let (_, rule) = paged.iter().find(|(name, _)| name == alert).unwrap();
        rule.split("page: ")
            .nth(1)
            .and_then(|rest| rest.get(..2).map(str::to_owned))
    };
    for (alert, wanted) in [
        ("TidegateCallsOverLimit", "P1"),
        ("TidegateDeadLetters", "P1"),
        ("TidegateDatabaseBreakerOpen", "P1"),
        ("TidegateStoreBreakerOpen", "P1"),
        ("TidegateHighLag", "P2"),
        ("TidegateRefreshSlow", "P2"),
        ("TidegateLowLag", "P3"),
        ("TidegateStoreSlow", "P3"),
        ("TidegateRoomNotRead", "P1"),
        ("TidegateRoomOverLimit", "P1"),
        ("TidegateRoomNobodyAdmitted", "P1"),
        ("TidegateRoomFailsOpen", "P1"),
        ("TidegateRoomSlotsWasted", "P2"),
        ("TidegateRoomPositionsLate", "P3"),
    ] {
        assert_eq!(page(alert).as_deref(), Some(wanted), "{alert}");
    }
}

#[test]
fn every_alert_that_pages_is_tested_both_ways() {
    let tests = read("deploy/prometheus/tidegate.rules.test.yml");
    for (alert, _) in rules().iter().filter(|(_, rule)| rule.contains("page: ")) {
        let mark = format!("alertname: {alert}\n");
        let cases = tests.split(&mark).skip(1);
        let silent: Vec<bool> = cases
            .map(|case| case.trim_start().starts_with("exp_alerts: []"))
            .collect();
        assert!(silent.contains(&true), "{alert} is never tested to stay silent");
        assert!(silent.contains(&false), "{alert} is never tested to fire");
    }
}

/// The panels of one row of the dashboard.
fn row(title: &str) -> Vec<serde_json::Value> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/tidegate.json")).expect("a dashboard is JSON");
    let panels = dashboard["panels"]
        .as_array()
        .expect("a dashboard has panels")
        .iter();
    panels
        .skip_while(|panel| panel["title"] != title)
        .skip(1)
        .take_while(|panel| panel["type"] != "row")
        .cloned()
        .collect()
}

/// Whether one panel shows all of these metrics.
fn shows(row: &[serde_json::Value], wanted: &[&str]) -> bool {
    row.iter().any(|panel| {
        let text = panel["targets"].to_string();
        wanted.iter().all(|metric| text.contains(metric))
    })
}

#[test]
fn rooms_have_their_panels() {
    let row = row("Rooms");
    for wanted in [
        &["tidegate_room_people{"][..],
        &[
            "tidegate_room_admissions_total",
            "tidegate_room_max_admissions_per_second",
        ],
        &["tidegate_room_max_inside_people", "tidegate_room_free_slots"],
        &["by (room, outcome) (rate(tidegate_room_ended_tickets_total"],
        &[
            "tidegate_room_streams",
            "tidegate_room_max_streams",
            "tidegate_room_position_age_seconds",
        ],
        &["quantile(0.99, ", "tidegate_room_broadcast_duration_seconds"],
        &["quantile(0.95, ", "tidegate_room_promotion_duration_seconds"],
        &["tidegate_room_queued_calls"],
    ] {
        assert!(shows(&row, wanted), "no panel shows {wanted:?}");
    }
}

#[test]
fn refreshes_have_their_panels() {
    let row = row("Refresh");
    for wanted in [
        &[
            "tidegate_budget_calls_per_second",
            "tidegate_budget_hard_limit_calls_per_second",
        ][..],
        &["tidegate_budget_available_tokens"],
        &["tidegate_log_lag_events{"],
        &["tidegate_log_lag_seconds"],
        &[
            "quantile(0.5, ",
            "quantile(0.95, ",
            "quantile(0.99, ",
            "tidegate_refresh_event_duration_seconds",
        ],
        &[
            "tidegate_refresh_failed_events_total",
            "tidegate_refresh_settled_events_total",
        ],
        &["tidegate_store_breaker_state", "tidegate_database_breaker_state"],
        &[
            "tidegate_refresh_dead_letters",
            "tidegate_refresh_written_dead_letters_total",
        ],
        &["by (reason) (increase(tidegate_refresh_written_dead_letters_total"],
        &[
            "tidegate_budget_day_used_calls",
            "tidegate_budget_day_quota_calls",
        ],
    ] {
        assert!(shows(&row, wanted), "no panel shows {wanted:?}");
    }
    let breakers = row.iter().find(|panel| panel["title"] == "Breakers").unwrap();
    let colors = &breakers["fieldConfig"]["defaults"]["mappings"][0]["options"];
    for (state, color) in [("0", "green"), ("1", "yellow"), ("2", "red")] {
        assert_eq!(colors[state]["color"], color);
    }
}

#[test]
fn grafana_can_load_the_dashboard() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/tidegate.json")).expect("a dashboard is JSON");
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let (title, place) = (&panel["title"], &panel["gridPos"]);
        let wide = place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap();
        assert!(wide <= 24, "{title} is wider than the page");
        assert!(
            !panel["targets"].as_array().unwrap().is_empty(),
            "{title} shows nothing"
        );
    }
}

#[test]
fn the_settings_of_the_compose_file_are_valid() {
    let config: Config = toml::from_str(&read("deploy/tidegate.toml")).unwrap();
    config.validate().unwrap();
    assert_eq!(config.redis.urls(), ["redis://redis:6379/0"]);
    let compose = read("deploy/compose.yaml");
    for wanted in ["--appendonly\", \"yes", "--appendfsync\", \"always", "noeviction"] {
        assert!(compose.contains(wanted), "Redis must run with {wanted}");
    }
}
