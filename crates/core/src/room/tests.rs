//! Transitions one by one.

use super::Room;
use super::command::*;
use super::config::{Capacity, RoomConfig};
use super::ticket::{End, Index, Stream, TicketState, Wave};
use crate::ids::{PersonId, SessionId};
use crate::time::{Millis, Timestamp};

const T0: Timestamp = Timestamp(1_000_000);
const ALL: ReapParams = ReapParams::all(10);

/// A sweep that finds nothing to do.
fn nothing(now: Timestamp) -> ReapOutcome {
    ReapOutcome {
        now,
        ..ReapOutcome::default()
    }
}

fn person(name: &str) -> PersonId {
    PersonId::new(name).unwrap()
}

fn at(ms: u64) -> Timestamp {
    T0 + Millis(ms)
}

fn room(seats: Option<u64>, inside: u64, per_second: u64) -> Room {
    let capacity = Capacity {
        seats,
        inside,
        per_second,
    };
    Room::new(
        7,
        RoomConfig {
            capacity,
            ..RoomConfig::default()
        },
    )
}

fn joins(room: &mut Room, name: &str, now: Timestamp) -> TicketView {
    let params = JoinParams {
        person: person(name),
        stream: true,
        again: false,
        draw: 0,
    };
    match room.join(&params, now) {
        JoinOutcome::Placed { ticket, .. } => ticket,
        other => panic!("{name} should have a place, not {other:?}"),
    }
}

fn let_in(room: &mut Room, now: Timestamp) -> Vec<String> {
    let outcome = room.promote(100, now);
    outcome
        .granted
        .iter()
        .map(|granted| granted.person.to_string())
        .collect()
}

fn pass(room: &Room, name: &str) -> RedeemParams {
    let ticket = room.ticket(&person(name)).unwrap();
    let TicketState::Granted { wave, .. } = ticket.state else {
        panic!("{name} has no pass: {ticket:?}")
    };
    RedeemParams {
        person: person(name),
        index: ticket.index,
        wave,
        session: None,
    }
}

#[test]
fn people_are_let_in_in_order_as_slots_free_up() {
    let mut room = room(None, 2, 100);
    for name in ["a", "b", "c", "d"] {
        joins(&mut room, name, at(0));
    }
    assert_eq!(let_in(&mut room, at(1)), ["a", "b"]);
    assert_eq!(room.promote(10, at(2)).stop, Stop::Inside);
    assert_eq!(joins(&mut room, "d", at(3)).ahead, 1);
    assert_eq!(room.leave(&person("a"), at(4)), InsideOutcome::Ended(End::Left));
    assert_eq!(
        room.leave(&person("a"), at(4)),
        InsideOutcome::Ended(End::Left),
        "once"
    );
    assert_eq!(let_in(&mut room, at(5)), ["c"]);
    assert_eq!(joins(&mut room, "d", at(6)).ahead, 0);
    room.check().unwrap();
}

#[test]
fn a_seat_that_was_bought_does_not_come_back() {
    let mut room = room(Some(1), 10, 10);
    joins(&mut room, "u1", at(0));
    joins(&mut room, "u2", at(0));
    assert_eq!(let_in(&mut room, at(1)), ["u1"]);
    assert_eq!(room.promote(10, at(1)).stop, Stop::Seats);
    assert_eq!(
        room.complete(&person("u1"), at(2)),
        InsideOutcome::Ended(End::Completed)
    );
    assert_eq!(
        room.complete(&person("u1"), at(2)),
        InsideOutcome::Ended(End::Completed)
    );
    assert_eq!(
        room.leave(&person("u1"), at(3)),
        InsideOutcome::Ended(End::Completed)
    );
    let outcome = room.promote(10, at(4));
    assert_eq!((outcome.granted, outcome.stop), (Vec::new(), Stop::SoldOut));
    assert_eq!(room.head().counts.completed, 1);
    let late = JoinParams {
        person: person("u3"),
        stream: true,
        again: false,
        draw: 0,
    };
    assert_eq!(room.join(&late, at(5)), JoinOutcome::Refused(Refused::SoldOut));
}

#[test]
fn an_older_stream_says_nothing_about_the_ticket() {
    let mut room = room(None, 0, 10);
    let first = joins(&mut room, "a", at(0)).ticket.stream;
    let second = joins(&mut room, "a", at(10)).ticket.stream;
    assert_eq!((first, second), (Stream(1), Stream(2)));
    let gone = |stream, present| TouchParams {
        person: person("a"),
        stream,
        present,
    };
    assert_eq!(room.touch(&gone(first, false), at(20)), TouchOutcome::Superseded);
    assert_eq!(room.touch(&gone(second, true), at(14_000)), TouchOutcome::Kept);
    assert_eq!(
        room.reap(ALL, at(58_999)),
        nothing(at(58_999)),
        "14 s + 15 s + 30 s"
    );
    assert_eq!(room.reap(ALL, at(59_000)).lost, 1);
    assert_eq!(room.touch(&gone(second, true), at(59_001)), TouchOutcome::Gone);
}

#[test]
fn a_stream_of_an_earlier_ticket_says_nothing_about_the_next() {
    let mut room = room(None, 1, 100);
    let again = JoinParams {
        person: person("a"),
        stream: true,
        again: true,
        draw: 0,
    };
    let old = joins(&mut room, "a", at(0)).ticket.stream;
    room.leave(&person("a"), at(1));
    assert!(matches!(
        room.join(&again, at(2)),
        JoinOutcome::Placed { new: true, .. }
    ));
    let gone = TouchParams {
        person: person("a"),
        stream: old,
        present: false,
    };
    assert_eq!(room.touch(&gone, at(3)), TouchOutcome::Superseded);
    assert_eq!(let_in(&mut room, at(4)), ["a"], "it is there");
}

#[test]
fn who_is_absent_keeps_the_place_is_passed_over_and_goes_first_on_return() {
    let mut room = room(None, 1, 100);
    let stream = joins(&mut room, "a", at(0)).ticket.stream;
    joins(&mut room, "b", at(1));
    joins(&mut room, "c", at(2));
    let gone = TouchParams {
        person: person("a"),
        stream,
        present: false,
    };
    room.touch(&gone, at(3));
    assert_eq!(joins(&mut room, "b", at(4)).ahead, 1, "a still has its place");
    assert_eq!(let_in(&mut room, at(5)), ["b"]);
    assert_eq!(joins(&mut room, "a", at(29_000)).ticket.index, Index(0));
    joins(&mut room, "c", at(29_000));
    room.complete(&person("b"), at(29_001));
    assert_eq!(let_in(&mut room, at(29_002)), ["a"]);
    room.check().unwrap();
}

#[test]
fn presence_runs_out_by_itself() {
    let mut room = room(None, 1, 100);
    joins(&mut room, "a", at(0));
    joins(&mut room, "b", at(10_000));
    assert_eq!(let_in(&mut room, at(15_000)), ["b"], "a gave no sign for 15 s");
    assert_eq!(room.promote(1, at(15_000)).stop, Stop::Nobody);
    joins(&mut room, "a", at(20_000));
    assert_eq!(room.promote(1, at(20_000)).stop, Stop::Inside, "back in line");
}

#[test]
fn the_rate_holds_in_every_second() {
    let mut room = room(None, 1_000, 3);
    for number in 0..10 {
        joins(&mut room, &format!("p{number}"), at(0));
    }
    assert_eq!(room.promote(2, at(100)).granted.len(), 2);
    let outcome = room.promote(10, at(600));
    assert_eq!(outcome.granted.len(), 1);
    assert_eq!(outcome.stop, Stop::Rate { until: at(1_100) });
    assert!(let_in(&mut room, at(1_099)).is_empty());
    assert_eq!(let_in(&mut room, at(1_100)).len(), 2);
    assert_eq!(let_in(&mut room, at(1_600)).len(), 1);
}

#[test]
fn a_slot_comes_back_once_and_at_its_deadline() {
    let mut room = room(None, 1, 100);
    joins(&mut room, "a", at(0));
    let_in(&mut room, at(0));
    let deadline = 5 * 60_000;
    assert_eq!(room.reap(ALL, at(deadline - 1)).no_shows, 0);
    assert_eq!(room.reap(ALL, at(deadline)).no_shows, 1);
    assert_eq!(room.reap(ALL, at(deadline)), nothing(at(deadline)));
    assert_eq!(
        room.leave(&person("a"), at(deadline)),
        InsideOutcome::Ended(End::NoShow)
    );
    assert_eq!(room.head().slots(), 0);
    assert_eq!(room.reap(ALL, at(deadline + 10 * 60_000)).forgotten, 1);
    assert!(room.ticket(&person("a")).is_none());
    room.check().unwrap();
}

#[test]
fn a_pass_is_redeemed_once_and_by_one_session_again() {
    let mut room = room(None, 5, 100);
    joins(&mut room, "a", at(0));
    let_in(&mut room, at(0));
    let shown = pass(&room, "a");
    let named = RedeemParams {
        session: Some(SessionId::new("s").unwrap()),
        ..shown.clone()
    };
    let until = at(1 + 15 * 60_000);
    assert_eq!(room.redeem(&named, at(1)), RedeemOutcome::Inside { until });
    assert_eq!(room.redeem(&named, at(9)), RedeemOutcome::Inside { until });
    assert_eq!(room.redeem(&shown, at(9)), RedeemOutcome::AlreadyRedeemed);
    let forged = RedeemParams {
        wave: Wave(9),
        ..shown
    };
    assert_eq!(room.redeem(&forged, at(9)), RedeemOutcome::Unknown);
    let longer = ExtendParams {
        person: person("a"),
        by: Millis(20 * 60_000),
    };
    let until = at(10 + 20 * 60_000);
    assert_eq!(room.extend(&longer, at(10)), InsideOutcome::Inside { until });
    assert_eq!(room.reap(ALL, at(10 + 20 * 60_000)).expired, 1);
    assert_eq!(
        room.complete(&person("a"), until),
        InsideOutcome::Ended(End::Expired)
    );
}

#[test]
fn a_voided_pass_is_refused_and_another_one_given() {
    let mut room = room(None, 5, 100);
    joins(&mut room, "a", at(0));
    let_in(&mut room, at(0));
    let old = pass(&room, "a");
    assert!(!room.reissue(&person("a"), at(1)), "it is good");
    assert_eq!(room.void(None), Wave(1));
    assert_eq!(room.redeem(&old, at(2)), RedeemOutcome::Voided);
    assert!(room.reissue(&person("a"), at(3)));
    assert_eq!(room.redeem(&old, at(4)), RedeemOutcome::Voided);
    let new = pass(&room, "a");
    assert!(matches!(room.redeem(&new, at(5)), RedeemOutcome::Inside { .. }));
}

#[test]
fn limits_change_by_so_many_once_and_nobody_is_thrown_out() {
    let mut room = room(Some(10), 4, 100);
    for number in 0..6 {
        joins(&mut room, &format!("p{number}"), at(0));
    }
    assert_eq!(let_in(&mut room, at(0)).len(), 4);
    let mut change = ResizeParams {
        request: 1,
        seats: Some(Change::Add(-9)),
        inside: Some(Change::Set(2)),
        per_second: None,
        by: "ana".to_owned(),
        why: "a till broke".to_owned(),
    };
    let small = Capacity {
        seats: Some(1),
        inside: 2,
        per_second: 100,
    };
    assert_eq!(room.resize(&change, at(1)), ResizeOutcome::Resized(small));
    assert_eq!(room.resize(&change, at(1)), ResizeOutcome::Resized(small), "once");
    assert_eq!(room.head().slots(), 4);
    assert_eq!(room.promote(10, at(2)).stop, Stop::Inside);
    change.request = 2;
    (change.seats, change.inside) = (Some(Change::Add(-1)), Some(Change::Add(-3)));
    assert_eq!(
        room.resize(&change, at(2)),
        ResizeOutcome::Invalid("inside is 2: 3 fewer would be below zero".to_owned())
    );
    assert_eq!(room.head().capacity(), small, "nothing changed");
    change.inside = Some(Change::Add(-2));
    let ResizeOutcome::Resized(none) = room.resize(&change, at(2)) else {
        panic!()
    };
    assert_eq!((none.inside, none.seats), (0, Some(0)));
    change.request = 3;
    (change.seats, change.inside) = (None, Some(Change::Set(u64::MAX)));
    assert!(
        matches!(room.resize(&change, at(3)), ResizeOutcome::Invalid(reason) if reason.contains("inside"))
    );
    change.request = 4;
    (change.seats, change.inside) = (Some(Change::Reset), Some(Change::Reset));
    let ResizeOutcome::Resized(back) = room.resize(&change, at(4)) else {
        panic!()
    };
    assert_eq!((back.inside, back.seats), (4, Some(10)));
}

#[test]
fn the_early_ones_are_drawn_and_go_before_the_late_ones() {
    let mut room = room(None, 100, 1_000);
    let config = RoomConfig {
        opens_at: Some(at(1_000)),
        ..room.head().config.clone()
    };
    room.configure(&config);
    let early = |name: &str, draw| JoinParams {
        person: person(name),
        stream: true,
        again: false,
        draw,
    };
    for (name, draw) in [("a", 30), ("b", 10), ("c", 20), ("d", 5)] {
        room.join(&early(name, draw), at(1));
    }
    assert_eq!(room.promote(10, at(2)).stop, Stop::NotOpen { at: at(1_000) });
    room.leave(&person("d"), at(3));
    joins(&mut room, "late", at(1_000));
    assert_eq!(let_in(&mut room, at(1_001)), ["b", "c", "a", "late"]);
    room.check().unwrap();
}

#[test]
fn paused_and_closed_rooms_keep_everybody_where_they_are() {
    let mut room = room(None, 5, 100);
    joins(&mut room, "a", at(0));
    room.control(Control::Pause);
    assert_eq!(room.promote(5, at(1)).stop, Stop::Paused);
    joins(&mut room, "b", at(2));
    room.control(Control::Close);
    assert_eq!(room.promote(5, at(3)).stop, Stop::Closed);
    let new = JoinParams {
        person: person("c"),
        stream: false,
        again: false,
        draw: 0,
    };
    assert_eq!(room.join(&new, at(4)), JoinOutcome::Refused(Refused::Closed));
    assert_eq!(joins(&mut room, "a", at(5)).ahead, 0, "existing tickets stay");
    room.control(Control::Resume);
    assert_eq!(let_in(&mut room, at(7)), ["a", "b"]);
}

#[test]
fn one_ticket_per_person_until_it_has_ended() {
    let mut room = room(None, 1, 100);
    let again = JoinParams {
        person: person("a"),
        stream: true,
        again: true,
        draw: 0,
    };
    joins(&mut room, "a", at(0));
    let_in(&mut room, at(0));
    let JoinOutcome::Placed { ticket, new: false } = room.join(&again, at(1)) else {
        panic!("it has a ticket")
    };
    assert!(matches!(ticket.ticket.state, TicketState::Granted { .. }));
    room.leave(&person("a"), at(2));
    let once = JoinParams {
        again: false,
        ..again.clone()
    };
    assert!(matches!(room.join(&once, at(3)), JoinOutcome::Ended(_)));
    assert!(matches!(
        room.join(&again, at(4)),
        JoinOutcome::Placed { new: true, .. }
    ));
    room.check().unwrap();
}

#[test]
fn a_room_comes_back_as_it_was_with_everybody_absent() {
    let mut room = room(Some(9), 2, 100);
    for name in ["a", "b", "c", "d"] {
        joins(&mut room, name, at(0));
    }
    let_in(&mut room, at(1));
    room.redeem(&pass(&room, "a"), at(2));
    let tickets = ["a", "b", "c", "d"]
        .map(|name| (person(name), room.ticket(&person(name)).unwrap().clone()))
        .to_vec();
    let mut back = Room::restored(room.head().clone(), tickets, at(60_000));
    back.check().unwrap();
    assert_eq!((back.head().granted, back.head().inside), (1, 1));
    back.complete(&person("a"), at(60_000));
    assert_eq!(
        back.promote(5, at(60_000)).stop,
        Stop::Nobody,
        "nobody is there yet"
    );
    assert_eq!(joins(&mut back, "d", at(60_500)).ahead, 1);
    assert_eq!(let_in(&mut back, at(60_501)), ["d"]);
    assert_eq!(back.reap(ALL, at(90_000)).lost, 1, "c did not come back");
}

#[test]
fn as_many_are_let_in_as_slots_are_free() {
    // A limit of 3 inside and 4 seats.
    let mut room = room(Some(4), 3, 100);
    let free = |room: &Room, ms| room.overview(at(ms)).free();
    for name in ["a", "b", "c", "d", "e", "f"] {
        joins(&mut room, name, at(0));
    }
    assert_eq!(free(&room, 0), 3);
    assert_eq!(let_in(&mut room, at(1)).len(), 3);
    assert_eq!(free(&room, 1), 0, "granted slots are kept");
    for name in ["a", "b"] {
        let pass = pass(&room, name);
        room.redeem(&pass, at(2));
        room.complete(&person(name), at(3));
    }
    assert_eq!(free(&room, 3), 1, "two seats are left, and one of them is kept");
    room.control(Control::Pause);
    assert_eq!(free(&room, 4), 0);
    room.control(Control::Resume);
    assert_eq!(let_in(&mut room, at(6)), ["d"]);
    assert_eq!(free(&room, 6), 0, "a slot without a seat is not free");
    room.control(Control::Close);
    room.leave(&person("c"), at(8));
    assert_eq!(free(&room, 8), 0);
}

#[test]
fn no_slot_is_free_before_the_opening() {
    let config = RoomConfig {
        opens_at: Some(at(10)),
        ..RoomConfig::default()
    };
    let room = Room::new(7, config);
    assert_eq!(room.overview(at(9)).free(), 0);
    assert_eq!(room.overview(at(10)).free(), Capacity::default().inside);
}
