//! A log that lags: records that are read continuously are refreshed at every pass, and LOW pauses for HIGH.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_log::partition_of;

use super::fleet::{Backends, FLOOD, Fleet, PATIENCE, budget, small, turn};
use crate::support::served::until;

const RECORDS: usize = 1_000;
/// How long a refresh absorbs further requests.
const LOCK_MS: u64 = 250;
/// Minimum number of refreshes of every record.
const PASSES: u64 = 4;

/// A record may be requested again long before the log has caught up: 1,000 calls at 250 per second take four
/// seconds.
fn short_marks() -> String {
    let fresh: String = [
        "hot_ms",
        "warm_ms",
        "cold_ms",
        "hot_fresh_ms",
        "warm_fresh_ms",
        "cold_fresh_ms",
    ]
    .map(|name| format!("{name} = 100\n"))
    .concat();
    let locks = format!("high_mark_ms = {LOCK_MS}\nlow_mark_ms = {LOCK_MS}\n");
    // Tokens that a busy machine uses late stay valid.
    budget("rate = 250\nvalidity_ms = 500\nlow_cap = 250\n")
        + "[refresh.tiers]\n"
        + &fresh
        + "[refresh.coalescer]\n"
        + &locks
        + "[refresh.prefetch]\ntick_ms = 3600000\n[refresh.work]\nclaim_ms = 5000\ngrace_ms = 1000\n"
}

/// Reads all of them once, through one process.
async fn read_all(fleet: &Fleet, index: usize) {
    let served = fleet.members[index].served();
    let record = |n: usize| json!({ "source": "character", "key": format!("k{n}") });
    let records: Vec<Value> = (0..RECORDS).map(record).collect();
    let request = served.http.post(format!("{}/v1/records/read", served.url));
    let response = request.json(&json!({ "records": records })).send().await.unwrap();
    assert_eq!(response.status(), 200);
}

/// The partition of a record's HIGH events, of the 24 that there are by default.
fn partition(key: &str) -> u32 {
    partition_of(format!("9:character/{key}").as_bytes(), 24)
}

/// Readers request a record again as soon as it was refreshed, long before a worker reaches their event.
async fn read_continuously(backends: Backends) {
    let _turn = turn().await;
    let fleet = Fleet::start(backends, 2, small(|_| {}), &short_marks()).await;
    let begun = Instant::now();
    let mut lags = Vec::new();
    let counts = loop {
        read_all(&fleet, lags.len() % 2).await;
        let overview = fleet.overview(0).await;
        lags.push(overview["lag"]["high"]["oldestMs"].as_u64().unwrap_or(0));
        let counts = fleet.upstream.report().keys;
        let least = counts.values().min().copied().unwrap_or(0);
        if counts.len() == RECORDS && least >= PASSES {
            break counts;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{} of them, the least {least} times",
            counts.len()
        );
        tokio::time::sleep(Duration::from_millis(LOCK_MS)).await;
    };
    let calls: u64 = counts.values().sum();
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    // Before the first events are processed there is no lag.
    let longest = *lags.iter().max().unwrap();
    println!(
        "{backends:?}: {RECORDS} records read {} times in {:.0} s, {calls} calls: each refreshed at least {least} and at \
         most {most} times, with a lag of up to {:.1} s and locks of {LOCK_MS} ms",
        lags.len(),
        begun.elapsed().as_secs_f64(),
        longest as f64 / 1_000.0
    );
    assert!(longest >= 10 * LOCK_MS, "the log lags by {longest} ms");
    // Partitions advance at the pace of their consumers, but within one no record is starved.
    let mut partitions: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (key, count) in &counts {
        partitions.entry(partition(key)).or_default().push(*count);
    }
    assert_eq!(partitions.len(), 24);
    for (partition, counts) in partitions {
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(least * 2 >= *most, "{least} and {most} in partition {partition}");
    }
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_read_continuously_are_refreshed_at_every_pass_on_redis() {
    read_continuously(Backends::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_read_continuously_are_refreshed_at_every_pass_on_kafka() {
    read_continuously(Backends::Kafka).await;
}

/// Calls by priority, as the provider has counted them.
#[derive(Debug, Clone, Copy)]
struct Calls {
    high: u64,
    low: u64,
}

fn calls(fleet: &Fleet) -> Calls {
    let keys = fleet.upstream.report().keys;
    let of = |prefix: &str| {
        let calls = keys.iter().filter(|(key, _)| key.starts_with(prefix));
        calls.map(|(_, calls)| calls).sum()
    };
    Calls {
        high: of("high"),
        low: of("low"),
    }
}

/// LOW events in flight when LOW pauses: in work, or taken for the next free worker.
const IN_FLIGHT: u64 = 40;

/// With the default thresholds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_pauses_while_high_lags_on_kafka() {
    let _turn = turn().await;
    let work = format!("low_in_flight = {}\n", IN_FLIGHT / 2);
    let watch = "[refresh.watch]\nlag_every_ms = 100\nfollow_every_ms = 100\n";
    let settings = budget("validity_ms = 50\n") + FLOOD + &work + watch;
    let fleet = Fleet::start(Backends::Kafka, 1, small(|_| {}), &settings).await;
    fleet.seed("low", 12_000).await;
    until("LOW calls", || async { calls(&fleet).low > 100 }).await;

    // No call arrives: nothing moves until LOW pauses.
    fleet.hold(true);
    let before = calls(&fleet);
    let keys: Vec<String> = (0..3_000).map(|n| format!("high{n}")).collect();
    fleet.read_until_queued(0, &keys).await;
    let lag = || async {
        let mut overview = fleet.overview(0).await;
        overview["lag"].take()
    };
    until("LOW pauses", || async { lag().await["lowPaused"] == true }).await;
    let above = lag().await["high"]["records"].as_u64().unwrap();
    fleet.hold(false);

    let begun = Instant::now();
    let (mut polls, mut low) = (0, before.low);
    let (below, at_resume) = loop {
        // In this order: if LOW is still paused, the calls up to now were made during the pause.
        let now = calls(&fleet);
        let lag = lag().await;
        if lag["lowPaused"] == false {
            break (lag["high"]["records"].as_u64().unwrap(), calls(&fleet));
        }
        (polls, low) = (polls + 1, now.low);
        // The events in flight, and those of the last poll before the pause.
        assert!(
            low - before.low <= 2 * IN_FLIGHT,
            "{before:?}, and {now:?} in the pause"
        );
        assert!(begun.elapsed() < PATIENCE, "LOW does not resume: {lag}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!(
        "LOW ran ({} calls), paused at {above} waiting HIGH events, resumed at {below}; by then {} calls of HIGH; in \
         {polls} polls meanwhile {} of LOW",
        before.low,
        at_resume.high,
        low - before.low
    );
    assert!(above > 1_000 && below < 500, "{above} and {below}");
    assert!(at_resume.high > 2_500, "{at_resume:?}");
    until("LOW resumes", || async {
        calls(&fleet).low > at_resume.low + 200
    })
    .await;
    fleet.stop().await;
}
