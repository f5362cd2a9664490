//! Waiting rooms as a library: places, passes and limits without a service, in a folder and on Redis.

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

async fn come(rooms: &Rooms, person: &str) -> Visitor {
    match rooms.visit("concert", person).await.unwrap() {
        Join::Visit(visitor) => visitor,
        other => panic!("{person}: {other:?}"),
    }
}

/// What is told once it is what is waited for.
async fn hears(visitor: &mut Visitor, wanted: fn(&VisitEvent) -> bool) -> VisitEvent {
    let hear = async {
        loop {
            let told = visitor.next().await.expect("there is more to tell");
            if wanted(&told) {
                return told;
            }
        }
    };
    tokio::time::timeout(PATIENCE, hear).await.expect("told in time")
}

async fn pass(visitor: &mut Visitor) -> String {
    match hears(visitor, |told| matches!(told, VisitEvent::Granted { .. })).await {
        VisitEvent::Granted { pass, .. } => pass,
        other => panic!("{other:?}"),
    }
}

fn position(told: &VisitEvent) -> Option<u64> {
    match told {
        VisitEvent::Waiting { position, .. } => Some(*position),
        _ => None,
    }
}

/// One after the other, each by a pass that is worth one entry.
async fn people_are_let_in(setup: RoomsSetup) {
    let rooms = setup.room("concert", config(1)).unwrap().start().await.unwrap();
    let mut anna = come(&rooms, "anna").await;
    let first = pass(&mut anna).await;
    let mut ben = come(&rooms, "ben").await;
    let told = hears(&mut ben, |told| matches!(told, VisitEvent::Waiting { .. })).await;
    assert_eq!(position(&told), Some(1), "{told:?}");

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
    let told = hears(&mut anna, |told| matches!(told, VisitEvent::Ended(_))).await;
    assert_eq!(told, VisitEvent::Ended(End::Completed));
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
async fn places_and_passes_outlive_a_restart_and_the_newest_visit_wins() {
    let folder = tempfile::tempdir().unwrap();
    let open = || async {
        let setup = Rooms::open(folder.path()).room("concert", config(1)).unwrap();
        setup.start().await.unwrap()
    };
    let rooms = open().await;
    let (mut anna, mut ben) = (come(&rooms, "anna").await, come(&rooms, "ben").await);
    let given = pass(&mut anna).await;
    hears(&mut ben, |told| matches!(told, VisitEvent::Waiting { .. })).await;
    drop((anna, ben));
    rooms.shutdown().await.unwrap();

    let rooms = open().await;
    let (mut tab, mut ben) = (come(&rooms, "anna").await, come(&rooms, "ben").await);
    let mut other_tab = come(&rooms, "anna").await;
    hears(&mut tab, |told| *told == VisitEvent::Superseded).await;
    assert!(tab.next().await.is_none());
    assert_eq!(
        pass(&mut other_tab).await,
        given,
        "the same ticket has the same pass"
    );
    let told = hears(&mut ben, |told| matches!(told, VisitEvent::Waiting { .. })).await;
    assert_eq!(position(&told), Some(1));
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
