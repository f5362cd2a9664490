//! People who join before a room opens: all have the same chance, and go before everybody who joins later.

use tidegate_core::room::command::{Control, JoinOutcome, JoinParams, RoomView, Stop};
use tidegate_core::room::config::Capacity;
use tidegate_core::room::ticket::TicketState;
use tidegate_core::time::Millis;

use super::harness::*;

const OPENS: u64 = 10_000;

async fn early_room(backend: &dyn Backend) -> Harness<'_> {
    Harness::with(backend, |config| {
        config.opens_at = Some(START + Millis(OPENS));
        config.capacity = Capacity {
            seats: None,
            inside: 10_000,
            per_second: 10_000,
        };
    })
    .await
}

async fn draws(h: &Harness<'_>, drawn: &[(&str, u64)]) {
    for (name, draw) in drawn {
        let params = JoinParams {
            draw: *draw,
            ..join_of(name)
        };
        let outcome = h.join_as(params).await;
        let JoinOutcome::Placed { ticket, .. } = &outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            matches!(ticket.ticket.state, TicketState::Early { .. }),
            "{ticket:?}"
        );
    }
}

pub async fn the_early_ones_are_drawn(backend: &dyn Backend) {
    let h = early_room(backend).await;
    let most = (1 << 52) - 1;
    draws(
        &h,
        &[("a", 30), ("b", most), ("c", 20), ("d", 0), ("e", most - 1)],
    )
    .await;
    assert_eq!((h.overview().await.early, h.overview().await.waiting()), (5, 0));
    h.advance(OPENS);
    assert_eq!(h.let_in().await, ["d", "c", "a", "e", "b"]);
}

pub async fn the_early_ones_go_before_the_late_ones(backend: &dyn Backend) {
    let h = early_room(backend).await;
    draws(&h, &[("a", 9), ("b", 4)]).await;
    h.advance(OPENS);
    h.join("late").await;
    let outcome = h.promote(2).await;
    let names: Vec<String> = outcome
        .granted
        .iter()
        .map(|granted| granted.person.to_string())
        .collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(h.ahead("late").await, 0);
    h.join("later").await;
    assert_eq!(h.let_in().await, ["late", "later"]);
    assert_eq!(h.overview().await.early, 0);
}

pub async fn nobody_is_let_in_before_the_room_opens(backend: &dyn Backend) {
    let h = early_room(backend).await;
    draws(&h, &[("a", 1)]).await;
    let at = START + Millis(OPENS);
    h.advance(OPENS - 1);
    let outcome = h.promote(5).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (0, Stop::NotOpen { at }));
    let ticket = h.ticket("a").await.ticket;
    assert!(matches!(ticket.state, TicketState::Early { .. }), "{ticket:?}");
    h.advance(1);
    assert_eq!(h.let_in().await, ["a"]);
}

pub async fn who_leaves_before_the_draw_leaves_no_gap(backend: &dyn Backend) {
    let h = early_room(backend).await;
    draws(&h, &[("a", 3), ("b", 2), ("c", 1), ("d", 4)]).await;
    h.leave("b").await;
    h.advance(OPENS);
    h.join("late").await;
    h.leave("c").await;
    let outcome = h.promote(1).await;
    assert_eq!(outcome.granted[0].person, person("a"));
    assert_eq!((h.ahead("d").await, h.ahead("late").await), (0, 1));
    assert_eq!(h.let_in().await, ["d", "late"]);
}

/// The opening time has passed while the door is shut: a newcomer is behind all early people, and its position
/// shows it.
pub async fn who_is_not_drawn_yet_stands_ahead_of_newcomers(backend: &dyn Backend) {
    let h = early_room(backend).await;
    draws(&h, &[("a", 3), ("b", 2), ("c", 1)]).await;
    h.control(Control::Pause).await;
    h.advance(OPENS);
    let late = h.join("late").await;
    assert_eq!(late.ahead, 3);
    assert_eq!(h.join("later").await.ahead, 4);
    assert_eq!(h.join("late").await.ahead, 3, "of a second stream");
    assert_eq!((h.ahead("late").await, h.ahead("later").await), (3, 4));
    let of_all = |view: RoomView| view.positions.ahead(late.ticket.index.0);
    assert_eq!(of_all(h.overview().await), 3);
    h.leave("b").await;
    assert_eq!((h.ahead("late").await, of_all(h.overview().await)), (2, 2));
    h.control(Control::Resume).await;
    assert_eq!(h.promote(1).await.granted[0].person, person("c"));
    assert_eq!((h.ahead("late").await, of_all(h.overview().await)), (1, 1));
    assert_eq!(h.let_in().await, ["a", "late", "later"]);
}

pub async fn an_early_one_keeps_its_draw(backend: &dyn Backend) {
    let h = early_room(backend).await;
    draws(&h, &[("a", 5), ("b", 6)]).await;
    // Joining again is no second chance.
    draws(&h, &[("b", 1), ("a", 9)]).await;
    assert_eq!(
        (h.overview().await.early, h.overview().await.counts.joined),
        (2, 2)
    );
    h.advance(OPENS);
    assert_eq!(h.let_in().await, ["a", "b"]);
}

pub async fn an_absent_early_person_keeps_the_ticket(backend: &dyn Backend) {
    let h = early_room(backend).await;
    draws(&h, &[("a", 1), ("b", 2)]).await;
    h.advance(PRESENCE);
    h.join("b").await;
    assert_eq!(h.promote(1).await.granted[0].person, person("b"), "a is absent");
    assert_eq!(h.ahead("a").await, 0, "and has its place");
    h.join("late").await;
    h.join("a").await;
    assert_eq!(h.let_in().await, ["a", "late"]);
}

pub async fn a_large_draw_takes_several_promotions(backend: &dyn Backend) {
    let h = early_room(backend).await;
    // Backwards, so that the draw reverses the order.
    let people = crowd(1_200);
    for some in people.chunks(400) {
        let joins = some.iter().map(|name| JoinParams {
            draw: 10_000 - name[1..].parse::<u64>().expect("a number"),
            ..join_of(name)
        });
        must(h.store.join(&h.room, joins.collect()).await);
    }
    h.advance(OPENS);
    h.join("late").await;
    let mut order = Vec::new();
    for _ in 0..100 {
        let outcome = h.promote(300).await;
        order.extend(outcome.granted.iter().map(|granted| granted.person.to_string()));
        if outcome.stop != Stop::More {
            assert_eq!(outcome.stop, Stop::Nobody);
            break;
        }
    }
    let mut expected: Vec<String> = people.into_iter().rev().collect();
    expected.push("late".to_owned());
    assert!(
        order == expected,
        "{} were let in, not in the order of the draw",
        order.len()
    );
}
