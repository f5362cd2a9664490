//! The provider's own count of a day never exceeds the quota: with processes that are killed, stopped, or have their
//! clock stepped to the next day.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::fleet::{Backends, FLOOD, Fleet, PATIENCE, assert_within, budget, midday, small, turn};
use crate::support::served::until;

const QUOTA: u64 = 1_500;
const BLOCK: u64 = 50;
/// From about noon in the provider's zone to an hour after the next midnight.
const TOMORROW: i64 = 13 * 3_600;
/// A process retries parked events soon after its clock says that the next day has begun.
const WATCH: &str = "[refresh.watch]\nlag_every_ms = 500\nfollow_every_ms = 100\nretry_every_ms = 500\n";

/// Events parked because the day's quota is used up, in all processes.
async fn parked(fleet: &Fleet) -> u64 {
    let mut all = 0;
    for index in 0..fleet.members.len() {
        let overview = fleet.overview(index).await;
        all += overview["counters"]["parked"].as_u64().unwrap();
    }
    all
}

/// Requests more records, and waits until the event of each is parked.
async fn parks(fleet: &Fleet, index: usize, prefix: &str) {
    let before = parked(fleet).await;
    let keys: Vec<String> = (0..50).map(|n| format!("{prefix}{n}")).collect();
    fleet.request_all(index, &keys).await;
    until("the events are parked", || async {
        parked(fleet).await >= before + keys.len() as u64
    })
    .await;
}

/// Waits until a read reports that the day's quota is used up.
async fn used_up(fleet: &Fleet) {
    let begun = Instant::now();
    // Each time a record that nobody has requested, so that it is not stored.
    for n in 0.. {
        let (record, _) = fleet.read(0, &format!("anna{n}")).await;
        if record["why"]["code"] == "DAY_USED_UP" {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{record}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Kills and restarts one process, stops and continues one, and steps the clock of one over midnight and back: in the
/// middle of the day's work, and again when the quota is used up. With one process all of it happens to that one.
async fn day(backends: Backends, processes: usize) {
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.per_day = QUOTA;
        settings.utc_offset_s = (midday() * 60) as i32;
    });
    // Tokens that a busy machine does not use in time are lost for the day, so they are valid for long.
    let limits = format!(
        "per_day = {QUOTA}\nday_reserve = 100\nday_block = {BLOCK}\nrate = 200\nvalidity_ms = 1000\nlow_cap = 200\n"
    );
    let mut fleet = Fleet::start(backends, processes, upstream, &(budget(&limits) + FLOOD + WATCH)).await;
    let [killed, stopped, stepped] = [0, 1, 2].map(|index| index % processes);
    let keys: Vec<String> = (0..2_500).map(|n| format!("high{n}")).collect();
    fleet.read_until_queued(0, &keys).await;

    fleet.calls_reach(250).await;
    fleet.members[stopped].signal(Signal::STOP);
    if processes > 1 {
        fleet.calls_reach(450).await;
    } else {
        // Longer than any of its tokens is valid; no other process calls meanwhile.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    fleet.members[stopped].signal(Signal::CONT);
    fleet.members[stepped].clock.step(TOMORROW);
    fleet.calls_reach(700).await;
    fleet.members[killed].kill().await;
    fleet.revive(killed).await;
    fleet.calls_reach(850).await;
    fleet.members[stepped].clock.step(0);
    // A kill costs a block at most. Like a stop and a stall, it also costs the tokens that were not used.
    used_up(&fleet).await;
    let by_then = fleet.upstream.report().calls;

    fleet.members[stepped].clock.step(TOMORROW);
    parks(&fleet, stepped, "tomorrow").await;
    fleet.members[stepped].clock.step(0);
    parks(&fleet, stepped, "today").await;
    let report = fleet.upstream.report();
    println!(
        "{backends:?}, {processes} processes: {} of {QUOTA} calls in a day, {} of them after it was used up",
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
    day(Backends::Redis, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_on_kafka_and_postgres_is_never_exceeded() {
    day(Backends::Kafka, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_in_a_folder_is_never_exceeded() {
    day(Backends::Embedded, 1).await;
}
