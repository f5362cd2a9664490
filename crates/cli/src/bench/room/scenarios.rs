//! The scenarios: how each one runs, and its figures.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tidegate_client::{Client, LimitBy, PatchCapacity};
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::JoinParams;
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_durable::Durability;
use tidegate_engine::room::{RoomOptions, RoomService};
use tidegate_store::room::{
    EmbeddedRoomOptions, EmbeddedRoomStore, RedisRoomOptions, RedisRoomStore, RoomStore,
};
use tokio::sync::mpsc;

use super::RoomArgs;
use super::visitor::{PATIENCE, Visitor, Watch, join, leave};
use super::visitor_process::VisitorProcess;
use crate::bench::bulk::DurabilityArg;
use crate::bench::child::Child;
use crate::bench::times::Times;
use crate::bench::usage;

/// Concurrent joins.
const AT_ONCE: u64 = 256;
/// Slots freed one after the other.
const GRANTS: u64 = 200;
/// Limit: visitors of one process, which has an open file for each.
const PER_PROCESS: u64 = 9_000;
/// While positions are watched, every beat lets this many visitors in. So each position that is sent differs from the
/// one before, and a position that is shown for long is an old one.
const AT_A_BEAT: i64 = 2;
const BEAT: Duration = Duration::from_millis(100);
/// More than the beats let in.
const PER_SECOND: u64 = 1_000;

/// Unique per run: the server may be shared.
fn unique() -> String {
    format!("bench-{}:", SystemClock.now().0)
}

/// Tickets that the store issues to concurrent joins, as in a service.
pub(super) async fn joins(args: &RoomArgs, folder: &Path) -> anyhow::Result<Value> {
    let store: Arc<dyn RoomStore> = match &args.redis {
        Some(url) => {
            let mut options = RedisRoomOptions::new(url);
            options.prefix = unique();
            Arc::new(RedisRoomStore::open(options).await?)
        }
        None => Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions {
            durability: match args.durability {
                DurabilityArg::Sync => Durability::Sync,
                DurabilityArg::Buffered => Durability::Buffered,
            },
            ..EmbeddedRoomOptions::new(folder)
        })?),
    };
    let service = RoomService::start(store, RoomOptions::default());
    let config = RoomConfig {
        capacity: Capacity {
            seats: None,
            inside: 0,
            per_second: 1,
        },
        max_waiting: 100_000_000,
        ..RoomConfig::default()
    };
    let room = service.handle().open(&RoomId::new("bench")?, config).await?;
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut people = Vec::new();
    for _ in 0..AT_ONCE {
        let (room, next, most) = (room.clone(), next.clone(), args.joins);
        people.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= most {
                    return anyhow::Ok(());
                }
                room.join(JoinParams {
                    person: PersonId::new(format!("person-{number:015}"))?,
                    stream: true,
                    again: false,
                    draw: 0,
                })
                .await?;
            }
        }));
    }
    for person in people {
        person.await??;
    }
    let per_sec = args.joins as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let seen = room.read_overview().await?;
    let overview = begun.elapsed();
    anyhow::ensure!(seen.view.waiting() == args.joins, "tickets were lost");
    service.shutdown().await;
    Ok(json!({
        "joinsPerSec": per_sec.round(),
        "atOnce": AT_ONCE,
        "people": args.joins,
        "overviewMs": overview.as_secs_f64() * 1_000.0,
        "floorSyncMs": usage::sync_floor(folder)?.as_secs_f64() * 1_000.0,
    }))
}

/// Starts services that share one room.
async fn serve(
    args: &RoomArgs,
    folder: &Path,
    servers: u8,
    capacity: Value,
) -> anyhow::Result<Vec<(Child, SocketAddr)>> {
    let prefix = unique();
    let mut started = Vec::new();
    for number in 0..servers {
        let folder = folder.join(number.to_string());
        std::fs::create_dir_all(&folder)?;
        let mut settings = json!({
            "server": {"listen": "127.0.0.1:0", "max_connections": 1_000_000},
            "log": {"filter": "error"},
            "store": {
                "data": folder.join("data"),
                "durability": format!("{:?}", args.durability).to_lowercase(),
            },
            "rooms": {"bench": {"capacity": capacity, "pass_ms": 3_600_000}},
            "room": {
                "max_streams": 900_000,
                "keys": {"folder": folder.with_file_name("room-keys")},
                "joins": {"per_address": 1_000_000, "address_burst": 1_000_000, "per_person": 1_000_000},
            },
        });
        if let Some(url) = &args.redis {
            settings["store"]["kind"] = json!("redis");
            settings["redis"] = json!({"urls": [url], "key_prefix": prefix});
        }
        let child = Child::start(&folder, &settings).await?;
        let address = child.url().trim_start_matches("http://").parse();
        started.push((child, address.context("the service has no address")?));
    }
    Ok(started)
}

/// Holds many streams open while every position moves.
pub(super) async fn streams(args: &RoomArgs, folder: &Path) -> anyhow::Result<Value> {
    // Closed at first: everybody waits until all have joined.
    let closed = json!({"inside": 0, "per_second": PER_SECOND});
    let services = serve(args, folder, args.servers, closed).await?;
    let addresses: Vec<SocketAddr> = services.iter().map(|(_, address)| *address).collect();
    let memory = || -> u64 {
        let each = services
            .iter()
            .map(|(child, _)| usage::memory_bytes_of(child.id()));
        each.sum()
    };
    let before = memory();
    let begun = Instant::now();
    let mut processes = Vec::new();
    for first in (0..args.streams).step_by(PER_PROCESS as usize) {
        let numbers = first..(first + PER_PROCESS).min(args.streams);
        processes.push(VisitorProcess::start(&addresses, "bench", numbers)?);
    }
    let mut refused = 0;
    for process in &mut processes {
        let joined = process.joined().await?;
        refused += joined.refused;
        if let Some(why) = joined.why {
            eprintln!("visitors were refused: {why}");
        }
    }
    let joined_after = begun.elapsed();
    let held = args.streams - refused;
    // Buffers grow with the first events.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = memory();
    let client = Client::new(services[0].0.url())?;
    move_on(&client, Duration::from_secs(2)).await?;
    for process in &mut processes {
        process.watch().await?;
    }
    move_on(&client, Duration::from_secs(args.seconds)).await?;
    let most = memory();
    let watch = Watch::default();
    for process in processes {
        process.finish(&watch).await?;
    }
    for (child, _) in services {
        child.stop().await?;
    }
    Ok(json!({
        "streams": held,
        "refused": refused,
        "servers": args.servers,
        "connectsPerSec": (held as f64 / joined_after.as_secs_f64()).round(),
        "positionsPerSec": (watch.arrival.count() as f64 / args.seconds as f64).round(),
        "arrivalP50Ms": watch.arrival.at(0.50),
        "arrivalP99Ms": watch.arrival.at(0.99),
        "shownAgeP50Ms": watch.shown.at(0.50),
        "shownAgeP99Ms": watch.shown.at(0.99),
        "bytesPerStream": (after.saturating_sub(before)) / held.max(1),
        "bytesPerStreamMoving": (most.saturating_sub(before)) / held.max(1),
    }))
}

/// Lets visitors in continuously.
async fn move_on(client: &Client, during: Duration) -> anyhow::Result<()> {
    let more = PatchCapacity {
        inside: Some(LimitBy::Add(AT_A_BEAT)),
        ..PatchCapacity::default()
    };
    let mut beat = tokio::time::interval(BEAT);
    let begun = Instant::now();
    while begun.elapsed() < during {
        beat.tick().await;
        client.resize_room("bench", &more).await?;
    }
    Ok(())
}

/// Time from a freed slot to the event for the next visitor.
pub(super) async fn grant(args: &RoomArgs, folder: &Path) -> anyhow::Result<Value> {
    let one = json!({"inside": 1, "per_second": 100_000});
    let mut services = serve(args, folder, 1, one).await?;
    let (child, address) = services.remove(0);
    let watch = Arc::new(Watch::default());
    let (events, mut granted) = mpsc::channel(1_024);
    let mut cookies = Vec::new();
    for number in 0..=GRANTS {
        let visitor: Visitor = join(address, "bench", number).await?;
        cookies.push(visitor.cookie.clone());
        tokio::spawn(visitor.wait(watch.clone(), Some(events.clone()), number));
    }
    let mut times = Times::default();
    let next = async |granted: &mut mpsc::Receiver<_>| {
        let next = tokio::time::timeout(PATIENCE, granted.recv()).await;
        next.ok().flatten().context("nobody was let in")
    };
    let (mut inside, _) = next(&mut granted).await?;
    for _ in 0..GRANTS {
        let begun = Instant::now();
        leave(address, "bench", &cookies[inside as usize]).await?;
        let (number, _) = next(&mut granted).await?;
        anyhow::ensure!(number == inside + 1, "{number} was let in after {inside}");
        inside = number;
        times.0.push(begun.elapsed());
        // In a shop, slots do not free up in step with the answers.
        tokio::time::sleep(Duration::from_millis(20 + number % 60)).await;
    }
    child.stop().await?;
    Ok(json!({
        "grants": GRANTS,
        "slotToGrantedP50Ms": times.at(0.50),
        "slotToGrantedP99Ms": times.at(0.99),
    }))
}
