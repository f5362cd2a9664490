//! A database that takes ten seconds for every answer. The breaker stops calls to it, no fetched record is committed,
//! readers get what is available without it, and afterwards HIGH overtakes the backlog of LOW.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::Value;
use tidegate_core::clock::{Clock, SystemClock};
use tokio::task::JoinSet;

use super::fleet::{Backends, FLOOD, Fleet, PATIENCE, at, budget, small, turn};
use crate::support::served::until;

const SLOW: Duration = Duration::from_secs(10);
/// A reader that has no answer by then waits for the database.
const HANGS: Duration = Duration::from_secs(60);
/// HIGH events of each phase: fewer than the process works on at once.
const EVENTS: usize = 120;
const QUERY: &str = "[refresh.query]\ncache_ttl_ms = 50\nread_timeout_ms = 1000\n";
/// Four calls show that it is slow: each takes as long as a write may.
const BREAKER: &str = "[refresh.breaker]\nopen_ms = 1000\nwindow = 4\nprobes = 2\n";
/// Kafka does not take a process that stalls for dead.
const SESSION: &str = "[refresh.log]\nsession_timeout_ms = 45000\n";
/// More than LOW fetches during the test.
const LOW: usize = 20_000;
/// Minimum backlog of LOW when HIGH overtakes it.
const BACKLOG: u64 = 5_000;

/// How long each HIGH refresh took until a reader saw it, and the answers to readers meanwhile.
#[derive(Default)]
struct Seen {
    done: Vec<Duration>,
    reads: Vec<(StatusCode, Duration)>,
}

/// Users who request a refresh, and read the record until it is fresh.
async fn users(http: reqwest::Client, url: String, prefix: &'static str) -> Seen {
    let mut users = JoinSet::new();
    for n in 0..EVENTS {
        let (http, url) = (http.clone(), format!("{url}/v1/records/character/{prefix}{n}"));
        users.spawn(user(http, url));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut seen = Seen::default();
    for (done, reads) in users.join_all().await {
        seen.done.push(done);
        seen.reads.extend(reads);
    }
    seen
}

async fn user(http: reqwest::Client, url: String) -> (Duration, Vec<(StatusCode, Duration)>) {
    let begun = Instant::now();
    let mut reads = Vec::new();
    let refresh = format!("{url}/refresh");
    while http.post(&refresh).send().await.unwrap().status() != 202 {
        assert!(begun.elapsed() < PATIENCE, "{url} is not queued");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    loop {
        let read = Instant::now();
        let response = http.get(&url).send().await.unwrap();
        let status = response.status();
        let record: Value = response.json().await.unwrap();
        reads.push((status, read.elapsed()));
        if record["freshness"] == "FRESH" {
            return (begun.elapsed(), reads);
        }
        assert!(begun.elapsed() < PATIENCE, "{url}: {record}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Readers of stored and of unknown records. Each is answered: with what is available, or that nothing is.
async fn readers_are_answered(fleet: &Fleet) {
    let served = fleet.members[0].served();
    let mut reads = JoinSet::new();
    for prefix in ["before", "unknown"] {
        for n in 0..EVENTS {
            let url = format!("{}/v1/records/character/{prefix}{n}", served.url);
            let read = served.http.get(url).timeout(HANGS);
            reads.spawn(async move { read.send().await.unwrap().status() });
        }
    }
    for status in reads.join_all().await {
        assert!(status == 200 || status == 503, "{status}");
    }
}

fn calls(fleet: &Fleet, prefix: &str) -> u64 {
    let keys = fleet.upstream.report().keys;
    let calls = keys.iter().filter(|(key, _)| key.starts_with(prefix));
    calls.map(|(_, calls)| calls).sum()
}

async fn waiting(fleet: &Fleet, priority: &str) -> u64 {
    fleet.overview(0).await["lag"][priority]["records"]
        .as_u64()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_ten_seconds_opens_the_breaker_and_loses_nothing() {
    let _turn = turn().await;
    let flood = FLOOD.replace("claim_ms = 5000", "claim_ms = 60000");
    let settings = budget("validity_ms = 50\n") + &flood + QUERY + BREAKER + SESSION;
    let fleet = Fleet::start(Backends::Kafka, 1, small(|_| {}), &settings).await;
    // Nothing is fetched before the backlog is large enough.
    fleet.hold(true);
    fleet.seed("low", LOW).await;
    let since = SystemClock.now();
    let served = fleet.members[0].served();
    let users = |prefix| users(served.http.clone(), served.url.clone(), prefix);
    until("low piles up", || async {
        waiting(&fleet, "low").await > 2 * BACKLOG
    })
    .await;
    fleet.hold(false);
    let mut before = users("before").await;

    let database = fleet.servers.postgres_proxy.as_ref().unwrap();
    database.delay_replies(SLOW);
    let slow = Instant::now();
    let during = tokio::spawn(users("during"));
    until("the breaker is open", || async {
        fleet.overview(0).await["breakers"]["database"] != "CLOSED"
    })
    .await;
    until("all of them are fetched", || async {
        calls(&fleet, "during") >= EVENTS as u64
    })
    .await;
    // Longer than an answer takes: by then it would show if a late write counted as done.
    tokio::time::sleep((SLOW + Duration::from_secs(2)).saturating_sub(slow.elapsed())).await;
    let withheld = waiting(&fleet, "high").await;
    assert!(
        withheld >= EVENTS as u64,
        "{withheld} of {EVENTS} wait to be committed"
    );
    // The database answers nothing before all readers have their answers.
    database.stall(true);
    readers_are_answered(&fleet).await;
    database.stall(false);

    database.delay_replies(Duration::ZERO);
    let normal = Instant::now();
    let mut during = during.await.unwrap();
    until("the breaker is closed", || async {
        fleet.overview(0).await["breakers"]["database"] == "CLOSED"
    })
    .await;
    let closed = normal.elapsed();
    until("low has enough to do", || async {
        waiting(&fleet, "low").await > BACKLOG
    })
    .await;
    let low = calls(&fleet, "low");
    let after = tokio::spawn(users("after"));
    until("high is fetched", || async {
        calls(&fleet, "after") >= EVENTS as u64
    })
    .await;
    let low = calls(&fleet, "low") - low;
    let mut after = after.await.unwrap();

    let refused = during.reads.iter().filter(|(status, _)| *status == 503).count();
    let answered = during.reads.iter().filter(|(status, _)| *status == 200).count();
    let mut times: Vec<Duration> = during.reads.iter().map(|(_, took)| *took).collect();
    println!(
        "HIGH done p95: before {:.0} ms, during {:.0} ms, after {:.0} ms, past {BACKLOG} LOW events and more, of which \
         {low} were fetched meanwhile; the breaker closed {} ms after the database recovered; {withheld} commits withheld; \
         reads meanwhile: {answered} answered, {refused} refused, p95 {:.0} ms, slowest {:.0} ms",
        at(0.95, &mut before.done),
        at(0.95, &mut during.done),
        at(0.95, &mut after.done),
        closed.as_millis(),
        at(0.95, &mut times),
        at(1.0, &mut times),
    );
    assert_eq!(refused + answered, during.reads.len(), "{:?}", during.reads);
    // Fetched once, although the write took long.
    assert_eq!(calls(&fleet, "during"), EVENTS as u64);
    assert!(low < BACKLOG, "HIGH waited for {low} that were there before it");
    let keys: Vec<String> = ["before", "during", "after"]
        .iter()
        .flat_map(|prefix| (0..EVENTS).map(move |n| format!("{prefix}{n}")))
        .collect();
    fleet.until_refreshed(&keys, since).await;
    fleet.stop().await;
}
