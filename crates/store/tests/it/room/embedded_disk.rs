//! What the embedded room store preserves through kills, power cuts and failing disks.

use std::collections::HashMap;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::rng::Rng;
use tidegate_core::room::command::*;
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_core::room::ticket::{End, Ticket, TicketState};
use tidegate_core::room::{Head, Room};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::DurableError;
use tidegate_durable::disk::{Disk, Op, Reader, Table, scan_all};
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_store::StoreError;
use tidegate_store::bulk::{EmbeddedBulkOptions, EmbeddedBulkStore};
use tidegate_store::room::tables::{META, ROOMS, TICKETS};
use tidegate_store::room::{EmbeddedRoomOptions, EmbeddedRoomStore, RoomStore};

const START: Timestamp = Timestamp(1_706_000_000_000);

fn room() -> RoomId {
    RoomId::new("sale").unwrap()
}

fn person(name: &str) -> PersonId {
    PersonId::new(name).unwrap()
}

fn config(seats: Option<u64>, inside: u64, per_second: u64) -> RoomConfig {
    let capacity = Capacity {
        seats,
        inside,
        per_second,
    };
    RoomConfig {
        capacity,
        ..RoomConfig::default()
    }
}

struct World {
    clock: Arc<ManualClock>,
    disk: MemoryDisk,
    store: EmbeddedRoomStore,
}

fn open(disk: &MemoryDisk, clock: &Arc<ManualClock>) -> Result<EmbeddedRoomStore, StoreError> {
    EmbeddedRoomStore::open_for_test(Arc::new(disk.clone()), clock.clone())
}

impl World {
    async fn new(config: RoomConfig) -> Self {
        let (clock, disk) = (Arc::new(ManualClock::at(START)), MemoryDisk::default());
        let store = open(&disk, &clock).unwrap();
        store.open(&room(), config).await.unwrap();
        Self { clock, disk, store }
    }

    fn on(&self, disk: MemoryDisk) -> Self {
        let clock = self.clock.clone();
        let store = open(&disk, &clock).unwrap();
        Self { clock, disk, store }
    }

    fn after_power_cut(&self) -> Self {
        self.on(self.disk.after_power_cut(0))
    }

    fn after_kill(&self) -> Self {
        self.on(self.disk.after_kill())
    }

    async fn join_as(&self, name: &str, again: bool) -> JoinOutcome {
        let params = JoinParams {
            person: person(name),
            stream: true,
            again,
            draw: 0,
        };
        self.store.join(&room(), vec![params]).await.unwrap().remove(0)
    }

    async fn join(&self, names: &[&str]) {
        for name in names {
            let outcome = self.join_as(name, false).await;
            assert!(matches!(outcome, JoinOutcome::Placed { .. }), "{outcome:?}");
        }
    }

    async fn let_in(&self) -> Vec<String> {
        let outcome = self.store.promote(&room(), 100).await.unwrap();
        let names = outcome.granted.iter().map(|granted| granted.person.to_string());
        names.collect()
    }

    async fn look(&self, name: &str) -> Option<TicketView> {
        self.store
            .look(&room(), vec![person(name)])
            .await
            .unwrap()
            .remove(0)
    }

    async fn state(&self, name: &str) -> TicketState {
        self.look(name).await.unwrap().ticket.state
    }

    async fn redeem(&self, name: &str) -> RedeemOutcome {
        let ticket = self.look(name).await.unwrap().ticket;
        let TicketState::Granted { wave, .. } = ticket.state else {
            panic!("{name} has no pass: {ticket:?}")
        };
        let params = RedeemParams {
            person: person(name),
            index: ticket.index,
            wave,
            session: None,
        };
        self.store.redeem(&room(), params).await.unwrap()
    }

    async fn overview(&self) -> RoomView {
        self.store.overview(&room()).await.unwrap()
    }

    async fn reap(&self) -> ReapOutcome {
        self.store.reap(&room(), ReapParams::all(1_000)).await.unwrap()
    }
}

#[tokio::test]
async fn every_answer_survives_a_power_cut() {
    let world = World::new(config(Some(20), 3, 100)).await;
    world.join(&["a", "b", "c", "d", "e"]).await;
    assert_eq!(world.let_in().await, ["a", "b", "c"]);
    let RedeemOutcome::Inside { .. } = world.redeem("a").await else {
        panic!("a has a pass")
    };
    let extend = ExtendParams {
        person: person("a"),
        by: Millis(3_600_000),
    };
    let InsideOutcome::Inside { until } = world.store.extend(&room(), extend).await.unwrap() else {
        panic!("a is inside")
    };
    world.store.complete(&room(), &person("b")).await.unwrap();
    world.store.leave(&room(), &person("e")).await.unwrap();
    let granted = world.state("c").await;
    let before = world.overview().await;

    let world = world.after_power_cut();
    assert!(matches!(world.state("a").await, TicketState::Inside { until: kept, .. } if kept == until));
    assert_eq!(world.state("c").await, granted);
    for (name, expected) in [("b", End::Completed), ("e", End::Left)] {
        let state = world.state(name).await;
        assert!(
            matches!(state, TicketState::Ended { end, .. } if end == expected),
            "{state:?}"
        );
    }
    let after = world.overview().await;
    assert_eq!(
        (after.incarnation, after.counts, after.wave),
        (before.incarnation, before.counts, before.wave)
    );
    assert_eq!(world.look("d").await.unwrap().ahead, 0);

    let change = ResizeParams {
        request: 1,
        seats: None,
        inside: Some(Change::Add(1)),
        per_second: None,
        by: "ana".to_owned(),
        why: "more tills".to_owned(),
    };
    world.store.resize(&room(), change).await.unwrap();
    world.store.control(&room(), Control::Pause).await.unwrap();
    let voided = world.store.void(&room(), None).await.unwrap();
    let world = world.after_power_cut();
    let after = world.overview().await;
    assert_eq!(
        (
            after.capacity.inside,
            after.status,
            after.voided,
            after.changes.len()
        ),
        (4, Status::Paused, voided, 1)
    );
    assert!(world.store.reissue(&room(), &person("c")).await.unwrap());
    let granted = world.state("c").await;
    let world = world.after_power_cut();
    assert_eq!(world.state("c").await, granted);
}

#[tokio::test]
async fn everybody_is_absent_after_a_kill_and_nobody_is_lost() {
    let world = World::new(config(None, 2, 100)).await;
    world.join(&["a", "b", "c"]).await;
    world.clock.advance(Millis(60_000));
    let world = world.after_kill();
    assert!(world.let_in().await.is_empty());
    world.clock.advance(Millis(29_999));
    assert_eq!(world.reap().await.lost, 0, "the time for coming back begins anew");
    world.join(&["c", "b"]).await;
    assert_eq!(world.let_in().await, ["b", "c"]);
    world.clock.advance(Millis(1));
    assert_eq!(world.reap().await.lost, 1);
}

#[tokio::test]
async fn what_time_ended_ends_again_after_a_power_cut() {
    let world = World::new(config(None, 1, 100)).await;
    world.join(&["a", "b"]).await;
    world.let_in().await;
    world.clock.advance(Millis(5 * 60_000));
    let swept = world.reap().await;
    assert_eq!((swept.no_shows, swept.lost), (1, 1));
    assert!(world.disk.unsynced_batches() > 0, "a sweep costs no sync");
    let cut = world.after_power_cut();
    assert_eq!(cut.overview().await.granted, 1, "nobody was let in for it");
    assert_eq!(cut.reap().await.no_shows, 1);
    let killed = world.after_kill();
    assert_eq!(killed.overview().await.granted, 0);
    // The next admission makes the freed slot durable.
    world.join_as("c", true).await;
    assert_eq!(world.let_in().await, ["c"]);
    let cut = world.after_power_cut();
    let overview = cut.overview().await;
    assert_eq!((overview.granted, overview.counts.no_shows), (1, 1));
}

#[tokio::test]
async fn signs_of_life_cost_no_write() {
    let world = World::new(config(None, 0, 100)).await;
    world.join(&["a"]).await;
    let stream = world.look("a").await.unwrap().ticket.stream;
    world.disk.fail_commits(true);
    world.disk.fail_syncs(true);
    let touch = TouchParams {
        person: person("a"),
        stream,
        present: true,
    };
    let touched = world.store.touch(&room(), vec![touch]).await.unwrap();
    assert_eq!(touched, [TouchOutcome::Kept]);
    world.join(&["a"]).await;
}

#[tokio::test]
async fn a_failed_write_stops_the_store() {
    let world = World::new(config(None, 1, 100)).await;
    world.join(&["a", "b"]).await;
    world.disk.fail_syncs(true);
    let refused = world.store.promote(&room(), 1).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Durable(DurableError::Poisoned(_))),
        "{refused}"
    );
    world.disk.fail_syncs(false);
    let refused = world.store.overview(&room()).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Durable(DurableError::Poisoned(_))),
        "it stays so: {refused}"
    );
    let world = world.after_power_cut();
    world.join(&["a", "b"]).await;
    assert_eq!(world.let_in().await, ["a"], "nobody got another answer");
}

#[tokio::test]
async fn forgotten_tickets_leave_the_disk() {
    let world = World::new(config(None, 0, 100)).await;
    for number in 0..300 {
        world.join(&[&format!("p{number}")]).await;
    }
    assert!(world.disk.records() > 300);
    for _ in 0..2 {
        world.clock.advance(Millis(11 * 60_000));
        world.reap().await;
    }
    assert!(world.disk.records() < 5, "{}", world.disk.records());
    let world = world.after_kill();
    assert_eq!(world.overview().await.counts.lost, 300);
}

#[tokio::test]
async fn the_clock_does_not_go_back_over_a_restart() {
    let world = World::new(config(None, 10, 2)).await;
    world.join(&["a", "b", "c"]).await;
    assert_eq!(world.let_in().await.len(), 2);
    world.clock.set(START - Millis(86_400_000));
    let world = world.after_power_cut();
    world.join(&["c"]).await;
    assert!(world.let_in().await.is_empty(), "the second is not over");
    world.clock.advance(Millis(1_000));
    assert_eq!(world.let_in().await, ["c"]);
}

#[tokio::test]
async fn the_data_folder_is_shared_with_bulk_but_not_with_another_process() {
    let folder = TempDir::new().unwrap();
    let bulk = EmbeddedBulkStore::open(EmbeddedBulkOptions::new(folder.path())).unwrap();
    let options = EmbeddedRoomOptions::new(folder.path());
    let store = EmbeddedRoomStore::open(options.clone()).unwrap();
    let second = EmbeddedRoomStore::open(options.clone()).unwrap_err();
    assert!(
        matches!(second, StoreError::Durable(DurableError::Locked(_))),
        "{second}"
    );
    store.open(&room(), config(None, 1, 1)).await.unwrap();
    let incarnation = store.overview(&room()).await.unwrap().incarnation;
    store.close().await.unwrap();
    let closed = store.rooms().await.unwrap_err();
    assert!(matches!(closed, StoreError::Closed), "{closed}");
    let again = EmbeddedRoomStore::open(options).unwrap();
    assert_eq!(again.overview(&room()).await.unwrap().incarnation, incarnation);
    bulk.close().await.unwrap();
}

/// Opening fails and says that records are damaged.
fn refuses(disk: &MemoryDisk, clock: &Arc<ManualClock>, says: &str) {
    let error = open(disk, clock).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

fn first_key(disk: &MemoryDisk, table: Table) -> u64 {
    let mut first = None;
    scan_all(disk, table, |key, _| {
        first.get_or_insert(key);
        Ok(())
    })
    .unwrap();
    first.unwrap()
}

#[tokio::test]
async fn a_corrupt_record_is_a_clear_error() {
    let world = World::new(config(None, 2, 100)).await;
    world.join(&["a", "b"]).await;
    world.let_in().await;
    let (ticket, head) = (first_key(&world.disk, TICKETS), first_key(&world.disk, ROOMS));
    let damaged = |op: Op| {
        let disk = world.disk.after_kill();
        disk.commit(vec![op]).unwrap();
        disk
    };
    let bytes = world.disk.get(TICKETS, ticket).unwrap().unwrap();
    let half = bytes[..bytes.len() / 2].to_vec();
    refuses(&damaged(Op::Put(TICKETS, ticket, half)), &world.clock, "a ticket");
    let ones = vec![0xff; 40];
    refuses(
        &damaged(Op::Put(ROOMS, head, ones.clone())),
        &world.clock,
        "a room",
    );
    refuses(&damaged(Op::Put(META, 0, ones)), &world.clock, "the clock");
    refuses(&damaged(Op::Delete(ROOMS, head)), &world.clock, "not there");
    refuses(&damaged(Op::Delete(TICKETS, ticket)), &world.clock, "sale");
    assert!(open(&world.disk.after_kill(), &world.clock).is_ok());
}

/// The room on disk satisfies its invariants.
fn check(disk: &MemoryDisk, now: Timestamp) {
    let mut heads = HashMap::new();
    scan_all(disk, ROOMS, |number, bytes| {
        let (_, head): (RoomId, Head) = postcard::from_bytes(bytes).unwrap();
        heads.insert(number, (head, Vec::new()));
        Ok(())
    })
    .unwrap();
    scan_all(disk, TICKETS, |_, bytes| {
        let (number, person, ticket): (u64, PersonId, Ticket) = postcard::from_bytes(bytes).unwrap();
        heads.get_mut(&number).unwrap().1.push((person, ticket));
        Ok(())
    })
    .unwrap();
    for (head, tickets) in heads.into_values() {
        Room::restored(head, tickets, now).check().unwrap();
    }
}

/// Whether the state after a cut matches what was answered before. Only what time ended may be undone, because time ends
/// it again; a kill undoes nothing.
fn is_kept(answered: Option<&TicketView>, found: Option<&TicketView>, killed: bool) -> bool {
    let ended = |view: &TicketView| match view.ticket.state {
        TicketState::Ended { end, .. } => Some(end),
        _ => None,
    };
    let (Some(answered), Some(found)) = (answered, found) else {
        // A forgotten ticket may return once more, ended or about to end.
        return found.is_none_or(|_| !killed) && answered.is_none();
    };
    if answered.ticket.index != found.ticket.index {
        return false;
    }
    match (&answered.ticket.state, &found.ticket.state) {
        (TicketState::Waiting { .. }, TicketState::Waiting { .. }) => {
            answered.ahead == found.ahead || !killed
        }
        (same, other) if same == other => true,
        (_, TicketState::Waiting { .. }) => !killed && ended(answered) == Some(End::Lost),
        (_, TicketState::Granted { .. }) => !killed && ended(answered) == Some(End::NoShow),
        (_, TicketState::Inside { .. }) => !killed && ended(answered) == Some(End::Expired),
        _ => false,
    }
}

const PEOPLE: u64 = 8;

async fn act(world: &World, rng: &mut Rng, step: u64) {
    let name = format!("p{}", rng.below(PEOPLE));
    let who = person(&name);
    world.clock.advance(Millis(rng.below(3_000)));
    match rng.below(20) {
        0..=6 => drop(world.join_as(&name, true).await),
        7..=9 => drop(world.let_in().await),
        10..=11 => drop(world.store.leave(&room(), &who).await.unwrap()),
        12 => drop(world.store.complete(&room(), &who).await.unwrap()),
        13..=14 => {
            if let Some(TicketState::Granted { .. }) = world.look(&name).await.map(|view| view.ticket.state) {
                world.redeem(&name).await;
            }
        }
        15 => {
            let change = ResizeParams {
                request: step,
                seats: None,
                inside: Some(Change::Add(rng.below(5) as i64 - 2)),
                per_second: None,
                by: String::new(),
                why: String::new(),
            };
            world.store.resize(&room(), change).await.unwrap();
        }
        16 => {
            world.clock.advance(Millis(rng.below(20_000)));
            world.reap().await;
        }
        _ => drop(world.reap().await),
    }
}

#[tokio::test]
async fn a_cut_at_every_point_of_a_random_run_keeps_what_was_answered() {
    let people: Vec<PersonId> = (0..PEOPLE).map(|number| person(&format!("p{number}"))).collect();
    let mut cuts = 0;
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let world = World::new(RoomConfig {
            presence_ms: Millis(6_000),
            grace_ms: Millis(6_000),
            pass_ms: Millis(10_000),
            inside_ms: Millis(15_000),
            remember_ms: Millis(10_000),
            ..config(Some(30), 3, 2)
        })
        .await;
        for step in 0..100 {
            act(&world, &mut rng, step).await;
            let answered = world.store.look(&room(), people.clone()).await.unwrap();
            let overview = world.overview().await;
            let unsynced = world.disk.unsynced_batches();
            let disks = (0..=unsynced)
                .map(|kept| (world.disk.after_power_cut(kept), kept == unsynced))
                .chain([(world.disk.after_kill(), true)]);
            for (disk, whole) in disks {
                check(&disk, world.clock.now());
                let after = world.on(disk);
                let found = after.store.look(&room(), people.clone()).await.unwrap();
                for (before, after) in answered.iter().zip(&found) {
                    assert!(
                        is_kept(before.as_ref(), after.as_ref(), whole),
                        "seed {seed}, step {step}: {before:?} was answered, and {after:?} is there"
                    );
                }
                let view = after.overview().await;
                assert_eq!(
                    (
                        view.capacity,
                        view.wave,
                        view.counts.admitted,
                        view.counts.completed
                    ),
                    (
                        overview.capacity,
                        overview.wave,
                        overview.counts.admitted,
                        overview.counts.completed
                    ),
                    "seed {seed}, step {step}"
                );
                cuts += 1;
            }
        }
    }
    println!("{cuts} cuts");
}
