//! `tidegate room`: list, show, history, set, pause, resume, close, void passes, draw, delete.

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_client::{Draw, EtaRange, Room, RoomCapacity, RoomSample, Time};

use super::capacity::CapacityArgs;
use crate::remote::{Remote, WhyArg, say};
use crate::table::{Table, details, maybe, number, span, visible, word};

#[derive(Debug, Args)]
pub(crate) struct RoomArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all rooms with their limits and visitors
    List,
    /// Show one room with its counts, its limits and who changed them
    Show { room: String },
    /// List samples of the last minutes of a room, about one per second
    History { room: String },
    /// Change limits of a room at once; a restart keeps them, and visitors inside stay
    Set {
        room: String,
        #[command(flatten)]
        capacity: CapacityArgs,
    },
    /// Pause a room: it admits nobody, and visitors keep their tickets
    Pause(Named),
    /// Resume a paused room, or open a closed one again
    Resume(Named),
    /// Close a room: nobody can join, it admits nobody, and visitors inside may finish
    Close(Named),
    /// Revoke passes that no shop has redeemed; visitors with a revoked pass get a new one
    VoidPasses {
        #[command(flatten)]
        on: Named,
        /// Only passes of this admission wave and of earlier ones; all passes so far if absent
        #[arg(long, value_name = "WAVE")]
        through: Option<u64>,
    },
    /// Show the commitment to the draw of early visitors and, after the opening, its seed
    Draw {
        room: String,
        /// An earlier opening, if it moved; the current one if absent
        #[arg(long, value_name = "TIME")]
        opens_at: Option<Time>,
    },
    /// Delete a room that is closed or sold out, empty, and not in the configuration
    Delete(Named),
}

#[derive(Debug, Args)]
struct Named {
    room: String,
    #[command(flatten)]
    why: WhyArg,
}

impl Named {
    fn why(&self) -> Option<&str> {
        self.why.why.as_deref()
    }
}

pub(crate) fn run(args: &RoomArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let room = match &args.what {
            What::List => return list(remote, &client.rooms().await?),
            What::History { room } => return history(remote, &client.room_history(room).await?.samples),
            What::Draw { room, opens_at } => {
                return remote.print(&client.room_draw(room, *opens_at).await?, draw);
            }
            What::Delete(on) => {
                client.delete_room(&on.room, on.why()).await?;
                let deleted = json!({ "room": on.room, "deleted": true });
                return remote.print(&deleted, |_| format!("{} is deleted\n", visible(&on.room)));
            }
            What::Show { room } => client.room(room).await?,
            What::Set { room, capacity } => client.resize_room(room, &capacity.patch()?).await?,
            What::Pause(on) => client.pause_room(&on.room, on.why()).await?,
            What::Resume(on) => client.resume_room(&on.room, on.why()).await?,
            What::Close(on) => client.close_room(&on.room, on.why()).await?,
            What::VoidPasses { on, through } => client.void_passes(&on.room, *through, on.why()).await?,
        };
        remote.print(&room, text)
    })
}

fn list(remote: &Remote, rooms: &[Room]) -> anyhow::Result<()> {
    if remote.json {
        return rooms
            .iter()
            .try_for_each(|room| remote.print(room, |_| String::new()));
    }
    let mut table = Table::new(&[
        "ROOM",
        "STATUS",
        ">EARLY",
        ">WAITING",
        ">GRANTED",
        ">INSIDE",
        ">AT ONCE",
        ">ADMITTED/S",
        ">OF",
        ">COMPLETED",
        ">SEATS",
        ">ETA",
    ]);
    for room in rooms {
        table.row(vec![
            room.room.clone(),
            word(room.status),
            room.early.to_string(),
            room.waiting.to_string(),
            room.granted.to_string(),
            room.inside.to_string(),
            room.capacity.inside.to_string(),
            maybe(room.admitted_per_second.map(number)),
            room.capacity.per_second.to_string(),
            room.counts.completed.to_string(),
            seats(&room.capacity),
            maybe(room.eta.map(|eta| span(eta.likely_ms / 1_000))),
        ]);
    }
    match table.is_empty() {
        true => Ok(()),
        false => say(&table.text()),
    }
}

fn history(remote: &Remote, samples: &[RoomSample]) -> anyhow::Result<()> {
    if remote.json {
        return samples
            .iter()
            .try_for_each(|sample| remote.print(sample, |_| String::new()));
    }
    let mut table = Table::new(&[
        "AT",
        ">WAITING",
        ">GRANTED",
        ">INSIDE",
        ">ADMITTED",
        ">COMPLETED",
        ">LEFT",
    ]);
    for sample in samples {
        table.row(vec![
            sample.at.to_string(),
            sample.waiting.to_string(),
            sample.granted.to_string(),
            sample.inside.to_string(),
            sample.admitted.to_string(),
            sample.completed.to_string(),
            sample.left.to_string(),
        ]);
    }
    match table.is_empty() {
        true => Ok(()),
        false => say(&table.text()),
    }
}

fn seats(capacity: &RoomCapacity) -> String {
    capacity
        .seats
        .map_or("unlimited".to_owned(), |seats| seats.to_string())
}

/// A limit, and the configured one if they differ.
fn limit(current: String, configured: String) -> String {
    match current == configured {
        true => current,
        false => format!("{current}, configured {configured}"),
    }
}

fn eta(eta: EtaRange) -> String {
    let [low, likely, high] = [eta.low_ms, eta.likely_ms, eta.high_ms].map(|ms| span(ms / 1_000));
    format!("about {likely}, from {low} to {high}")
}

fn text(room: &Room) -> String {
    let (current, configured, counts) = (&room.capacity, &room.configured, &room.counts);
    let voided = (room.voided > 0).then_some(room.voided);
    let summary = details(&[
        ("room", room.room.clone()),
        ("status", word(room.status)),
        ("opens", maybe(room.opens_at)),
        ("seats", limit(seats(current), seats(configured))),
        (
            "inside at once",
            limit(current.inside.to_string(), configured.inside.to_string()),
        ),
        (
            "per second",
            limit(current.per_second.to_string(), configured.per_second.to_string()),
        ),
        ("early", room.early.to_string()),
        ("waiting", room.waiting.to_string()),
        ("granted", room.granted.to_string()),
        ("inside", room.inside.to_string()),
        ("admitted per second", maybe(room.admitted_per_second.map(number))),
        ("wait from now", maybe(room.eta.map(eta))),
        ("streams", room.streams.to_string()),
        ("wave", room.wave.to_string()),
        ("voided through wave", maybe(voided)),
        ("joined", counts.joined.to_string()),
        ("admitted", counts.admitted.to_string()),
        ("redeemed", counts.redeemed.to_string()),
        ("completed", counts.completed.to_string()),
        ("left the line", counts.left.to_string()),
        ("left inside", counts.left_inside.to_string()),
        ("lost", counts.lost.to_string()),
        ("no-shows", counts.no_shows.to_string()),
        ("expired", counts.expired.to_string()),
        ("at", room.at.to_string()),
    ]);
    if room.changes.is_empty() {
        return summary;
    }
    let mut table = Table::new(&["CHANGED", "BY", ">SEATS", ">INSIDE", ">PER SECOND", "WHY"]);
    for change in room.changes.iter().rev() {
        table.row(vec![
            change.at.to_string(),
            change.by.clone(),
            seats(&change.capacity),
            change.capacity.inside.to_string(),
            change.capacity.per_second.to_string(),
            change.why.clone(),
        ]);
    }
    summary + "\n" + &table.text()
}

fn draw(draw: &Draw) -> String {
    let Some(opens_at) = draw.opens_at else {
        return "the room has no opening time, and so no draw\n".to_owned();
    };
    let seed = draw.seed.as_deref();
    details(&[
        ("opens", opens_at.to_string()),
        ("commitment", maybe(draw.commitment.as_deref())),
        ("seed", seed.unwrap_or("published at the opening").to_owned()),
    ])
}
