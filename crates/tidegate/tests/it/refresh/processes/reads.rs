//! Reads wait for nothing: not for the upstream, not for the log, not for Redis; and many of them make one call.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_testkit::servers::Proxy;
use tokio::task::JoinSet;

use super::fleet::{Behind, Fleet, at, budget, small, turn};
use crate::support::served::until;

/// Stale after a second.
const SHORT: &str = "[refresh.tiers]\nhot_ms = 1000\nwarm_ms = 1000\ncold_ms = 1000\nhot_fresh_ms = 1000\n\
                     warm_fresh_ms = 1000\ncold_fresh_ms = 1000\n";
const FRESH: Duration = Duration::from_millis(1_000);
const READS: usize = 10_000;
/// How long the upstream takes when it is slow.
const SLOW_MS: u64 = 3_000;
const READS_TIMED: usize = 600;
/// Reads that wait for the slowest thing but the upstream take longer.
const WAITED_MS: f64 = 700.0;
/// Longer than a busy machine needs for all reads of a herd.
const HERD_MS: u64 = 30_000;

/// How long the upstream takes from now on.
fn slow(fleet: &Fleet, ms: u64) {
    fleet
        .upstream
        .set(|settings| (settings.latency_min_ms, settings.latency_max_ms) = (ms, ms))
        .unwrap();
}

async fn fresh(fleet: &Fleet, key: &str) -> Value {
    until("a fresh record", || async {
        fleet.read(0, key).await.0["freshness"] == "FRESH"
    })
    .await;
    fleet.read(0, key).await.0
}

/// HIGH events that were sent, by all processes together.
async fn published(fleet: &Fleet) -> u64 {
    let mut all = 0;
    for member in &fleet.members {
        let overview = member.served().get("/v1/refresh").await;
        all += overview["counters"]["published"]["high"].as_u64().unwrap();
    }
    all
}

/// Reads of one record over some connections at once, each with many requests on it.
async fn storm(fleet: &Fleet, key: &str) -> Vec<(Value, Duration)> {
    let clients: Vec<reqwest::Client> = (0..50)
        .map(|_| {
            reqwest::Client::builder()
                .no_proxy()
                .http2_prior_knowledge()
                .build()
                .unwrap()
        })
        .collect();
    let mut reads = JoinSet::new();
    for n in 0..READS {
        let (client, members) = (clients[n % clients.len()].clone(), &fleet.members);
        // A client stays with one process.
        let served = members[n % clients.len() % members.len()].served();
        let url = format!("{}/v1/records/character/{key}", served.url);
        reads.spawn(async move {
            let begun = Instant::now();
            let record: Value = client.get(url).send().await.unwrap().json().await.unwrap();
            (record, begun.elapsed())
        });
    }
    reads.join_all().await
}

async fn herd(behind: Behind, processes: usize) {
    let _turn = turn().await;
    let text =
        budget("") + SHORT + "[refresh.prefetch]\ntick_ms = 3600000\n[refresh.work]\ngrace_ms = 60000\n";
    let fleet = Fleet::start(behind, processes, small(|_| {}), &text).await;
    let known = fresh(&fleet, "anna").await;
    slow(&fleet, HERD_MS);
    // Nobody reads meanwhile, who would ask for it.
    tokio::time::sleep(FRESH + Duration::from_millis(200)).await;
    let before = (fleet.upstream.report().calls, published(&fleet).await);
    let answers = storm(&fleet, "anna").await;
    let (mut stale, mut times) = (0, Vec::new());
    for (record, took) in &answers {
        assert_eq!(record["snapshot"], known["snapshot"], "{record}");
        stale += usize::from(record["freshness"] == "STALE");
        times.push(*took);
    }
    let calls = fleet.upstream.report().calls - before.0;
    println!(
        "{behind:?}: {READS} reads at once, {stale} stale, {calls} calls; p95 {:.0} ms of a machine with as many clients",
        at(0.95, &mut times)
    );
    // The upstream's answer takes longer than all reads together should; one that had come meanwhile would be fresh.
    assert_eq!(calls, 1, "{stale} of {READS} were stale");
    assert_eq!(published(&fleet).await - before.1, 1, "events of {READS} readers");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reads_of_one_stale_record_make_one_call() {
    herd(Behind::Embedded, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reads_through_ten_processes_make_one_call() {
    herd(Behind::Redis, 10).await;
}

/// Reads of a known record and of as many unknown ones, 200 a second whether or not those before were answered. Each counts
/// from the moment that it was due.
async fn timed(fleet: &Fleet, what: &str, known: &str) {
    let served = fleet.members[0].served();
    let mut reads = JoinSet::new();
    let mut beat = tokio::time::interval(Duration::from_millis(5));
    for n in 0..READS_TIMED {
        let due = beat.tick().await;
        let (is_known, http) = (n % 2 == 0, served.http.clone());
        let key = match is_known {
            true => known.to_owned(),
            false => format!("{}{n}", what.replace(' ', "-")),
        };
        let url = format!("{}/v1/records/character/{key}", served.url);
        reads.spawn(async move {
            let record: Value = http.get(url).send().await.unwrap().json().await.unwrap();
            (is_known, record, due.elapsed())
        });
    }
    let mut times = Vec::new();
    for (is_known, record, took) in reads.join_all().await {
        assert!(record["freshness"].is_string(), "{what}: {record}");
        assert!(!is_known || !record["snapshot"].is_null(), "{what}: {record}");
        times.push(took);
    }
    let p95 = at(0.95, &mut times);
    println!(
        "{what}: p50 {:.1} ms, p95 {p95:.1} ms, slowest {:.1} ms",
        at(0.5, &mut times),
        at(1.0, &mut times)
    );
    assert!(p95 < WAITED_MS, "{what}: reads waited, p95 {p95} ms");
}

/// Lets what Kafka and its clients say to each other through once a second.
async fn slowed(proxy: &Proxy) {
    loop {
        proxy.stall(true);
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.stall(false);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// LS-09, LS-10: everything behind the database slows down and goes away, one after the other. An answer that waited for
/// any of it would take a second at least; the figures are printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_wait_for_neither_kafka_nor_redis_nor_the_upstream() {
    let _turn = turn().await;
    let mut fleet = Fleet::start(Behind::Kafka, 1, small(|_| {}), &(budget("") + SHORT)).await;
    fresh(&fleet, "anna").await;
    timed(&fleet, "as it should be", "anna").await;
    slow(&fleet, SLOW_MS);
    timed(&fleet, "upstream slow", "anna").await;
    let proxy = fleet.servers.kafka.as_ref().unwrap().proxy().unwrap();
    tokio::select! {
        () = slowed(proxy) => {}
        () = timed(&fleet, "kafka slow", "anna") => {}
    }
    proxy.stall(true);
    timed(&fleet, "kafka stalled", "anna").await;
    fleet.servers.redis.as_mut().unwrap().kill().unwrap();
    timed(&fleet, "redis gone", "anna").await;
    fleet
        .servers
        .kafka
        .as_mut()
        .unwrap()
        .proxy()
        .unwrap()
        .stall(false);
    fleet.servers.redis.as_mut().unwrap().restart().unwrap();
    slow(&fleet, 0);
    until("it is well again", || async {
        fleet.read(0, "bert").await.0["freshness"] == "FRESH"
    })
    .await;
    fleet.stop().await;
}
