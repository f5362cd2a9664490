//! Who is admitted, in which order, and what keeps the next person out.

use futures_util::future::join_all;
use tidegate_core::room::command::{Change, ResizeParams, Stop};
use tidegate_core::room::ticket::TicketState;
use tidegate_core::time::Millis;

use super::harness::*;

pub async fn people_are_let_in_in_order(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 2, 100).await;
    h.join_all(&["d", "a", "c", "b"]).await;
    let outcome = h.promote(10).await;
    let names: Vec<String> = outcome
        .granted
        .iter()
        .map(|granted| granted.person.to_string())
        .collect();
    assert_eq!(
        (names.as_slice(), outcome.stop),
        (["d".to_owned(), "a".to_owned()].as_slice(), Stop::Inside)
    );
    for granted in &outcome.granted {
        assert_eq!(
            h.ticket(granted.person.as_str()).await.ticket.index,
            granted.index
        );
    }
    h.enter("a").await;
    assert_eq!(
        h.promote(10).await.stop,
        Stop::Inside,
        "redeemed or not, it is a slot"
    );
    h.leave("a").await;
    assert_eq!(h.let_in().await, ["c"]);
    h.complete("d").await;
    assert_eq!(h.let_in().await, ["b"]);
    assert_eq!(h.overview().await.counts.admitted, 4);
}

pub async fn a_promotion_has_a_bound(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 100, 100).await;
    h.join_all(&crowd(7)).await;
    let outcome = h.promote(3).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (3, Stop::More));
    let outcome = h.promote(3).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (3, Stop::More));
    let outcome = h.promote(3).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (1, Stop::Nobody));
}

pub async fn who_is_let_in_is_known_to_the_store(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 100).await;
    h.join_all(&["a", "b"]).await;
    h.advance(7);
    // The process that requested the promotion dies; another one reads.
    h.let_in().await;
    let wave = h.overview().await.wave;
    let granted = TicketState::Granted {
        wave,
        at: h.now(),
        until: h.now() + Millis(PASS),
    };
    assert_eq!(h.ticket("a").await.ticket.state, granted);
    assert_eq!(h.join("a").await.ticket.state, granted, "and the visitor sees it");
    let view = h.overview().await;
    assert_eq!((view.granted, view.inside, view.waiting()), (1, 0, 1));
}

pub async fn seats_and_people_inside_are_two_limits(backend: &dyn Backend) {
    let h = Harness::new(backend, Some(5), 3, 100).await;
    h.join_all(&crowd(10)).await;
    let outcome = h.promote(10).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (3, Stop::Inside));
    h.complete("p0").await;
    h.complete("p1").await;
    // Two seats are sold, and three people may buy the other three.
    let outcome = h.promote(10).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (2, Stop::Inside));
    h.complete("p2").await;
    let outcome = h.promote(10).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (0, Stop::Seats));
    h.leave("p3").await;
    assert_eq!(h.let_in().await, ["p5"], "its seat was not bought");
    h.complete("p4").await;
    h.complete("p5").await;
    assert_eq!(h.promote(10).await.stop, Stop::SoldOut);
    assert_eq!(h.overview().await.counts.completed, 5);
}

pub async fn the_rate_holds_in_every_second(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1_000, 3).await;
    h.join_all(&crowd(50)).await;
    let mut times = Vec::new();
    // Steps that are not aligned with seconds.
    for _ in 0..90 {
        let granted = h.promote(2).await.granted.len();
        times.extend(std::iter::repeat_n(h.now(), granted));
        h.advance(70);
    }
    for (first, time) in times.iter().enumerate() {
        let within = times[first..]
            .iter()
            .take_while(|other| **other < *time + Millis(1_000));
        assert!(within.count() <= 3, "more than three from {time:?} on: {times:?}");
    }
    assert!(times.len() >= 17, "the rate is used: {times:?}");
    let h = Harness::new(backend, None, 1_000, 2).await;
    h.join_all(&crowd(6)).await;
    assert_eq!(h.promote(1).await.granted.len(), 1);
    h.advance(400);
    let outcome = h.promote(9).await;
    let until = START + Millis(1_000);
    assert_eq!(
        (outcome.granted.len(), outcome.stop),
        (1, Stop::Rate { until }),
        "it says until when"
    );
    h.advance(599);
    assert_eq!(h.promote(9).await.granted.len(), 0);
    h.advance(1);
    assert_eq!(h.promote(9).await.granted.len(), 1);
}

pub async fn promoters_at_once_let_in_no_more_than_one(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 10, 1_000).await;
    h.join_all(&crowd(60)).await;
    let outcomes = join_all((0..20).map(|_| h.promote(4))).await;
    let granted: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.granted).collect();
    assert_eq!(granted.len(), 10);
    let mut names: Vec<&str> = granted.iter().map(|granted| granted.person.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10, "ten people: {names:?}");
    assert_eq!((h.slots().await, h.overview().await.counts.admitted), (10, 10));
    assert_eq!(h.ahead("p10").await, 0, "the first ten");
}

pub async fn nobody_is_let_in_twice(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 100, 1_000).await;
    h.join_all(&["a", "b"]).await;
    assert_eq!(h.let_in().await, ["a", "b"]);
    // A heartbeat of an admitted person does not make it wait again.
    let stream = h.ticket("a").await.ticket.stream;
    h.touch("a", stream, true).await;
    h.join("b").await;
    assert!(h.let_in().await.is_empty());
    h.enter("a").await;
    h.join("a").await;
    assert!(h.let_in().await.is_empty());
    h.leave("a").await;
    h.join_as(join_of("a")).await;
    assert!(h.let_in().await.is_empty(), "its ticket has ended");
    assert_eq!(h.overview().await.counts.admitted, 2);
}

pub async fn a_long_absence_ahead_ends_a_promotion_in_time(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 10, 1_000).await;
    let people = crowd(1_500);
    for some in people.chunks(500) {
        h.join_all(some).await;
    }
    h.advance(PRESENCE);
    h.join("there").await;
    let mut tries = 0;
    loop {
        let outcome = h.promote(1).await;
        tries += 1;
        if let [granted] = outcome.granted.as_slice() {
            assert_eq!(granted.person, person("there"));
            break;
        }
        assert_eq!(outcome.stop, Stop::More, "there is more to look at");
        assert!(tries < 50);
    }
    assert_eq!(h.ahead("p1499").await, 1_499, "they have their places");
    h.join("p700").await;
    assert_eq!(h.let_in().await, ["p700"]);
}

pub async fn a_limit_of_zero_lets_nobody_in(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 0, 10).await;
    h.join("a").await;
    assert_eq!(h.promote(1).await.stop, Stop::Inside);
    let params = ResizeParams {
        inside: Some(Change::Set(5)),
        per_second: Some(Change::Set(0)),
        ..change(1)
    };
    h.resized(&params).await;
    assert!(matches!(h.promote(1).await.stop, Stop::Rate { until } if until > h.now()));
    let params = ResizeParams {
        seats: Some(Change::Set(Some(0))),
        per_second: Some(Change::Set(10)),
        ..change(2)
    };
    h.resized(&params).await;
    assert_eq!(h.promote(1).await.stop, Stop::SoldOut);
    let params = ResizeParams {
        seats: Some(Change::Set(None)),
        ..change(3)
    };
    h.resized(&params).await;
    assert_eq!(h.let_in().await, ["a"]);
}

pub async fn an_empty_room_lets_nobody_in(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 10, 10).await;
    let before = h.overview().await;
    let outcome = h.promote(10).await;
    assert_eq!((outcome.granted.len(), outcome.stop), (0, Stop::Nobody));
    assert_eq!(h.overview().await, before, "no wave without people");
}
