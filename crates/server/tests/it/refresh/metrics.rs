//! Metrics of budgets and of the refresh module through the port, with a real upstream.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use refresh::{few_partitions, text, upstream, upstream_with};
use serde_json::json;
use support::{Backend, PATIENCE, Running, config};
use tidegate_core::time::Millis;
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use tidegate_upstream::Answer;

use crate::support::{self, refresh};

on_both_stores! {
    reads_refreshes_and_failures_are_counted
    a_busy_budget_is_exposed
}

type Samples = BTreeMap<String, f64>;

async fn scrape(running: &Running) -> Samples {
    let response = running
        .http
        .get(format!("{}/metrics", running.url))
        .send()
        .await
        .unwrap();
    let text = response.text().await.unwrap();
    assert!(text.ends_with("# EOF\n"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    read.collect()
}

/// Scrapes until the samples are as wanted. Gauges follow within seconds.
async fn until(running: &Running, what: &str, wanted: impl Fn(&Samples) -> bool) -> Samples {
    let begun = Instant::now();
    loop {
        let scraped = scrape(running).await;
        if wanted(&scraped) {
            return scraped;
        }
        let ours: Vec<_> = scraped
            .iter()
            .filter(|(name, _)| !name.contains("_bucket") && !name.contains("http"))
            .collect();
        assert!(begun.elapsed() < PATIENCE, "{what}: {ours:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn at_least(scraped: &Samples, name: &str, least: f64) -> bool {
    scraped.get(name).is_some_and(|value| *value >= least)
}

async fn reads_refreshes_and_failures_are_counted(backend: Backend) {
    let upstream = upstream_with(|settings| {
        settings.answers.insert("carl".into(), Answer::Error400);
        settings.answers.insert("dora".into(), Answer::WrongType);
    });
    let running = Running::refreshing(backend, &upstream, "").await;
    let before = scrape(&running).await;
    let high = "{target=\"api\",priority=\"high\"}";
    for (name, value) in [
        ("tidegate_refresh_reads_total", 0.0),
        ("tidegate_store_breaker_state", 0.0),
        ("tidegate_database_breaker_state", 0.0),
        ("tidegate_refresh_failed_events_total{reason=\"api_4xx\"}", 0.0),
        (
            "tidegate_budget_rejections_total{target=\"api\",priority=\"low\"}",
            0.0,
        ),
    ] {
        assert_eq!(
            before.get(name),
            Some(&value),
            "{name} is there before it happens"
        );
    }
    for key in ["anna", "bert"] {
        running.until_fresh(key).await;
    }
    for key in ["carl", "dora"] {
        let path = format!("/v1/records/character/{key}");
        running.until(&path, |record| record["state"] == "FAILED").await;
    }
    let topic = format!("{}update-priority-high", running.config.refresh.log.prefix);
    let line = format!("{{topic=\"{topic}\",consumer_group=\"high-worker\",priority=\"high\"}}");
    let scraped = until(&running, "everything is counted", |scraped| {
        at_least(
            scraped,
            "tidegate_refresh_settled_events_total{priority=\"high\"}",
            4.0,
        ) && at_least(scraped, "tidegate_refresh_dead_letters", 2.0)
            && at_least(scraped, "tidegate_budget_day_used_calls{target=\"api\"}", 4.0)
            && at_least(
                scraped,
                "tidegate_refresh_failing_records{source=\"character\",state=\"failed\"}",
                2.0,
            )
            && at_least(scraped, &format!("tidegate_budget_acquired_tokens_total{high}"), 4.0)
            // Offsets are committed after that, and the lag is read later.
            && scraped.get(&format!("tidegate_log_lag_events{line}")) == Some(&0.0)
            && scraped.get("tidegate_refresh_event_duration_seconds_count{priority=\"high\"}") == Some(&4.0)
            && scraped.get("tidegate_refresh_records{source=\"character\",freshness=\"fresh\"}") == Some(&2.0)
    })
    .await;
    for (name, value) in [
        ("tidegate_refresh_upstream_calls_total{priority=\"high\"}", 4.0),
        ("tidegate_refresh_upstream_calls_total{priority=\"low\"}", 0.0),
        ("tidegate_refresh_published_events_total{priority=\"high\"}", 4.0),
        ("tidegate_refresh_snapshot_writes_total{outcome=\"updated\"}", 2.0),
        ("tidegate_refresh_failed_events_total{reason=\"api_4xx\"}", 1.0),
        (
            "tidegate_refresh_failed_events_total{reason=\"parse_error\"}",
            1.0,
        ),
        ("tidegate_refresh_failed_events_total{reason=\"api_5xx\"}", 0.0),
        (
            "tidegate_refresh_written_dead_letters_total{reason=\"api_4xx\"}",
            1.0,
        ),
        (
            "tidegate_refresh_written_dead_letters_total{reason=\"parse_error\"}",
            1.0,
        ),
        ("tidegate_refresh_dead_letters", 2.0),
        ("tidegate_refresh_read_errors_total", 0.0),
        ("tidegate_log_send_failures_total", 0.0),
        (&format!("tidegate_log_lag_events{line}"), 0.0),
        (&format!("tidegate_log_lag_seconds{line}"), 0.0),
        ("tidegate_store_breaker_state", 0.0),
        ("tidegate_database_breaker_state", 0.0),
        (
            "tidegate_budget_hard_limit_calls_per_second{target=\"api\"}",
            500.0,
        ),
        ("tidegate_budget_day_quota_calls{target=\"api\"}", 20_000_000.0),
        ("tidegate_budget_day_reserved_calls{target=\"api\"}", 2_000_000.0),
        ("tidegate_budget_hold_seconds{target=\"api\"}", 0.0),
    ] {
        assert_eq!(scraped.get(name), Some(&value), "{name} in {scraped:#?}");
    }
    assert_eq!(upstream.report().calls, 4);
    // A slow machine replaces a token that expired unused.
    let acquired = scraped[&format!("tidegate_budget_acquired_tokens_total{high}")];
    let late = scraped["tidegate_budget_late_tokens_total"];
    assert!((4.0..=4.0 + late).contains(&acquired), "{acquired} {late}");
    let peak = scraped["tidegate_budget_peak_calls_per_second{target=\"api\"}"];
    assert!((1.0..=acquired).contains(&peak), "{peak} {acquired}");
    let used = scraped["tidegate_budget_day_used_calls{target=\"api\"}"];
    let left = scraped["tidegate_budget_day_remaining_calls{target=\"api\",priority=\"high\"}"];
    assert_eq!(used + left, 20_000_000.0);
    assert!(scraped["tidegate_refresh_reads_total"] >= 4.0);
    assert!(scraped["tidegate_database_write_duration_seconds_count"] >= 1.0);
    assert!(scraped["tidegate_refresh_store_call_duration_seconds_count"] >= 1.0);
    assert!(scraped["tidegate_log_observation_age_seconds"] < 20.0);
    assert!(scraped["tidegate_budget_observation_age_seconds{target=\"api\"}"] < 10.0);

    // One refresh finds the snapshot unchanged. The upstream holds its call, so that another request joins it.
    upstream.set(|settings| settings.holding = true).unwrap();
    let path = "/v1/records/character/anna/refresh";
    let mut requested = running.did(path, json!({})).await;
    while requested["outcome"] != "PUBLISHED" {
        tokio::time::sleep(Duration::from_millis(20)).await;
        requested = running.did(path, json!({})).await;
    }
    assert_eq!(
        running.did(path, json!({})).await["outcome"],
        "ALREADY_PROCESSING"
    );
    upstream.set(|settings| settings.holding = false).unwrap();
    until(&running, "the second refresh is counted", |scraped| {
        scraped["tidegate_refresh_snapshot_writes_total{outcome=\"unchanged\"}"] == 1.0
            && scraped["tidegate_refresh_coalesced_requests_total"] >= 1.0
            && scraped["tidegate_refresh_upstream_calls_total{priority=\"high\"}"] == 5.0
    })
    .await;
    let scraped = scrape(&running).await;
    assert!(
        !scraped.keys().any(|name| name.contains("anna")),
        "no label is the key of a record"
    );
    running.stop().await;
}

/// Only pushes use the budget; there are no sources.
async fn a_busy_budget_is_exposed(backend: Backend) {
    let upstream = upstream();
    let text = format!(
        "[targets.mail]\nurl = \"{}/character/pushed\"\ntypes = [\"MAIL\"]\nbudget = \"small\"\nconcurrency = 20\n\
         [budgets.small]\nhard_limit = 40\nrate = 20\nburst = 5\nlow_cap = 20\nlow_burst = 2\nvalidity_ms = 500\nper_day = 0\n\
         day_reserve = 0\n",
        upstream.url()
    );
    let running = Running::start(backend, &text).await;
    // Busy for more than ten seconds, so that a stall does not hide it.
    running.enqueue("shop", "spring", "MAIL", 150).await;
    let low = "{target=\"small\",priority=\"low\"}";
    let rates =
        ["calls", "peak_calls"].map(|name| format!("tidegate_budget_{name}_per_second{{target=\"small\"}}"));
    // Scrapes leave out a reading that is too old.
    let is_exposed = |scraped: &Samples| rates.iter().all(|name| scraped.contains_key(name));
    let busy = until(&running, "calls are made and held back", |scraped| {
        at_least(scraped, "tidegate_budget_calls_per_second{target=\"small\"}", 5.0)
            && at_least(scraped, &format!("tidegate_budget_rejections_total{low}"), 1.0)
            && is_exposed(scraped)
    })
    .await;
    let done = until(&running, "all is done", |scraped| {
        at_least(
            scraped,
            &format!("tidegate_budget_acquired_tokens_total{low}"),
            150.0,
        ) && is_exposed(scraped)
    })
    .await;
    for scraped in [&busy, &done] {
        for name in &rates {
            assert!(scraped[name] <= 40.0, "{name} is {}", scraped[name]);
        }
        assert_eq!(
            scraped["tidegate_budget_acquired_tokens_total{target=\"small\",priority=\"high\"}"],
            0.0
        );
        assert!(!scraped.contains_key("tidegate_budget_day_quota_calls{target=\"small\"}"));
        assert!(!scraped.contains_key("tidegate_refresh_reads_total"));
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_store_is_exposed_and_delays_no_scrape() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let more = "[refresh.breaker]\nopen_ms = 500\n";
    let mut settings = config(Backend::Redis, &folder, &text(&upstream, more));
    settings.redis.urls = vec![redis.url().into()];
    settings.refresh.query.read_timeout_ms = Millis(20_000);
    few_partitions(&mut settings);
    let running = Running::with(settings, folder).await;
    running.until_fresh("anna").await;
    until(&running, "the budget was read", |scraped| {
        scraped.contains_key("tidegate_budget_day_used_calls{target=\"api\"}")
    })
    .await;

    redis.kill().unwrap();
    let begun = Instant::now();
    let (mut scrapes, mut slow) = (0, 0);
    let mut opened = false;
    // Reads make the breaker detect the outage. Meanwhile the readings grow old.
    for n in 0.. {
        running.record(&format!("key-{n}")).await;
        let requested = Instant::now();
        let scraped = scrape(&running).await;
        scrapes += 1;
        slow += u32::from(requested.elapsed() > Duration::from_secs(5));
        opened |= scraped["tidegate_store_breaker_state"] == 2.0;
        let gone = !scraped
            .contains_key("tidegate_budget_available_tokens{target=\"api\",bucket=\"global\"}")
            && !scraped.contains_key("tidegate_budget_calls_per_second{target=\"api\"}")
            && !scraped.contains_key("tidegate_refresh_dead_letters");
        if opened && gone {
            assert!(scraped["tidegate_budget_observation_age_seconds{target=\"api\"}"] > 10.0);
            assert!(scraped["tidegate_refresh_refused_requests_total"] >= 1.0);
            break;
        }
        assert!(begun.elapsed() < 3 * PATIENCE, "{scraped:#?}");
    }
    // A stall delays a scrape now and then, but a scrape that waited for the store would be late each time.
    assert!(2 * slow < scrapes, "{slow} of {scrapes} scrapes were late");

    redis.restart().unwrap();
    // The breaker closes when calls succeed again, so there must be some.
    for key in ["bert", "carl"] {
        running.until_fresh(key).await;
    }
    until(&running, "all is well again", |scraped| {
        scraped["tidegate_store_breaker_state"] == 0.0
            && scraped.contains_key("tidegate_budget_available_tokens{target=\"api\",bucket=\"global\"}")
            && scraped.contains_key("tidegate_refresh_dead_letters")
    })
    .await;
    running.stop().await;
}
