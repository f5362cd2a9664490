//! The demo's third scene: a concert with few seats, and a crowd in front of its doors.
//!
//! Every visitor is an event stream over HTTP with a cookie of its own. Most join before the doors open, the others while
//! people are let in. Some leave, some lose their connection and reconnect, some open a second tab. A visitor who is let
//! in redeems the pass, stays for a moment and completes the visit. The report is what the visitors recorded.

mod bars;
mod report;
mod visit_log;
mod visitor;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::try_join_all;
use tidegate_client::Client;
use tidegate_core::ids::RoomId;
use tidegate_core::room::config::Capacity;
use tidegate_core::time::Millis;
use tidegate_server::Service;
use tidegate_server::config::{Config, RoomSettings};
use tokio::task::JoinSet;

use self::bars::Bars;
pub(super) use self::report::RoomFigures;
use self::visit_log::VisitLog;
use self::visitor::{Arrived, Stage};

const ROOM: &str = "concert";
const SEATS: u64 = 230;
/// A visit takes 1.4 s, so 42 are inside at the allowed rate, and more when many are let in at once: both limits apply.
const INSIDE: u64 = 50;
const PER_SECOND: u64 = 30;
/// Short: a person who joins from a browser, is let in and does not enter would keep a seat from the others.
const PASS: Millis = Millis(10_000);

/// Visitors before the doors open, and after. Both ends of every connection are open files of this process, and many
/// machines allow 1,024.
const RUSH: u64 = 220;
const LATE: u64 = 80;
const RUSH_PACE: Duration = Duration::from_millis(5);
const LATE_PACE: Duration = Duration::from_millis(60);
/// A visitor without a final event after this time is lost.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn configure(config: &mut Config) -> anyhow::Result<()> {
    let room = RoomSettings {
        capacity: Capacity {
            seats: Some(SEATS),
            inside: INSIDE,
            per_second: PER_SECOND,
        },
        pass_ms: PASS,
        ..RoomSettings::default()
    };
    config.rooms.insert(RoomId::new(ROOM)?, room);
    // All visitors have the address of this machine.
    config.room.joins.per_address = 10_000;
    config.room.joins.address_burst = 10_000;
    Ok(())
}

pub(super) async fn play(service: &Service) -> anyhow::Result<RoomFigures> {
    let client = Client::new(service.url())?;
    client
        .pause_room(ROOM, Some("the doors open when everybody is there"))
        .await?;
    let stage = Arc::new(Stage::new(client));
    let bars = Bars::show(&stage, &service.url());
    let begun = Instant::now();

    let rush = try_join_all((0..RUSH).map(|number| {
        let stage = &stage;
        async move {
            tokio::time::sleep(RUSH_PACE * number as u32).await;
            stage.join(number, false).await
        }
    }));
    let rush = rush.await.context("a visitor cannot join")?;
    stage.client.resume_room(ROOM, Some("the doors open")).await?;
    bars.opened();

    let mut people = JoinSet::new();
    for arrived in rush {
        people.spawn(visit(stage.clone(), arrived));
    }
    for number in RUSH..RUSH + LATE {
        tokio::time::sleep(LATE_PACE).await;
        // One after the other, so that the order of joining is known.
        let arrived = stage.join(number, true).await.context("a visitor cannot join")?;
        people.spawn(visit(stage.clone(), arrived));
    }
    let mut logs = Vec::new();
    while let Some(log) = people.join_next().await {
        logs.push(log??);
    }
    let seconds = begun.elapsed();
    bars.close().await;
    Ok(RoomFigures::of(&logs, seconds))
}

/// Runs a visitor from its ticket to the end. If that takes too long, its log is incomplete.
async fn visit(stage: Arc<Stage>, arrived: Arrived) -> anyhow::Result<VisitLog> {
    let Arrived {
        mut log,
        stream,
        first,
    } = arrived;
    let visit = stage.visit(&mut log, stream, first);
    tokio::time::timeout(PATIENCE, visit).await.unwrap_or(Ok(()))?;
    Ok(log)
}
