//! Metrics of waiting rooms.

use std::sync::Arc;

use tidegate_core::room::Room;
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_core::time::Timestamp;
use tidegate_engine::room::{Seen, WorkView};

use super::{RoomReading, RoomsSeen};
use crate::metrics::tests::{exercised, full, samples};
use crate::refresh::metrics::tests::durations;

/// A room with a limited number of seats.
fn counted_room() -> RoomConfig {
    RoomConfig {
        capacity: Capacity {
            seats: Some(9),
            ..Capacity::default()
        },
        ..RoomConfig::default()
    }
}

pub(crate) fn seen() -> RoomsSeen {
    RoomsSeen {
        rooms: vec![RoomReading {
            room: "concert".into(),
            seen: Some(Arc::new(Seen {
                view: Room::new(7, counted_room()).overview(Timestamp(1_000)),
                rates: None,
                lately: None,
                read: tokio::time::Instant::now(),
            })),
            max_waiting: 1_000,
            streams: 3,
            failed_open: 4,
            work: WorkView {
                promoted: 2,
                promotions: durations(),
                updates: 5,
                broadcasts: durations(),
                queued_joins: 6,
                queued_inspections: 7,
            },
        }],
        max_streams: 50,
        losses: 8,
    }
}

#[test]
fn rooms_are_exposed() {
    let samples = samples(&exercised().text(&full()));
    for (name, value) in [
        ("tidegate_room_people{room=\"concert\",state=\"waiting\"}", 0.0),
        ("tidegate_room_seats{room=\"concert\"}", 9.0),
        // Fewer seats than the limit inside.
        ("tidegate_room_free_slots{room=\"concert\"}", 9.0),
        ("tidegate_room_max_waiting_people{room=\"concert\"}", 1_000.0),
        ("tidegate_room_streams{room=\"concert\"}", 3.0),
        ("tidegate_room_max_streams", 50.0),
        ("tidegate_room_lost_rooms_total", 8.0),
        ("tidegate_room_failed_open_passes_total{room=\"concert\"}", 4.0),
        ("tidegate_room_sent_positions_total{room=\"concert\"}", 5.0),
        ("tidegate_room_promoted_people_total{room=\"concert\"}", 2.0),
        ("tidegate_room_promotion_runs_total{room=\"concert\"}", 2.0),
        (
            "tidegate_room_promotion_duration_seconds_sum{room=\"concert\"}",
            3_603.0,
        ),
        (
            "tidegate_room_promotion_duration_seconds_bucket{le=\"3.0\",room=\"concert\"}",
            1.0,
        ),
        (
            "tidegate_room_broadcast_duration_seconds_bucket{le=\"2.0\",room=\"concert\"}",
            0.0,
        ),
        (
            "tidegate_room_broadcast_duration_seconds_bucket{le=\"+Inf\",room=\"concert\"}",
            2.0,
        ),
        (
            "tidegate_room_queued_calls{room=\"concert\",operation=\"join\"}",
            6.0,
        ),
        (
            "tidegate_room_queued_calls{room=\"concert\",operation=\"inspect\"}",
            7.0,
        ),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:#?}");
    }
}
