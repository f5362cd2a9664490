//! Heartbeats: an absent person keeps the ticket for a while, and old connections have no effect.

use tidegate_core::room::command::{
    InsideOutcome, JoinOutcome, ReapOutcome, Stop, TouchOutcome, TouchParams,
};
use tidegate_core::room::ticket::{End, Stream};
use tidegate_core::time::Timestamp;

use super::harness::*;

pub async fn nobody_stays_as_a_ghost(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    // Their broker dies: nobody reports on them any more.
    h.join_all(&["a", "b"]).await;
    h.let_in().await;
    h.advance(PRESENCE + GRACE - 1);
    h.join("c").await;
    assert_eq!(h.reap().await.lost, 0, "not yet");
    assert_eq!(h.ahead("c").await, 1);
    h.advance(1);
    assert_eq!(h.reap().await.lost, 1);
    assert_eq!((h.ahead("c").await, h.end_of("b").await), (0, End::Lost));
    assert_eq!(h.overview().await.counts.lost, 1);
    h.advance(PASS - PRESENCE - GRACE);
    assert_eq!(h.reap().await.no_shows, 1, "the slot comes back as well");
    h.join_again("c").await;
    assert_eq!(h.let_in().await, ["c"]);
}

pub async fn an_older_stream_says_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let first = h.join("a").await.ticket.stream;
    let second = h.join("a").await.ticket.stream;
    assert_eq!(h.touch("a", first, false).await, TouchOutcome::Superseded);
    h.advance(PRESENCE - 1);
    assert_eq!(h.touch("a", first, true).await, TouchOutcome::Superseded);
    assert_eq!(h.let_in().await, ["a"], "the second tab is there");
    assert_eq!(h.touch("a", second, true).await, TouchOutcome::Kept);
    let ahead = Stream(second.0 + 1);
    assert_eq!(h.touch("a", ahead, false).await, TouchOutcome::Superseded);
}

pub async fn a_stream_of_an_earlier_ticket_says_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let old = h.join("a").await.ticket.stream;
    h.leave("a").await;
    let JoinOutcome::Placed { ticket, new: true } = h.join_again("a").await else {
        panic!("it may come again")
    };
    // Only now does the broker of the first ticket notice that the connection is gone.
    assert_eq!(h.touch("a", old, false).await, TouchOutcome::Superseded);
    assert_eq!(h.let_in().await, ["a"]);
    assert_eq!(h.touch("a", ticket.ticket.stream, true).await, TouchOutcome::Kept);
    // Also if the first ticket was forgotten meanwhile.
    h.leave("a").await;
    h.advance(REMEMBER);
    assert_eq!(h.reap().await.forgotten, 1);
    h.join("a").await;
    for stream in [old, ticket.ticket.stream] {
        assert_eq!(h.touch("a", stream, false).await, TouchOutcome::Superseded);
    }
    assert_eq!(h.let_in().await, ["a"]);
}

pub async fn signs_of_life_are_about_one_person(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 3, 10).await;
    let mut streams = Vec::new();
    for name in ["a", "b", "c"] {
        streams.push((name, h.join(name).await.ticket.stream));
    }
    h.advance(PRESENCE - 1);
    let touch = |(name, stream): (&str, Stream), present| TouchParams {
        person: person(name),
        stream,
        present,
    };
    let touches = vec![touch(streams[2], true), touch(streams[0], false)];
    let outcomes = must(h.store.touch(&h.room, touches).await);
    assert_eq!(outcomes, [TouchOutcome::Kept; 2]);
    h.advance(1);
    assert_eq!(h.let_in().await, ["c"], "b's own time ran out, a is gone");
    assert_eq!(
        (h.ahead("a").await, h.ahead("b").await),
        (0, 1),
        "nobody is removed"
    );
}

pub async fn a_short_absence_loses_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 0, 10).await;
    let before = h.join("a").await;
    h.join("b").await;
    for _ in 0..5 {
        h.advance(PRESENCE + GRACE - 1);
        assert_eq!(h.reap().await.lost, 0);
        let after = h.join("a").await;
        h.join("b").await;
        assert_eq!((after.ticket.index, after.ahead), (before.ticket.index, 0));
    }
}

pub async fn an_absence_reported_at_once_loses_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 0, 10).await;
    let before = h.join("a").await;
    h.advance(100);
    assert_eq!(
        h.touch("a", before.ticket.stream, false).await,
        TouchOutcome::Kept
    );
    h.advance(GRACE - 1);
    assert_eq!(h.reap().await.lost, 0);
    assert_eq!(h.join("a").await.ticket.index, before.ticket.index);
    let stream = h.join("a").await.ticket.stream;
    assert_eq!(h.touch("a", stream, false).await, TouchOutcome::Kept);
    h.advance(GRACE);
    assert_eq!(h.reap().await.lost, 1);
    assert_eq!(h.end_of("a").await, End::Lost);
}

pub async fn the_absent_are_passed_over_and_go_first_on_return(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    let stream = h.join("a").await.ticket.stream;
    h.join_all(&["b", "c"]).await;
    h.touch("a", stream, false).await;
    assert_eq!(h.ahead("b").await, 1, "a still has its place");
    assert_eq!(h.let_in().await, ["b"]);
    assert_eq!(h.ahead("c").await, 1);
    h.leave("b").await;
    h.join("a").await;
    assert_eq!(h.let_in().await, ["a"]);
    h.leave("a").await;
    // Absent by timeout, and back by a heartbeat instead of a new stream.
    let stream = h.ticket("c").await.ticket.stream;
    h.advance(PRESENCE);
    assert_eq!(h.promote(5).await.stop, Stop::Nobody);
    h.join("d").await;
    assert_eq!(h.touch("c", stream, true).await, TouchOutcome::Kept);
    assert_eq!(h.let_in().await, ["c"]);
}

pub async fn a_sign_of_life_keeps_the_place_for_as_long_as_it_lasts(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 0, 10).await;
    let stream = h.join("a").await.ticket.stream;
    for _ in 0..30 {
        h.advance(PRESENCE / 3);
        assert_eq!(h.touch("a", stream, true).await, TouchOutcome::Kept);
    }
    h.advance(PRESENCE + GRACE - 1);
    assert_eq!(h.reap().await.lost, 0);
    h.advance(1);
    assert_eq!(h.reap().await.lost, 1);
    assert_eq!(h.touch("a", stream, true).await, TouchOutcome::Gone);
}

pub async fn touches_of_nobody_are_gone(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 10).await;
    assert_eq!(h.touch("nobody", Stream(1), true).await, TouchOutcome::Gone);
    assert_eq!(h.look("nobody").await, None);
    let stream = h.join("a").await.ticket.stream;
    assert_eq!(h.leave("a").await, InsideOutcome::Ended(End::Left));
    assert_eq!(h.touch("a", stream, true).await, TouchOutcome::Gone);
    assert_eq!(h.touch("a", stream, false).await, TouchOutcome::Gone);
    assert_eq!(h.end_of("a").await, End::Left);
}

/// After an outage nobody knows who is present; that delays neither freed slots nor forgotten tickets.
pub async fn slots_come_back_while_absent_people_are_spared(backend: &dyn Backend) {
    let h = Harness::with(backend, |config| config.capacity.inside = 3).await;
    h.join_all(&["gone", "shopper", "slow"]).await;
    assert_eq!(h.let_in().await.len(), 3);
    h.enter("slow").await;
    h.leave("gone").await;
    h.join_all(&["a", "b", "c", "d"]).await;
    assert_eq!(h.let_in().await, ["a"]);
    h.enter("a").await;
    h.leave("a").await;
    h.advance(INSIDE.max(REMEMBER).max(PASS + PRESENCE + GRACE));
    // Waiting people were due long before: they use up none of the two.
    let first = h.reap_as(2, None).await;
    assert_eq!(
        (first.lost, first.no_shows, first.forgotten, first.more),
        (0, 1, 1, true)
    );
    let second = h.reap_as(2, None).await;
    assert_eq!(
        (second.lost, second.expired, second.forgotten, second.more),
        (0, 1, 1, false)
    );
    assert_eq!(
        (h.slots().await, h.ahead("d").await),
        (0, 2),
        "nobody who waits lost a place"
    );
    let nothing = ReapOutcome {
        now: h.now(),
        ..ReapOutcome::default()
    };
    assert_eq!(h.reap_as(2, None).await, nothing);
    let late = Some(Timestamp(h.now().0 - 1));
    assert_eq!(h.reap_as(2, late).await, nothing, "a call that comes too late");
    let in_time = Some(h.now());
    let all = h.reap_as(2, in_time).await;
    assert_eq!((all.lost, all.more), (2, true));
    assert_eq!(h.reap_as(2, in_time).await.lost, 1);
}
