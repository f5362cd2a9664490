//! Waiting rooms as a library: tickets, passes and limits without a service, in a folder and on Redis.

use std::time::Duration;

use tidegate::rooms::{
    Capacity, End, Join, Millis, RoomConfig, Rooms, RoomsError, RoomsSetup, ShopError, VisitEvent, Visited,
    Visitor,
};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

const PATIENCE: Duration = Duration::from_secs(120);

fn config(inside: u64) -> RoomConfig {
    RoomConfig {
        capacity: Capacity {
            seats: Some(3),
            inside,
            per_second: 1_000,
        },
        ..RoomConfig::default()
    }
}

async fn join(rooms: &Rooms, person: &str) -> Visitor {
    match rooms.visit("concert", person).await.unwrap() {
        Join::Visit(visitor) => visitor,
        other => panic!("{person}: {other:?}"),
    }
}

/// Waits for an event.
async fn until(visitor: &mut Visitor, wanted: fn(&VisitEvent) -> bool) -> VisitEvent {
    let wait = async {
        loop {
            let event = visitor.next().await.expect("the visit goes on");
            if wanted(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("the event comes in time")
}

async fn pass(visitor: &mut Visitor) -> String {
    match until(visitor, |event| matches!(event, VisitEvent::Granted { .. })).await {
        VisitEvent::Granted { pass, .. } => pass,
        other => panic!("{other:?}"),
    }
}

fn position(event: &VisitEvent) -> Option<u64> {
    match event {
        VisitEvent::Waiting { position, .. } => Some(*position),
        _ => None,
    }
}

/// One after the other, each by a pass that is worth one entry.
async fn people_are_let_in(setup: RoomsSetup) {
    let rooms = setup.room("concert", config(1)).unwrap().start().await.unwrap();
    let mut anna = join(&rooms, "anna").await;
    let first = pass(&mut anna).await;
    let mut ben = join(&rooms, "ben").await;
    let event = until(&mut ben, |event| matches!(event, VisitEvent::Waiting { .. })).await;
    assert_eq!(position(&event), Some(1), "{event:?}");

    assert!(matches!(
        rooms.check("concert", &first).await.unwrap(),
        Visited::Granted { .. }
    ));
    let refused = rooms.extend("concert", &first, Millis(1)).await.unwrap_err();
    assert!(
        matches!(refused, RoomsError::Shop(ShopError::NotInside)),
        "{refused}"
    );
    assert!(matches!(
        rooms.redeem("concert", &first, None).await.unwrap(),
        Visited::Inside { .. }
    ));
    let refused = rooms.redeem("concert", &first, None).await.unwrap_err();
    assert!(matches!(refused, RoomsError::Shop(ShopError::Used)), "{refused}");
    assert!(matches!(
        rooms.extend("concert", &first, Millis(3_600_000)).await.unwrap(),
        Visited::Inside { .. }
    ));
    assert_eq!(
        rooms.complete("concert", &first).await.unwrap(),
        Visited::Ended(End::Completed)
    );
    let event = until(&mut anna, |event| matches!(event, VisitEvent::Ended(_))).await;
    assert_eq!(event, VisitEvent::Ended(End::Completed));
    assert!(anna.next().await.is_none(), "nothing more comes");

    let second = pass(&mut ben).await;
    let forged = rooms.redeem("concert", &second[..second.len() - 4], None).await;
    assert!(
        matches!(forged, Err(RoomsError::Shop(ShopError::Pass(_)))),
        "{forged:?}"
    );
    rooms.redeem("concert", &second, Some("session-1")).await.unwrap();
    assert_eq!(
        rooms.release("concert", &second).await.unwrap(),
        Visited::Ended(End::Left)
    );
    let view = rooms.view("concert").await.unwrap();
    assert_eq!((view.granted, view.inside, view.counts.completed), (0, 0, 1));
    assert!(matches!(
        rooms.visit("concert", "ben").await.unwrap(),
        Join::Ended(End::Left)
    ));
    assert!(matches!(
        rooms.visit_again("concert", "ben").await.unwrap(),
        Join::Visit(_)
    ));
    let unknown = rooms.visit("theatre", "anna").await.unwrap_err();
    assert!(
        matches!(&unknown, RoomsError::UnknownRoom(name) if name == "theatre"),
        "{unknown}"
    );
    drop((anna, ben));
    rooms.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_are_let_in_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    people_are_let_in(Rooms::open(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_are_let_in_on_redis() {
    let redis = RedisServer::start(RedisOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    people_are_let_in(Rooms::open(folder.path()).on_redis([redis.url()])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_and_passes_survive_a_restart_and_the_newest_visit_wins() {
    let folder = tempfile::tempdir().unwrap();
    let open = || async {
        let setup = Rooms::open(folder.path()).room("concert", config(1)).unwrap();
        setup.start().await.unwrap()
    };
    let rooms = open().await;
    let (mut anna, mut ben) = (join(&rooms, "anna").await, join(&rooms, "ben").await);
    let given = pass(&mut anna).await;
    until(&mut ben, |event| matches!(event, VisitEvent::Waiting { .. })).await;
    drop((anna, ben));
    rooms.shutdown().await.unwrap();

    let rooms = open().await;
    let (mut tab, mut ben) = (join(&rooms, "anna").await, join(&rooms, "ben").await);
    let mut other_tab = join(&rooms, "anna").await;
    until(&mut tab, |event| *event == VisitEvent::Superseded).await;
    assert!(tab.next().await.is_none());
    assert_eq!(
        pass(&mut other_tab).await,
        given,
        "the same ticket has the same pass"
    );
    let event = until(&mut ben, |event| matches!(event, VisitEvent::Waiting { .. })).await;
    assert_eq!(position(&event), Some(1));
    rooms.leave("concert", "anna").await.unwrap();
    pass(&mut ben).await;
    drop((tab, other_tab, ben));
    rooms.shutdown().await.unwrap();
}

#[test]
fn a_room_that_cannot_work_is_refused_by_name() {
    let impossible = RoomConfig {
        grace_ms: Millis(0),
        ..RoomConfig::default()
    };
    let refused = Rooms::open("never-made").room("concert", impossible).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "room \"concert\": grace_ms = 0: it must be from 1 to 2592000000 (30 days)"
    );
    assert!(Rooms::open("never-made").room("", RoomConfig::default()).is_err());
}
