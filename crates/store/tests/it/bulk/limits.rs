//! Rates changed at run time survive restarts, power cuts, other processes and lost replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{LimitsView, Query, QueueView, View};
use tidegate_core::bulk::{
    ConfigureLimitsParams, EnqueueParams, LeaseParams, NewJob, Priority, Set, SetQueueLimits, default_queue,
};
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{GroupId, JobId, JobType, Owner, QueueId};
use tidegate_core::limits::quota::Quota;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_store::bulk::{
    BulkStore, BulkStoreExt, EmbeddedBulkStore, OnOtherSettings, RedisBulkOptions, RedisBulkStore,
};
use tidegate_testkit::servers::{Proxy, RedisServer};

const BEGIN: Timestamp = Timestamp(1_706_000_000_000);

static STORES: AtomicU64 = AtomicU64::new(0);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(BEGIN))
}

fn config(rps: f64) -> BulkConfig {
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = rps.into();
    config
}

fn on_disk(disk: &MemoryDisk, rps: f64, clock: &Arc<ManualClock>) -> EmbeddedBulkStore {
    EmbeddedBulkStore::open_for_test(Arc::new(disk.clone()), config(rps), clock.clone()).unwrap()
}

/// Under its own prefix.
fn on_redis(shards: u32, rps: f64, clock: &Arc<ManualClock>) -> RedisBulkOptions {
    RedisBulkOptions {
        prefix: format!("rates-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        shards,
        config: config(rps),
        clock: Some(clock.clone()),
        ..RedisBulkOptions::new(RedisServer::shared().url())
    }
}

fn queue(name: &str) -> QueueId {
    QueueId::new(name).unwrap()
}

async fn fill(store: &dyn BulkStore) {
    for group in ["A", "B", "C", "D", "E", "F"] {
        let job = |n: u32| NewJob {
            id: JobId::new(format!("job-{n}")).unwrap(),
            kind: JobType::new("mail").unwrap(),
            priority: Priority::Normal,
            payload: Bytes::new(),
            run_at: None,
            expires_at: None,
            cost: 1,
        };
        let params = EnqueueParams {
            group: GroupId::new(group).unwrap(),
            batch: None,
            base_priority: None,
            jobs: (0..100).map(job).collect(),
        };
        store.call(params).await.unwrap().unwrap();
    }
}

async fn set(store: &dyn BulkStore, rate: Set<f64>, queues: Vec<(QueueId, Set<f64>)>) {
    let params = ConfigureLimitsParams {
        global_rps: rate.map(Quota::from),
        queues: queues
            .into_iter()
            .map(|(queue, rps)| (queue, SetQueueLimits::rate(rps.map(Quota::from))))
            .collect(),
        by: "Ada".to_owned(),
        why: "a test".to_owned(),
        ..ConfigureLimitsParams::default()
    };
    store.call(params).await.unwrap().unwrap();
}

async fn take(store: &dyn BulkStore, max: u32) -> usize {
    let params = LeaseParams {
        queue: default_queue(),
        max,
        owner: Owner::new("worker").unwrap(),
    };
    store.lease(params).await.unwrap().jobs.len()
}

async fn limits(store: &dyn BulkStore) -> LimitsView {
    match store.call(Query::Limits).await.unwrap().unwrap() {
        View::Limits(limits) => limits,
        other => panic!("{other:?}"),
    }
}

async fn queues(store: &dyn BulkStore) -> Vec<QueueView> {
    match store.call(Query::Queues).await.unwrap().unwrap() {
        View::Queues(queues) => queues,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_power_cut_keeps_what_was_set_and_why() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on_disk(&disk, 10.0, &clock);
    fill(&store).await;
    set(&store, Set::To(4.0), vec![(queue("mail"), Set::To(1.5))]).await;
    let before = limits(&store).await;
    assert_eq!(before.changes.len(), 2);

    // Only synced data survives. The configuration differs, and is overridden.
    let store = on_disk(&disk.after_power_cut(0), 20.0, &clock);
    let after = limits(&store).await;
    let expected = LimitsView {
        configured_global_rps: 20.0.into(),
        ..before
    };
    assert_eq!(after, expected);
    assert_eq!(take(&store, 100).await, 0, "the window counts as spent");
    set(&store, Set::To(50.0), Vec::new()).await;
    assert_eq!(take(&store, 100).await, 0, "whatever the limit is");
    clock.advance(Millis(1_000));
    assert_eq!(take(&store, 100).await, 50);
    set(&store, Set::Reset, Vec::new()).await;
    clock.advance(Millis(1_000));
    assert_eq!(take(&store, 100).await, 20, "the configuration of today");
}

#[tokio::test]
async fn a_limit_lowered_before_a_restart_is_no_room_after_it() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on_disk(&disk, 10.0, &clock);
    fill(&store).await;
    assert_eq!(take(&store, 6).await, 6);
    set(&store, Set::To(2.0), Vec::new()).await;
    let store = on_disk(&disk.after_kill(), 10.0, &clock);
    set(&store, Set::Reset, Vec::new()).await;
    assert_eq!(
        take(&store, 100).await,
        0,
        "six have started, and nobody knows any more"
    );
}

#[tokio::test]
async fn who_connects_later_does_not_undo_what_was_set() {
    for shards in [1, 3] {
        let clock = clock();
        let options = on_redis(shards, 10.0, &clock);
        let store = RedisBulkStore::open(options.clone()).await.unwrap();
        fill(&store).await;
        set(
            &store,
            Set::To(4.3),
            vec![
                (queue("default"), Set::To(3.0)),
                (queue("mail"), Set::To(0.1 + 0.2)),
            ],
        )
        .await;
        let seen = limits(&store).await;
        let rates: Vec<_> = seen
            .queues
            .iter()
            .map(|(queue, limits)| (queue.clone(), limits.rate))
            .collect();
        assert_eq!(
            rates,
            [
                (queue("default"), Some(3.0.into())),
                (queue("mail"), Some((0.1 + 0.2).into()))
            ]
        );

        let other = RedisBulkStore::open(options.clone()).await.unwrap();
        assert_eq!(limits(&other).await, seen);
        assert_eq!(queues(&other).await, queues(&store).await);
        assert_eq!(take(&other, 100).await, 3, "{shards} shards");
        assert_eq!(take(&store, 100).await, 0);
        set(&other, Set::Keep, vec![(queue("default"), Set::Reset)]).await;
        assert_eq!(take(&store, 100).await, 1, "four of the whole system");

        let changed = RedisBulkOptions {
            config: config(20.0),
            on_other_settings: OnOtherSettings::Replace {
                by: "Ada".to_owned(),
                why: "a test".to_owned(),
            },
            ..options
        };
        let other = RedisBulkStore::open(changed).await.unwrap();
        clock.advance(Millis(1_000));
        assert_eq!(take(&other, 100).await, 4);
        set(&store, Set::Reset, Vec::new()).await;
        clock.advance(Millis(1_000));
        // A store with several shards grants by the configuration of the calling process.
        assert_eq!(take(&other, 100).await, 20);
        assert_eq!(limits(&store).await.configured_global_rps, 20.0.into());
    }
}

#[tokio::test]
async fn several_processes_and_shards_never_start_more_than_the_largest_limit() {
    let clock = clock();
    let options = on_redis(3, 12.0, &clock);
    let one = RedisBulkStore::open(options.clone()).await.unwrap();
    let two = RedisBulkStore::open(options).await.unwrap();
    fill(&one).await;
    for _ in 0..3 {
        let mut started = 0;
        for (rps, most) in [(12.0, 12), (5.0, 12), (20.0, 20), (3.0, 20), (18.0, 20)] {
            set(&one, Set::To(rps), Vec::new()).await;
            started += take(&two, 7).await + take(&one, 40).await + take(&two, 40).await;
            assert_eq!(started, most, "at {rps}");
        }
        clock.advance(Millis(1_000));
    }
    set(&one, Set::To(6.0), Vec::new()).await;
    let (a, b) = tokio::join!(
        set(&one, Set::To(9.0), Vec::new()),
        set(&two, Set::Keep, vec![(queue("mail"), Set::To(2.0))]),
    );
    let ((), ()) = (a, b);
    assert_eq!(limits(&one).await, limits(&two).await);
    assert_eq!(take(&one, 40).await + take(&two, 40).await, 9);
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_remembered_once() {
    for shards in [1, 3] {
        let clock = clock();
        let proxy = Proxy::start(RedisServer::shared().port()).unwrap();
        let straight = on_redis(shards, 10.0, &clock);
        let detour = RedisBulkOptions {
            urls: vec![proxy.url()],
            ..straight.clone()
        };
        let lossy = RedisBulkStore::open(detour).await.unwrap();
        let store = RedisBulkStore::open(straight).await.unwrap();
        fill(&store).await;
        for (i, rps) in [4.0, 7.0, 5.0].into_iter().enumerate() {
            proxy.drop_next_reply();
            set(&lossy, Set::To(rps), Vec::new()).await;
            assert_eq!(proxy.dropped_replies(), i as u64 + 1);
            assert_eq!(limits(&store).await.changes.len(), i + 1);
        }
        assert_eq!(take(&store, 100).await, 5);
    }
}

#[tokio::test]
async fn what_was_set_moves_with_the_store() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on_disk(&disk, 10.0, &clock);
    fill(&store).await;
    set(&store, Set::To(4.3), vec![(queue("mail"), Set::To(1.0 / 3.0))]).await;
    let seen = limits(&store).await;
    let mut stream = Vec::new();
    store.export(&mut stream).await.unwrap();
    for shards in [1, 3] {
        let options = on_redis(shards, 10.0, &clock);
        RedisBulkStore::import(options.clone(), &stream[..])
            .await
            .unwrap();
        let moved = RedisBulkStore::open(options).await.unwrap();
        assert_eq!(limits(&moved).await, seen);
        assert_eq!(take(&moved, 100).await, 4, "{shards} shards");
        set(&moved, Set::To(6.0), Vec::new()).await;
        assert_eq!(take(&moved, 100).await, 2);
        let mut again = Vec::new();
        moved.export(&mut again).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        EmbeddedBulkStore::import(&path, &again[..]).unwrap();
        let options = tidegate_store::bulk::EmbeddedBulkOptions {
            config: config(10.0),
            clock: clock.clone(),
            ..tidegate_store::bulk::EmbeddedBulkOptions::new(&path)
        };
        let back = EmbeddedBulkStore::open(options).unwrap();
        assert_eq!(limits(&back).await, limits(&moved).await);
    }
}
