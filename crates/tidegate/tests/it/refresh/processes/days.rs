//! The upstream's own count of a day: never above the quota, whoever is killed, stopped, or believes that it is tomorrow.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::fleet::{Behind, FLOOD, Fleet, PATIENCE, assert_within, budget, midday, small, turn};
use crate::support::served::until;

const QUOTA: u64 = 1_500;
const BLOCK: u64 = 50;
/// It is about noon in the provider's zone: an hour after the next midnight.
const TOMORROW: i64 = 13 * 3_600;
/// Events that are put aside until tomorrow are looked for at once when it seems to be tomorrow.
const WATCH: &str = "[refresh.watch]\nlag_every_ms = 500\nfollow_every_ms = 100\nretry_every_ms = 500\n";

/// Events that were put aside because the day is used up, in all processes.
async fn parked(fleet: &Fleet) -> u64 {
    let mut all = 0;
    for index in 0..fleet.members.len() {
        let overview = fleet.overview(index).await;
        all += overview["counters"]["parked"].as_u64().unwrap();
    }
    all
}

/// More is asked for, and all of it has been refused: each is an event of its own, whoever heard of it in time.
async fn refused(fleet: &Fleet, index: usize, prefix: &str) {
    let before = parked(fleet).await;
    let keys: Vec<String> = (0..50).map(|n| format!("{prefix}{n}")).collect();
    fleet.request_all(index, &keys).await;
    until("they are put aside", || async {
        parked(fleet).await >= before + keys.len() as u64
    })
    .await;
}

/// Waits until a reader is told that the day has nothing left.
async fn used_up(fleet: &Fleet) {
    let begun = Instant::now();
    // Each a record that nobody has asked for, so that none is there already.
    for n in 0.. {
        let (record, _) = fleet.read(0, &format!("anna{n}")).await;
        if record["why"]["code"] == "DAY_USED_UP" {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{record}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// One process is killed and comes back, one is stopped and goes on, and the clock of one is stepped over midnight and
/// back: in the middle of the day's work, and again when the day is used up. With one process all of it happens to it.
async fn day(behind: Behind, processes: usize) {
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.per_day = QUOTA;
        settings.utc_offset_s = (midday() * 60) as i32;
    });
    // Tokens that a busy machine does not use in time are gone from the day: they are valid for long.
    let limits = format!(
        "per_day = {QUOTA}\nday_reserve = 100\nday_block = {BLOCK}\nrate = 200\nvalidity_ms = 1000\nlow_cap = 200\n"
    );
    let mut fleet = Fleet::start(behind, processes, upstream, &(budget(&limits) + FLOOD + WATCH)).await;
    let [killed, stopped, stepped] = [0, 1, 2].map(|index| index % processes);
    let keys: Vec<String> = (0..2_500).map(|n| format!("high{n}")).collect();
    fleet.ask_for_all(0, &keys).await;

    fleet.calls_reach(250).await;
    fleet.members[stopped].signal(Signal::STOP);
    if processes > 1 {
        fleet.calls_reach(450).await;
    } else {
        // Nobody else calls meanwhile: longer than any token of it is valid.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    fleet.members[stopped].signal(Signal::CONT);
    fleet.members[stepped].clock.step(TOMORROW);
    fleet.calls_reach(700).await;
    fleet.members[killed].kill().await;
    fleet.revive(killed).await;
    fleet.calls_reach(850).await;
    fleet.members[stepped].clock.step(0);
    // A kill costs a block at most, and, like a stop and a stall, the tokens that were not used any more.
    used_up(&fleet).await;
    let by_then = fleet.upstream.report().calls;

    fleet.members[stepped].clock.step(TOMORROW);
    refused(&fleet, stepped, "tomorrow").await;
    fleet.members[stepped].clock.step(0);
    refused(&fleet, stepped, "today").await;
    let report = fleet.upstream.report();
    println!(
        "{behind:?}, {processes} processes: {} of {QUOTA} calls in a day, {} of them after it was used up",
        report.calls,
        report.calls - by_then
    );
    assert_within(&report, 500, 200);
    assert_eq!(report.days.len(), 1, "{:?}", report.days);
    assert!(report.calls <= QUOTA);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_on_redis_is_never_exceeded() {
    day(Behind::Redis, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_on_kafka_and_postgres_is_never_exceeded() {
    day(Behind::Kafka, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_in_a_folder_is_never_exceeded() {
    day(Behind::Embedded, 1).await;
}
