//! The demo's third scene: a concert with few seats, a crowd in front of its doors, and people who behave like people.
//!
//! Every visitor is a stream of events over HTTP with a cookie of its own. Most come before the doors open, the others
//! while people are let in. Some leave, some lose their connection and come back, some open a second tab. Whoever is let
//! in redeems the pass, stays for a moment and has bought. What is told in the end is what the visitors noted.

mod bars;
mod figures;
mod ledger;
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
pub(super) use self::figures::RoomFigures;
use self::ledger::Story;
use self::visitor::{Arrived, Stage};

const ROOM: &str = "concert";
const SEATS: u64 = 230;
/// A visit takes 1.4 s, so 42 are inside at the allowed rate, and more when many are let in at once: both limits are met.
const INSIDE: u64 = 50;
const PER_SECOND: u64 = 30;
/// Short, for a watcher who stands in line as well, is let in and does not go on would keep a seat from the others.
const PASS: Millis = Millis(10_000);

/// Before the doors open, and after. Both ends of every connection are open files of this process, of which many
/// machines allow 1,024.
const RUSH: u64 = 220;
const LATE: u64 = 80;
const RUSH_PACE: Duration = Duration::from_millis(5);
const LATE_PACE: Duration = Duration::from_millis(60);
/// Whoever has heard nothing final after this time is lost.
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
    // They all come from this machine.
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
            stage.come(number, false).await
        }
    }));
    let rush = rush.await.context("somebody cannot come")?;
    stage.client.resume_room(ROOM, Some("the doors open")).await?;
    bars.opened();

    let mut people = JoinSet::new();
    for arrived in rush {
        people.spawn(live(stage.clone(), arrived));
    }
    for number in RUSH..RUSH + LATE {
        tokio::time::sleep(LATE_PACE).await;
        // One after the other, so that the order in which they come is known.
        let arrived = stage.come(number, true).await.context("somebody cannot come")?;
        people.spawn(live(stage.clone(), arrived));
    }
    let mut stories = Vec::new();
    while let Some(story) = people.join_next().await {
        stories.push(story??);
    }
    let seconds = begun.elapsed();
    bars.close().await;
    Ok(RoomFigures::of(&stories, seconds))
}

/// A visitor from its place in line to the end; if that does not come in time, as far as it got.
async fn live(stage: Arc<Stage>, arrived: Arrived) -> anyhow::Result<Story> {
    let Arrived {
        mut story,
        stream,
        first,
    } = arrived;
    let lived = stage.live(&mut story, stream, first);
    tokio::time::timeout(PATIENCE, lived).await.unwrap_or(Ok(()))?;
    Ok(story)
}
