//! Metrics of waiting rooms.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::room::command::{RoomView, Status};
use tidegate_engine::HistogramView;
use tidegate_engine::room::{Seen, WorkView};

use crate::metrics::scrape::label;
use crate::metrics::series::{Buckets, Exposition, Labels};
use crate::room::module::ServedRoom;
use crate::state::App;

/// The values of one room.
#[derive(Debug)]
pub(crate) struct RoomReading {
    pub(crate) room: String,
    /// The last reading of the store; `None` before the first.
    pub(crate) seen: Option<Arc<Seen>>,
    pub(crate) max_waiting: u64,
    pub(crate) streams: u64,
    pub(crate) failed_open: u64,
    pub(crate) work: WorkView,
}

#[derive(Debug)]
pub(crate) struct RoomsSeen {
    pub(crate) rooms: Vec<RoomReading>,
    pub(crate) max_streams: u32,
    /// Rooms that the store lost.
    pub(crate) losses: u64,
}

impl RoomsSeen {
    pub(crate) fn take(app: &App) -> Option<Self> {
        let rooms = app.rooms.as_ref()?;
        let reading = |served: Arc<ServedRoom>| RoomReading {
            room: served.room.name().to_string(),
            seen: served.room.seen(),
            max_waiting: served.settings.max_waiting,
            streams: served.room.streams() as u64,
            failed_open: served.failed_open.load(Ordering::Relaxed),
            work: served.room.work(),
        };
        Some(Self {
            rooms: rooms.served_rooms().into_iter().map(reading).collect(),
            max_streams: app.config.room.max_streams,
            losses: rooms.handle.losses(),
        })
    }

    pub(crate) fn render(&self, all: &mut Exposition) {
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
            "People in the room, by state",
            self.by(|view| people(view).to_vec(), "state"),
        );
        all.gauges(
            "tidegate_room_max_inside_people",
            "Most people inside at once, including those who were admitted but have not arrived",
            self.each(|view| Some(view.capacity.inside)),
        );
        all.gauges(
            "tidegate_room_max_admissions_per_second",
            "Most people whom the room admits in a second",
            self.each(|view| Some(view.capacity.per_second)),
        );
        all.gauges(
            "tidegate_room_seats",
            "Seats in all, if the room counts them",
            self.each(|view| view.capacity.seats),
        );
        all.gauges(
            "tidegate_room_free_slots",
            "People whom the room could admit now, by the limit inside and the seats that are left",
            self.each(|view| Some(view.free())),
        );
        all.gauges(
            "tidegate_room_max_waiting_people",
            "Most people who may wait, including early ones",
            self.counted(|reading| reading.max_waiting),
        );
        all.gauges(
            "tidegate_room_open",
            "1 while the room is open, 0 while it is paused or closed",
            self.each(|view| Some(u64::from(view.status == Status::Open))),
        );
    }

    fn ends(&self, all: &mut Exposition) {
        all.counters(
            "tidegate_room_joins",
            "Tickets that the room issued",
            self.each(|view| Some(view.counts.joined)),
        );
        all.counters(
            "tidegate_room_admissions",
            "Times that the room admitted somebody",
            self.each(|view| Some(view.counts.admitted)),
        );
        all.counters(
            "tidegate_room_redeemed_passes",
            "Passes that the shop redeemed",
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
            "tidegate_room_ended_tickets",
            "Tickets that ended, by outcome",
            self.by(ends, "outcome"),
        );
        all.counter(
            "tidegate_room_lost_rooms",
            "Rooms that the store lost while this process served them",
            self.losses as f64,
        );
    }

    /// The streams of visitors.
    fn streams(&self, all: &mut Exposition) {
        all.gauges(
            "tidegate_room_streams",
            "Visitors' streams that this process serves",
            self.counted(|reading| reading.streams),
        );
        all.gauge(
            "tidegate_room_max_streams",
            "Most visitors' streams that one process serves, over all rooms",
            f64::from(self.max_streams),
        );
        all.counters(
            "tidegate_room_sent_positions",
            "Positions that this process sent",
            self.counted(|reading| reading.work.updates),
        );
        let age = |reading: &RoomReading| {
            Some((
                named(reading),
                reading.seen.as_ref()?.read.elapsed().as_secs_f64(),
            ))
        };
        all.gauges(
            "tidegate_room_position_age_seconds",
            "How old the positions are that visitors see",
            self.rooms.iter().filter_map(age),
        );
        all.histogram(
            "tidegate_room_broadcast_duration_seconds",
            "Time from reading the room until a stream was sent the position that follows from it",
            self.durations(|reading| &reading.work.broadcasts),
        );
    }

    /// The promoter of this process.
    fn promotions(&self, all: &mut Exposition) {
        all.counters(
            "tidegate_room_promoted_people",
            "People whom this process admitted",
            self.counted(|reading| reading.work.promoted),
        );
        all.counters(
            "tidegate_room_promotion_runs",
            "Times that this process looked for people to admit",
            self.counted(|reading| reading.work.promotions.count()),
        );
        all.histogram(
            "tidegate_room_promotion_duration_seconds",
            "How long the store took to admit people",
            self.durations(|reading| &reading.work.promotions),
        );
        all.counters(
            "tidegate_room_failed_open_passes",
            "Passes that this process issued without the store, which was unavailable",
            self.counted(|reading| reading.failed_open),
        );
        let queued = |reading: &RoomReading| {
            let WorkView {
                queued_joins,
                queued_inspections,
                ..
            } = reading.work;
            [("join", queued_joins), ("inspect", queued_inspections)].map(|(operation, queued)| {
                let mut labels = named(reading);
                labels.push(("operation", operation.to_owned()));
                (labels, queued as f64)
            })
        };
        all.gauges(
            "tidegate_room_queued_calls",
            "Requests that wait in this process for the next call of the store, by operation",
            self.rooms.iter().flat_map(queued),
        );
    }

    fn counted(&self, of: fn(&RoomReading) -> u64) -> Vec<(Labels, f64)> {
        let one = |reading: &RoomReading| (named(reading), of(reading) as f64);
        self.rooms.iter().map(one).collect()
    }

    fn durations(&self, of: fn(&RoomReading) -> &HistogramView) -> Buckets {
        Buckets::durations(self.rooms.iter().map(|reading| (named(reading), of(reading))))
    }

    fn each(&self, value: impl Fn(&RoomView) -> Option<u64>) -> Vec<(Labels, f64)> {
        let one = |reading: &RoomReading| {
            let seen = reading.seen.as_ref()?;
            Some((named(reading), value(&seen.view)? as f64))
        };
        self.rooms.iter().filter_map(one).collect()
    }

    fn by(
        &self,
        values: impl Fn(&RoomView) -> Vec<(&'static str, u64)>,
        name: &'static str,
    ) -> Vec<(Labels, f64)> {
        let mut all = Vec::new();
        for reading in &self.rooms {
            let Some(seen) = &reading.seen else {
                continue;
            };
            for (what, value) in values(&seen.view) {
                let mut labels = named(reading);
                labels.push((name, what.to_owned()));
                all.push((labels, value as f64));
            }
        }
        all
    }
}

fn named(reading: &RoomReading) -> Labels {
    label("room", reading.room.as_str())
}

#[cfg(test)]
pub(crate) mod tests;
