//! A second device takes over through another process than the first one's, and the first gets the event at once.
//!
//! A heartbeat counts for half an hour here, so the store's answer to the next one would come after ten minutes.

use std::time::{Duration, Instant};

use super::print_times;
use super::processes::Processes;
use super::visitor::Stream;

const PEOPLE: usize = 10;
/// Longer than any machine needs, and long before the next heartbeat.
const SOON: Duration = Duration::from_secs(300);

/// Opens a newer stream on another process. Returns how long the older one took to get the event, and the newer one.
async fn taken_over(
    processes: &Processes,
    number: usize,
    mut old: Stream,
    first: &str,
) -> (Duration, Stream) {
    let begun = Instant::now();
    let mut new = Stream::open(processes.address(number), Some(&old.cookie))
        .await
        .unwrap();
    assert_eq!(new.next().await.unwrap().0, first);
    old.until("superseded").await.unwrap();
    let after = begun.elapsed();
    old.next().await.expect_err("superseded was the last event");
    (after, new)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_device_on_another_process_takes_over_at_once() {
    let processes = Processes::start(2, "presence_ms = 1800000").await;
    let mut times = Vec::new();
    for number in 0..PEOPLE {
        let mut stream = Stream::open(processes.address(number), None).await.unwrap();
        stream.until("queued").await.unwrap();
        // There and back again.
        for turn in 1..=2 {
            let (after, newer) = taken_over(&processes, number + turn, stream, "queued").await;
            times.push(after);
            stream = newer;
        }
        // Also from somebody who has a pass.
        processes.free(0, 1).await;
        stream.until("granted").await.unwrap();
        let (after, _) = taken_over(&processes, number + 1, stream, "granted").await;
        times.push(after);
    }
    let counts = processes.room(0).await["counts"].clone();
    assert_eq!(
        (&counts["joined"], &counts["admitted"]),
        (&PEOPLE.into(), &PEOPLE.into())
    );
    let longest = print_times("from the second device to superseded", times);
    assert!(longest < SOON, "{longest:?}");
    processes.stop().await;
}
