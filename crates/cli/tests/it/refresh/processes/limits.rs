//! The provider's own count of a second never exceeds what it allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidegate_upstream::Report;

use super::fleet::{Backends, FLOOD, Fleet, assert_within, at, budget, midday, small, turn};

/// Readers of unknown records: every read causes a HIGH event. Returns how long the reads took.
struct Readers {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<Duration>>,
}

impl Readers {
    /// About `per_second` reads, at these addresses in turn, of records with this prefix.
    fn start(urls: Vec<String>, http: reqwest::Client, name: String, per_second: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut reads = tokio::task::JoinSet::new();
            let mut beat = tokio::time::interval(Duration::from_secs(1) / per_second);
            for n in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                beat.tick().await;
                let url = format!("{}/v1/records/character/{name}{n}", urls[n % urls.len()]);
                let http = http.clone();
                reads.spawn(async move {
                    let begun = Instant::now();
                    let answered = http.get(url).timeout(Duration::from_secs(60)).send().await;
                    // A process that was stopped or killed does not answer.
                    answered.ok().filter(|answer| answer.status() == 200)?;
                    Some(begun.elapsed())
                });
            }
            reads.join_all().await.into_iter().flatten().collect()
        });
        Self { stop, task }
    }

    async fn stop(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

fn print(what: &str, report: &Report, reads: &mut [Duration]) {
    println!(
        "{what}: {} calls, most in a second {}, by second {:?}",
        report.calls, report.max_in_second, report.seconds
    );
    println!(
        "  reads {}: p50 {:.1} ms, p95 {:.1} ms, p99 {:.1} ms",
        reads.len(),
        at(0.5, reads),
        at(0.95, reads),
        at(0.99, reads)
    );
}

/// Four processes with more work than the budget allows. One is stopped and continued, the clock of one is stepped,
/// one is killed and restarted.
async fn disturbed(backends: Backends) {
    let _turn = turn().await;
    let upstream = small(|settings| settings.utc_offset_s = (midday() * 60) as i32);
    let mut fleet = Fleet::start(backends, 4, upstream, &(budget("") + FLOOD)).await;
    fleet.seed("low", 12_000).await;
    let urls = fleet
        .members
        .iter()
        .map(|member| member.served().url.clone())
        .collect();
    let http = fleet.members[0].served().http.clone();
    let readers = Readers::start(urls, http, "high".to_owned(), 200);

    fleet.calls_grow(1_000).await;
    fleet.members[1].signal(Signal::STOP);
    fleet.members[2].clock.step(3_600);
    fleet.calls_grow(1_000).await;
    fleet.members[1].signal(Signal::CONT);
    fleet.members[2].clock.step(-3_600);
    fleet.calls_grow(1_000).await;
    fleet.members[3].kill().await;
    fleet.members[2].clock.step(0);
    fleet.calls_grow(500).await;
    fleet.revive(3).await;
    fleet.calls_grow(1_000).await;
    let mut reads = readers.stop().await;
    let report = fleet.upstream.report();
    print(&format!("{backends:?}"), &report, &mut reads);

    assert_within(&report, 500, 450);
    assert!(!reads.is_empty(), "nobody was answered");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_redis_never_exceed_a_second() {
    disturbed(Backends::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_kafka_and_postgres_never_exceed_a_second() {
    disturbed(Backends::Kafka).await;
}

/// One process that is killed repeatedly, each time in the middle of its work, with its clock stepped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_and_clock_steps_never_exceed_a_second() {
    let _turn = turn().await;
    let mut fleet = Fleet::start(Backends::Embedded, 1, small(|_| {}), &(budget("") + FLOOD)).await;
    for round in 0..4 {
        let member = &fleet.members[0];
        let (url, http) = (member.served().url.clone(), member.served().http.clone());
        let readers = Readers::start(vec![url], http, format!("round{round}-"), 300);
        fleet.calls_grow(600).await;
        member.clock.step([3_600, -60, 0, 5][round]);
        fleet.calls_grow(200).await;
        fleet.members[0].kill().await;
        readers.stop().await;
        fleet.revive(0).await;
    }
    let report = fleet.upstream.report();
    print("restarts", &report, &mut []);
    assert_within(&report, 500, 450);
    fleet.stop().await;
}
