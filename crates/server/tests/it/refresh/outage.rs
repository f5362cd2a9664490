//! While everything but the database is unavailable, reads of records continue and refresh requests are refused; then the
//! service recovers.

use std::time::Duration;

use refresh::{few_partitions, text, upstream};
use serde_json::{Value, json};
use support::{Backend, PATIENCE, Running, config};
use tidegate_core::time::Millis;
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use crate::support::{self, refresh};

const SHORT: &str = "[refresh.tiers]\nhot_ms = 300\nwarm_ms = 300\ncold_ms = 300\nhot_fresh_ms = 300\nwarm_fresh_ms = 300\n\
                     cold_fresh_ms = 300\n[refresh.coalescer]\nhigh_mark_ms = 100\nlow_mark_ms = 100\n\
                     [refresh.breaker]\nopen_ms = 500\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_continue_while_redis_and_the_upstream_are_unavailable() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(Backend::Redis, &folder, &text(&upstream, SHORT));
    settings.redis.urls = vec![redis.url().into()];
    settings.refresh.query.read_timeout_ms = Millis(20_000);
    few_partitions(&mut settings);
    let running = Running::with(settings, folder).await;
    let known = running.until_fresh("anna").await;

    redis.kill().unwrap();
    upstream.set(|settings| settings.rate_500 = 1.0).unwrap();
    running
        .until("/v1/refresh", |view| view["storeAvailable"] == false)
        .await;
    // Longer than an earlier token is valid.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let calls = upstream.report().calls;
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let begun = tokio::time::Instant::now();
        let read = tokio::time::timeout(PATIENCE, running.record("anna"));
        let record = read.await.expect("a read waits for the unavailable store");
        slowest = slowest.max(begun.elapsed());
        assert_eq!(record["snapshot"], known["snapshot"], "{record}");
        assert_eq!(record["updateQueued"], false, "{record}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    // Redis is still unavailable, and no read caused a fetch.
    println!("20 reads without Redis and the upstream: the slowest took {slowest:?}");
    assert_eq!(upstream.report().calls, calls);
    let stale = running
        .until("/v1/records/character/anna", |record| {
            record["freshness"] == "STALE"
        })
        .await;
    assert!(
        ["NOT_QUEUED", "NOT_KNOWN"].contains(&stale["why"]["code"].as_str().unwrap()),
        "{stale}"
    );
    // A record without a snapshot is reported as unavailable.
    let unknown = running.record("bert").await;
    assert_eq!(unknown["freshness"], "UNAVAILABLE", "{unknown}");
    let response = running
        .http
        .post(format!("{}/v1/records/character/anna/refresh", running.url))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let refused: Value = response.json().await.unwrap();
    assert_eq!(refused["code"], "not_queued", "{refused}");

    redis.restart().unwrap();
    upstream.set(|settings| settings.rate_500 = 0.0).unwrap();
    let path = "/v1/records/character/anna";
    let fresh = running
        .until(path, |record| {
            record["freshness"] == "FRESH" && record["version"] != known["version"]
        })
        .await;
    assert_eq!(fresh["snapshot"]["revision"], known["snapshot"]["revision"]);
    running.until_fresh("bert").await;
    // With these settings a stall looks like an outage, so the request may need a retry.
    let (begun, path) = (tokio::time::Instant::now(), "/v1/records/character/carl/refresh");
    while running.post(path, json!({})).await.0 != 202 {
        assert!(begun.elapsed() < PATIENCE, "nothing can be queued");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    running.until_fresh("carl").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_only_reads_records_starts_and_is_ready_while_redis_is_unavailable() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(Backend::Redis, &folder, &text(&upstream, SHORT));
    settings.redis.urls = vec![redis.url().into()];
    settings.refresh.query.read_timeout_ms = Millis(20_000);
    few_partitions(&mut settings);
    let running = Running::with(settings.clone(), folder).await;
    let known = running.until_fresh("anna").await;
    redis.kill().unwrap();
    running
        .until("/v1/stats", |stats| stats["store"]["available"] == false)
        .await;
    // This process has other roles, too, but its readiness can be checked for records alone.
    assert_eq!(running.get("/readyz").await.0, 503);
    assert_eq!(running.get("/readyz?for=records").await.0, 200);
    let (status, problem) = running.get("/readyz?for=lunch").await;
    assert_eq!(status, 422, "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains("records"),
        "{problem}"
    );
    redis.restart().unwrap();
    running.until("/readyz", |body| body == "ok\n").await;
    let Running { service, folder, .. } = running;
    service.shutdown().await.unwrap();

    redis.kill().unwrap();
    settings.refresh.roles = tidegate_server::config::RolesConfig::Query;
    let running = Running::with(settings, folder).await;
    assert_eq!(running.get("/readyz").await.0, 200);
    let record = running.record("anna").await;
    assert_eq!(record["snapshot"], known["snapshot"], "{record}");
    assert_eq!(record["updateQueued"], false, "{record}");
    running
        .until("/v1/stats", |stats| stats["code"] == "store_unavailable")
        .await;
    assert_eq!(
        running.get("/readyz").await.0,
        200,
        "also after it has detected the outage"
    );

    redis.restart().unwrap();
    running
        .until("/v1/records/character/anna", |record| {
            record["updateQueued"] == true
        })
        .await;
    running
        .until("/v1/stats", |stats| stats["store"]["available"] == true)
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_a_database_is_refused_with_its_name() {
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let settings = config(Backend::Embedded, &folder, &text(&upstream, ""));
    std::fs::create_dir_all(&settings.store.data).unwrap();
    let file = folder.path().join("other.db");
    std::fs::write(&file, b"this is a text and not a database, and it is a little longer than the header of a database, which has one hundred bytes").unwrap();
    let mut settings = settings;
    settings.refresh.snapshots.url = format!("sqlite:{}", file.display()).into();
    let error = tidegate_server::Service::start(settings)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("other.db"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_another_layout_is_refused_with_both_numbers() {
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(Backend::Embedded, &folder, &text(&upstream, ""));
    few_partitions(&mut settings);
    let running = Running::with(settings.clone(), folder).await;
    let Running { service, folder, .. } = running;
    service.shutdown().await.unwrap();
    settings.refresh.log.high_partitions = 5;
    let error = tidegate_server::Service::start(settings)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has 4 partitions, but 5 are configured"),
        "{error}"
    );
    drop(folder);
}
