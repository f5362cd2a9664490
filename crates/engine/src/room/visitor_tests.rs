//! Visitors by the rules of a room: how they enter, keep a ticket without a stream, and use a pass, with and without the
//! store.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::clock::{Clock, ManualClock, SystemClock};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{Control, Refused};
use tidegate_core::room::config::RoomConfig;
use tidegate_core::room::ticket::{End, Index, TicketState, Wave};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_store::StoreError;
use tidegate_store::room::EmbeddedRoomStore;

use super::identity::TokenRefused;
use super::*;

const PATIENCE: Duration = Duration::from_secs(120);
const PASS: Millis = Millis(5_000);
const INSIDE: Millis = Millis(60_000);

struct World {
    service: RoomService,
    room: RoomHandle,
    joins: Joins,
    proofs: Proofs,
    draws: DrawSecret,
    fail_open: FailOpen,
    clock: ManualClock,
    disk: MemoryDisk,
}

/// A room of which this process has an overview.
async fn world() -> World {
    let disk = MemoryDisk::default();
    let store = EmbeddedRoomStore::open_for_test(Arc::new(disk.clone()), Arc::new(SystemClock)).unwrap();
    let service = RoomService::start(Arc::new(store), RoomOptions::default());
    let name = RoomId::new("concert").unwrap();
    let config = RoomConfig {
        presence_ms: Millis(2_000),
        grace_ms: Millis(600_000),
        ..RoomConfig::default()
    };
    let room = service.handle().open(&name, config).await.unwrap();
    until("an overview", async || room.seen()).await;
    World {
        draws: DrawSecret::new([7; 32], &name),
        joins: Joins::new(&JoinLimitsConfig::default()),
        proofs: Proofs::new(vec![[1; 32]]),
        fail_open: FailOpen {
            until: None,
            pass_ms: PASS,
            inside_ms: INSIDE,
        },
        clock: ManualClock::at(SystemClock.now()),
        service,
        room,
        disk,
    }
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{what} takes too long"))
}

impl World {
    fn entry(&self) -> Entry<'_> {
        Entry {
            room: &self.room,
            joins: &self.joins,
            proofs: &self.proofs,
            proof: None,
            again: false,
            draws: &self.draws,
            fail_open: self.fail_open,
            clock: &self.clock,
        }
    }

    /// From now on the room may fail open, for a minute.
    fn permit(&mut self) {
        self.fail_open.until = Some(self.clock.now() + Millis(60_000));
    }

    async fn join(&self, applicant: &Applicant) -> Result<Entered<SeenTicket>, StoreError> {
        self.entry().join(applicant, JoinOptions::default()).await
    }

    fn presented<'a>(&'a self, claims: &'a Claims) -> PresentedPass<'a> {
        PresentedPass::new(&self.room, claims).with_service(self.fail_open, &self.clock)
    }

    async fn granted(&self, who: &PersonId) -> (SeenTicket, Wave, Timestamp) {
        until("an admission", async || {
            let found = self.room.keep(who).await.unwrap()?;
            match found.ticket.ticket.state {
                TicketState::Granted { wave, until, .. } => Some((found, wave, until)),
                _ => None,
            }
        })
        .await
    }
}

fn person(name: &str) -> PersonId {
    PersonId::new(name).unwrap()
}

fn applicant(name: &str) -> Applicant {
    Applicant {
        person: person(name),
        fresh: true,
        late: false,
        from: AddressBlock::of(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_store_a_room_admits_everybody_for_as_long_as_it_may() {
    let mut world = world().await;
    world.disk.fail_syncs(true);
    let refused = world.join(&applicant("ada")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Durable(_)), "{refused}");
    assert!(!world.entry().fails_open());

    world.permit();
    assert!(world.entry().fails_open());
    let Entered::FailedOpen(claims) = world.join(&applicant("ada")).await.unwrap() else {
        panic!("the room fails open");
    };
    let now = world.clock.now();
    let expected = Claims {
        person: person("ada"),
        incarnation: 0,
        wave: Wave(0),
        index: Index(0),
        at: now,
        until: now + PASS,
    };
    assert_eq!(claims, expected);
    let returning = Applicant {
        fresh: false,
        ..applicant("ada")
    };
    let visit = world.entry().visit(&returning, JoinOptions::default()).await;
    assert!(matches!(visit, Ok(Entered::FailedOpen(_))), "{visit:?}");
    assert_eq!(
        world
            .entry()
            .admit_without_store(&person("ada"), &StoreError::Closed),
        None
    );

    world.clock.advance(Millis(60_000));
    assert!(!world.entry().fails_open());
    assert!(world.join(&applicant("ben")).await.is_err());
    world.service.shutdown().await;
}

/// The store may be back by the time the visitor arrives at the shop, and it knows nothing of the pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_accepts_passes_without_a_ticket_from_a_service_only() {
    let mut world = world().await;
    world.permit();
    let unavailable = StoreError::Unavailable {
        server: "the room store".into(),
        reason: "a test".into(),
    };
    let claims = world
        .entry()
        .admit_without_store(&person("ada"), &unavailable)
        .unwrap();
    let now = world.clock.now();
    let inside = Visited::Inside { until: now + INSIDE };
    for _ in 0..2 {
        assert_eq!(world.presented(&claims).redeem(None).await.unwrap(), inside);
    }
    assert_eq!(world.presented(&claims).check().await.unwrap(), inside);
    let by = Millis(1_000);
    let extended = Visited::Inside { until: now + by };
    assert_eq!(world.presented(&claims).extend(by).await.unwrap(), extended);
    let completed = world.presented(&claims).complete().await.unwrap();
    assert_eq!(completed, Visited::Ended(End::Completed));
    let released = world.presented(&claims).release().await.unwrap();
    assert_eq!(released, Visited::Ended(End::Left));
    let alone = PresentedPass::new(&world.room, &claims).redeem(None).await;
    assert!(matches!(alone, Err(ShopError::Gone)), "{alone:?}");

    world.clock.advance(PASS);
    for refused in [
        world.presented(&claims).redeem(None).await,
        world.presented(&claims).check().await,
    ] {
        assert!(
            matches!(refused, Err(ShopError::Pass(PassRefused::Expired))),
            "{refused:?}"
        );
    }
    world.service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_without_a_stream_keeps_the_ticket_and_gets_another_pass_for_a_void_one() {
    let world = world().await;
    let who = person("ada");
    assert!(world.room.keep(&who).await.unwrap().is_none());
    let joined = world.join(&applicant("ada")).await.unwrap();
    assert!(matches!(joined, Entered::Ticket(_)), "{joined:?}");
    let (found, first, until_first) = world.granted(&who).await;
    let claims = Claims {
        person: who.clone(),
        incarnation: found.seen.view.incarnation,
        wave: first,
        index: found.ticket.ticket.index,
        at: Timestamp(0),
        until: until_first,
    };
    let granted = Visited::Granted { until: until_first };
    assert_eq!(world.presented(&claims).check().await.unwrap(), granted);
    world.clock.set(until_first);
    let late = world.presented(&claims).check().await;
    assert!(matches!(late, Err(ShopError::TooLate)), "{late:?}");
    // The ticket alone says nothing of the time.
    let alone = PresentedPass::new(&world.room, &claims).check().await;
    assert_eq!(alone.unwrap(), granted);

    world.room.store().void(world.room.name(), None).await.unwrap();
    let second = until("another pass", async || {
        let (_, wave, _) = world.granted(&who).await;
        (wave != first).then_some(wave)
    });
    assert!(second.await > first);
    world.service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_whose_token_has_expired_finds_a_ticket_and_takes_none() {
    let world = world().await;
    let late = Applicant {
        fresh: false,
        late: true,
        ..applicant("ada")
    };
    let expired = EntryRefused::Token(TokenRefused::Expired);
    let refused = world.join(&late).await.unwrap();
    assert!(
        matches!(refused, Entered::Refused(why) if why == expired),
        "{refused:?}"
    );
    world.join(&applicant("ada")).await.unwrap();
    let found = world.join(&late).await.unwrap();
    assert!(matches!(found, Entered::Ticket(_)), "{found:?}");

    world
        .room
        .store()
        .leave(world.room.name(), &late.person)
        .await
        .unwrap();
    let Entered::Ticket(found) = world.join(&late).await.unwrap() else {
        panic!("the visitor learns how the ticket ended");
    };
    assert!(matches!(found.ticket.ticket.state, TicketState::Ended { .. }));
    let visit = world.entry().visit(&late, JoinOptions::default()).await.unwrap();
    assert!(matches!(visit, Entered::Ticket(Begun::Ended(_))), "{visit:?}");
    let again = JoinOptions {
        again: true,
        ..JoinOptions::default()
    };
    let refused = world.entry().visit(&late, again).await.unwrap();
    assert!(
        matches!(refused, Entered::Refused(why) if why == expired),
        "{refused:?}"
    );
    let valid = Applicant { late: false, ..late };
    let visit = world.entry().visit(&valid, again).await.unwrap();
    assert!(matches!(visit, Entered::Ticket(Begun::Visit(_))), "{visit:?}");
    drop(visit);
    world.service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_accepts_nobody_costs_an_address_nothing() {
    let world = world().await;
    let (store, room) = (world.room.store(), world.room.name());
    store.control(room, Control::Close).await.unwrap();
    // More than the limit of an address.
    for number in 0..100 {
        let refused = world.join(&applicant(&format!("person-{number}"))).await.unwrap();
        assert!(
            matches!(refused, Entered::Refused(EntryRefused::Room(Refused::Closed))),
            "{number}: {refused:?}"
        );
    }
    store.control(room, Control::Resume).await.unwrap();
    for number in 0..30 {
        let joined = world.join(&applicant(&format!("person-{number}"))).await.unwrap();
        assert!(matches!(joined, Entered::Ticket(_)), "{number}: {joined:?}");
    }
    let refused = world.join(&applicant("one-more")).await.unwrap();
    assert!(
        matches!(refused, Entered::Refused(EntryRefused::TooMany(_))),
        "{refused:?}"
    );
    world.service.shutdown().await;
}
