//! Reads wait for nothing: not for the provider, not for the log, not for Redis. Many of them make one call.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_testkit::servers::Proxy;
use tokio::task::JoinSet;

use super::fleet::{Backends, Fleet, at, budget, small, turn};
use crate::support::served::until;

/// Stale after a second.
const SHORT: &str = "[refresh.tiers]\nhot_ms = 1000\nwarm_ms = 1000\ncold_ms = 1000\nhot_fresh_ms = 1000\n\
                     warm_fresh_ms = 1000\ncold_fresh_ms = 1000\n";
const FRESH: Duration = Duration::from_millis(1_000);
/// A send to the log may take longer than a read: a machine that stalls must not look like an unavailable log.
const PATIENT: &str = "[refresh.query]\ncache_ttl_ms = 50\nread_timeout_ms = 30000\nrequest_timeout_ms = 100000\n\
                       [refresh.log]\nsend_timeout_ms = 100000\n[refresh.coalescer]\nsend_timeout_ms = 300000\n";
/// A reader that has no answer by then waits for something.
const HANGS: Duration = Duration::from_secs(60);
const READS: usize = 10_000;
const READS_TIMED: usize = 600;

async fn fresh(fleet: &Fleet, key: &str) -> Value {
    until("a fresh record", || async {
        fleet.read(0, key).await.0["freshness"] == "FRESH"
    })
    .await;
    fleet.read(0, key).await.0
}

/// HIGH events sent and settled, by all processes together.
async fn events(fleet: &Fleet) -> (u64, u64) {
    let (mut sent, mut settled) = (0, 0);
    for member in &fleet.members {
        let overview = member.served().get("/v1/refresh").await;
        let counters = &overview["counters"];
        sent += counters["published"]["high"].as_u64().unwrap() - counters["sendFailed"].as_u64().unwrap();
        settled += counters["settled"]["high"].as_u64().unwrap();
    }
    (sent, settled)
}

/// Reads of one record over several connections, each with many concurrent requests.
async fn storm(fleet: &Fleet, key: &str) -> Vec<(Value, Duration)> {
    let clients: Vec<reqwest::Client> = (0..50)
        .map(|_| {
            reqwest::Client::builder()
                .no_proxy()
                .http2_prior_knowledge()
                .timeout(2 * HANGS)
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

/// The provider does not answer before all readers are answered.
async fn herd(backends: Backends, processes: usize) {
    let _turn = turn().await;
    let text = budget("")
        + SHORT
        + PATIENT
        + "[refresh.prefetch]\ntick_ms = 3600000\n[refresh.work]\ngrace_ms = 60000\n";
    let fleet = Fleet::start(backends, processes, small(|_| {}), &text).await;
    let known = fresh(&fleet, "anna").await;
    // From here on nobody reads it, which would request a refresh, until it is stale.
    until("all events are settled", || async {
        let (sent, settled) = events(&fleet).await;
        settled >= sent
    })
    .await;
    fleet.hold(true);
    tokio::time::sleep(FRESH + Duration::from_millis(200)).await;
    let answers = storm(&fleet, "anna").await;
    let (mut stale, mut times) = (0, Vec::new());
    for (record, took) in &answers {
        assert_eq!(record["snapshot"], known["snapshot"], "{record}");
        stale += usize::from(record["freshness"] == "STALE");
        times.push(*took);
    }
    until("the provider is called", || async { fleet.held() > 0 }).await;
    println!(
        "{backends:?}: {READS} reads at once, {stale} stale, {} calls; p95 {:.0} ms, with the clients on the same machine",
        fleet.held(),
        at(0.95, &mut times)
    );
    // As many events as calls since the start: none waits behind the one that is being fetched.
    let sent = fleet.upstream.report().sent;
    until("events are counted", || async { events(&fleet).await.0 >= sent }).await;
    assert_eq!(events(&fleet).await.0, sent, "events of {READS} readers");
    assert_eq!(fleet.held(), 1, "{stale} of {READS} were stale");
    fleet.hold(false);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reads_of_one_stale_record_make_one_call() {
    herd(Backends::Embedded, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reads_through_ten_processes_make_one_call() {
    herd(Backends::Redis, 10).await;
}

/// Reads a known record and as many unknown ones, 200 per second, whether or not earlier reads were answered. All are
/// answered. Prints the latencies, from the time at which each read was due.
async fn answered(fleet: &Fleet, what: &str, known: &str) {
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
            let sent = http.get(url).timeout(HANGS).send().await;
            let record: Value = sent.unwrap().json().await.unwrap();
            (is_known, record, due.elapsed())
        });
    }
    let mut times = Vec::new();
    for (is_known, record, took) in reads.join_all().await {
        assert!(record["freshness"].is_string(), "{what}: {record}");
        assert!(!is_known || !record["snapshot"].is_null(), "{what}: {record}");
        times.push(took);
    }
    println!(
        "{what}: p50 {:.1} ms, p95 {:.1} ms, slowest {:.1} ms",
        at(0.5, &mut times),
        at(0.95, &mut times),
        at(1.0, &mut times)
    );
}

/// Lets traffic between Kafka and its clients through once a second.
async fn slowed(proxy: &Proxy) {
    loop {
        proxy.stall(true);
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.stall(false);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Everything but the database stalls or fails, one after the other, and recovers only when all readers have their
/// answers. Nothing was fetched for any of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_wait_for_neither_kafka_nor_redis_nor_the_provider() {
    let _turn = turn().await;
    let settings = budget("") + SHORT + PATIENT;
    let mut fleet = Fleet::start(Backends::Kafka, 1, small(|_| {}), &settings).await;
    fresh(&fleet, "anna").await;
    answered(&fleet, "all available", "anna").await;
    fleet.hold(true);
    until("the provider stalls", || async {
        // The record becomes stale again and again.
        fleet.read(0, "anna").await;
        fleet.held() > 0
    })
    .await;
    let before = fleet.upstream.report().calls;
    answered(&fleet, "provider stalled", "anna").await;
    let proxy = fleet.servers.kafka.as_ref().unwrap().proxy().unwrap();
    tokio::select! {
        () = slowed(proxy) => {}
        () = answered(&fleet, "kafka slow", "anna") => {}
    }
    proxy.stall(true);
    answered(&fleet, "kafka stalled", "anna").await;
    fleet.servers.redis.as_mut().unwrap().pause().unwrap();
    answered(&fleet, "redis stalled", "anna").await;
    fleet.servers.redis.as_mut().unwrap().resume().unwrap();
    fleet.servers.redis.as_mut().unwrap().kill().unwrap();
    answered(&fleet, "redis killed", "anna").await;
    assert_eq!(fleet.upstream.report().calls, before, "the provider was called");

    fleet.servers.redis.as_mut().unwrap().restart().unwrap();
    let proxy = fleet.servers.kafka.as_ref().unwrap().proxy().unwrap();
    proxy.stall(false);
    fleet.hold(false);
    until("records are refreshed again", || async {
        fleet.read(0, "bert").await.0["freshness"] == "FRESH"
    })
    .await;
    fleet.stop().await;
}
