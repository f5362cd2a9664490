//! Places: assigned once, found again, and counted exactly.

use futures_util::future::join_all;
use tidegate_core::room::command::{JoinOutcome, JoinParams, Refused};
use tidegate_core::room::ticket::{End, TicketState};

use super::harness::*;

pub async fn a_place_is_given_and_found_again(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let JoinOutcome::Placed { ticket: first, new } = h.join_as(join_of("a")).await else {
        panic!("a has a place")
    };
    assert!(new && is_waiting(&first), "{first:?}");
    assert_eq!(
        (first.ahead, first.waiting, first.ticket.joined_at),
        (0, 1, START)
    );
    h.advance(10);
    let second = h.join("b").await;
    assert!(second.ticket.index > first.ticket.index);
    assert_eq!((second.ahead, second.waiting), (1, 2));
    let JoinOutcome::Placed { ticket, new } = h.join_as(join_of("a")).await else {
        panic!("a has its place")
    };
    assert!(!new);
    assert_eq!(
        (ticket.ticket.index, ticket.ticket.joined_at, ticket.ahead),
        (first.ticket.index, START, 0)
    );
}

pub async fn a_batch_answers_in_its_order(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 0, 10).await;
    h.join_all(&["c", "a", "b"]).await;
    assert_eq!(
        h.leave("a").await,
        tidegate_core::room::command::InsideOutcome::Ended(End::Left)
    );
    let joins = ["d", "a", "c", "d"].map(join_of).to_vec();
    let outcomes = must(h.store.join(&h.room, joins).await);
    let [
        JoinOutcome::Placed { ticket: d, new: true },
        JoinOutcome::Ended(a),
        JoinOutcome::Placed {
            ticket: c,
            new: false,
        },
        JoinOutcome::Placed {
            ticket: again,
            new: false,
        },
    ] = outcomes.as_slice()
    else {
        panic!("{outcomes:?}")
    };
    assert!(matches!(
        a.ticket.state,
        TicketState::Ended { end: End::Left, .. }
    ));
    assert_eq!((c.ahead, d.ahead, again.ticket.index), (0, 2, d.ticket.index));
    let people = ["nobody", "b", "c", "b"].map(person).to_vec();
    let views = must(h.store.look(&h.room, people).await);
    let ahead: Vec<Option<u64>> = views
        .iter()
        .map(|view| view.as_ref().map(|view| view.ahead))
        .collect();
    assert_eq!(ahead, [None, Some(1), Some(0), Some(1)]);
}

pub async fn coming_back_elsewhere_keeps_the_place(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let before = h.join("a").await;
    h.join("b").await;
    let after = h.join("a").await;
    assert_eq!(after.ticket.index, before.ticket.index);
    assert!(
        after.ticket.stream > before.ticket.stream,
        "the newer stream wins"
    );
    assert_eq!(h.let_in().await, ["a"]);
    let granted = h.join("a").await;
    assert!(
        matches!(granted.ticket.state, TicketState::Granted { .. }),
        "{granted:?}"
    );
    assert!(granted.ticket.stream > after.ticket.stream);
    // A read opens no stream.
    let look = JoinParams {
        stream: false,
        ..join_of("b")
    };
    let stream = h.ticket("b").await.ticket.stream;
    assert!(matches!(
        h.join_as(look).await,
        JoinOutcome::Placed { new: false, .. }
    ));
    assert_eq!(h.ticket("b").await.ticket.stream, stream);
}

pub async fn many_joins_at_once_are_one_ticket(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let many = (0..20).map(|_| h.join_as(join_of("a")));
    let outcomes = join_all(many).await;
    let mut fresh = 0;
    for outcome in &outcomes {
        let JoinOutcome::Placed { ticket, new } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((ticket.ahead, ticket.waiting), (0, 1));
        fresh += u64::from(*new);
    }
    assert_eq!(fresh, 1, "one place, found by the others");
    let view = h.overview().await;
    assert_eq!((view.counts.joined, view.waiting()), (1, 1));
    assert_eq!(h.let_in().await, ["a"]);
    assert_eq!(h.overview().await.waiting(), 0, "nothing is left in line");
}

pub async fn one_ticket_until_it_has_ended(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 2, 10).await;
    let index = h.join("a").await.ticket.index;
    let same = |outcome: JoinOutcome| match outcome {
        JoinOutcome::Placed { ticket, new: false } if ticket.ticket.index == index => ticket.ticket.state,
        other => panic!("it has its ticket: {other:?}"),
    };
    same(h.join_again("a").await);
    h.let_in().await;
    let state = same(h.join_again("a").await);
    assert!(matches!(state, TicketState::Granted { .. }), "{state:?}");
    h.enter("a").await;
    let state = same(h.join_again("a").await);
    assert!(matches!(state, TicketState::Inside { .. }), "{state:?}");
    assert_eq!((h.let_in().await.len(), h.slots().await), (0, 1), "one slot");
    h.leave("a").await;
    let JoinOutcome::Placed { ticket, new: true } = h.join_again("a").await else {
        panic!("it may come again")
    };
    assert!(ticket.ticket.index > index, "at the end");
}

pub async fn one_overview_has_everybodys_position(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 5, 100).await;
    let people = crowd(200);
    h.join_all(&people).await;
    assert_eq!(h.let_in().await.len(), 5);
    for gone in ["p7", "p64", "p127", "p128", "p199"] {
        h.leave(gone).await;
    }
    let view = h.overview().await;
    assert_eq!(
        (view.waiting(), view.granted, view.inside, view.now),
        (190, 5, 0, START)
    );
    let views = must(
        h.store
            .look(&h.room, people.iter().map(|name| person(name)).collect())
            .await,
    );
    let mut ahead = 0;
    for view_of_one in views.iter().flatten().filter(|view| is_waiting(view)) {
        let index = view_of_one.ticket.index.0;
        assert!(view.positions.has(index));
        assert_eq!((view.positions.ahead(index), view_of_one.ahead), (ahead, ahead));
        ahead += 1;
    }
    assert_eq!(ahead, 190);
    assert_eq!(
        (view.counts.joined, view.counts.admitted, view.counts.left),
        (200, 5, 5)
    );
}

pub async fn a_position_comes_with_the_size_of_the_queue(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    h.join_all(&["a", "b", "c", "d"]).await;
    h.let_in().await;
    let view = h.ticket("c").await;
    assert_eq!((view.ahead, view.waiting), (1, 3));
    let view = h.ticket("a").await;
    assert_eq!((view.ahead, view.waiting), (0, 3), "it does not wait any more");
}

pub async fn positions_are_exact_when_people_ahead_leave(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 100).await;
    h.join_all(&crowd(8)).await;
    assert_eq!(h.ahead("p7").await, 7);
    h.leave("p3").await;
    assert_eq!(
        (h.ahead("p2").await, h.ahead("p4").await, h.ahead("p7").await),
        (2, 3, 6)
    );
    h.let_in().await;
    assert_eq!(h.ahead("p7").await, 5, "the first one is in");
    h.leave("p0").await;
    assert_eq!(h.ahead("p7").await, 5, "it was not in line");
    h.leave("p3").await;
    assert_eq!(h.ahead("p7").await, 5, "once");
    let JoinOutcome::Placed { ticket, .. } = h.join_again("p3").await else {
        panic!("it may come again")
    };
    assert_eq!((ticket.ahead, h.ahead("p7").await), (6, 5), "at the end");
    // Lost, not left.
    h.advance(PRESENCE);
    let late = ["p5", "p6", "p7"];
    h.join_all(&late).await;
    h.advance(GRACE);
    h.join_all(&late).await;
    assert_eq!(h.reap().await.lost, 4);
    assert_eq!(h.ahead("p7").await, 2);
}

pub async fn positions_are_exact_in_a_long_queue(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 2_000, 10_000).await;
    let people = crowd(5_000);
    for some in people.chunks(500) {
        h.join_all(some).await;
    }
    assert_eq!(h.ahead("p4999").await, 4_999);
    for gone in (0..5_000).step_by(100) {
        h.leave(&format!("p{gone}")).await;
    }
    assert_eq!((h.ahead("p4999").await, h.ahead("p101").await), (4_949, 99));
    let mut admitted = 0;
    while admitted < 2_000 {
        let some = h.promote(500).await.granted.len();
        assert!(some > 0, "{admitted} were let in");
        admitted += some;
    }
    assert_eq!(h.ahead("p4999").await, 2_949);
    let view = h.overview().await;
    let last = h.ticket("p4999").await.ticket.index.0;
    assert_eq!((view.positions.ahead(last), view.waiting()), (2_949, 2_950));
}

pub async fn a_full_queue_rejects_people(backend: &dyn Backend) {
    let h = Harness::with(backend, |config| {
        config.max_waiting = 2;
        config.capacity.inside = 1;
    })
    .await;
    h.join_all(&["a", "b"]).await;
    assert_eq!(h.join_as(join_of("c")).await, JoinOutcome::Refused(Refused::Full));
    assert_eq!(h.look("c").await, None);
    h.join("b").await;
    h.let_in().await;
    h.join("c").await;
    assert_eq!(h.join_as(join_of("d")).await, JoinOutcome::Refused(Refused::Full));
    h.leave("b").await;
    h.join("d").await;
}

pub async fn an_ended_ticket_says_how_it_ended(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    h.join_all(&["bought", "left", "lost"]).await;
    h.let_in().await;
    h.enter("bought").await;
    h.complete("bought").await;
    h.leave("left").await;
    h.advance(PRESENCE + GRACE);
    assert_eq!(h.reap().await.lost, 1);
    for (name, expected) in [
        ("bought", End::Completed),
        ("left", End::Left),
        ("lost", End::Lost),
    ] {
        let outcome = h.join_as(join_of(name)).await;
        let JoinOutcome::Ended(view) = &outcome else {
            panic!("{name}: {outcome:?}")
        };
        let ended = matches!(view.ticket.state, TicketState::Ended { end, .. } if end == expected);
        assert!(ended, "{name}: {view:?}");
        assert_eq!(h.end_of(name).await, expected);
    }
}

pub async fn looking_leaves_nothing_behind(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let before = h.overview().await;
    assert_eq!(h.look("nobody").await, None);
    let nothing = must(h.store.look(&h.room, Vec::new()).await);
    assert!(nothing.is_empty());
    assert!(must(h.store.join(&h.room, Vec::new()).await).is_empty());
    assert!(must(h.store.touch(&h.room, Vec::new()).await).is_empty());
    assert_eq!(h.overview().await, before);
}
