//! A log that lags: records that are asked for without end are refreshed at every pass, and LOW stands back for HIGH.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fleet::{Behind, FLOOD, Fleet, PATIENCE, budget, small, turn};
use crate::support::served::until;

const RECORDS: usize = 1_000;
/// A refresh absorbs readers for so long.
const LOCK_MS: u64 = 250;
/// How often every record is refreshed at least.
const PASSES: u64 = 4;

/// What keeps a record from being asked for again once it was refreshed is far shorter than the lag: 1,000 calls at 250 per
/// second take four seconds.
fn restless() -> String {
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
    // Tokens that a busy machine uses late are not lost.
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

/// B-138: readers ask again as soon as a record was refreshed, and long before a worker comes to the event of theirs.
async fn asked_for_without_end(behind: Behind) {
    let _turn = turn().await;
    let fleet = Fleet::start(behind, 2, small(|_| {}), &restless()).await;
    let begun = Instant::now();
    let mut lags = Vec::new();
    let counts = loop {
        read_all(&fleet, lags.len() % 2).await;
        let overview = fleet.overview(0).await;
        lags.push(overview["lag"]["high"]["oldestMs"].as_u64().unwrap_or(0));
        let counts: Vec<u64> = fleet.upstream.report().keys.into_values().collect();
        let least = counts.iter().min().copied().unwrap_or(0);
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
    let calls: u64 = counts.iter().sum();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    // Before the first ones are worked on there is nothing to be late.
    let longest = *lags.iter().max().unwrap();
    println!(
        "{behind:?}: {RECORDS} records asked for {} times in {:.0} s, {calls} calls: each refreshed at least {least} and at \
         most {most} times, with a lag of up to {:.1} s and locks of {LOCK_MS} ms",
        lags.len(),
        begun.elapsed().as_secs_f64(),
        longest as f64 / 1_000.0
    );
    assert!(longest >= 10 * LOCK_MS, "the log lags by {longest} ms");
    // Several partitions move at their own pace, but none is passed over again and again.
    assert!(least * 3 >= *most, "{least} and {most}");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_asked_for_without_end_are_refreshed_at_every_pass_on_redis() {
    asked_for_without_end(Behind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_asked_for_without_end_are_refreshed_at_every_pass_on_kafka() {
    asked_for_without_end(Behind::Kafka).await;
}

/// Calls by priority, as the upstream has counted them.
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

/// Events that are in hand when LOW is told to stand back: worked on, and taken on for the next free hand.
const IN_HAND: u64 = 40;

/// LS-16, with the thresholds that are the default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_stands_back_while_high_lags_on_kafka() {
    let _turn = turn().await;
    let work = format!("low_in_flight = {}\n", IN_HAND / 2);
    let watch = "[refresh.watch]\nlag_every_ms = 100\nfollow_every_ms = 100\n";
    let settings = budget("validity_ms = 50\n") + FLOOD + &work + watch;
    let fleet = Fleet::start(Behind::Kafka, 1, small(|_| {}), &settings).await;
    fleet.seed("low", 4_000).await;
    until("low is worked on", || async { calls(&fleet).low > 100 }).await;
    let before = calls(&fleet);

    // The reads take a moment; LOW may stand back before all of them have come.
    let keys: Vec<String> = (0..3_000).map(|n| format!("high{n}")).collect();
    let (mut paused, mut resumed) = (None, None);
    let watching = async {
        loop {
            let overview = fleet.overview(0).await;
            let lag = &overview["lag"];
            let (waiting, low_waits) = (lag["high"]["records"].as_u64().unwrap(), lag["lowPaused"] == true);
            match (low_waits, paused) {
                (true, None) => paused = Some((waiting, calls(&fleet))),
                (false, Some(_)) => {
                    resumed = Some((waiting, calls(&fleet)));
                    return;
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let both = async { tokio::join!(fleet.ask_for_all(0, &keys), watching) };
    tokio::time::timeout(PATIENCE, both)
        .await
        .expect("LOW stands back and goes on");
    let ((above, at_pause), (below, at_resume)) = (paused.unwrap(), resumed.unwrap());
    let meanwhile = Calls {
        high: at_resume.high - at_pause.high,
        low: at_resume.low - at_pause.low,
    };
    println!(
        "LOW ran ({} calls), stood back at {above} waiting HIGH events, went on at {below}; meanwhile {} calls of HIGH, \
         {} of LOW",
        before.low, meanwhile.high, meanwhile.low
    );
    assert!(above > 1_000 && below < 500, "{above} and {below}");
    // Only what was in hand, and what the pause did not reach yet because it is looked at 10 times a second.
    assert!(meanwhile.low <= IN_HAND + 60, "{meanwhile:?}");
    assert!(meanwhile.high >= 1_000, "{meanwhile:?}");
    until("low goes on", || async {
        calls(&fleet).low > at_resume.low + 200
    })
    .await;
    fleet.stop().await;
}
