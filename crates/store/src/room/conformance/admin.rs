//! What operators do: control the door, change the limits, and void passes.

use futures_util::future::join_all;
use tidegate_core::room::command::{
    Change, Control, JoinOutcome, RedeemOutcome, RedeemParams, Refused, ResizeOutcome, ResizeParams, Status,
    Stop,
};
use tidegate_core::room::config::{Capacity, MAX_PEOPLE, RoomConfig};
use tidegate_core::room::ticket::Wave;
use tidegate_core::time::Millis;

use super::harness::*;
use crate::StoreError;

pub async fn a_paused_room_keeps_everybody(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 2, 10).await;
    h.join_all(&["a", "b"]).await;
    assert_eq!(h.promote(1).await.granted.len(), 1);
    h.control(Control::Pause).await;
    assert_eq!(
        (h.promote(5).await.stop, h.overview().await.status),
        (Stop::Paused, Status::Paused)
    );
    h.join("c").await;
    h.enter("a").await;
    h.control(Control::Pause).await;
    assert_eq!((h.ahead("b").await, h.ahead("c").await), (0, 1));
    h.control(Control::Resume).await;
    assert_eq!(h.let_in().await, ["b"]);
}

pub async fn a_closed_room_takes_nobody_new(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 5, 10).await;
    h.join_all(&["a", "b"]).await;
    assert_eq!(h.promote(1).await.granted.len(), 1);
    h.control(Control::Close).await;
    assert_eq!(
        (h.promote(5).await.stop, h.overview().await.status),
        (Stop::Closed, Status::Closed)
    );
    assert_eq!(
        h.join_as(join_of("c")).await,
        JoinOutcome::Refused(Refused::Closed)
    );
    assert_eq!(h.join("b").await.ahead, 0, "existing tickets stay");
    h.enter("a").await;
    h.leave("a").await;
    assert_eq!(h.join_again("a").await, JoinOutcome::Refused(Refused::Closed));
    h.control(Control::Resume).await;
    assert_eq!(h.let_in().await, ["b"]);
    h.join("c").await;
}

pub async fn a_sold_out_room_says_so(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(2), 5, 10).await;
    h.join_all(&["a", "b", "c"]).await;
    assert_eq!(h.let_in().await, ["a", "b"]);
    assert_eq!(
        h.promote(5).await.stop,
        Stop::Seats,
        "both may still go without buying"
    );
    h.complete("a").await;
    assert!(!h.overview().await.sold_out());
    h.complete("b").await;
    let view = h.overview().await;
    assert!(view.sold_out() && view.status == Status::Open);
    assert_eq!(h.promote(5).await.stop, Stop::SoldOut);
    assert_eq!(
        h.join_as(join_of("d")).await,
        JoinOutcome::Refused(Refused::SoldOut)
    );
    assert_eq!(h.join("c").await.ahead, 0, "waiting tickets stay");
    // More seats were found.
    let more = ResizeParams {
        seats: Some(Change::Add(1)),
        ..change(1)
    };
    assert_eq!(h.resized(&more).await.seats, Some(3));
    assert_eq!(h.let_in().await, ["c"]);
}

pub async fn limits_change_by_so_many_once(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(10), 4, 100).await;
    h.join_all(&crowd(8)).await;
    assert_eq!(h.let_in().await.len(), 4);
    let params = ResizeParams {
        seats: Some(Change::Add(-3)),
        per_second: Some(Change::Set(50)),
        ..inside_by(7, 2)
    };
    let held = Capacity {
        seats: Some(7),
        inside: 6,
        per_second: 50,
    };
    for _ in 0..3 {
        assert_eq!(h.resized(&params).await, held);
    }
    assert_eq!(h.let_in().await, ["p4", "p5"]);
    let view = h.overview().await;
    assert_eq!((view.capacity, view.configured), (held, h.config.capacity));
    assert_eq!(h.resized(&inside_by(8, 2)).await.inside, 8);
    assert_eq!(h.resized(&params).await, held, "the same answer as then");
    assert_eq!(
        h.overview().await.capacity.inside,
        8,
        "and nothing is changed by it"
    );
    let back = ResizeParams {
        seats: Some(Change::Reset),
        inside: Some(Change::Reset),
        per_second: Some(Change::Reset),
        ..change(9)
    };
    assert_eq!(h.resized(&back).await, h.config.capacity);
}

pub async fn many_tries_of_one_change_are_one(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 4, 100).await;
    let same = inside_by(7, 3);
    let answers = join_all((0..20).map(|_| h.resized(&same))).await;
    assert!(answers.iter().all(|capacity| capacity.inside == 7), "{answers:?}");
    let others: Vec<ResizeParams> = (10..20).map(|request| inside_by(request, 1)).collect();
    let mut all = Vec::new();
    for other in &others {
        all.push(h.resized(other));
    }
    join_all(all).await;
    assert_eq!(
        h.overview().await.capacity.inside,
        17,
        "and each of several counts"
    );
}

pub async fn a_limit_below_those_inside_throws_nobody_out(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(20), 6, 100).await;
    h.join_all(&crowd(12)).await;
    assert_eq!(h.let_in().await.len(), 6);
    h.enter("p0").await;
    let small = ResizeParams {
        seats: Some(Change::Set(Some(3))),
        ..inside_by(1, -4)
    };
    assert_eq!(h.resized(&small).await.inside, 2);
    assert_eq!((h.slots().await, h.promote(9).await.stop), (6, Stop::Inside));
    for gone in ["p1", "p2", "p3", "p4"] {
        h.leave(gone).await;
        assert!(h.let_in().await.is_empty(), "two are inside, and no more may be");
    }
    h.enter("p5").await;
    h.leave("p0").await;
    assert_eq!(h.let_in().await, ["p6"]);
    assert_eq!(h.resized(&inside_by(2, -2)).await.inside, 0);
    h.enter("p6").await;
    assert_eq!(h.resized(&inside_by(3, 3)).await.inside, 3);
    assert_eq!(
        (h.let_in().await.len(), h.promote(9).await.stop),
        (1, Stop::Inside),
        "three seats"
    );
}

/// Five seats, ten fewer, ten more: clamped at zero in between, that would be ten seats.
pub async fn a_change_below_zero_is_refused_and_oversells_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(5), 4, 100).await;
    let seats_by = |request, by| ResizeParams {
        seats: Some(Change::Add(by)),
        per_second: Some(Change::Set(7)),
        ..change(request)
    };
    let per_second_by = |request, by| ResizeParams {
        per_second: Some(Change::Add(by)),
        ..change(request)
    };
    for (params, says) in [
        (seats_by(1, -10), "seats is 5: 10 fewer"),
        (inside_by(2, -5), "inside is 4: 5 fewer"),
        (
            per_second_by(3, i64::MIN),
            "per_second is 100: 9223372036854775808 fewer",
        ),
    ] {
        let outcome = h.resize(&params).await;
        assert!(
            matches!(&outcome, ResizeOutcome::Invalid(reason) if reason.contains(says)),
            "{outcome:?} should say {says:?}"
        );
        let view = h.overview().await;
        assert_eq!((view.capacity, view.changes.len()), (h.config.capacity, 0));
    }
    assert_eq!(h.resized(&seats_by(4, -5)).await.seats, Some(0));
    assert_eq!(h.resized(&seats_by(5, 10)).await.seats, Some(10));
}

pub async fn limits_that_cannot_be_are_refused(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 4, 100).await;
    let too_many = ResizeParams {
        inside: Some(Change::Set(MAX_PEOPLE + 1)),
        per_second: Some(Change::Set(7)),
        ..change(1)
    };
    assert!(matches!(h.resize(&too_many).await, ResizeOutcome::Invalid(reason) if reason.contains("inside")));
    let not_counted = ResizeParams {
        seats: Some(Change::Add(1)),
        ..change(2)
    };
    assert!(
        matches!(h.resize(&not_counted).await, ResizeOutcome::Invalid(reason) if reason.contains("seats"))
    );
    let view = h.overview().await;
    assert_eq!(
        (view.capacity, view.changes.len()),
        (h.config.capacity, 0),
        "nothing changed"
    );
    assert_eq!(
        h.resized(&inside_by(1, 1)).await.inside,
        5,
        "what was refused was not done"
    );
}

pub async fn changes_are_remembered(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 4, 100).await;
    for request in 0..25 {
        h.advance(1);
        h.resized(&inside_by(request, 1)).await;
    }
    let changes = h.overview().await.changes;
    assert_eq!(changes.len(), 20, "the last ones");
    let last = changes.last().expect("a change");
    assert_eq!(
        (last.request, last.at, last.capacity.inside),
        (24, START + Millis(25), 29)
    );
    assert_eq!((last.by.as_str(), last.why.as_str()), ("ana", "a till broke"));
    assert_eq!(changes[0].request, 5, "oldest first");
}

pub async fn set_limits_outlast_settings(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 4, 100).await;
    h.resized(&inside_by(1, -2)).await;
    // Every process opens the room when it starts.
    must(h.store.open(&h.room, h.config.clone()).await);
    assert_eq!(h.overview().await.capacity.inside, 2);
    let capacity = Capacity {
        inside: 50,
        per_second: 7,
        ..h.config.capacity
    };
    let config = RoomConfig {
        capacity,
        ..h.config.clone()
    };
    must(h.store.open(&h.room, config).await);
    let view = h.overview().await;
    assert_eq!(
        (
            view.capacity.inside,
            view.capacity.per_second,
            view.configured.inside
        ),
        (2, 7, 50)
    );
    let back = ResizeParams {
        inside: Some(Change::Reset),
        ..change(2)
    };
    assert_eq!(h.resized(&back).await.inside, 50);
}

pub async fn settings_are_taken_over(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 100).await;
    h.join_all(&["a", "b"]).await;
    h.let_in().await;
    let config = RoomConfig {
        grace_ms: Millis(GRACE + 50_000),
        inside_ms: Millis(1_000),
        ..h.config.clone()
    };
    must(h.store.open(&h.room, config).await);
    assert_eq!(
        (h.ahead("b").await, h.slots().await),
        (0, 1),
        "everybody is where they were"
    );
    assert_eq!(h.enter("a").await, h.now() + Millis(1_000));
    h.advance(PRESENCE + GRACE + 49_999);
    assert_eq!(h.reap().await.lost, 0, "those who wait have the longer time");
    h.advance(1);
    assert_eq!(h.reap().await.lost, 1);
}

pub async fn settings_that_cannot_work_are_refused(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 100).await;
    let config = RoomConfig {
        grace_ms: Millis(0),
        ..h.config.clone()
    };
    for name in ["sale", "other"] {
        let refused = h.store.open(&room(name), config.clone()).await;
        assert!(
            matches!(&refused, Err(StoreError::Config(why)) if why.contains("grace_ms")),
            "{refused:?}"
        );
    }
    assert_eq!(must(h.store.rooms().await), [room("sale")]);
}

pub async fn a_void_pass_is_refused_and_another_one_given(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 5, 100).await;
    h.join("a").await;
    h.let_in().await;
    let old = h.pass("a").await;
    assert!(!h.reissue("a").await, "it is good");
    let through = h.void(None).await;
    assert_eq!((through, h.overview().await.voided), (old.wave, old.wave));
    assert_eq!(h.redeem(&old).await, RedeemOutcome::Voided);
    assert_eq!(h.slots().await, 1, "the slot is kept");
    h.advance(PASS - 1);
    assert!(h.reissue("a").await);
    assert!(!h.reissue("a").await, "once");
    assert_eq!(h.redeem(&old).await, RedeemOutcome::Voided);
    h.advance(PASS - 1);
    assert_eq!(h.reap().await.no_shows, 0, "with a time of its own");
    h.enter("a").await;
    assert_eq!(h.redeem(&old).await, RedeemOutcome::Voided);
    assert_eq!((h.slots().await, h.overview().await.counts.admitted), (1, 1));
}

pub async fn a_void_ends_at_its_wave(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 5, 100).await;
    let mut passes = Vec::new();
    for name in ["a", "b", "c"] {
        h.join(name).await;
        h.let_in().await;
        passes.push(h.pass(name).await);
    }
    assert!(passes[0].wave < passes[1].wave && passes[1].wave < passes[2].wave);
    assert_eq!(h.void(Some(passes[1].wave)).await, passes[1].wave);
    assert_eq!(
        h.void(Some(passes[0].wave)).await,
        passes[1].wave,
        "what is void stays so"
    );
    assert_eq!(h.redeem(&passes[0]).await, RedeemOutcome::Voided);
    assert_eq!(h.redeem(&passes[1]).await, RedeemOutcome::Voided);
    assert!(matches!(h.redeem(&passes[2]).await, RedeemOutcome::Inside { .. }));
    // A future wave is not void in advance.
    assert_eq!(h.void(Some(Wave(1_000))).await, h.overview().await.wave);
    h.join("d").await;
    h.let_in().await;
    h.enter("d").await;
}

pub async fn a_void_leaves_visits_alone(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 5, 100).await;
    h.join("a").await;
    h.let_in().await;
    let named = RedeemParams {
        session: session("s"),
        ..h.pass("a").await
    };
    let inside = h.redeem(&named).await;
    h.void(None).await;
    assert_eq!(h.redeem(&named).await, inside, "it is inside already");
    assert!(!h.reissue("a").await);
    assert_eq!(h.overview().await.inside, 1);
    h.complete("a").await;
}
