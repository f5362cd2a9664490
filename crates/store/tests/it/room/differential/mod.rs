//! Random histories of waiting rooms on the pure state machine and on each store beside it.

mod compare;
mod history;

use std::sync::Arc;

use tempfile::TempDir;
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{JoinParams, Signals};
use tidegate_core::room::config::RoomConfig;
use tidegate_core::room::{DRAW_STEP, INSPECTIONS};
use tidegate_core::time::Millis;
use tidegate_durable::Durability;
use tidegate_store::room::{
    EmbeddedRoomOptions, EmbeddedRoomStore, ModelRoomStore, RedisRoomOptions, RedisRoomStore, RoomStore,
};
use tidegate_testkit::servers::{RedisCluster, RedisServer};
use tidegate_testkit::{Seen, seeds};

use self::history::{START, Size, run};

/// Every outcome that must occur, so that equal answers mean something.
const OUTCOMES: [&str; 51] = [
    "early",
    "placed",
    "came back",
    "already ended",
    "refused: closed",
    "refused: sold out",
    "refused: full",
    "kept",
    "superseded",
    "gone",
    "let in",
    "stopped: more",
    "stopped: nobody",
    "stopped: inside",
    "stopped: seats",
    "stopped: sold out",
    "stopped: rate",
    "stopped: not open",
    "stopped: paused",
    "stopped: closed",
    "redeemed",
    "already redeemed",
    "voided pass",
    "too late",
    "unknown pass",
    "given anew",
    "not given anew",
    "inside",
    "completed",
    "left",
    "lost",
    "no show",
    "expired",
    "not inside",
    "unknown person",
    "reaped: lost",
    "reaped: no shows",
    "reaped: expired",
    "reaped: forgotten",
    "reaped: more",
    "resized",
    "not resized",
    "configured",
    "removed",
    "not removed: open",
    "not removed: used",
    "voided",
    "notified: promote",
    "notified: update",
    "notified: both",
    "notified: taken over",
];

/// One store for all histories, each in its own room. After each, `notified` returns what was published. If an outcome in
/// `wanted` did not occur by chance, more histories run, up to ten times as many.
async fn compare(
    size: Size,
    (seeds, steps): (u64, u64),
    wanted: &[&str],
    open: impl AsyncFn(Arc<ManualClock>) -> Arc<dyn RoomStore>,
    mut notified: impl FnMut(&RoomId, &[Signals]),
) {
    let one = seeds::again();
    let seed = |number: u64| match one {
        Some(seed) => seed,
        None if (seeds / 2..seeds).contains(&number) => seeds::fresh_seed(),
        None => number,
    };
    let (enough, most) = one.map_or((seeds, 10 * seeds), |_| (1, 1));
    let steps = seeds::steps(steps);
    let clock = Arc::new(ManualClock::at(START));
    let model: Arc<dyn RoomStore> = Arc::new(ModelRoomStore::new(clock.clone()));
    let other = open(clock.clone()).await;
    let mut seen = Seen::default();
    for number in 0..most {
        let missing = seen.missing(wanted);
        if number >= enough && missing.is_none() {
            break;
        }
        let seed = seed(number);
        let room = RoomId::new(format!("{{room}} {number}")).expect("a short name");
        let stores = (model.clone(), other.clone());
        let lived = run(seed, (size, steps), room.clone(), clock.clone(), stores).await;
        let lived = lived.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        notified(&room, &lived.signals);
        seen.add(lived.seen);
        for signals in lived.signals {
            seen.count(what(&signals));
        }
    }
    assert_eq!(
        model.rooms().await.expect("the model answers"),
        other.rooms().await.expect("the store answers")
    );
    if one.is_none() {
        seen.expect_all(wanted);
    }
}

fn what(signals: &Signals) -> &'static str {
    match (signals.promote, signals.update) {
        (true, true) => "notified: both",
        (true, false) => "notified: promote",
        (false, true) => "notified: update",
        (false, false) => "notified: taken over",
    }
}

#[tokio::test]
async fn embedded_answers_as_the_state_machine_does() {
    let folder = TempDir::new().expect("a temporary folder");
    let open = async |clock: Arc<ManualClock>| {
        let options = EmbeddedRoomOptions {
            folder: folder.path().to_owned(),
            durability: Durability::Buffered,
            clock,
        };
        let store = EmbeddedRoomStore::open(options).expect("the folder is there");
        Arc::new(store) as Arc<dyn RoomStore>
    };
    compare(Size::FEW, (100, 100), &OUTCOMES, open, |_, _| {}).await;
}

async fn on_redis(urls: Vec<String>, name: &str, clock: Arc<ManualClock>) -> Arc<dyn RoomStore> {
    let options = RedisRoomOptions {
        urls,
        prefix: format!("{name}:"),
        clock: Some(clock),
    };
    Arc::new(RedisRoomStore::open(options).await.expect("Redis is there"))
}

#[tokio::test]
async fn redis_answers_and_signals_as_the_state_machine_does() {
    let server = RedisServer::shared();
    let mut listener = server.client().expect("the server is there");
    let (channel, streams) = ("differential:signals", "differential:signals:streams");
    for channel in [channel, streams] {
        listener
            .command(&["SUBSCRIBE", channel])
            .expect("the server answers");
    }
    // Everything that was published for a room, up to our own message.
    let notified = |room: &RoomId, signals: &[Signals]| {
        server
            .command(&["PUBLISH", channel, "end"])
            .expect("the server answers");
        let mut heard = Vec::new();
        loop {
            let mut message = listener.reply().expect("a message").texts();
            let text = message.pop().expect("what was published");
            match message.pop() {
                _ if text == "end" => break,
                Some(channel) if channel == streams => {
                    heard.push(serde_json::from_str(&text).expect("a list of texts"));
                }
                _ => heard.push(vec![text]),
            }
        }
        let mut expected: Vec<Vec<String>> = Vec::new();
        for signals in signals {
            let bits = u8::from(signals.promote) + 2 * u8::from(signals.update);
            if bits > 0 {
                expected.push(vec![format!("{bits} {room}")]);
            }
            if !signals.taken_over.is_empty() {
                let pairs = signals.taken_over.iter();
                let pairs = pairs.flat_map(|taken| [taken.person.to_string(), taken.by.0.to_string()]);
                expected.push([room.to_string()].into_iter().chain(pairs).collect());
            }
        }
        assert!(
            heard == expected,
            "{room}: {heard:?} was published, not {expected:?}"
        );
    };
    let open = async |clock| on_redis(vec![server.url()], "differential", clock).await;
    compare(Size::FEW, (300, 100), &OUTCOMES, open, notified).await;
}

/// Just below, at and above what one call draws and inspects.
#[tokio::test]
async fn the_limits_of_one_call_are_those_of_the_state_machine() {
    let clock = Arc::new(ManualClock::at(START));
    let model: Arc<dyn RoomStore> = Arc::new(ModelRoomStore::new(clock.clone()));
    let redis = on_redis(vec![RedisServer::shared().url()], "limits", clock.clone()).await;
    let join = |person: String| JoinParams {
        person: PersonId::new(person).expect("a short name"),
        stream: true,
        again: false,
        draw: 7,
    };
    let absent = (INSPECTIONS..INSPECTIONS + 4).map(|count| (false, count));
    let early = [DRAW_STEP - 1, DRAW_STEP, DRAW_STEP + 1, 2 * DRAW_STEP].map(|count| (true, count));
    for (is_early, count) in absent.chain(early) {
        let room = RoomId::new(format!("{is_early} {count}")).expect("a short name");
        let mut config = RoomConfig {
            opens_at: is_early.then(|| clock.now() + Millis(10)),
            ..RoomConfig::default()
        };
        (config.capacity.inside, config.capacity.per_second) = (1_000, 1_000);
        let presence = config.presence_ms;
        for store in [&model, &redis] {
            store.open(&room, config.clone()).await.expect("it opens");
            let joins = (0..count).map(|number| join(number.to_string()));
            store.join(&room, joins.collect()).await.expect("they come");
        }
        // Either the room opens, or all are absent and one joins.
        clock.advance(if is_early { Millis(10) } else { presence });
        for store in [&model, &redis] {
            let there = vec![join("there".to_owned())];
            store.join(&room, there).await.expect("one comes");
        }
        for call in 0..4 {
            let mut answers = Vec::new();
            for store in [&model, &redis] {
                let outcome = store.promote(&room, 2).await.expect("it answers");
                let view = store.overview(&room).await.expect("it answers");
                answers.push((outcome, view.waiting(), view.early, view.counts, view.wave));
            }
            assert_eq!(answers[0], answers[1], "early: {is_early}, {count}, call {call}");
        }
    }
}

#[tokio::test]
async fn doors_that_open_and_close_on_redis_are_answered_as_the_state_machine_does() {
    let open = async |clock| on_redis(vec![RedisServer::shared().url()], "doors", clock).await;
    compare(Size::DOORS, (40, 100), &["early", "let in"], open, |_, _| {}).await;
}

#[tokio::test]
async fn a_crowd_on_redis_is_answered_as_the_state_machine_does() {
    let open = async |clock| on_redis(vec![RedisServer::shared().url()], "crowd", clock).await;
    compare(Size::CROWD, (4, 100), &["stopped: more"], open, |_, _| {}).await;
}

#[tokio::test]
async fn a_cluster_answers_as_the_state_machine_does() {
    let open = async |clock| on_redis(RedisCluster::shared().urls(), "differential", clock).await;
    compare(Size::FEW, (40, 100), &["redeemed"], open, |_, _| {}).await;
}
