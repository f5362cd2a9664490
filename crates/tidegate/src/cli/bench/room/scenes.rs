//! The scenarios.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tidegate_client::{Client, LimitBy, PatchCapacity};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::JoinParams;
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_engine::room::{RoomOptions, RoomService};
use tidegate_store::embedded::Durability;
use tidegate_store::room::{
    EmbeddedRoomOptions, EmbeddedRoomStore, RedisRoomOptions, RedisRoomStore, RoomStore,
};
use tidegate_store::{Clock, SystemClock};
use tokio::sync::mpsc;

use super::RoomArgs;
use super::crowd::{PATIENCE, Visitor, Watch, come, leave};
use super::herd::Herd;
use crate::cli::bench::bulk::DurabilityArg;
use crate::cli::bench::child::Child;
use crate::cli::bench::times::Times;
use crate::cli::bench::usage;

/// People who come at once.
const AT_ONCE: u64 = 256;
/// Slots that are freed one after the other.
const GRANTS: u64 = 200;
/// Limit: visitors of one process, which has an open file for each.
const PER_HERD: u64 = 9_000;
/// While positions are watched, so many are let in at every beat: whenever a position is told, it is another one than
/// before, so that one that is shown for long is an old one.
const AT_A_BEAT: i64 = 2;
const BEAT: Duration = Duration::from_millis(100);
/// More than are let in.
const PER_SECOND: u64 = 1_000;

/// A name that no other run has: a server may be shared.
fn unique() -> String {
    format!("bench-{}:", SystemClock.now().0)
}

/// Places that the store gives, asked for by many at once as in a service.
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
    let seen = room.look_at_it().await?;
    let survey = begun.elapsed();
    anyhow::ensure!(seen.view.waiting() == args.joins, "places were lost");
    service.shutdown().await;
    Ok(json!({
        "joins_per_sec": per_sec.round(),
        "at_once": AT_ONCE,
        "people": args.joins,
        "survey_ms": survey.as_secs_f64() * 1_000.0,
        "floor_sync_ms": usage::sync_floor(folder)?.as_secs_f64() * 1_000.0,
    }))
}

/// Services of one room, as many as asked for.
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

/// Many connections, everybody moving.
pub(super) async fn streams(args: &RoomArgs, folder: &Path) -> anyhow::Result<Value> {
    // Shut at first: everybody waits until all are there.
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
    let mut herds = Vec::new();
    for first in (0..args.streams).step_by(PER_HERD as usize) {
        let numbers = first..(first + PER_HERD).min(args.streams);
        herds.push(Herd::start(&addresses, "bench", numbers)?);
    }
    let mut refused = 0;
    for herd in &mut herds {
        let came = herd.came().await?;
        refused += came.refused;
        if let Some(why) = came.why {
            eprintln!("visitors could not come: {why}");
        }
    }
    let came = begun.elapsed();
    let held = args.streams - refused;
    // Buffers grow with the first events.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = memory();
    let client = Client::new(services[0].0.url())?;
    move_on(&client, Duration::from_secs(2)).await?;
    for herd in &mut herds {
        herd.watch().await?;
    }
    move_on(&client, Duration::from_secs(args.seconds)).await?;
    let most = memory();
    let watch = Watch::default();
    for herd in herds {
        herd.tell(&watch).await?;
    }
    for (child, _) in services {
        child.stop().await?;
    }
    Ok(json!({
        "streams": held,
        "refused": refused,
        "servers": args.servers,
        "connects_per_sec": (held as f64 / came.as_secs_f64()).round(),
        "positions_per_sec": (watch.arrival.count() as f64 / args.seconds as f64).round(),
        "arrival_p50_ms": watch.arrival.at(0.50),
        "arrival_p99_ms": watch.arrival.at(0.99),
        "shown_age_p50_ms": watch.shown.at(0.50),
        "shown_age_p99_ms": watch.shown.at(0.99),
        "bytes_per_stream": (after.saturating_sub(before)) / held.max(1),
        "bytes_per_stream_moving": (most.saturating_sub(before)) / held.max(1),
    }))
}

/// Lets people in all the time.
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

/// From a slot that is given up to the event of the next one.
pub(super) async fn grant(args: &RoomArgs, folder: &Path) -> anyhow::Result<Value> {
    let one = json!({"inside": 1, "per_second": 100_000});
    let mut services = serve(args, folder, 1, one).await?;
    let (child, address) = services.remove(0);
    let watch = Arc::new(Watch::default());
    let (heard, mut granted) = mpsc::channel(1_024);
    let mut cookies = Vec::new();
    for number in 0..=GRANTS {
        let visitor: Visitor = come(address, "bench", number).await?;
        cookies.push(visitor.cookie.clone());
        tokio::spawn(visitor.wait(watch.clone(), Some(heard.clone()), number));
    }
    let mut times = Times::default();
    let next = async |granted: &mut mpsc::Receiver<_>| {
        let heard = tokio::time::timeout(PATIENCE, granted.recv()).await;
        heard.ok().flatten().context("nobody is let in")
    };
    let (mut inside, _) = next(&mut granted).await?;
    for _ in 0..GRANTS {
        let begun = Instant::now();
        leave(address, "bench", &cookies[inside as usize]).await?;
        let (number, _) = next(&mut granted).await?;
        anyhow::ensure!(number == inside + 1, "{number} was let in after {inside}");
        inside = number;
        times.0.push(begun.elapsed());
        // As slots free up in life: not in step with the answers.
        tokio::time::sleep(Duration::from_millis(20 + number % 60)).await;
    }
    child.stop().await?;
    Ok(json!({
        "grants": GRANTS,
        "slot_to_granted_p50_ms": times.at(0.50),
        "slot_to_granted_p99_ms": times.at(0.99),
    }))
}
