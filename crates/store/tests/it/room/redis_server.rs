//! Waiting rooms on real Redis servers: signals between processes, restarts, lost replies, names and keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{
    Change, Control, InsideOutcome, JoinOutcome, JoinParams, ReapParams, RedeemOutcome, RedeemParams,
    ResizeOutcome, ResizeParams, Stop, TouchOutcome, TouchParams,
};
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_core::room::ticket::{End, Index, TicketState, Wave};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::room::{RedisRoomOptions, RedisRoomStore, RoomStore};
use tidegate_testkit::servers::{Proxy, RedisCluster, RedisOptions, RedisServer};
use tokio::time::timeout;

const START: Timestamp = Timestamp(1_706_000_000_000);

fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

fn person(name: &str) -> PersonId {
    PersonId::new(name).unwrap()
}

fn join(name: &str) -> JoinParams {
    JoinParams {
        person: person(name),
        stream: true,
        again: false,
        draw: 7,
    }
}

fn redeem(name: &str, index: u64, wave: u64) -> RedeemParams {
    RedeemParams {
        person: person(name),
        index: Index(index),
        wave: Wave(wave),
        session: None,
    }
}

fn add_inside(request: u64) -> ResizeParams {
    ResizeParams {
        request,
        seats: None,
        inside: Some(Change::Add(1)),
        per_second: None,
        by: "operator".to_owned(),
        why: "more staff".to_owned(),
    }
}

/// Long enough that nobody counts as absent because the machine stalls.
fn patient() -> RoomConfig {
    RoomConfig {
        presence_ms: Millis(3_600_000),
        ..RoomConfig::default()
    }
}

fn options(url: String, prefix: &str) -> RedisRoomOptions {
    RedisRoomOptions {
        prefix: prefix.to_owned(),
        ..RedisRoomOptions::new(url)
    }
}

async fn opened(url: String, prefix: &str) -> RedisRoomStore {
    RedisRoomStore::open(options(url, prefix)).await.unwrap()
}

/// Waits until this many stores listen to the signals.
async fn listeners(server: &RedisServer, channel: &str, wanted: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = server.command(&["PUBSUB", "NUMSUB", channel]).unwrap();
        let found = answer.items()[1].int().unwrap();
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{found} listen, not {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_signal_of_one_store_is_heard_by_another() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let (one, other) = (
        opened(server.url(), "signals:").await,
        opened(server.url(), "signals:").await,
    );
    listeners(&server, "signals:signals", 2).await;
    let (here, elsewhere) = (room("here: {1}"), room("elsewhere"));
    one.open(&here, patient()).await.unwrap();
    let signal = other.signals().of(&here);
    let silent = other.signals().of(&elsewhere);
    let quiet = silent.update.notified();
    let soon = Duration::from_secs(120);

    let heard = signal.promote.notified();
    one.join(&here, vec![join("a")]).await.unwrap();
    timeout(soon, heard)
        .await
        .expect("somebody may be let in: heard elsewhere");
    let heard = signal.update.notified();
    other.promote(&here, 1).await.unwrap();
    timeout(soon, heard)
        .await
        .expect("somebody was let in: heard where it was done");
    let heard = signal.update.notified();
    one.control(&here, Control::Pause).await.unwrap();
    timeout(soon, heard)
        .await
        .expect("the room changed: heard elsewhere");
    timeout(Duration::from_millis(50), quiet)
        .await
        .expect_err("another room is silent");

    // Signals may have been missed while nobody listened, so everybody reads.
    let heard = silent.promote.notified();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    timeout(soon, heard)
        .await
        .expect("all signals notify when the connection is back");
}

#[tokio::test]
async fn signals_notify_across_a_cluster() {
    let cluster = RedisCluster::shared();
    let open = || {
        RedisRoomStore::open(RedisRoomOptions {
            urls: cluster.urls(),
            prefix: "across:".to_owned(),
            clock: None,
        })
    };
    let (one, other) = (open().await.unwrap(), open().await.unwrap());
    listeners(&cluster.nodes()[0], "across:signals", 2).await;
    // Enough rooms that every master has one.
    for number in 0..12 {
        let hall = room(&format!("hall {number}"));
        one.open(&hall, RoomConfig::default()).await.unwrap();
        let signal = other.signals().of(&hall);
        let heard = signal.update.notified();
        one.control(&hall, Control::Close).await.unwrap();
        timeout(Duration::from_secs(120), heard)
            .await
            .unwrap_or_else(|_| panic!("{hall} is not heard"));
    }
}

#[tokio::test]
async fn tickets_survive_a_restart_of_the_server() {
    let mut server = RedisServer::start(RedisOptions::durable()).unwrap();
    let store = opened(server.url(), "restart:").await;
    let hall = room("hall");
    let config = RoomConfig {
        capacity: Capacity {
            inside: 1,
            ..Capacity::default()
        },
        ..patient()
    };
    store.open(&hall, config).await.unwrap();
    store
        .join(&hall, vec![join("a"), join("b"), join("c")])
        .await
        .unwrap();
    store.promote(&hall, 5).await.unwrap();
    store.redeem(&hall, redeem("a", 0, 1)).await.unwrap();
    store.resize(&hall, add_inside(1)).await.unwrap();
    let people: Vec<PersonId> = ["a", "b", "c"].map(person).to_vec();
    let before = store.look(&hall, people.clone()).await.unwrap();
    let view = store.overview(&hall).await.unwrap();

    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(store.look(&hall, people).await.unwrap(), before);
    let after = store.overview(&hall).await.unwrap();
    assert_eq!(
        (after.incarnation, after.counts, &after.changes, &after.positions),
        (view.incarnation, view.counts, &view.changes, &view.positions)
    );
    let promoted = store.promote(&hall, 5).await.unwrap();
    assert_eq!(promoted.granted[0].person, person("b"), "the line goes on");
    assert_eq!(store.rooms().await.unwrap(), [hall]);
}

#[tokio::test]
async fn an_answer_that_was_lost_is_given_again() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = opened(proxy.url(), "again:").await;
    let hall = room("hall");
    store.open(&hall, patient()).await.unwrap();
    // The listener shares the proxy: while it is quiet, the next reply is that of the call.
    let lose_next = async || {
        listeners(&server, "again:signals", 1).await;
        proxy.drop_next_reply();
    };

    lose_next().await;
    let joined = store.join(&hall, vec![join("a")]).await.unwrap();
    let JoinOutcome::Placed { ticket, .. } = &joined[0] else {
        panic!("{joined:?}");
    };
    assert_eq!((ticket.ticket.index, ticket.waiting), (Index(0), 1), "one place");
    assert_eq!(store.overview(&hall).await.unwrap().counts.joined, 1);

    store.promote(&hall, 1).await.unwrap();
    store.void(&hall, None).await.unwrap();
    lose_next().await;
    assert!(store.reissue(&hall, &person("a")).await.unwrap());
    assert!(!store.reissue(&hall, &person("a")).await.unwrap(), "once");

    // Without a session the shop could not distinguish its own visit from another's.
    lose_next().await;
    let redeemed = store.redeem(&hall, redeem("a", 0, 2)).await.unwrap();
    assert!(matches!(redeemed, RedeemOutcome::Inside { .. }), "{redeemed:?}");
    let twice = store.redeem(&hall, redeem("a", 0, 2)).await.unwrap();
    assert_eq!(twice, RedeemOutcome::AlreadyRedeemed);

    lose_next().await;
    let resized = store.resize(&hall, add_inside(u64::MAX)).await.unwrap();
    let ResizeOutcome::Resized(capacity) = resized else {
        panic!("{resized:?}");
    };
    assert_eq!(capacity.inside, 101, "added once");

    lose_next().await;
    assert_eq!(
        store.complete(&hall, &person("a")).await.unwrap(),
        InsideOutcome::Ended(End::Completed)
    );
    assert_eq!(store.overview(&hall).await.unwrap().counts.completed, 1);
    assert_eq!(proxy.dropped_replies(), 5);
}

#[tokio::test]
async fn rooms_of_odd_names_do_not_mix() {
    let store = opened(RedisServer::shared().url(), "odd:").await;
    let long = "x".repeat(256);
    let names = [
        "{",
        "}",
        "{}",
        "a b",
        "a:b",
        "a}:head",
        "a",
        "루나 🎫",
        "%7B",
        "rooms",
        "schema",
        "signals",
        "\u{0}",
        "*",
        "a/b",
        &long,
    ];
    for name in names {
        store.open(&room(name), RoomConfig::default()).await.unwrap();
    }
    for (count, name) in names.iter().enumerate() {
        let joins = (0..=count).map(|number| join(&format!("{number}")));
        store.join(&room(name), joins.collect()).await.unwrap();
    }
    for (count, name) in names.iter().enumerate() {
        let view = store.overview(&room(name)).await.unwrap();
        assert_eq!(view.waiting(), count as u64 + 1, "{name:?}");
    }
    let mut sorted: Vec<RoomId> = names.map(room).to_vec();
    sorted.sort();
    assert_eq!(store.rooms().await.unwrap(), sorted);
    let unknown = store.overview(&room("b")).await.unwrap_err();
    assert!(matches!(unknown, StoreError::UnknownRoom(_)), "{unknown}");
    let unknown = store.join(&room("b"), Vec::new()).await.unwrap_err();
    assert!(matches!(unknown, StoreError::UnknownRoom(_)), "{unknown}");
}

#[tokio::test]
async fn every_key_is_under_the_prefix_and_the_tag_of_its_room() {
    let cluster = RedisCluster::shared();
    let clock = Arc::new(ManualClock::at(START));
    let store = RedisRoomStore::open(RedisRoomOptions {
        urls: cluster.urls(),
        prefix: "tags:".to_owned(),
        clock: Some(clock.clone()),
    })
    .await
    .unwrap();
    let names: Vec<String> = (0..12).map(|number| format!("{{{number}}} a")).collect();
    for name in &names {
        let config = RoomConfig {
            capacity: Capacity {
                inside: 2,
                ..Capacity::default()
            },
            ..RoomConfig::default()
        };
        let hall = room(name);
        store.open(&hall, config.clone()).await.unwrap();
        store
            .join(&hall, ["a", "b", "c", "d"].map(join).to_vec())
            .await
            .unwrap();
        store.promote(&hall, 9).await.unwrap();
        store.complete(&hall, &person("a")).await.unwrap();
        store.resize(&hall, add_inside(1)).await.unwrap();
        // A person who joins before the room opens.
        let later = RoomConfig {
            opens_at: Some(START + Millis(5_000)),
            ..config
        };
        store.open(&hall, later).await.unwrap();
        store.join(&hall, vec![join("early")]).await.unwrap();
    }
    let mut found: BTreeMap<String, (BTreeSet<i64>, BTreeSet<String>)> = BTreeMap::new();
    let (mut plain, mut used) = (BTreeSet::new(), 0);
    for node in cluster.nodes() {
        let mut keys = node.command(&["KEYS", "*"]).unwrap().texts();
        // Keys of the other test on this Cluster.
        keys.retain(|key| !key.starts_with("across:"));
        used += usize::from(!keys.is_empty());
        for key in keys {
            let rest = key
                .strip_prefix("tags:")
                .unwrap_or_else(|| panic!("{key} is not under the prefix"));
            let Some((tag, kind)) = rest.strip_prefix('{').and_then(|rest| rest.split_once("}:")) else {
                plain.insert(rest.to_owned());
                continue;
            };
            let slot = node.command(&["CLUSTER", "KEYSLOT", &key]).unwrap();
            let (slots, kinds) = found.entry(tag.to_owned()).or_default();
            slots.insert(slot.int().unwrap());
            kinds.insert(kind.to_owned());
        }
    }
    assert_eq!(plain, BTreeSet::from(["rooms".to_owned(), "schema".to_owned()]));
    assert_eq!((found.len(), used), (names.len(), 3), "spread over all masters");
    let kinds = [
        "changes",
        "early",
        "ended",
        "head",
        "positions",
        "present",
        "queue",
        "recent",
        "slots",
        "tickets",
    ];
    for (tag, (slots, found)) in found {
        assert_eq!(slots.len(), 1, "{tag}");
        assert_eq!(found, BTreeSet::from(kinds.map(str::to_owned)), "{tag}");
    }
}

#[tokio::test]
async fn a_store_of_another_schema_is_refused() {
    let server = RedisServer::shared();
    assert!(server.command(&["SET", "other:schema", "7"]).unwrap().is_ok());
    let refused = RedisRoomStore::open(options(server.url(), "other:"))
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Unsuitable { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("it has schema 7, this program knows schema 2"),
        "{refused}"
    );
    let braces = RedisRoomStore::open(options(server.url(), "a{b}:"))
        .await
        .unwrap_err();
    assert!(matches!(braces, StoreError::Config(_)), "{braces}");
}

#[tokio::test]
async fn places_of_long_ago_cost_nothing() {
    const CAME: u64 = 140_000;
    let server = RedisServer::shared();
    let clock = Arc::new(ManualClock::at(START));
    let mut options = options(server.url(), "history:");
    options.clock = Some(clock.clone());
    let store = RedisRoomStore::open(options).await.unwrap();
    let hall = room("hall");
    store.open(&hall, RoomConfig::default()).await.unwrap();
    let joins = (0..CAME).map(|number| join(&format!("{number}")));
    let joined = store.join(&hall, joins.collect()).await.unwrap();
    let bytes = || {
        let length = server.command(&["STRLEN", "history:{hall}:positions"]).unwrap();
        length.int().unwrap().cast_unsigned()
    };
    assert_eq!(bytes(), CAME / 8);

    // All but the last ten have been absent for too long.
    clock.advance(Millis(14_000));
    let last = (CAME - 10..CAME).map(|number| TouchParams {
        person: person(&number.to_string()),
        stream: match &joined[number as usize] {
            JoinOutcome::Placed { ticket, .. } => ticket.ticket.stream,
            other => panic!("{other:?}"),
        },
        present: true,
    });
    let kept = store.touch(&hall, last.collect()).await.unwrap();
    assert_eq!(kept, [TouchOutcome::Kept; 10]);
    clock.advance(Millis(31_001));
    // In steps that even a busy server finishes within the time of one call.
    while store.reap(&hall, ReapParams::all(5_000)).await.unwrap().more {}
    assert!(bytes() < 16_000, "{} bytes for ten people", bytes());

    let view = store.overview(&hall).await.unwrap();
    assert_eq!((view.counts.lost, view.waiting()), (CAME - 10, 10));
    assert_eq!(view.positions.ahead(CAME), 10);
    let looked = store
        .look(&hall, vec![person(&(CAME - 4).to_string()), person("0")])
        .await
        .unwrap();
    let [Some(waits), Some(lost)] = &looked[..] else {
        panic!("{looked:?}");
    };
    assert_eq!((waits.ahead, waits.waiting, lost.ahead), (6, 10, 0));
    assert!(matches!(
        lost.ticket.state,
        TicketState::Ended { end: End::Lost, .. }
    ));
    let joined = store.join(&hall, vec![join("new")]).await.unwrap();
    let JoinOutcome::Placed { ticket, new: true } = &joined[0] else {
        panic!("{joined:?}");
    };
    assert_eq!((ticket.ticket.index, ticket.ahead), (Index(CAME), 10));
    // The ten are absent by now, but not long enough to lose their tickets.
    let promoted = store.promote(&hall, 3).await.unwrap();
    assert_eq!((promoted.granted.len(), promoted.stop), (1, Stop::Nobody));
    assert_eq!(promoted.granted[0].index, Index(CAME));
}

#[tokio::test]
async fn time_never_goes_back() {
    let clock = Arc::new(ManualClock::at(START));
    let mut options = options(RedisServer::shared().url(), "clock:");
    options.clock = Some(clock.clone());
    let store = RedisRoomStore::open(options).await.unwrap();
    let hall = room("hall");
    store.open(&hall, RoomConfig::default()).await.unwrap();
    clock.set(START - Millis(60_000));
    store.join(&hall, vec![join("a")]).await.unwrap();
    assert_eq!(store.overview(&hall).await.unwrap().now, START, "it stands, then");
    clock.advance(Millis(500));
    let now = store.overview(&hall).await.unwrap().now;
    assert_eq!(now, START + Millis(500), "goes on from where it was");
}
