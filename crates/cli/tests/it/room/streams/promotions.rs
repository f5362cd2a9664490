//! A promotion reaches whichever process has the visitor's stream, even if the process that had it before, or the one
//! that promoted, has just died.
//!
//! The promise is one second; a busy machine may take longer. The assertion rules out a promotion that got lost with a
//! process: nobody would look at such a ticket before its pass expires, after an hour.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::print_times;
use super::processes::Processes;
use super::visitor::Stream;
use crate::support::served::until;

const ROUNDS: usize = 6;
const PEOPLE: usize = 6;
/// Nobody counts as absent because a machine, or a process that a test stops, stalls for a while.
const ROOM: &str = "presence_ms = 90000\npass_ms = 3600000";
/// Longer than any machine needs, and long before a pass expires.
const SOON: Duration = Duration::from_secs(300);

/// An admission, and when its event arrived.
struct Admission {
    pass: String,
    at: Instant,
    /// When the last connection began.
    connected: Instant,
}

fn pass_of(ticket: &Value) -> String {
    ticket["pass"]["token"].as_str().unwrap().to_owned()
}

async fn waits(processes: &Processes, number: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for _ in 0..PEOPLE {
        let mut stream = Stream::open(processes.address(number), None).await.unwrap();
        stream.until("queued").await.unwrap();
        streams.push(stream);
    }
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_who_reconnects_elsewhere_gets_a_promotion_around_the_death_of_the_process() {
    let mut processes = Processes::start(3, ROOM).await;
    let (mut times, mut passes) = (Vec::new(), HashSet::new());
    for round in 0..ROUNDS {
        let (dies, other) = (round, round + 1);
        let back = Arc::new(AtomicUsize::new(0));
        let mut visits = Vec::new();
        for (number, mut stream) in waits(&processes, dies).await.into_iter().enumerate() {
            // Half of them reconnect to each of the two other processes.
            let elsewhere = processes.address(other + number % 2);
            let back = back.clone();
            visits.push(tokio::spawn(async move {
                let mut connected = Instant::now();
                if let Ok(ticket) = stream.until("granted").await {
                    let pass = pass_of(&ticket);
                    let at = Instant::now();
                    return Admission { pass, at, connected };
                }
                tokio::time::sleep(Duration::from_millis(30) * number as u32).await;
                connected = Instant::now();
                let mut stream = Stream::open(elsewhere, Some(&stream.cookie)).await.unwrap();
                back.fetch_add(1, Ordering::SeqCst);
                let pass = pass_of(&stream.until("granted").await.unwrap());
                let at = Instant::now();
                Admission { pass, at, connected }
            }));
        }
        // Slots become free before, while and after people reconnect.
        let mut free = Instant::now();
        match round % 3 {
            0 => {
                processes.free(other, PEOPLE).await;
                processes.kill(dies).await;
            }
            1 => {
                processes.kill(dies).await;
                free = Instant::now();
                processes.free(other, PEOPLE).await;
            }
            _ => {
                processes.kill(dies).await;
                until("half of them are back", || {
                    std::future::ready(back.load(Ordering::SeqCst) >= PEOPLE / 2)
                })
                .await;
                free = Instant::now();
                processes.free(other, PEOPLE).await;
            }
        }
        for visit in visits {
            let Admission { pass, at, connected } = visit.await.unwrap();
            assert!(passes.insert(pass), "a pass each");
            times.push(at - free.max(connected));
        }
        processes.restart(dies).await;
    }
    let counts = processes.room(0).await["counts"].clone();
    let people = ROUNDS * PEOPLE;
    assert_eq!(
        (&counts["admitted"], &counts["lost"]),
        (&people.into(), &0.into())
    );
    let longest = print_times("from a free slot, or the reconnect, to granted", times);
    assert!(longest < SOON, "{longest:?}");
    processes.stop().await;
}

/// The other processes are stopped until it is dead, so that it is the one that promotes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connected_visitor_gets_a_promotion_by_a_process_that_died_right_after_it() {
    let mut processes = Processes::start(3, ROOM).await;
    let (mut times, mut passes) = (Vec::new(), HashSet::new());
    for round in 0..ROUNDS {
        let (dies, home, third) = (round, round + 1, round + 2);
        let streams = waits(&processes, home).await;
        let others = |signal| [home, third].map(|number| processes.signal(number, signal));
        others(Signal::STOP);
        processes.free(dies, PEOPLE).await;
        let admitted = (round + 1) * PEOPLE;
        until("all are let in", || async {
            processes.room(dies).await["counts"]["admitted"] == admitted
        })
        .await;
        processes.signal(dies, Signal::KILL);
        let dead = Instant::now();
        others(Signal::CONT);
        let mut admissions = Vec::new();
        for mut stream in streams {
            admissions.push(tokio::spawn(async move {
                let pass = pass_of(&stream.until("granted").await.unwrap());
                (pass, Instant::now())
            }));
        }
        for admission in admissions {
            let (pass, at) = admission.await.unwrap();
            assert!(passes.insert(pass), "a pass each");
            times.push(at - dead);
        }
        processes.kill(dies).await;
        processes.restart(dies).await;
    }
    let longest = print_times("from the promoter's death to granted elsewhere", times);
    assert!(longest < SOON, "{longest:?}");
    processes.stop().await;
}
