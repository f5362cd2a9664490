//! What survives the end of a process: every ticket, every limit. Connections end only with the process they
//! belong to.

use tidegate_core::room::command::{
    Change, Control, InsideOutcome, RedeemParams, ResizeParams, Status, Stop,
};
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::Millis;

use super::harness::*;

pub async fn every_ticket_is_kept(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(50), 3, 100).await;
    h.join_all(&["inside", "granted", "left", "bought", "w1", "w2", "gone"])
        .await;
    h.let_in().await;
    let named = RedeemParams {
        session: session("s"),
        ..h.pass("inside").await
    };
    let inside = h.redeem(&named).await;
    h.leave("left").await;
    h.let_in().await;
    h.complete("bought").await;
    h.leave("gone").await;
    let pass = h.pass("granted").await;
    let names = ["inside", "granted", "left", "bought", "w1", "w2", "gone"];
    let mut before = Vec::new();
    for name in names {
        before.push(h.ticket(name).await);
    }
    let h = h.restart().await;
    for (name, before) in names.iter().zip(&before) {
        let after = h.ticket(name).await;
        assert_eq!(
            (after.ticket.index, after.ahead),
            (before.ticket.index, before.ahead),
            "{name}"
        );
        if !is_waiting(before) {
            assert_eq!(after.ticket.state, before.ticket.state, "{name}");
        }
    }
    let counts = h.overview().await.counts;
    assert_eq!(
        (counts.joined, counts.completed, counts.left, counts.left_inside),
        (7, 1, 1, 1)
    );
    assert_eq!((h.slots().await, h.overview().await.waiting()), (2, 2));
    assert_eq!(h.redeem(&named).await, inside);
    assert!(matches!(
        h.redeem(&pass).await,
        tidegate_core::room::command::RedeemOutcome::Inside { .. }
    ));
    assert_eq!(h.leave("left").await, InsideOutcome::Ended(End::Left));
    h.join_all(&["w2", "w1"]).await;
    assert_eq!(h.let_in().await, ["w1"], "the order is kept");
}

pub async fn connections_end_only_with_their_process(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 5, 100).await;
    h.join_all(&["a", "b"]).await;
    h.advance(1_000);
    let h = h.restart().await;
    if h.backend.restart_ends_connections() {
        assert_eq!(h.promote(5).await.stop, Stop::Nobody, "nobody is there yet");
        h.join("b").await;
        assert_eq!((h.ahead("b").await, h.let_in().await), (1, vec!["b".to_owned()]));
        h.advance(GRACE - 1);
        assert_eq!(
            h.reap().await.lost,
            0,
            "the time for coming back begins with the restart"
        );
        h.join("a").await;
        assert_eq!(h.let_in().await, ["a"]);
    } else {
        let stream = h.ticket("a").await.ticket.stream;
        h.touch("a", stream, true).await;
        assert_eq!(h.let_in().await, ["a", "b"], "they are connected to others");
    }
}

pub async fn limits_status_and_voids_survive(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(9), 2, 100).await;
    h.join_all(&["a", "b", "c"]).await;
    h.let_in().await;
    let params = ResizeParams {
        seats: Some(Change::Add(-2)),
        ..inside_by(3, 4)
    };
    let held = h.resized(&params).await;
    let voided = h.void(None).await;
    h.control(Control::Pause).await;
    let before = h.overview().await;
    let h = h.restart().await;
    let after = h.overview().await;
    assert_eq!(
        (after.capacity, after.voided, after.wave),
        (held, voided, before.wave)
    );
    assert_eq!((after.status, &after.changes), (Status::Paused, &before.changes));
    assert_eq!(h.resized(&params).await, held, "once, also over a restart");
    assert_eq!(h.promote(5).await.stop, Stop::Paused);
    h.control(Control::Close).await;
    let h = h.restart().await;
    assert_eq!(h.overview().await.status, Status::Closed);
}

pub async fn the_rate_holds_over_a_restart(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 100, 2).await;
    h.join_all(&crowd(6)).await;
    assert_eq!(h.let_in().await.len(), 2);
    h.advance(300);
    let h = h.restart().await;
    h.join_all(&crowd(6)).await;
    let outcome = h.promote(5).await;
    let until = START + Millis(1_000);
    assert_eq!((outcome.granted.len(), outcome.stop), (0, Stop::Rate { until }));
    h.advance(700);
    assert_eq!(h.let_in().await, ["p2", "p3"]);
}

pub async fn a_room_stays_the_same_room(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let incarnation = h.overview().await.incarnation;
    let index = h.join("a").await.ticket.index;
    must(h.store.open(&h.room, h.config.clone()).await);
    assert_eq!(h.overview().await.incarnation, incarnation);
    must(h.store.open(&room("other"), h.config.clone()).await);
    let other = must(h.store.overview(&room("other")).await).incarnation;
    assert_ne!(other, incarnation, "rooms are distinguished");
    let h = h.restart().await;
    assert_eq!(h.overview().await.incarnation, incarnation);
    assert_eq!(must(h.store.rooms().await), [room("other"), room("sale")]);
    assert!(
        h.join("b").await.ticket.index > index,
        "places are not given twice"
    );
}

pub async fn deadlines_hold_over_a_restart(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 2, 10).await;
    h.join_all(&["a", "b"]).await;
    h.let_in().await;
    let until = h.enter("a").await;
    h.advance(PASS - 1);
    let h = h.restart().await;
    assert_eq!(h.reap().await.no_shows, 0);
    h.advance(1);
    assert_eq!(h.reap().await.no_shows, 1);
    let state = h.ticket("a").await.ticket.state;
    assert!(
        matches!(state, TicketState::Inside { until: kept, .. } if kept == until),
        "{state:?}"
    );
    h.advance(REMEMBER);
    assert_eq!(h.now(), until);
    let h = h.restart().await;
    let swept = h.reap().await;
    assert_eq!((swept.expired, h.slots().await), (1, 0));
    assert_eq!(
        swept.forgotten, 1,
        "the one who did not come, as long ago as is remembered"
    );
    h.advance(REMEMBER);
    let h = h.restart().await;
    assert_eq!(h.reap().await.forgotten, 1);
}

pub async fn a_clock_stepped_back_lets_nobody_in_and_loses_nobody(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 100, 2).await;
    h.join_all(&crowd(5)).await;
    assert_eq!(h.let_in().await.len(), 2);
    h.clock.set(START - Millis(3_600_000));
    let outcome = h.promote(5).await;
    assert!(
        matches!(outcome.stop, Stop::Rate { .. }) && outcome.granted.is_empty(),
        "{outcome:?}"
    );
    assert_eq!(h.reap().await.lost, 0);
    h.advance(1_000);
    assert_eq!(h.let_in().await, ["p2", "p3"], "time goes on from where it was");
    h.advance(PRESENCE);
    h.join("p4").await;
    assert_eq!(h.let_in().await, ["p4"]);
    h.advance(PASS);
    assert_eq!(
        h.reap().await.no_shows,
        5,
        "slots come back an hour before it is that late again"
    );
}
