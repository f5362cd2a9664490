//! Settings belong to a shared store: a process with others does not start, follows the store, or replaces them by command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidegate_core::bulk::config::{BulkConfig, JobTypeConfig};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    EnqueueParams, Enqueued, JobOutcome, JobSeq, LeaseParams, LimitSetting, NewJob, Priority,
    ReleaseDueParams, ReplayParams, SettleParams, Settlement, default_queue,
};
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{GroupId, JobId, JobType, Owner, QueueId};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::bulk::{
    BulkStoreExt, Difference, OnOtherSettings, RedisBulkOptions, RedisBulkStore, SettingsChange,
};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

const BEGIN: Timestamp = Timestamp(1_706_000_000_000);

static STORES: AtomicU64 = AtomicU64::new(0);

fn options(shards: u32, rps: f64) -> RedisBulkOptions {
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = rps.into();
    RedisBulkOptions {
        prefix: format!("settings-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        shards,
        config,
        clock: Some(Arc::new(ManualClock::at(BEGIN))),
        ..RedisBulkOptions::new(RedisServer::shared().url())
    }
}

fn with(options: &RedisBulkOptions, change: impl FnOnce(&mut BulkConfig)) -> RedisBulkOptions {
    let mut options = options.clone();
    change(&mut options.config);
    options
}

async fn limit(store: &RedisBulkStore) -> f64 {
    match store.call(Query::Limits).await.unwrap().unwrap() {
        View::Limits(limits) => limits.global_rps.per_second(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_process_with_other_settings_is_refused_and_changes_nothing() {
    for shards in [1, 3] {
        let twenty = options(shards, 20.0);
        let first = RedisBulkStore::open(twenty.clone()).await.unwrap();
        let other = with(&twenty, |config| {
            *config = BulkConfig::default();
            config.retention.finished_jobs_max = 7;
        });
        let refused = RedisBulkStore::open(other).await.unwrap_err().to_string();
        for part in [
            "backpressure.global_rps is \"20/s\" in the store and \"10000/s\" here",
            "retention.finished_jobs_max is 200000 in the store and 7 here",
            "redis.follow_settings = true",
            "tidegate config apply",
        ] {
            assert!(refused.contains(part), "{refused:?} should contain {part:?}");
        }
        assert_eq!(limit(&first).await, 20.0);
        // Workers and intervals are a process's own.
        let workers = with(&twenty, |config| {
            config.worker_pool.worker_count = 77;
            config.backpressure.dispatch_batch_size = 1;
        });
        let second = RedisBulkStore::open(workers).await.unwrap();
        assert_eq!(second.config().worker_pool.worker_count, 77);
    }
}

#[tokio::test]
async fn a_process_may_follow_the_settings_of_the_store() {
    let twenty = options(1, 20.0);
    let _first = RedisBulkStore::open(twenty.clone()).await.unwrap();
    let follows = |change: fn(&mut BulkConfig)| RedisBulkOptions {
        on_other_settings: OnOtherSettings::Follow,
        ..with(&twenty, change)
    };
    let second = RedisBulkStore::open(follows(|config| {
        *config = BulkConfig::default();
        config.worker_pool.worker_count = 3;
    }))
    .await
    .unwrap();
    assert_eq!(limit(&second).await, 20.0);
    let config = second.config();
    assert_eq!(
        (config.backpressure.global_rps, config.worker_pool.worker_count),
        (20.0.into(), 3)
    );
    // Its handlers would poll a queue that never gets their jobs.
    let elsewhere = follows(|config| {
        let settings = JobTypeConfig {
            queue: Some(QueueId::new("mail").unwrap()),
            ..JobTypeConfig::default()
        };
        config.job_types = BTreeMap::from([(JobType::new("MAIL").unwrap(), settings)]);
    });
    let refused = RedisBulkStore::open(elsewhere).await.unwrap_err().to_string();
    assert!(
        refused.contains("jobs of type MAIL go to queue mail here and to the default queue in the store"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_command_replaces_the_settings_and_the_store_remembers_it() {
    for shards in [1, 3] {
        let twenty = options(shards, 20.0);
        assert_eq!(RedisBulkStore::settings_of(&twenty).await.unwrap(), None);
        let first = RedisBulkStore::open(twenty.clone()).await.unwrap();
        let five = with(&twenty, |config| config.backpressure.global_rps = 5.0.into());
        let fields = vec![Difference {
            field: "backpressure.global_rps".to_owned(),
            stored: "\"20/s\"".to_owned(),
            here: "\"5/s\"".to_owned(),
        }];
        let changed = RedisBulkStore::replace_settings(five.clone(), "Ada", "it was too fast").await;
        assert_eq!(changed.unwrap(), fields);
        let again = RedisBulkStore::replace_settings(five.clone(), "Ada", "again").await;
        assert_eq!(again.unwrap(), []);
        assert_eq!(limit(&first).await, 5.0, "for every process, at once");
        let stored = RedisBulkStore::settings_of(&five).await.unwrap().unwrap();
        assert_eq!(stored.config.backpressure.global_rps, 5.0.into());
        let change = SettingsChange {
            at: BEGIN,
            by: "Ada".to_owned(),
            why: "it was too fast".to_owned(),
            fields,
        };
        assert_eq!(stored.changes, [change]);
        RedisBulkStore::open(five).await.unwrap();
        assert!(
            RedisBulkStore::open(twenty).await.is_err(),
            "an old process does not start again"
        );
    }
}

#[tokio::test]
async fn a_running_process_goes_on_when_the_settings_change_and_redis_restarts() {
    let mut server = RedisServer::start(RedisOptions::durable()).unwrap();
    let twenty = RedisBulkOptions {
        urls: vec![server.url()],
        ..options(1, 20.0)
    };
    let running = RedisBulkStore::open(twenty.clone()).await.unwrap();
    let five = with(&twenty, |config| config.backpressure.global_rps = 5.0.into());
    RedisBulkStore::replace_settings(five, "Ada", "").await.unwrap();
    server.restart().unwrap();
    let seen = loop {
        match running.call(Query::Limits).await {
            Ok(view) => break view.unwrap(),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    let View::Limits(limits) = seen else {
        panic!("{seen:?}")
    };
    assert_eq!(limits.global_rps, 5.0.into());
    assert!(
        limits
            .changes
            .iter()
            .all(|change| change.setting != LimitSetting::Rate)
    );
}

/// A target that is configured later takes over the jobs of its type, wherever they are by then.
#[tokio::test]
async fn jobs_follow_their_type_to_another_queue() {
    let (default, mail) = (default_queue(), QueueId::new("mail").unwrap());
    let clock = Arc::new(ManualClock::at(BEGIN));
    let before = RedisBulkOptions {
        clock: Some(clock.clone()),
        ..options(1, 1_000.0)
    };
    let store = RedisBulkStore::open(before.clone()).await.unwrap();
    let mut jobs = BTreeMap::new();
    for n in 0..30 {
        let group = GroupId::new(format!("g{n}")).unwrap();
        for id in ["a", "b", "c", "d", "e", "later"] {
            let seq = enqueue(&store, &group, id).await;
            jobs.insert(seq, (group.clone(), id));
        }
    }
    let lease = async |queue: &QueueId, max| {
        let owner = Owner::new("w").unwrap();
        let queue = queue.clone();
        let leased = store.call(LeaseParams { queue, max, owner }).await.unwrap().jobs;
        leased.into_iter().map(|job| job.lease).collect::<Vec<_>>()
    };
    // One of them will come back from a worker, the other from the dead.
    let running = lease(&default, 2).await;
    assert_eq!(
        running.iter().map(|lease| jobs[&lease.job].1).collect::<Vec<_>>(),
        ["a", "a"]
    );
    let after = with(&before, |config| {
        let settings = JobTypeConfig {
            queue: Some(mail.clone()),
            ..JobTypeConfig::default()
        };
        config.job_types = BTreeMap::from([(JobType::new("MAIL").unwrap(), settings)]);
    });
    RedisBulkStore::replace_settings(after, "Ada", "mail has a target of its own")
        .await
        .unwrap();
    let failed = JobOutcome::Failed {
        error: "no".to_owned(),
    };
    let outcomes = [JobOutcome::Released, failed];
    let answers = running.iter().zip(outcomes);
    let answers = answers
        .map(|(&lease, outcome)| Settlement {
            lease,
            outcome,
            cost: None,
        })
        .collect();
    store.call(SettleParams { answers }).await.unwrap();
    let (group, id) = &jobs[&running[1].job];
    let (group, job) = (group.clone(), JobId::new(*id).unwrap());
    store.call(ReplayParams { group, job }).await.unwrap().unwrap();
    clock.advance(Millis(6_000));
    // A few at a time, so that many calls share the work.
    while store.call(ReleaseDueParams { max: 7 }).await.unwrap().more {}

    let mut of_mail = BTreeMap::<&GroupId, Vec<&str>>::new();
    for lease in lease(&mail, 1_000).await {
        let (group, id) = &jobs[&lease.job];
        of_mail.entry(group).or_default().push(id);
    }
    assert_eq!(of_mail.len(), 30);
    for (group, ids) in of_mail {
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, ["a", "c", "d", "e", "later"], "{group}");
        let waited = ids.iter().filter(|&&id| id != "a" && id != "later");
        assert!(waited.eq(&["c", "d", "e"]), "{group}: in their order");
    }
    let rest = lease(&default, 1_000).await;
    assert_eq!(rest.len(), 30);
    assert!(rest.iter().all(|lease| jobs[&lease.job].1 == "b"));
}

/// The jobs "b" are of another type, and those called "later" are due in five seconds.
async fn enqueue(store: &RedisBulkStore, group: &GroupId, id: &str) -> JobSeq {
    let job = NewJob {
        id: JobId::new(id).unwrap(),
        kind: JobType::new(if id == "b" { "OTHER" } else { "MAIL" }).unwrap(),
        priority: Priority::Normal,
        payload: Bytes::from_static(b"x"),
        run_at: (id == "later").then_some(BEGIN + Millis(5_000)),
        cost: 1,
        expires_at: None,
    };
    let params = EnqueueParams {
        group: group.clone(),
        batch: None,
        base_priority: None,
        jobs: vec![job],
    };
    let outcome = store.call(params).await.unwrap().unwrap();
    match outcome.jobs[0] {
        Enqueued::Accepted(seq) => seq,
        ref other => panic!("{other:?}"),
    }
}
