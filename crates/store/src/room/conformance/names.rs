//! Rooms and people may have any names, and rooms are independent of each other.

use futures_util::future::join_all;
use tidegate_core::ids::{MAX_ID_BYTES, RoomId};
use tidegate_core::room::command::{
    Control, ExtendParams, JoinOutcome, ReapParams, RedeemOutcome, RedeemParams, RemoveOutcome, Status,
    TouchParams,
};
use tidegate_core::room::ticket::{Index, Stream, TicketState, Wave};
use tidegate_core::time::Millis;

use super::harness::*;
use crate::StoreError;

fn odd() -> Vec<String> {
    let mut names: Vec<String> = [
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "a}b",
        "a{b",
        "%7B",
        "%",
        "/",
        "a/b",
        ":",
        "a:b",
        " ",
        "\n",
        "\u{0}",
        "ü",
        "메이플",
        "*",
        "0",
        "-1",
        "nil",
        "a",
        "A",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(MAX_ID_BYTES));
    names.push("{".repeat(MAX_ID_BYTES));
    names.push("메".repeat(MAX_ID_BYTES / 3));
    names
}

pub async fn rooms_do_not_know_each_other(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let other = h.in_room(room("other"));
    must(h.store.open(&other.room, h.config.clone()).await);
    h.join("a").await;
    h.let_in().await;
    let pass = h.pass("a").await;
    assert_eq!(other.look("a").await, None);
    other.join("b").await;
    assert_eq!(other.let_in().await, ["b"], "it has slots of its own");
    other.leave("b").await;
    other.join("a").await;
    assert_eq!(other.let_in().await, ["a"], "one ticket per room");
    assert_ne!(other.pass("a").await, pass, "and one pass");
    other.control(Control::Pause).await;
    other.void(None).await;
    let outcome = h.redeem(&pass).await;
    assert!(matches!(outcome, RedeemOutcome::Inside { .. }), "{outcome:?}");
    h.leave("a").await;
    let state = other.ticket("a").await.ticket.state;
    assert!(matches!(state, TicketState::Granted { .. }), "{state:?}");
    assert_eq!(other.slots().await, 1);
    h.join("c").await;
    assert_eq!(h.let_in().await, ["c"]);
}

pub async fn a_room_that_is_there_is_not_made_again(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    h.join_all(&["a", "b"]).await;
    assert_eq!(h.let_in().await, ["a"]);
    let before = h.overview().await;
    // The second process starts after the first has admitted people.
    let opens = (0..10).map(|_| h.store.open(&h.room, h.config.clone()));
    for opened in join_all(opens).await {
        must(opened);
    }
    assert_eq!(h.overview().await, before);
    assert!(h.let_in().await.is_empty(), "no slots are made by it");
}

pub async fn odd_names_are_people_of_their_own(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1_000, 1_000).await;
    let names = odd();
    h.join_all(&names).await;
    for (ahead, name) in names.iter().enumerate() {
        assert_eq!(h.ahead(name).await, ahead as u64, "{name:?}");
    }
    assert_eq!(h.let_in().await, names);
    for name in &names {
        h.enter(name).await;
        h.complete(name).await;
    }
    assert_eq!(h.overview().await.counts.completed, names.len() as u64);
}

pub async fn odd_names_are_rooms_of_their_own(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let mut rooms = Vec::new();
    for name in odd() {
        let there = h.in_room(room(&name));
        let mut config = h.config.clone();
        config.capacity.inside = rooms.len() as u64;
        must(h.store.open(&there.room, config).await);
        assert_eq!(there.join("a").await.ahead, 0, "{name:?}");
        there.join(&format!("only-{}", rooms.len())).await;
        rooms.push(there);
    }
    for (number, there) in rooms.iter().enumerate() {
        let inside = there.overview().await.capacity.inside;
        assert_eq!(inside, number as u64, "{:?}", there.room);
        assert_eq!(there.let_in().await.len(), number.min(2), "{:?}", there.room);
        let only = there.look(&format!("only-{number}")).await;
        assert!(only.is_some(), "{:?}", there.room);
    }
    let mut expected: Vec<RoomId> = odd().iter().map(|name| room(name)).collect();
    expected.push(room("sale"));
    expected.sort();
    assert_eq!(must(h.store.rooms().await), expected);
}

pub async fn rooms_are_listed_in_order(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    for name in ["z", "b", "a10", "a9"] {
        must(h.store.open(&room(name), h.config.clone()).await);
    }
    let expected = ["a10", "a9", "b", "sale", "z"].map(room);
    assert_eq!(must(h.store.rooms().await), expected);
}

pub async fn an_unknown_room_is_an_error(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let (store, none, who) = (&h.store, room("none"), person("a"));
    let redeem = RedeemParams {
        person: who.clone(),
        index: Index(0),
        wave: Wave(1),
        session: None,
    };
    let extend = ExtendParams {
        person: who.clone(),
        by: Millis(1),
    };
    let touch = TouchParams {
        person: who.clone(),
        stream: Stream(1),
        present: true,
    };
    let all = ReapParams::all(1);
    let refused = [
        ("join", store.join(&none, vec![join_of("a")]).await.err()),
        ("touch", store.touch(&none, vec![touch]).await.err()),
        ("promote", store.promote(&none, 1).await.err()),
        ("redeem", store.redeem(&none, redeem).await.err()),
        ("reissue", store.reissue(&none, &who).await.err()),
        ("extend", store.extend(&none, extend).await.err()),
        ("complete", store.complete(&none, &who).await.err()),
        ("leave", store.leave(&none, &who).await.err()),
        ("reap", store.reap(&none, all).await.err()),
        ("remove", store.remove(&none).await.err()),
        ("resize", store.resize(&none, inside_by(1, 1)).await.err()),
        ("control", store.control(&none, Control::Pause).await.err()),
        ("void", store.void(&none, None).await.err()),
        ("look", store.look(&none, vec![who.clone()]).await.err()),
        ("overview", store.overview(&none).await.err()),
    ];
    for (verb, error) in refused {
        assert!(
            matches!(&error, Some(StoreError::UnknownRoom(name)) if name == "none"),
            "{verb}: {error:?}"
        );
    }
    assert_eq!(must(store.rooms().await), [room("sale")], "asking makes no room");
    let outcome = h.join_as(join_of("a")).await;
    assert!(matches!(outcome, JoinOutcome::Placed { new: true, .. }));
}

/// A room recreated after a loss admits nobody before an operator has checked it.
pub async fn a_room_can_be_created_paused(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(10), 4, 100).await;
    let hall = h.in_room(room("hall"));
    assert!(must(
        h.store.create(&hall.room, h.config.clone(), Status::Paused).await
    ));
    assert_eq!(hall.overview().await.status, Status::Paused);
    hall.join_all(&["a", "b"]).await;
    assert!(hall.let_in().await.is_empty());
    // A process that creates it later finds it as it is.
    assert!(!must(
        h.store.create(&hall.room, h.config.clone(), Status::Open).await
    ));
    let h = h.restart().await;
    let hall = h.in_room(room("hall"));
    assert_eq!(hall.overview().await.status, Status::Paused);
    hall.join_all(&["a", "b"]).await;
    hall.control(Control::Resume).await;
    assert_eq!(hall.let_in().await, ["a", "b"]);
}

/// Two processes learn of a room at the same time, with different settings.
pub async fn the_first_to_make_a_room_wins(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(10), 4, 100).await;
    let hall = h.in_room(room("hall"));
    let (mut first, mut second) = (h.config.clone(), h.config.clone());
    (first.capacity.seats, second.capacity.seats) = (Some(100), Some(200));
    assert!(must(
        h.store.create(&hall.room, first.clone(), Status::Open).await
    ));
    assert!(!must(
        h.store.create(&hall.room, second.clone(), Status::Open).await
    ));
    let view = hall.overview().await;
    assert_eq!(view.configured, first.capacity);
    assert_eq!(must(h.store.rooms().await), [hall.room.clone(), h.room.clone()]);
    // Limits set by an operator, and an opened room.
    hall.resized(&inside_by(1, 3)).await;
    assert!(!must(
        h.store.create(&hall.room, second.clone(), Status::Open).await
    ));
    assert_eq!(hall.overview().await.capacity.inside, 7);
    assert!(!must(h.store.create(&h.room, second, Status::Open).await));
    let view = h.overview().await;
    assert_eq!(
        (
            view.configured,
            view.incarnation == hall.overview().await.incarnation
        ),
        (h.config.capacity, false)
    );
}

pub async fn a_room_that_is_over_is_removed(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 100).await;
    let hall = h.in_room(room("hall"));
    let mut config = h.config.clone();
    config.capacity.seats = Some(1);
    must(h.store.create(&hall.room, config.clone(), Status::Open).await);
    let incarnation = hall.overview().await.incarnation;
    assert_eq!(hall.remove().await, RemoveOutcome::Open, "it was never closed");
    hall.join_all(&["a", "b", "c"]).await;
    assert_eq!(hall.let_in().await, ["a"]);
    hall.control(Control::Close).await;
    let used = |waiting, inside| RemoveOutcome::Used { waiting, inside };
    assert_eq!(hall.remove().await, used(2, 1));
    hall.leave("b").await;
    hall.enter("a").await;
    assert_eq!(hall.remove().await, used(1, 1));
    hall.control(Control::Resume).await;
    assert_eq!(hall.remove().await, RemoveOutcome::Open);
    hall.complete("a").await;
    assert_eq!(
        hall.remove().await,
        used(1, 0),
        "sold out, and somebody still waits"
    );
    hall.leave("c").await;
    assert_eq!(hall.remove().await, RemoveOutcome::Removed);
    let unknown = |answer| matches!(answer, Err(StoreError::UnknownRoom(_)));
    assert!(unknown(h.store.remove(&hall.room).await.map(drop)));
    assert!(unknown(h.store.overview(&hall.room).await.map(drop)));
    assert_eq!(must(h.store.rooms().await), std::slice::from_ref(&h.room));
    // Another room of the same name has nothing of it, even after a restart.
    let h = h.restart().await;
    assert_eq!(must(h.store.rooms().await), std::slice::from_ref(&h.room));
    let hall = h.in_room(room("hall"));
    must(h.store.create(&hall.room, config, Status::Open).await);
    let view = hall.overview().await;
    assert_eq!((view.counts.joined, view.incarnation == incarnation), (0, false));
    assert_eq!(hall.look("a").await, None);
    hall.join_all(&["a"]).await;
    assert_eq!(hall.let_in().await, ["a"]);
    let h = h.restart().await;
    assert_eq!(h.in_room(room("hall")).slots().await, 1);
}
