//! A whole store moves between a data folder and Redis, both ways, and nothing is lost.

mod content;
mod drain;
mod refused;
mod rich;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use content::{Content, content_of};
use drain::{Account, congestion, counts, dead, drain, states, stats};
use rich::{BEGIN, batch, config, done, enqueue, fill, group, job, lease, queue, settle};
use tidegate_core::bulk::*;
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::bulk::transfer::Counts;
use tidegate_store::bulk::{
    BulkStore, BulkStoreExt, EmbeddedBulkOptions, EmbeddedBulkStore, RedisBulkOptions, RedisBulkStore,
};
use tidegate_testkit::servers::{Proxy, RedisServer};

static STORES: AtomicU64 = AtomicU64::new(0);

/// Under its own prefix, at the time of `clock`.
fn on_redis(shards: u32, clock: &Arc<ManualClock>) -> RedisBulkOptions {
    RedisBulkOptions {
        prefix: format!("transfer-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        shards,
        config: config(),
        clock: Some(clock.clone()),
        ..RedisBulkOptions::new(RedisServer::shared().url())
    }
}

fn in_folder(folder: &Path, clock: &Arc<ManualClock>) -> EmbeddedBulkStore {
    EmbeddedBulkStore::open(EmbeddedBulkOptions {
        clock: clock.clone(),
        config: config(),
        ..EmbeddedBulkOptions::new(folder)
    })
    .unwrap()
}

fn at(now: Timestamp) -> Arc<ManualClock> {
    Arc::new(ManualClock::at(now))
}

/// The rich store in a folder, as an export; and the time.
async fn from_folder() -> (Vec<u8>, Timestamp) {
    let folder = tempfile::tempdir().unwrap();
    let clock = at(BEGIN);
    let store = in_folder(&folder.path().join("data"), &clock);
    fill(&store, &clock).await;
    let mut stream = Vec::new();
    store.export(&mut stream).await.unwrap();
    store.close().await.unwrap();
    (stream, clock.now())
}

async fn from_redis(shards: u32) -> (Vec<u8>, Timestamp) {
    let clock = at(BEGIN);
    let store = RedisBulkStore::open(on_redis(shards, &clock)).await.unwrap();
    fill(&store, &clock).await;
    let mut stream = Vec::new();
    store.export(&mut stream).await.unwrap();
    (stream, clock.now())
}

/// Imports into Redis; returns the store, its options and its content.
async fn through_redis(
    stream: &[u8],
    shards: u32,
    now: Timestamp,
) -> (RedisBulkStore, Arc<ManualClock>, Vec<u8>) {
    let clock = at(now);
    let options = on_redis(shards, &clock);
    let counts = RedisBulkStore::import(options.clone(), stream).await.unwrap();
    let mut unopened = Vec::new();
    assert_eq!(
        RedisBulkStore::export_of(&options, &mut unopened).await.unwrap(),
        counts
    );
    assert_eq!(RedisBulkStore::shards_of(&options).await.unwrap(), Some(shards));
    let store = RedisBulkStore::open(options).await.unwrap();
    let mut opened = Vec::new();
    assert_eq!(store.export(&mut opened).await.unwrap(), counts);
    assert_eq!(unopened, opened);
    (store, clock, opened)
}

/// Checks the record of a drained store, whichever store it was.
async fn check(store: &dyn BulkStore, account: &Account, content: &Content, now: Timestamp) {
    let to_run = content.to_run(now + Millis(21_000));
    let runs = account.runs();
    let ran: std::collections::BTreeSet<_> = runs.keys().map(|&job| job.clone()).collect();
    assert_eq!(ran, to_run, "every unfinished job runs");
    assert!(runs.values().all(|&times| times == 1), "once");
    for (name, record) in &content.batches {
        let before = content.counts(name);
        let mut after = before;
        if record.status.is_open() {
            let of_batch = |job: &&content::Job| content.jobs[*job].0 == *name;
            after.success += to_run.iter().filter(of_batch).count() as u64;
            after.failed = after.total - after.success;
        }
        assert_eq!(counts(store, name).await, after, "{name:?}");
        let times = u32::from(!record.confirmed);
        let folded = account.folded.get(name).copied();
        assert_eq!(
            folded.map_or(0, |(times, _)| times),
            times,
            "{name:?} is folded once"
        );
        assert!(folded.is_none_or(|(_, counts)| counts == after), "{name:?}");
    }
    let left = stats(store).await;
    assert_eq!(left.counts.unfinished(), 0, "{left:?}");
    assert_eq!(left.active_groups, 0);
}

#[tokio::test]
async fn a_data_folder_moves_to_redis_and_back() {
    let (first, now) = from_folder().await;
    for shards in [1, 3] {
        let (store, clock, second) = through_redis(&first, shards, now).await;
        assert_eq!(
            content_of(&second, now),
            content_of(&first, now),
            "{shards} shards"
        );

        let folder = tempfile::tempdir().unwrap();
        let back = folder.path().join("back");
        EmbeddedBulkStore::import(&back, &second[..]).unwrap();
        let other_clock = at(now);
        let other = in_folder(&back, &other_clock);
        let mut third = Vec::new();
        other.export(&mut third).await.unwrap();
        assert_eq!(
            content_of(&third, now),
            content_of(&first, now),
            "{shards} shards, and back"
        );

        let content = content_of(&first, now);
        assert_eq!(dead(&store).await, content.dead(), "{shards} shards");
        assert_eq!(dead(&other).await, content.dead(), "{shards} shards, and back");
        let account = drain(&store, &clock, &content).await;
        check(&store, &account, &content, now).await;
        let account = drain(&other, &other_clock, &content).await;
        check(&other, &account, &content, now).await;
    }
}

#[tokio::test]
async fn a_store_on_redis_moves_to_a_data_folder_and_back() {
    for shards in [1, 3] {
        let (first, now) = from_redis(shards).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        EmbeddedBulkStore::import(&path, &first[..]).unwrap();
        let clock = at(now);
        let store = in_folder(&path, &clock);
        let mut second = Vec::new();
        store.export(&mut second).await.unwrap();
        assert_eq!(
            content_of(&second, now),
            content_of(&first, now),
            "{shards} shards"
        );
        let content = content_of(&first, now);
        let account = drain(&store, &clock, &content).await;
        check(&store, &account, &content, now).await;

        let (store, clock, third) = through_redis(&second, 4 - shards, now).await;
        assert_eq!(
            content::content_of(&third, now),
            content,
            "back in Redis, from {shards} shards"
        );
        let account = drain(&store, &clock, &content).await;
        check(&store, &account, &content, now).await;
    }
}

/// Imported from one export, both stores are equal: statistics, views, and the order of starts.
#[tokio::test]
async fn what_was_imported_goes_on_as_in_the_embedded_store() {
    let (mut streams, mut now) = (Vec::new(), BEGIN);
    for (stream, then) in [from_folder().await, from_redis(1).await] {
        streams.push(stream);
        now = now.max(then);
    }
    for stream in streams {
        let (redis, redis_clock, _) = through_redis(&stream, 1, now).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        EmbeddedBulkStore::import(&path, &stream[..]).unwrap();
        let clock = at(now);
        let embedded = in_folder(&path, &clock);
        assert_eq!(stats(&redis).await, stats(&embedded).await);
        let content = content_of(&stream, now);
        for id in content.groups.keys() {
            let of = group(id);
            assert_eq!(states(&redis, &of).await, states(&embedded, &of).await);
            assert_eq!(congestion(&redis, &of).await, congestion(&embedded, &of).await);
        }
        let (mut one, mut other) = (
            drain(&redis, &redis_clock, &content).await,
            drain(&embedded, &clock, &content).await,
        );
        assert_eq!(one.started, other.started, "the same jobs in the same order");
        (one.started, other.started) = (Vec::new(), Vec::new());
        assert_eq!(one, other);
        let (mut one, mut other) = (stats(&redis).await, stats(&embedded).await);
        (one.throttles, other.throttles, one.saved_spins, other.saved_spins) = (0, 0, 0, 0);
        assert_eq!(one, other);
        for (store, clock) in [(&redis as &dyn BulkStore, &redis_clock), (&embedded, &clock)] {
            clock.advance(Millis(100_000_000_000));
            let drop = DropFinishedParams {
                max: 100_000,
                older_than: None,
            };
            while store.call(drop.clone()).await.unwrap().more {}
            let left = stats(store).await;
            assert_eq!(
                (left.counts.completed, left.counts.dead, left.batches_in_memory),
                (0, 0, 0),
                "{left:?}"
            );
        }
    }
}

/// The position of a flow follows its first job: a returned one, whatever its number.
#[tokio::test]
async fn lines_stand_in_the_order_of_their_first_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let clock = at(BEGIN);
    let store = in_folder(&folder.path().join("data"), &clock);
    enqueue(&store, "a", None, vec![job("a-1", "run"), job("a-2", "run")]).await;
    enqueue(&store, "b", None, vec![job("b-1", "run")]).await;
    enqueue(&store, "a", None, vec![job("a-3", "run")]).await;
    for leased in lease(&store, &queue("run"), 4).await {
        if leased.id.as_str() == "a-3" {
            settle(&store, leased.leased.lease, JobOutcome::Released).await;
        }
    }
    let mut stream = Vec::new();
    store.export(&mut stream).await.unwrap();
    let path = folder.path().join("moved");
    EmbeddedBulkStore::import(&path, &stream[..]).unwrap();
    let (redis, ..) = through_redis(&stream, 1, BEGIN).await;
    for store in [&in_folder(&path, &at(BEGIN)) as &dyn BulkStore, &redis] {
        let started = lease(store, &queue("run"), 4).await;
        let started: Vec<&str> = started.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(started, ["b-1", "a-3", "a-1", "a-2"]);
    }
}

/// More than a page of everything: groups, batches, runs of numbers, finished jobs.
#[tokio::test]
async fn many_pages_move_whole_and_in_order() {
    let clock = at(BEGIN);
    let mut options = on_redis(1, &clock);
    options.config.backpressure.global_rps = 100_000.0.into();
    let store = RedisBulkStore::open(options.clone()).await.unwrap();
    for n in 0..600 {
        enqueue(
            &store,
            &format!("group-{n}"),
            Some("one"),
            vec![job("job", "rest")],
        )
        .await;
    }
    for n in 0..150 {
        for of in ["even", "odd"] {
            enqueue(&store, of, Some("all"), vec![job(&format!("job-{n}"), "rest")]).await;
        }
    }
    let mut large = job("large", "rest");
    large.payload = vec![b'x'; 200_000].into();
    for n in 0..20 {
        let id = format!("large-{n}");
        let large = NewJob {
            id: tidegate_core::ids::JobId::new(id).unwrap(),
            ..large.clone()
        };
        enqueue(&store, "large", None, vec![large]).await;
    }
    let jobs = (0..2_500).map(|n| job(&format!("job-{n}"), "run")).collect();
    enqueue(&store, "many", Some("many"), jobs).await;
    // The last jobs to arrive are the first to end.
    let mut leased = lease(&store, &queue("run"), 2_500).await;
    assert_eq!(leased.len(), 2_500);
    leased.reverse();
    for some in leased[..1_500].chunks(100) {
        let answers = some.iter().map(|job| Settlement {
            lease: job.leased.lease,
            outcome: done(""),
            cost: None,
        });
        let answers = answers.collect();
        store.call(SettleParams { answers }).await.unwrap();
        clock.advance(Millis(1_000));
    }
    let mut first = Vec::new();
    let held = store.export(&mut first).await.unwrap();
    let expected = Counts {
        groups: 604,
        batches: 604,
        jobs: 600 + 300 + 20 + 2_500,
    };
    assert_eq!(held, expected);

    let (moved, moved_clock, second) = through_redis(&first, 3, clock.now()).await;
    assert_eq!(content_of(&second, clock.now()), content_of(&first, clock.now()));
    moved_clock.advance(Millis(1_000));
    let drop = DropFinishedParams {
        max: 10_000,
        older_than: Some(Millis(10_000)),
    };
    let dropped = moved.call(drop).await.unwrap();
    assert_eq!(dropped.jobs, 600, "those that ended first");
    let last = tidegate_core::ids::JobId::new("job-2499").unwrap();
    assert!(moved.job(&group("many"), &last).await.unwrap().is_err());
}

/// Without a snapshot the export is still well-formed: every reference in it resolves.
#[tokio::test]
async fn a_store_that_is_in_use_is_exported_well_formed() {
    let clock = at(BEGIN);
    let mut options = on_redis(2, &clock);
    options.config.backpressure.global_rps = 100_000.0.into();
    let store = RedisBulkStore::open(options).await.unwrap();
    let work = async {
        for round in 0.. {
            for n in 0..10 {
                let (of, to) = (format!("group-{round}-{n}"), format!("batch-{round}"));
                let jobs = (0..50).map(|m| job(&format!("job-{round}-{m}"), "run")).collect();
                enqueue(&store, &of, Some(&to), jobs).await;
                let again = (0..50)
                    .map(|m| job(&format!("again-{round}-{m}"), "run"))
                    .collect();
                enqueue(&store, &format!("group-0-{n}"), Some(&to), again).await;
            }
            let leased = lease(&store, &queue("run"), 900).await;
            let answers = leased.iter().map(|job| Settlement {
                lease: job.leased.lease,
                outcome: done(""),
                cost: None,
            });
            let answers = answers.collect();
            store.call(SettleParams { answers }).await.unwrap();
            clock.advance(Millis(1_000));
            let drop = DropFinishedParams {
                max: 500,
                older_than: Some(Millis(0)),
            };
            // It does not wait long for a shard; on a machine that stalls, the next call drops them.
            if let Err(error) = store.call(drop).await {
                assert!(error.is_retryable(), "{error}");
            }
        }
    };
    let exports = async {
        let mut last = Counts::default();
        while last.jobs < 5_000 {
            let mut stream = Vec::new();
            last = store.export(&mut stream).await.unwrap();
            let folder = tempfile::tempdir().unwrap();
            assert_eq!(
                EmbeddedBulkStore::import(&folder.path().join("data"), &stream[..]).unwrap(),
                last
            );
        }
    };
    tokio::select! {
        () = work => unreachable!("it goes on"),
        () = exports => {}
    }
}

/// Replies get lost: no step runs twice.
#[tokio::test]
async fn a_bad_network_imports_nothing_twice() {
    let clock = at(BEGIN);
    let mut options = on_redis(2, &clock);
    options.config.backpressure.global_rps = 100_000.0.into();
    let store = RedisBulkStore::open(options.clone()).await.unwrap();
    for n in 0..20 {
        let jobs = (0..300).map(|m| job(&format!("job-{m}"), "run")).collect();
        enqueue(&store, &format!("group-{n}"), Some("all"), jobs).await;
    }
    let leased = lease(&store, &queue("run"), 4_000).await;
    let answers = leased.iter().map(|job| Settlement {
        lease: job.leased.lease,
        outcome: done(""),
        cost: None,
    });
    let answers = answers.collect();
    store.call(SettleParams { answers }).await.unwrap();
    let mut stream = Vec::new();
    store.export(&mut stream).await.unwrap();

    let proxy = Proxy::start(RedisServer::shared().port()).unwrap();
    let url = proxy.url();
    let lossy = Arc::new(Lossy {
        clock: clock.clone(),
        proxy,
        calls: AtomicU64::new(0),
    });
    let straight = RedisBulkOptions {
        config: options.config,
        ..on_redis(2, &clock)
    };
    let detour = RedisBulkOptions {
        urls: vec![url],
        clock: Some(lossy.clone()),
        ..straight.clone()
    };
    RedisBulkStore::import(detour, &stream[..]).await.unwrap();
    assert!(lossy.proxy.dropped_replies() >= 8);
    let mut moved = Vec::new();
    RedisBulkStore::export_of(&straight, &mut moved).await.unwrap();
    let same = content_of(&moved, clock.now()) == content_of(&stream, clock.now());
    assert!(same, "something was lost or occurs twice");
    let moved = RedisBulkStore::open(straight).await.unwrap();
    assert_eq!(stats(&moved).await.counts.unfinished(), 2_000);
    clock.advance(Millis(1_000));
    let dropped = moved.call(DropFinishedParams {
        max: 100_000,
        older_than: Some(Millis(0)),
    });
    assert_eq!(dropped.await.unwrap().jobs, 4_000);
    assert_eq!(lease(&moved, &queue("run"), 10_000).await.len(), 2_000);
}

/// A read of the time precedes every call. The reply to every third call gets lost.
#[derive(Debug)]
struct Lossy {
    clock: Arc<ManualClock>,
    proxy: Proxy,
    calls: AtomicU64,
}

impl Clock for Lossy {
    fn now(&self) -> Timestamp {
        if self.calls.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            self.proxy.drop_next_reply();
        }
        self.clock.now()
    }
}

#[tokio::test]
async fn fences_of_the_stream_are_behind_those_to_come() {
    let (stream, now) = from_folder().await;
    let text = String::from_utf8(stream)
        .unwrap()
        .replace("\"fence\":0", "\"fence\":987654321");
    let clock = at(now);
    let options = on_redis(1, &clock);
    RedisBulkStore::import(options.clone(), text.as_bytes())
        .await
        .unwrap();
    let store = RedisBulkStore::open(options).await.unwrap();
    clock.advance(Millis(1_000));
    let leased = lease(&store, &queue("rest"), 1).await;
    assert!(leased[0].leased.lease.fence > Fence(987_654_321), "{leased:?}");
    let late = LeaseRef {
        fence: Fence(987_654_321),
        ..leased[0].leased.lease
    };
    assert_eq!(settle(&store, late, done("late")).await, Settled::Stale);
}

/// A batch without a name is named after its number, and an import assigns new numbers.
#[tokio::test]
async fn later_batches_without_a_name_do_not_take_the_name_of_an_imported_one() {
    let folder = tempfile::tempdir().unwrap();
    let clock = at(BEGIN);
    let store = in_folder(&folder.path().join("data"), &clock);
    // Numbers of jobs that were dropped before the export; they are not reused.
    let jobs = (0..30).map(|n| job(&format!("job-{n}"), "run")).collect();
    enqueue(&store, "other", Some("gone"), jobs).await;
    for leased in lease(&store, &queue("run"), 30).await {
        settle(&store, leased.leased.lease, done("")).await;
    }
    let name = enqueue(&store, "group", None, vec![job("first", "rest")]).await;
    clock.advance(Millis(1_000));
    let drop = DropFinishedParams {
        max: 100,
        older_than: Some(Millis(0)),
    };
    assert_eq!(store.call(drop).await.unwrap().jobs, 30);
    let mut stream = Vec::new();
    store.export(&mut stream).await.unwrap();

    let (redis, _, stream) = through_redis(&stream, 1, clock.now()).await;
    let path = folder.path().join("back");
    EmbeddedBulkStore::import(&path, &stream[..]).unwrap();
    let back = in_folder(&path, &clock);
    for store in [&redis as &dyn BulkStore, &back] {
        let mut names = vec![name.clone()];
        for n in 0..50 {
            rich::seal(store, "group", names[n].as_str()).await;
            let next = enqueue(store, "group", None, vec![job(&format!("next-{n}"), "rest")]).await;
            assert!(!names.contains(&next), "{next:?} is there already");
            names.push(next);
        }
    }
    assert_eq!(
        counts(&redis, &("group".into(), batch(name.as_str()).to_string()))
            .await
            .total,
        1
    );
}
