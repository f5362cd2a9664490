//! Rooms at work over an embedded store: streams, promotions, ends.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::clock::{Clock, ManualClock, SystemClock};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{
    Control, InsideOutcome, JoinOutcome, JoinParams, RedeemOutcome, RedeemParams, RemoveOutcome,
};
use tidegate_core::room::config::{Capacity, MAX_PER_SECOND, MAX_SPAN, RoomConfig};
use tidegate_core::room::ticket::{End, Ticket, TicketState};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::DurableError;
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_engine::room::{RoomHandle, RoomOptions, RoomService, Update, Visit};
use tidegate_store::StoreError;
use tidegate_store::room::{EmbeddedRoomOptions, EmbeddedRoomStore, RoomStore};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

struct World {
    service: RoomService,
    room: RoomHandle,
    store: Arc<EmbeddedRoomStore>,
    _folder: tempfile::TempDir,
}

/// Long enough that nobody becomes absent or lost because the machine stalls.
async fn world(inside: u64) -> World {
    world_with(inside, Millis(30_000), Millis(120_000)).await
}

async fn world_with(inside: u64, presence_ms: Millis, grace_ms: Millis) -> World {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions::new(folder.path())).unwrap());
    let service = RoomService::start(store.clone(), RoomOptions::default());
    let config = RoomConfig {
        capacity: Capacity {
            seats: None,
            inside,
            per_second: 1_000,
        },
        presence_ms,
        grace_ms,
        ..RoomConfig::default()
    };
    let room = service.handle().open(&name(), config).await.unwrap();
    World {
        service,
        room,
        store,
        _folder: folder,
    }
}

/// A store whose time advances only as the test says.
fn store_in_our_time() -> (Arc<dyn RoomStore>, Arc<ManualClock>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_706_000_000_000)));
    let store = EmbeddedRoomStore::open(EmbeddedRoomOptions {
        clock: clock.clone(),
        ..EmbeddedRoomOptions::new(folder.path())
    });
    (Arc::new(store.unwrap()), clock, folder)
}

fn name() -> RoomId {
    RoomId::new("concert").unwrap()
}

fn person(name: &str) -> PersonId {
    PersonId::new(name).unwrap()
}

fn comes(name: &str) -> JoinParams {
    JoinParams {
        person: person(name),
        stream: true,
        again: false,
        draw: 0,
    }
}

async fn visits(room: &RoomHandle, name: &str) -> Visit {
    room.visit(comes(name)).await.unwrap().unwrap()
}

/// Waits for an update that fits.
async fn until(visit: &mut Visit, fits: impl Fn(&Ticket, u64) -> bool) -> Ticket {
    timeout(SOON, async {
        loop {
            match visit.next().await {
                Some(Update::Ticket(view)) if fits(&view.ticket, view.ahead) => return view.ticket,
                Some(Update::Ticket(_) | Update::Quiet) => {}
                other => panic!("the stream sent {other:?}"),
            }
        }
    })
    .await
    .expect("it is sent soon")
}

/// Waits until the condition holds.
async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = timeout(SOON, wait).await;
    assert!(in_time.is_ok(), "waited in vain: {what}");
}

async fn granted(visit: &mut Visit) -> Ticket {
    until(visit, |ticket, _| {
        matches!(ticket.state, TicketState::Granted { .. })
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_move_and_people_are_let_in_as_slots_free_up() {
    let World { room, store, .. } = &world(1).await;
    let mut first = visits(room, "first").await;
    let pass = granted(&mut first).await;
    let mut second = visits(room, "second").await;
    let mut third = visits(room, "third").await;
    until(&mut third, |_, ahead| ahead == 1).await;
    let TicketState::Granted { wave, .. } = pass.state else {
        unreachable!()
    };
    let params = RedeemParams {
        person: person("first"),
        index: pass.index,
        wave,
        session: None,
    };
    let redeemed = store.redeem(&name(), params).await.unwrap();
    assert!(matches!(redeemed, RedeemOutcome::Inside { .. }));
    let done = store.complete(&name(), &person("first")).await.unwrap();
    assert_eq!(done, InsideOutcome::Ended(End::Completed));
    granted(&mut second).await;
    until(&mut third, |_, ahead| ahead == 0).await;
    let mut fourth = visits(room, "fourth").await;
    until(&mut fourth, |_, ahead| ahead == 1).await;
    // An overview in the same millisecond may have made it read its ticket, which sends the position, too.
    let _ = timeout(Duration::from_millis(300), fourth.next()).await;
    store.leave(&name(), &person("third")).await.unwrap();
    until(&mut fourth, |_, ahead| ahead == 0).await;
    until(&mut first, |ticket, _| {
        matches!(ticket.state, TicketState::Ended { .. })
    })
    .await;
    assert!(first.next().await.is_none(), "the last word");
    soon("the room is seen as it is", || {
        let seen = room.seen();
        seen.is_some_and(|seen| (seen.view.granted, seen.view.waiting()) == (1, 1))
    })
    .await;
    // An admitted visitor may get its update before the counters include it.
    soon("both are counted", || room.work().promoted == 2).await;
    let work = room.work();
    assert!(work.promotions.count() >= 2, "{work:?}");
    // The fourth moved up after an overview; every first update came from the join.
    let broadcasts = work.broadcasts.count();
    assert!((1..=work.updates - 4).contains(&broadcasts), "{work:?}");
    assert_eq!((work.queued_joins, work.queued_inspections), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_stream_takes_over_and_the_older_one_changes_nothing() {
    let World { room, store, .. } = &world_with(0, Millis(600), Millis(8_000)).await;
    let mut old = visits(room, "a").await;
    assert!(matches!(old.next().await, Some(Update::Ticket(_))));
    let mut new = visits(room, "a").await;
    assert!(matches!(new.next().await, Some(Update::Ticket(_))));
    assert!(matches!(
        timeout(SOON, old.next()).await.unwrap(),
        Some(Update::Superseded)
    ));
    assert!(old.next().await.is_none());
    drop(old);
    // Longer than presence and grace together: only the newer stream's heartbeats keep the ticket. The grace period is
    // longer than a stall in which it sends none.
    tokio::time::sleep(Duration::from_millis(9_500)).await;
    let looked = store.look(&name(), vec![person("a")]).await.unwrap();
    let state = looked[0].as_ref().unwrap().ticket.state.clone();
    assert!(matches!(state, TicketState::Waiting { .. }), "{state:?}");
    assert_eq!(room.streams(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_stream_keeps_its_place_for_the_grace_time_and_is_passed_over() {
    let World { room, store, .. } = &world(1).await;
    let mut inside = visits(room, "inside").await;
    granted(&mut inside).await;
    let mut gone = visits(room, "gone").await;
    gone.next().await;
    let mut next = visits(room, "next").await;
    until(&mut next, |_, ahead| ahead == 1).await;
    drop(gone);
    let absent = async {
        loop {
            let looked = store.look(&name(), vec![person("gone")]).await.unwrap();
            // The store learns it from the end of the stream or, if a heartbeat was in flight, from the next missing one.
            if looked[0].as_ref().unwrap().ticket.is_absent(SystemClock.now()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, absent).await.expect("it is absent");
    store.leave(&name(), &person("inside")).await.unwrap();
    granted(&mut next).await;
    // Back within the grace period: the same index, and the next slot.
    let mut back = visits(room, "gone").await;
    until(&mut back, |ticket, ahead| ticket.index.0 == 1 && ahead == 0).await;
    store.leave(&name(), &person("next")).await.unwrap();
    granted(&mut back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voided_pass_is_given_anew_to_an_open_stream() {
    let World { room, store, .. } = &world(1).await;
    let mut visit = visits(room, "a").await;
    let old = granted(&mut visit).await;
    store.void(&name(), None).await.unwrap();
    let new = until(&mut visit, |ticket, _| ticket.state != old.state).await;
    let (TicketState::Granted { wave: before, .. }, TicketState::Granted { wave: after, .. }) =
        (old.state, new.state)
    else {
        panic!("both are passes")
    };
    assert!(after > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_room_takes_nobody_and_a_restart_keeps_the_places() {
    let World {
        service,
        room,
        store,
        _folder: folder,
    } = world(0).await;
    let mut visit = visits(&room, "a").await;
    visit.next().await;
    store.control(&name(), Control::Close).await.unwrap();
    let refused = room.visit(comes("b")).await.unwrap();
    assert!(matches!(refused, Err(JoinOutcome::Refused(_))), "{refused:?}");
    drop(visit);
    drop(room);
    service.shutdown().await;
    store.close().await.unwrap();
    drop(store);
    let store = Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions::new(folder.path())).unwrap());
    let service = RoomService::start(store.clone(), RoomOptions::default());
    let handle = service.handle();
    let room = timeout(SOON, async {
        loop {
            match handle.room(&name()) {
                Some(room) => return room,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await
    .expect("rooms of the store are found");
    let mut back = visits(&room, "a").await;
    until(&mut back, |ticket, _| ticket.index.0 == 0).await;
    service.shutdown().await;
}

/// A heartbeat that is valid for ten minutes does not extend a pass that expires after a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_start_slots_come_back_at_their_time_and_nobody_absent_is_lost() {
    let (store, clock, _folder) = store_in_our_time();
    let config = RoomConfig {
        capacity: Capacity {
            seats: None,
            inside: 1,
            per_second: 1_000,
        },
        presence_ms: Millis(600_000),
        pass_ms: Millis(1_000),
        ..RoomConfig::default()
    };
    store.open(&name(), config.clone()).await.unwrap();
    let both = vec![comes("no show"), comes("absent")];
    store.join(&name(), both).await.unwrap();
    assert_eq!(store.promote(&name(), 9).await.unwrap().granted.len(), 1);
    // An outage of every process: longer than anybody may be absent.
    clock.advance(config.presence_ms);
    clock.advance(config.grace_ms);
    let service = RoomService::start(store.clone(), RoomOptions::default());
    let room = service.handle().open(&name(), config).await.unwrap();
    timeout(SOON * 3, async {
        while store.overview(&name()).await.unwrap().granted > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the slot comes back");
    let mut absent = visits(&room, "absent").await;
    assert_eq!(granted(&mut absent).await.index.0, 1, "the place is still there");
    drop(absent);
    service.shutdown().await;
}

/// The machine's time plus what a test adds, as if everything had been frozen. A stall of the machine moves it, too.
#[derive(Debug, Default)]
struct Stepped(AtomicU64);

impl Clock for Stepped {
    fn now(&self) -> Timestamp {
        SystemClock.now() + Millis(self.0.load(Ordering::SeqCst))
    }
}

/// A machine that slept, or a process or store that was stopped: no call fails, and every last heartbeat is old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_is_connected_loses_the_place_because_time_stood_still() {
    // After the freeze, everybody has this time for a heartbeat, and streams send one every third of it. It is long enough
    // for a stall of that task alone.
    let presence = Millis(9_000);
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Stepped::default());
    let store = EmbeddedRoomStore::open(EmbeddedRoomOptions {
        clock: clock.clone(),
        ..EmbeddedRoomOptions::new(folder.path())
    });
    let store: Arc<dyn RoomStore> = Arc::new(store.unwrap());
    let config = RoomConfig {
        capacity: Capacity {
            seats: None,
            inside: 0,
            per_second: 1_000,
        },
        presence_ms: presence,
        grace_ms: Millis(1_000),
        ..RoomConfig::default()
    };
    let options = RoomOptions {
        sweep_ms: Millis(100),
        ..RoomOptions::default()
    };
    let service = RoomService::start(store.clone(), options);
    // Each room has its own tasks, which run in any order.
    let names: Vec<RoomId> = (0..10)
        .map(|n| RoomId::new(format!("concert-{n}")).unwrap())
        .collect();
    let mut stay = Vec::new();
    for name in &names {
        let room = service.handle().open(name, config.clone()).await.unwrap();
        stay.push(visits(&room, "stays").await);
    }
    for _ in 0..2 {
        // Long enough that absences count.
        tokio::time::sleep(Duration::from(presence) + Duration::from_millis(500)).await;
        clock.0.fetch_add(60_000, Ordering::SeqCst);
    }
    tokio::time::sleep(Duration::from(presence) + Duration::from_millis(500)).await;
    for name in &names {
        let lost = store.overview(name).await.unwrap().counts.lost;
        assert_eq!(lost, 0, "{name}");
    }
    drop(stay);
    for name in &names {
        let lost = async {
            while store.overview(name).await.unwrap().counts.lost == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, lost).await.expect("who is gone is lost in time");
    }
    service.shutdown().await;
}

/// Everybody counts as absent after a start. The first to return must not be admitted before people ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_start_nobody_overtakes_those_who_need_a_moment_to_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = RoomConfig {
        capacity: Capacity {
            seats: None,
            inside: 0,
            per_second: 1_000,
        },
        // They have half of it, at most ten seconds.
        presence_ms: Millis(30_000),
        ..RoomConfig::default()
    };
    let store = Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions::new(folder.path())).unwrap());
    store.open(&name(), config.clone()).await.unwrap();
    let line = ["first", "second", "third"].map(comes).to_vec();
    store.join(&name(), line).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions::new(folder.path())).unwrap());
    let service = RoomService::start(store, RoomOptions::default());
    let room = service.handle().open(&name(), config.clone()).await.unwrap();
    // A slot is free from the beginning.
    let config = RoomConfig {
        capacity: Capacity {
            inside: 1,
            ..config.capacity
        },
        ..config
    };
    service.handle().open(&name(), config).await.unwrap();
    let mut third = visits(&room, "third").await;
    let early = timeout(Duration::from_millis(1_000), granted(&mut third)).await;
    assert!(early.is_err(), "the third was let in before the first");
    let mut first = visits(&room, "first").await;
    granted(&mut first).await;
    until(&mut third, |_, ahead| ahead == 1).await;
    service.shutdown().await;
}

/// Otherwise the process would report ready and admit nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_has_failed_for_good_ends_the_service() {
    let disk = MemoryDisk::default();
    let clock = Arc::new(SystemClock);
    let store: Arc<dyn RoomStore> =
        Arc::new(EmbeddedRoomStore::open_for_test(Arc::new(disk.clone()), clock).unwrap());
    let service = RoomService::start(store, RoomOptions::default());
    let handle = service.handle();
    let room = handle.open(&name(), RoomConfig::default()).await.unwrap();
    assert!(
        timeout(Duration::from_millis(50), service.failed())
            .await
            .is_err()
    );
    // Two probes in a row that a stall delayed would say otherwise, for a moment.
    soon("the store is there", || !handle.is_unavailable()).await;
    disk.fail_syncs(true);
    let refused = room.join(comes("a")).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Durable(DurableError::Poisoned(_))),
        "{refused}"
    );
    timeout(SOON * 3, service.failed()).await.expect("it is noticed");
    assert!(handle.is_unavailable());
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_was_removed_ends_with_its_streams_and_can_be_made_again() {
    let World { room, service, .. } = &world(0).await;
    let handle = service.handle();
    let mut visit = visits(room, "a").await;
    visit.next().await;
    let used = RemoveOutcome::Used {
        waiting: 1,
        inside: 0,
    };
    room.store().control(&name(), Control::Close).await.unwrap();
    assert_eq!(handle.remove(&name()).await.unwrap(), used);
    assert!(!room.is_gone());
    room.store().leave(&name(), &person("a")).await.unwrap();
    assert_eq!(handle.remove(&name()).await.unwrap(), RemoveOutcome::Removed);
    assert!(room.is_gone() && handle.room(&name()).is_none());
    until(&mut visit, |ticket, _| {
        matches!(ticket.state, TicketState::Ended { .. })
    })
    .await;
    assert!(handle.find(&name()).await.unwrap().is_none());
    let again = handle.create(&name(), RoomConfig::default()).await.unwrap();
    assert!(!again.is_gone());
    granted(&mut visits(&again, "a").await).await;
}

/// Advances by a millisecond at every read, which the store does once per batch. So times count the store's turns,
/// however fast the machine is.
#[derive(Debug)]
struct Turns(AtomicU64);

impl Clock for Turns {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Turns of the store from a free slot to the next admission. There are a handful: the end that frees the slot, the sweep
/// and the promotion, each beside at most one call of every other service, and more with a slow disk. A crowd is admitted
/// 100 per turn, up to 20 turns in a row. A wait for all of that would show.
const AT_MOST: u64 = 40;

/// On one thread, so that services take turns in the order of their calls.
#[tokio::test]
async fn a_crowd_with_many_slots_does_not_hold_up_a_small_room() {
    const CROWD: u64 = 20_000;
    const FEW: u64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedRoomStore::open(EmbeddedRoomOptions {
        clock: Arc::new(Turns(AtomicU64::new(1_706_000_000_000))),
        ..EmbeddedRoomOptions::new(folder.path())
    });
    let store: Arc<dyn RoomStore> = Arc::new(store.unwrap());
    let service = RoomService::start(store.clone(), RoomOptions::default());
    let [large, small] = ["stadium", "club"].map(|name| RoomId::new(name).unwrap());
    let config = |inside| RoomConfig {
        capacity: Capacity {
            seats: None,
            inside,
            per_second: MAX_PER_SECOND,
        },
        presence_ms: MAX_SPAN,
        ..RoomConfig::default()
    };
    let number = |number: u64| number.to_string();
    let crowd = |count: u64| (0..count).map(|at| comes(&number(at))).collect::<Vec<_>>();
    service.handle().open(&small, config(1)).await.unwrap();
    service.handle().open(&large, config(0)).await.unwrap();
    store.join(&small, crowd(FEW)).await.unwrap();
    store.join(&large, crowd(CROWD)).await.unwrap();
    let ticket = async |room: &RoomId, at: u64| {
        let looked = store.look(room, vec![person(&number(at))]).await.unwrap();
        looked[0].as_ref().unwrap().ticket.state.clone()
    };
    let let_in = async |room: &RoomId, at: u64| {
        let waits = async {
            loop {
                if let TicketState::Granted { at, .. } = ticket(room, at).await {
                    return at;
                }
                // Inspections are turns of the store, too.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON * 3, waits).await.expect("it is let in")
    };
    let_in(&small, 0).await;
    store.open(&large, config(CROWD)).await.unwrap();
    let_in(&large, 0).await;
    let mut turns = Vec::new();
    for next in 1..FEW {
        store.leave(&small, &person(&number(next - 1))).await.unwrap();
        let TicketState::Ended { at: free, .. } = ticket(&small, next - 1).await else {
            panic!("it has left");
        };
        turns.push(let_in(&small, next).await.since(free).0);
    }
    let last = let_in(&small, FEW - 1).await;
    println!("turns of the store from a free slot to the next one inside: {turns:?}");
    assert!(turns.iter().all(|turns| *turns <= AT_MOST), "{turns:?}");
    assert!(
        let_in(&large, CROWD - 1).await > last,
        "the crowd was at it all the time"
    );
    service.shutdown().await;
}
