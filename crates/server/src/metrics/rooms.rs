//! Waiting rooms, as `/metrics` tells them: WR-44 and WR-45.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::room::command::{RoomView, Status};
use tidegate_engine::HistogramView;
use tidegate_engine::room::{Seen, WorkView};

use super::scrape::label;
use super::series::{Buckets, Exposition, Labels};
use crate::room::module::ServedRoom;
use crate::state::App;

/// One room.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) room: String,
    /// At its last look; none before the first.
    pub(super) seen: Option<Arc<Seen>>,
    pub(super) max_waiting: u64,
    pub(super) streams: u64,
    pub(super) failed_open: u64,
    pub(super) work: WorkView,
}

#[derive(Debug)]
pub(super) struct RoomsSeen {
    pub(super) rooms: Vec<Looked>,
    pub(super) max_streams: u32,
    /// Rooms that the store has lost.
    pub(super) losses: u64,
}

impl RoomsSeen {
    pub(super) fn take(app: &App) -> Option<Self> {
        let rooms = app.rooms.as_ref()?;
        let doors = rooms.doors().into_iter();
        let looked = |door: Arc<ServedRoom>| Looked {
            room: door.room.name().to_string(),
            seen: door.room.seen(),
            max_waiting: door.settings.max_waiting,
            streams: door.room.streams() as u64,
            failed_open: door.failed_open.load(Ordering::Relaxed),
            work: door.room.work(),
        };
        Some(Self {
            rooms: doors.map(looked).collect(),
            max_streams: app.config.room.max_streams,
            losses: rooms.handle.losses(),
        })
    }

    pub(super) fn tell(&self, all: &mut Exposition) {
        self.people(all);
        self.ends(all);
        self.streams(all);
        self.promotions(all);
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
            "tidegate_room_free_slots",
            "People who could be let in now if the rate allows it: by the limit inside and the seats that are left",
            self.each(|view| Some(view.free())),
        );
        all.gauges(
            "tidegate_room_max_waiting",
            "Most people who wait, early ones included",
            self.counted(|looked| looked.max_waiting),
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
        all.counter(
            "tidegate_rooms_lost",
            "Rooms that the store has lost while this process served them",
            self.losses as f64,
        );
    }

    /// WR-45.
    fn streams(&self, all: &mut Exposition) {
        all.gauges(
            "tidegate_room_streams",
            "Visitors' streams that this process serves",
            self.counted(|looked| looked.streams),
        );
        all.gauge(
            "tidegate_room_max_streams",
            "Most of them at once, over all rooms",
            f64::from(self.max_streams),
        );
        all.counters(
            "tidegate_room_told",
            "Positions that this process sent",
            self.counted(|looked| looked.work.told),
        );
        let age = |looked: &Looked| Some((named(looked), looked.seen.as_ref()?.read.elapsed().as_secs_f64()));
        all.gauges(
            "tidegate_room_position_age_seconds",
            "How old the positions are that visitors are shown",
            self.rooms.iter().filter_map(age),
        );
        all.0.register(
            "tidegate_room_broadcast_seconds",
            "From reading the room until a stream was told the position that follows from it",
            self.durations(|looked| &looked.work.broadcasts),
        );
    }

    /// WR-44.
    fn promotions(&self, all: &mut Exposition) {
        all.counters(
            "tidegate_room_promoted",
            "People whom this process let in",
            self.counted(|looked| looked.work.promoted),
        );
        all.counters(
            "tidegate_room_promotions",
            "Times that this process looked for people to let in",
            self.counted(|looked| looked.work.promotions.count()),
        );
        all.0.register(
            "tidegate_room_promotion_seconds",
            "How long the store took for that",
            self.durations(|looked| &looked.work.promotions),
        );
        all.counters(
            "tidegate_room_failed_open",
            "Passes that this process gave without the store, which was away",
            self.counted(|looked| looked.failed_open),
        );
        let queued = |looked: &Looked| {
            let WorkView {
                queued_joins,
                queued_looks,
                ..
            } = looked.work;
            [("join", queued_joins), ("look", queued_looks)].map(|(call, queued)| {
                let mut labels = named(looked);
                labels.push(("call", call.to_owned()));
                (labels, queued as f64)
            })
        };
        all.gauges(
            "tidegate_room_queued_calls",
            "Calls that wait in this process for the next call of the store",
            self.rooms.iter().flat_map(queued),
        );
    }

    fn counted(&self, of: fn(&Looked) -> u64) -> Vec<(Labels, f64)> {
        let one = |looked: &Looked| (named(looked), of(looked) as f64);
        self.rooms.iter().map(one).collect()
    }

    fn durations(&self, of: fn(&Looked) -> &HistogramView) -> Buckets {
        Buckets::durations(self.rooms.iter().map(|looked| (named(looked), of(looked))))
    }

    fn each(&self, value: impl Fn(&RoomView) -> Option<u64>) -> Vec<(Labels, f64)> {
        let one = |looked: &Looked| {
            let seen = looked.seen.as_ref()?;
            Some((named(looked), value(&seen.view)? as f64))
        };
        self.rooms.iter().filter_map(one).collect()
    }

    fn by(
        &self,
        values: impl Fn(&RoomView) -> Vec<(&'static str, u64)>,
        name: &'static str,
    ) -> Vec<(Labels, f64)> {
        let mut all = Vec::new();
        for looked in &self.rooms {
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
