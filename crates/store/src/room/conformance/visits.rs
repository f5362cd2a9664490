//! Passes, visits, and slots that are freed exactly once.

use futures_util::FutureExt;
use futures_util::future::join_all;
use tidegate_core::room::command::{
    InsideOutcome, JoinOutcome, ReapOutcome, RedeemOutcome, RedeemParams, Refused, Stop,
};
use tidegate_core::room::ticket::{End, Index, Wave};
use tidegate_core::time::Millis;

use super::harness::*;

/// A room that has admitted these people.
async fn let_in<'a>(backend: &'a dyn Backend, inside: u64, names: &[&str]) -> Harness<'a> {
    let h = Harness::new(backend, None, inside, 100).await;
    h.join_all(names).await;
    h.let_in().await;
    h
}

pub async fn a_seat_that_was_bought_does_not_come_back(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(1), 10, 10).await;
    h.join_all(&["u1", "u2"]).await;
    assert_eq!(h.let_in().await, ["u1"]);
    h.enter("u1").await;
    assert_eq!(h.complete("u1").await, InsideOutcome::Ended(End::Completed));
    // The visitor closes the page.
    assert_eq!(h.leave("u1").await, InsideOutcome::Ended(End::Completed));
    let outcome = h.promote(10).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (0, Stop::SoldOut));
    assert_eq!(
        h.join_as(join_of("u3")).await,
        JoinOutcome::Refused(Refused::SoldOut)
    );
    assert_eq!((h.slots().await, h.overview().await.counts.completed), (0, 1));
}

pub async fn a_slot_comes_back_once(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 2, 100).await;
    h.join_all(&["a", "b", "c", "d", "e"]).await;
    assert_eq!(h.let_in().await, ["a", "b"]);
    for _ in 0..3 {
        assert_eq!(h.leave("a").await, InsideOutcome::Ended(End::Left));
    }
    assert_eq!(h.let_in().await, ["c"], "one slot");
    h.enter("b").await;
    h.complete("b").await;
    h.leave("b").await;
    h.complete("b").await;
    h.leave("a").await;
    assert_eq!(h.let_in().await, ["d"], "one slot");
    let counts = h.overview().await.counts;
    assert_eq!((counts.left_inside, counts.completed, counts.left), (1, 1, 0));
}

pub async fn a_pass_that_is_not_redeemed_gives_its_slot_back(backend: &dyn Backend) {
    let h = let_in(backend, 1, &["a", "b"]).await;
    let pass = h.pass("a").await;
    h.advance(PASS - 1);
    assert_eq!(h.reap().await.no_shows, 0);
    h.advance(1);
    assert_eq!(
        h.redeem(&pass).await,
        RedeemOutcome::TooLate,
        "also before anybody looks"
    );
    let swept = h.reap().await;
    assert_eq!((swept.no_shows, swept.expired), (1, 0));
    assert_eq!((h.slots().await, h.end_of("a").await), (0, End::NoShow));
    assert_eq!(h.redeem(&pass).await, RedeemOutcome::TooLate);
    assert_eq!(h.reap().await.no_shows, 0, "once");
    assert_eq!(h.leave("a").await, InsideOutcome::Ended(End::NoShow));
    assert_eq!((h.slots().await, h.overview().await.counts.no_shows), (0, 1));
}

pub async fn a_pass_ends_with_its_slot(backend: &dyn Backend) {
    let h = let_in(backend, 1, &["a", "b"]).await;
    let pass = h.pass("a").await;
    h.leave("a").await;
    assert_eq!(h.redeem(&pass).await, RedeemOutcome::Unknown, "no slot, no pass");
    assert_eq!(h.let_in().await, ["b"]);
    assert_eq!(h.slots().await, 1);
    // Nor is it valid for the person's next ticket.
    h.leave("b").await;
    h.join_again("a").await;
    assert_eq!(h.redeem(&pass).await, RedeemOutcome::Unknown);
    assert_eq!(h.let_in().await, ["a"]);
    assert_eq!(h.redeem(&pass).await, RedeemOutcome::Unknown);
    h.enter("a").await;
}

pub async fn a_pass_is_redeemed_once(backend: &dyn Backend) {
    let h = let_in(backend, 5, &["a"]).await;
    let pass = h.pass("a").await;
    let until = h.now() + Millis(INSIDE);
    assert_eq!(h.redeem(&pass).await, RedeemOutcome::Inside { until });
    assert_eq!(h.redeem(&pass).await, RedeemOutcome::AlreadyRedeemed);
    let other = RedeemParams {
        session: session("s"),
        ..pass.clone()
    };
    assert_eq!(h.redeem(&other).await, RedeemOutcome::AlreadyRedeemed);
    let view = h.overview().await;
    assert_eq!((view.granted, view.inside, view.counts.redeemed), (0, 1, 1));
    h.complete("a").await;
    assert_eq!(h.redeem(&pass).await, RedeemOutcome::AlreadyRedeemed);
}

pub async fn a_pass_is_of_one_ticket(backend: &dyn Backend) {
    let h = let_in(backend, 2, &["a", "b", "c"]).await;
    let pass = h.pass("a").await;
    let of_others = [
        RedeemParams {
            person: person("b"),
            ..pass.clone()
        },
        RedeemParams {
            person: person("nobody"),
            ..pass.clone()
        },
        RedeemParams {
            index: Index(pass.index.0 + 77),
            ..pass.clone()
        },
        RedeemParams {
            wave: Wave(pass.wave.0 + 1),
            ..pass.clone()
        },
        RedeemParams {
            index: h.ticket("c").await.ticket.index,
            person: person("c"),
            ..pass.clone()
        },
    ];
    for wrong in &of_others {
        assert_eq!(h.redeem(wrong).await, RedeemOutcome::Unknown, "{wrong:?}");
    }
    assert_eq!(h.overview().await.inside, 0);
    assert!(matches!(h.redeem(&pass).await, RedeemOutcome::Inside { .. }));
}

pub async fn many_ends_at_once_are_one(backend: &dyn Backend) {
    let h = let_in(backend, 3, &["a", "b", "c", "d", "e", "f", "g"]).await;
    join_all((0..10).map(|_| h.leave("a"))).await;
    join_all((0..10).map(|_| h.complete("b"))).await;
    let mut both = Vec::new();
    for _ in 0..5 {
        both.push(h.leave("c").boxed());
        both.push(h.complete("c").boxed());
    }
    let ends = join_all(both).await;
    assert!(
        ends.iter().all(|end| *end == ends[0]),
        "all get the same answer: {ends:?}"
    );
    assert_eq!(h.slots().await, 0);
    assert_eq!(h.let_in().await, ["d", "e", "f"], "three slots");
    let counts = h.overview().await.counts;
    assert_eq!(counts.completed + counts.left_inside, 3);
}

pub async fn a_connection_does_not_prolong_a_visit(backend: &dyn Backend) {
    let h = let_in(backend, 2, &["a", "b"]).await;
    h.enter("b").await;
    let streams = [
        h.ticket("a").await.ticket.stream,
        h.ticket("b").await.ticket.stream,
    ];
    let mut ended = ReapOutcome::default();
    // Sockets that nobody closed send heartbeats all the time.
    for _ in 0..(INSIDE / PRESENCE) {
        h.advance(PRESENCE);
        h.touch("a", streams[0], true).await;
        h.touch("b", streams[1], true).await;
        let swept = h.reap().await;
        ended.no_shows += swept.no_shows;
        ended.expired += swept.expired;
    }
    assert_eq!((ended.no_shows, ended.expired, h.slots().await), (1, 1, 0));
}

pub async fn many_redemptions_at_once_are_one(backend: &dyn Backend) {
    let h = let_in(backend, 5, &["a"]).await;
    let pass = h.pass("a").await;
    let shown: Vec<RedeemParams> = (0..20)
        .map(|number| RedeemParams {
            session: session(&format!("s{number}")),
            ..pass.clone()
        })
        .collect();
    let mut all = Vec::new();
    for shown in &shown {
        all.push(h.redeem(shown));
    }
    let outcomes = join_all(all).await;
    let inside = |outcome: &&RedeemOutcome| matches!(outcome, RedeemOutcome::Inside { .. });
    assert_eq!(outcomes.iter().filter(inside).count(), 1, "{outcomes:?}");
    let view = h.overview().await;
    assert_eq!((view.granted, view.inside, view.counts.redeemed), (0, 1, 1));
}

pub async fn the_same_session_gets_the_same_answer_again(backend: &dyn Backend) {
    let h = let_in(backend, 5, &["a"]).await;
    let named = RedeemParams {
        session: session("s"),
        ..h.pass("a").await
    };
    let first = h.redeem(&named).await;
    assert!(matches!(first, RedeemOutcome::Inside { .. }), "{first:?}");
    h.advance(1_000);
    assert_eq!(h.redeem(&named).await, first, "the answer was lost");
    let other = RedeemParams {
        session: session("t"),
        ..named.clone()
    };
    assert_eq!(h.redeem(&other).await, RedeemOutcome::AlreadyRedeemed);
    let InsideOutcome::Inside { until } = h.extend("a", 2 * INSIDE).await else {
        panic!("it is inside")
    };
    assert_eq!(h.redeem(&named).await, RedeemOutcome::Inside { until });
}

pub async fn a_visit_ends_at_its_time(backend: &dyn Backend) {
    let h = let_in(backend, 1, &["a", "b"]).await;
    h.advance(5);
    let until = h.enter("a").await;
    assert_eq!(until, h.now() + Millis(INSIDE));
    h.advance(INSIDE - 1);
    assert_eq!(h.reap().await.expired, 0);
    h.advance(1);
    assert_eq!(
        h.extend("a", 1_000).await,
        InsideOutcome::Ended(End::Expired),
        "too late"
    );
    assert_eq!(h.reap().await.expired, 1);
    assert_eq!((h.slots().await, h.end_of("a").await), (0, End::Expired));
    assert_eq!(h.complete("a").await, InsideOutcome::Ended(End::Expired));
    let counts = h.overview().await.counts;
    assert_eq!((counts.expired, counts.completed), (1, 0));
}

pub async fn a_visit_is_extended_and_never_shortened(backend: &dyn Backend) {
    let h = let_in(backend, 1, &["a"]).await;
    let until = h.enter("a").await;
    assert_eq!(h.extend("a", 1).await, InsideOutcome::Inside { until });
    let longer = h.now() + Millis(2 * INSIDE);
    assert_eq!(
        h.extend("a", 2 * INSIDE).await,
        InsideOutcome::Inside { until: longer }
    );
    h.advance(2 * INSIDE - 1);
    assert_eq!(h.reap().await.expired, 0);
    h.advance(1);
    assert_eq!(h.reap().await.expired, 1);
}

pub async fn a_visit_completes_once(backend: &dyn Backend) {
    let h = let_in(backend, 2, &["a", "b"]).await;
    h.enter("a").await;
    for _ in 0..3 {
        assert_eq!(h.complete("a").await, InsideOutcome::Ended(End::Completed));
    }
    // The shop may complete a visit before the pass is redeemed.
    assert_eq!(h.complete("b").await, InsideOutcome::Ended(End::Completed));
    let view = h.overview().await;
    assert_eq!((view.counts.completed, view.granted, view.inside), (2, 0, 0));
}

pub async fn each_reason_for_not_being_inside_has_its_own_answer(backend: &dyn Backend) {
    let h = let_in(backend, 1, &["granted", "waiting"]).await;
    assert_eq!(h.extend("granted", 9).await, InsideOutcome::NotInside);
    assert_eq!(h.extend("waiting", 9).await, InsideOutcome::NotInside);
    assert_eq!(h.complete("waiting").await, InsideOutcome::NotInside);
    assert_eq!(h.extend("nobody", 9).await, InsideOutcome::Unknown);
    assert_eq!(h.complete("nobody").await, InsideOutcome::Unknown);
    assert_eq!(h.leave("nobody").await, InsideOutcome::Unknown);
    assert_eq!(h.look("nobody").await, None);
    assert!(!h.reissue("nobody").await && !h.reissue("waiting").await && !h.reissue("granted").await);
    assert_eq!(h.ahead("waiting").await, 0);
}

pub async fn an_ended_ticket_is_forgotten_at_its_time(backend: &dyn Backend) {
    let h = let_in(backend, 1, &["a"]).await;
    h.leave("a").await;
    h.advance(REMEMBER - 1);
    assert_eq!(h.reap().await.forgotten, 0);
    assert_eq!(h.end_of("a").await, End::Left);
    h.advance(1);
    assert_eq!(h.reap().await.forgotten, 1);
    assert_eq!(
        (h.look("a").await, h.leave("a").await),
        (None, InsideOutcome::Unknown)
    );
    let outcome = h.join_as(join_of("a")).await;
    assert!(
        matches!(outcome, JoinOutcome::Placed { new: true, .. }),
        "{outcome:?}"
    );
    assert_eq!(h.let_in().await, ["a"]);
}

pub async fn a_sweep_has_a_bound(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 0, 10).await;
    h.join_all(&crowd(5)).await;
    h.advance(PRESENCE + GRACE);
    for (lost, more) in [(2, true), (2, true), (1, false), (0, false)] {
        let swept = h.reap_as(2, Some(h.now())).await;
        assert_eq!((swept.lost, swept.more), (lost, more));
    }
}
