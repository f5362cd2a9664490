//! Waiting rooms, as `/metrics` tells them: WR-44 and WR-45.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::room::command::{RoomView, Status};
use tidegate_engine::room::Seen;

use super::scrape::label;
use super::series::{Exposition, Labels};
use crate::room::part::Door;
use crate::state::App;

/// One room.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) room: String,
    /// At its last look; none before the first.
    pub(super) seen: Option<Arc<Seen>>,
    pub(super) streams: u64,
    pub(super) told: u64,
    pub(super) promoted: u64,
    pub(super) promotions: u64,
    pub(super) promotion_us: u64,
}

#[derive(Debug)]
pub(super) struct RoomsSeen(pub(super) Vec<Looked>);

impl RoomsSeen {
    pub(super) fn take(app: &App) -> Option<Self> {
        let doors = app.rooms.as_ref()?.doors().into_iter();
        let looked = |door: Arc<Door>| {
            let counters = door.room.counters();
            let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            Looked {
                room: door.room.name().to_string(),
                seen: door.room.seen(),
                streams: door.room.streams() as u64,
                told: counted(&counters.told),
                promoted: counted(&counters.promoted),
                promotions: counted(&counters.promotions),
                promotion_us: counted(&counters.promotion_us),
            }
        };
        Some(Self(doors.map(looked).collect()))
    }

    pub(super) fn tell(&self, all: &mut Exposition) {
        self.people(all);
        self.ends(all);
        self.work(all);
    }

    fn people(&self, all: &mut Exposition) {
        let people = |view: &RoomView| {
            [
                ("early", view.early),
                ("waiting", view.waiting()),
                ("granted", view.granted),
                ("inside", view.inside),
            ]
        };
        all.gauges(
            "tidegate_room_people",
            "People by where they stand",
            self.by(|view| people(view).to_vec(), "state"),
        );
        all.gauges(
            "tidegate_room_inside_limit",
            "Most people inside at once, those let in but not yet there included",
            self.each(|view| Some(view.capacity.inside)),
        );
        all.gauges(
            "tidegate_room_per_second_limit",
            "Most people let in within a second",
            self.each(|view| Some(view.capacity.per_second)),
        );
        all.gauges(
            "tidegate_room_seats",
            "Seats in all, where they are counted",
            self.each(|view| view.capacity.seats),
        );
        all.gauges(
            "tidegate_room_open",
            "Whether people are let in: 1, or 0 while the room is paused or closed",
            self.each(|view| Some(u64::from(view.status == Status::Open))),
        );
    }

    fn ends(&self, all: &mut Exposition) {
        all.counters(
            "tidegate_room_joined",
            "Tickets that were given",
            self.each(|view| Some(view.counts.joined)),
        );
        all.counters(
            "tidegate_room_admitted",
            "Times that somebody was let in",
            self.each(|view| Some(view.counts.admitted)),
        );
        all.counters(
            "tidegate_room_redeemed",
            "Passes that were redeemed",
            self.each(|view| Some(view.counts.redeemed)),
        );
        let ends = |view: &RoomView| {
            let counts = view.counts;
            vec![
                ("completed", counts.completed),
                ("left", counts.left),
                ("left_inside", counts.left_inside),
                ("lost", counts.lost),
                ("no_show", counts.no_shows),
                ("expired", counts.expired),
            ]
        };
        all.counters(
            "tidegate_room_ended",
            "Tickets by how they ended",
            self.by(ends, "end"),
        );
    }

    /// What this process does for the rooms.
    fn work(&self, all: &mut Exposition) {
        let counted = |of: fn(&Looked) -> u64| {
            let room = move |looked: &Looked| (named(looked), of(looked) as f64);
            self.0.iter().map(room).collect::<Vec<_>>()
        };
        all.gauges(
            "tidegate_room_streams",
            "Visitors' streams that this process serves",
            counted(|looked| looked.streams),
        );
        all.counters(
            "tidegate_room_told",
            "Positions that this process sent",
            counted(|looked| looked.told),
        );
        all.counters(
            "tidegate_room_promoted",
            "People whom this process let in",
            counted(|looked| looked.promoted),
        );
        all.counters(
            "tidegate_room_promotions",
            "Times that this process looked for people to let in",
            counted(|looked| looked.promotions),
        );
        let seconds = |looked: &Looked| (named(looked), looked.promotion_us as f64 / 1e6);
        all.counters(
            "tidegate_room_promotion_seconds",
            "How long the store took for that, in all",
            self.0.iter().map(seconds),
        );
        let age = |looked: &Looked| Some((named(looked), looked.seen.as_ref()?.read.elapsed().as_secs_f64()));
        all.gauges(
            "tidegate_room_position_age_seconds",
            "How old the positions are that visitors are shown",
            self.0.iter().filter_map(age),
        );
    }

    fn each(&self, value: impl Fn(&RoomView) -> Option<u64>) -> Vec<(Labels, f64)> {
        let one = |looked: &Looked| {
            let seen = looked.seen.as_ref()?;
            Some((named(looked), value(&seen.view)? as f64))
        };
        self.0.iter().filter_map(one).collect()
    }

    fn by(
        &self,
        values: impl Fn(&RoomView) -> Vec<(&'static str, u64)>,
        name: &'static str,
    ) -> Vec<(Labels, f64)> {
        let mut all = Vec::new();
        for looked in &self.0 {
            let Some(seen) = &looked.seen else {
                continue;
            };
            for (what, value) in values(&seen.view) {
                let mut labels = named(looked);
                labels.push((name, what.to_owned()));
                all.push((labels, value as f64));
            }
        }
        all
    }
}

fn named(looked: &Looked) -> Labels {
    label("room", looked.room.as_str())
}
