//! A promotion reaches whichever process holds the person now, also when the one that it was meant for, or the one that made
//! it, has just died.
//!
//! The promise is a second; a machine that is busy with something else may take longer. What is asserted separates it from a
//! promotion that got lost with a process: nobody would look at such a ticket before its pass is over, after an hour.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::brokers::Brokers;
use super::told_after;
use super::visitor::Stream;
use crate::support::served::until;

const ROUNDS: usize = 6;
const PEOPLE: usize = 6;
/// Nobody counts as absent because a machine, or a process that a test stops, stands still for a while.
const ROOM: &str = "presence_ms = 90000\npass_ms = 3600000";
/// Longer than any machine needs, and long before a pass is over.
const SOON: Duration = Duration::from_secs(300);

/// Who was let in, and when that was heard.
struct Heard {
    pass: String,
    at: Instant,
    /// When the last connection began.
    connected: Instant,
}

fn pass_of(place: &Value) -> String {
    place["pass"]["token"].as_str().unwrap().to_owned()
}

async fn waits(brokers: &Brokers, number: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for _ in 0..PEOPLE {
        let mut stream = Stream::open(brokers.address(number), None).await.unwrap();
        stream.until("queued").await.unwrap();
        streams.push(stream);
    }
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_back_elsewhere_is_told_of_a_promotion_around_the_death_of_their_process() {
    let mut brokers = Brokers::start(3, ROOM).await;
    let (mut times, mut passes) = (Vec::new(), HashSet::new());
    for round in 0..ROUNDS {
        let (dies, other) = (round, round + 1);
        let back = Arc::new(AtomicUsize::new(0));
        let mut visits = Vec::new();
        for (number, mut stream) in waits(&brokers, dies).await.into_iter().enumerate() {
            // Half of them go to each of the two that live.
            let elsewhere = brokers.address(other + number % 2);
            let back = back.clone();
            visits.push(tokio::spawn(async move {
                let mut connected = Instant::now();
                if let Ok(place) = stream.until("granted").await {
                    let pass = pass_of(&place);
                    let at = Instant::now();
                    return Heard { pass, at, connected };
                }
                tokio::time::sleep(Duration::from_millis(30) * number as u32).await;
                connected = Instant::now();
                let mut stream = Stream::open(elsewhere, Some(&stream.cookie)).await.unwrap();
                back.fetch_add(1, Ordering::SeqCst);
                let pass = pass_of(&stream.until("granted").await.unwrap());
                let at = Instant::now();
                Heard { pass, at, connected }
            }));
        }
        // Before, while and after people come back.
        let mut free = Instant::now();
        match round % 3 {
            0 => {
                brokers.free(other, PEOPLE).await;
                brokers.kill(dies).await;
            }
            1 => {
                brokers.kill(dies).await;
                free = Instant::now();
                brokers.free(other, PEOPLE).await;
            }
            _ => {
                brokers.kill(dies).await;
                until("half of them are back", || {
                    std::future::ready(back.load(Ordering::SeqCst) >= PEOPLE / 2)
                })
                .await;
                free = Instant::now();
                brokers.free(other, PEOPLE).await;
            }
        }
        for visit in visits {
            let Heard { pass, at, connected } = visit.await.unwrap();
            assert!(passes.insert(pass), "a pass each");
            times.push(at - free.max(connected));
        }
        brokers.start_again(dies).await;
    }
    let counts = brokers.room(0).await["counts"].clone();
    let people = ROUNDS * PEOPLE;
    assert_eq!(
        (&counts["admitted"], &counts["lost"]),
        (&people.into(), &0.into())
    );
    let longest = told_after("from a free slot, or the reconnect, to granted", times);
    assert!(longest < SOON, "{longest:?}");
    brokers.stop().await;
}

/// The others stand still until it is dead, so that it is the one that promotes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stays_is_told_of_a_promotion_by_a_process_that_died_of_it() {
    let mut brokers = Brokers::start(3, ROOM).await;
    let (mut times, mut passes) = (Vec::new(), HashSet::new());
    for round in 0..ROUNDS {
        let (dies, home, third) = (round, round + 1, round + 2);
        let streams = waits(&brokers, home).await;
        let others = |signal| [home, third].map(|number| brokers.signal(number, signal));
        others(Signal::STOP);
        brokers.free(dies, PEOPLE).await;
        let admitted = (round + 1) * PEOPLE;
        until("all are let in", || async {
            brokers.room(dies).await["counts"]["admitted"] == admitted
        })
        .await;
        brokers.signal(dies, Signal::KILL);
        let dead = Instant::now();
        others(Signal::CONT);
        let mut heard = Vec::new();
        for mut stream in streams {
            heard.push(tokio::spawn(async move {
                let pass = pass_of(&stream.until("granted").await.unwrap());
                (pass, Instant::now())
            }));
        }
        for heard in heard {
            let (pass, at) = heard.await.unwrap();
            assert!(passes.insert(pass), "a pass each");
            times.push(at - dead);
        }
        brokers.kill(dies).await;
        brokers.start_again(dies).await;
    }
    let longest = told_after("from the promoter's death to granted elsewhere", times);
    assert!(longest < SOON, "{longest:?}");
    brokers.stop().await;
}
