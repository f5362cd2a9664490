//! Readers: of one known record, of unknown records, and those that follow a record until it is fresh.

use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use tidegate_client::{Client, Freshness};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::bench::times::Times;

/// One of this many unknown records is followed until it is fresh.
const FOLLOWED: u64 = 10;
/// Limit: how long a record is followed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Read rates. Reads are evenly spaced, and go to all processes in turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// Reads of one record per second.
    pub(super) known: u64,
    /// Reads per second of records that were never read: each causes a HIGH refresh event.
    pub(super) unknown: u64,
    pub(super) during: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Measured from the time a read was due, so that the wait behind earlier reads counts.
    pub(super) answered: Times,
    /// Until an unknown record was fresh.
    pub(super) done: Times,
    pub(super) failed: u64,
}

enum Took {
    Read(Duration),
    Refresh(Duration),
    Failed,
}

pub(super) async fn read(clients: &[Client], source: &str, rates: Rates) -> Reads {
    let known = spread(clients, rates.known, rates.during, |client, _, due| {
        let source = source.to_owned();
        async move { vec![one(&client, &source, "known0", due).await] }
    });
    let unknown = spread(clients, rates.unknown, rates.during, |client, n, due| {
        let source = source.to_owned();
        async move {
            let key = format!("high{n}");
            let mut took = vec![one(&client, &source, &key, due).await];
            if n.is_multiple_of(FOLLOWED) {
                took.push(follow(&client, &source, &key, due).await);
            }
            took
        }
    });
    let (known, unknown) = tokio::join!(known, unknown);
    let mut reads = Reads::default();
    for took in known.into_iter().chain(unknown) {
        match took {
            Took::Read(time) => reads.answered.0.push(time),
            Took::Refresh(time) => reads.done.0.push(time),
            Took::Failed => reads.failed += 1,
        }
    }
    reads
}

async fn one(client: &Client, source: &str, key: &str, due: Instant) -> Took {
    match client.record(source, key).await {
        Ok(_) => Took::Read(due.elapsed()),
        Err(_) => Took::Failed,
    }
}

/// Follows the record until it is fresh.
async fn follow(client: &Client, source: &str, key: &str, due: Instant) -> Took {
    let events = client.follow_record(source, key, None);
    pin_mut!(events);
    let fresh = async {
        while let Some(Ok(record)) = events.next().await {
            if record.freshness == Freshness::Fresh {
                return Took::Refresh(due.elapsed());
            }
        }
        Took::Failed
    };
    tokio::time::timeout(PATIENCE, fresh)
        .await
        .unwrap_or(Took::Failed)
}

/// Starts one task per interval, whether or not earlier ones have ended.
async fn spread<F: Future<Output = Vec<Took>> + Send + 'static>(
    clients: &[Client],
    per_second: u64,
    during: Duration,
    task: impl Fn(Client, u64, Instant) -> F,
) -> Vec<Took> {
    let mut tasks = JoinSet::new();
    let beats = (per_second as f64 * during.as_secs_f64()) as u64;
    if beats == 0 {
        return Vec::new();
    }
    let mut beat = tokio::time::interval(during / beats as u32);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for n in 0..beats {
        let due = beat.tick().await;
        let client = clients[n as usize % clients.len()].clone();
        tasks.spawn(task(client, n, due));
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// All readers at once.
pub(super) async fn storm(clients: &[Client], source: &str, readers: u64) -> Reads {
    let mut tasks = JoinSet::new();
    for n in 0..readers {
        let (client, source) = (clients[n as usize % clients.len()].clone(), source.to_owned());
        tasks.spawn(async move { one(&client, &source, "known0", Instant::now()).await });
    }
    let mut reads = Reads::default();
    for took in tasks.join_all().await {
        match took {
            Took::Read(time) => reads.answered.0.push(time),
            Took::Refresh(_) | Took::Failed => reads.failed += 1,
        }
    }
    reads
}
