//! A refresh service over the embedded store, the embedded log and SQLite, with injectable faults.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tempfile::TempDir;
use tidegate_core::budget::BudgetConfig;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::config::{RefreshConfig, TierConfig};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::{
    PublishOutcome, RefreshHandle, RefreshOptions, RefreshService, SourceOptions,
};
use tidegate_log::embedded::{EmbeddedLog, EmbeddedLogOptions};
use tidegate_log::{Log, LogSettings};
use tidegate_snapshots::sqlite::{self, SqliteOptions};
use tidegate_snapshots::{Failure, RecordRef, Snapshots, StatusState, Write};
use tidegate_source::{FetchOutcome, FetchParams, Fetcher, Projected, hash};
use tidegate_store::refresh::{ModelRefreshStore, RefreshSettings, RefreshStore};

use super::faulty::{FaultyLog, FaultySnapshots, FaultyStore};

pub(crate) fn record(key: &str) -> RecordId {
    RecordId {
        source: SourceId::new("characters").unwrap(),
        key: RecordKey::new(key).unwrap(),
    }
}

pub(crate) fn reference(key: &str) -> RecordRef {
    let RecordId { source, key } = record(key);
    RecordRef { source, key }
}

/// A parked record whose retry is due.
pub(crate) fn parked(record: RecordRef, at: Timestamp) -> Write {
    Write::Parked(Failure {
        record,
        version: Version(1),
        state: StatusState::Retrying,
        absent: false,
        error_code: "THROTTLED".into(),
        error_message: "the upstream asked to wait".into(),
        next_retry_at: Some(Timestamp(1)),
        event: None,
        at,
    })
}

pub(crate) fn target() -> TargetId {
    TargetId::new("game").unwrap()
}

type Script = dyn Fn(&str, u64) -> FetchOutcome + Send + Sync;

/// Responds as a test says, by key and by how often that key was fetched before.
pub(crate) struct Scripted {
    script: Box<Script>,
    pub(crate) calls: Mutex<HashMap<String, u64>>,
    /// The upstream name of the record in each call, in order.
    pub(crate) ids: Mutex<Vec<Option<String>>>,
    pub(crate) latency_ms: AtomicU64,
    /// Further calls wait until the test permits more.
    pub(crate) most: AtomicU64,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    pub(crate) fn new(script: impl Fn(&str, u64) -> FetchOutcome + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            calls: Mutex::default(),
            ids: Mutex::default(),
            latency_ms: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
        })
    }

    /// Always the same response for a key.
    pub(crate) fn constant() -> Arc<Self> {
        Self::new(|key, _| fetched(key))
    }

    pub(crate) fn calls(&self, key: &str) -> u64 {
        self.calls.lock().unwrap().get(key).copied().unwrap_or(0)
    }

    pub(crate) fn all_calls(&self) -> u64 {
        self.calls.lock().unwrap().values().sum()
    }
}

#[async_trait]
impl Fetcher for Scripted {
    async fn fetch(&self, params: FetchParams) -> FetchOutcome {
        let id = params.params.get("id").cloned();
        self.ids.lock().unwrap().push(id);
        let (before, number) = {
            let mut calls = self.calls.lock().unwrap();
            let count = calls.entry(params.key.clone()).or_insert(0);
            *count += 1;
            (*count - 1, calls.values().sum::<u64>())
        };
        let latency = self.latency_ms.load(Ordering::SeqCst);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        while number > self.most.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (self.script)(&params.key, before)
    }
}

pub(crate) fn fetched(text: &str) -> FetchOutcome {
    let canonical = Bytes::from(format!("{{\"name\":{text:?}}}"));
    FetchOutcome::Fetched(Projected {
        hash: hash(1, &canonical),
        canonical,
        activity: None,
    })
}

pub(crate) struct World {
    pub(crate) store: Arc<FaultyStore>,
    /// Without faults, for checks from outside.
    pub(crate) log: Arc<dyn Log>,
    /// With faults, for the services.
    pub(crate) faulty_log: Arc<FaultyLog>,
    pub(crate) snapshots: Arc<FaultySnapshots>,
    pub(crate) tiers: TierConfig,
    pub(crate) config: RefreshConfig,
    _folder: TempDir,
}

/// Longer than a busy machine stalls: no test here is about slowness.
const PATIENT: Millis = Millis(30_000);
/// The same for callers that wait for the result of a request.
pub(crate) const ASK_WAIT: Duration = Duration::from_secs(60);

/// Enough for tests of anything but the budget.
pub(crate) fn wide_budget() -> BudgetConfig {
    BudgetConfig {
        hard_limit: 10_000,
        rate: 5_000,
        burst: 500,
        low_cap: 5_000,
        low_burst: 500,
        per_day: 0,
        day_reserve: 0,
        ..BudgetConfig::default()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(wide_budget(), RefreshConfig::default()).await
    }

    pub(crate) async fn with(budget: BudgetConfig, mut config: RefreshConfig) -> Self {
        // A machine that stalls does not make the store unavailable.
        config.breaker.slow_ms = PATIENT;
        config.coalescer.send_timeout_ms = config.coalescer.send_timeout_ms.max(Millis(3 * PATIENT.0));
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let settings = RefreshSettings {
            budgets: BTreeMap::from([(target(), budget)]),
            coalescer: config.coalescer.clone(),
        };
        let store = ModelRefreshStore::new(settings, clock.clone()).unwrap();
        let mut options = EmbeddedLogOptions::new(folder.path().join("log"));
        options.settings = LogSettings {
            session_timeout: Millis(1_000),
            send_timeout: PATIENT,
            ..LogSettings::default()
        };
        let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(options).unwrap());
        let mut options = SqliteOptions::new(folder.path().join("snapshots.db"));
        options.durability = sqlite::Durability::Buffered;
        let snapshots = sqlite::open(options).await.unwrap();
        snapshots.migrate().await.unwrap();
        Self {
            store: Arc::new(FaultyStore::new(Arc::new(store))),
            faulty_log: Arc::new(FaultyLog::new(log.clone())),
            log,
            snapshots: Arc::new(FaultySnapshots::new(Arc::new(snapshots))),
            tiers: TierConfig::default(),
            config,
            _folder: folder,
        }
    }

    pub(crate) fn options(&self, fetcher: Arc<dyn Fetcher>) -> RefreshOptions {
        let store: Arc<dyn RefreshStore> = self.store.clone();
        let mut options = RefreshOptions::new(store, self.faulty_log.clone(), self.snapshots.clone());
        options.config = self.config.clone();
        options.work.claim_ms = PATIENT;
        options.work.grace_ms = PATIENT;
        options.work.backoff_ms = Millis(5);
        options.work.low_flush_ms = Millis(20);
        options.work.high_flush_ms = Millis(5);
        options.work.commit_every_ms = Millis(10);
        options.watch.lag_every_ms = Millis(50);
        options.watch.retry_every_ms = Millis(50);
        options.query.request_wait_ms = PATIENT;
        options.query.request_timeout_ms = PATIENT;
        options.query.read_timeout_ms = PATIENT;
        let mut source = SourceOptions::new(target(), fetcher);
        source.tiers = self.tiers.clone();
        options.sources = BTreeMap::from([(SourceId::new("characters").unwrap(), source)]);
        options
    }

    pub(crate) async fn start(&self, fetcher: Arc<dyn Fetcher>) -> RefreshService {
        RefreshService::start(self.options(fetcher)).await.unwrap()
    }

    /// A service with few events in flight.
    pub(crate) async fn start_small(&self, fetcher: Arc<dyn Fetcher>) -> RefreshService {
        let mut options = self.options(fetcher);
        options.work.high_in_flight = 10;
        options.work.low_in_flight = 10;
        RefreshService::start(options).await.unwrap()
    }

    /// Everything that is stored of a record.
    pub(crate) async fn row(&self, key: &str) -> tidegate_snapshots::Row {
        let rows = self.snapshots.inner().read(&[reference(key)]).await.unwrap();
        rows.into_iter().next().unwrap()
    }

    /// When a record was last checked, if it has a snapshot.
    pub(crate) async fn checked_at(&self, key: &str) -> Option<u64> {
        self.row(key)
            .await
            .snapshot
            .as_ref()
            .map(|snapshot| snapshot.last_checked_at.0)
    }

    /// Events that are not done, of both priorities.
    pub(crate) async fn waiting(&self) -> u64 {
        let mut waiting = 0;
        for (topic, group) in [
            (tidegate_log::Topic::High, "high-worker"),
            (tidegate_log::Topic::Low, "low-worker"),
        ] {
            waiting += self.log.lag(topic, group).await.unwrap().records();
        }
        waiting
    }

    pub(crate) async fn dead(&self) -> u64 {
        self.log
            .lag(tidegate_log::Topic::Dead, "nobody")
            .await
            .unwrap()
            .records()
    }
}

/// Waits until a condition holds; panics with `what` if it does not for two minutes.
pub(crate) async fn until<Fut: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> Fut) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads until the record is fresh. That takes longest after a lost event, whose slot has to expire first.
pub(crate) async fn until_fresh(handle: &RefreshHandle, key: &str) {
    let mut follower = handle.follow(record(key), None).unwrap();
    let follow = async {
        let mut last = None;
        while let Some(view) = follower.next().await {
            last = Some(view.unwrap().freshness);
        }
        assert_eq!(last, Some(tidegate_core::refresh::freshness::Freshness::Fresh));
    };
    tokio::time::timeout(Duration::from_secs(300), follow)
        .await
        .unwrap();
}

/// Requests a refresh as a user, until a new one starts. The service's time lags behind the store's by the duration of its
/// last poll. So after a stall, a request may seem older than a refresh that settled long ago.
///
/// Only for a world whose refreshes absorb requests for longer than this retries; otherwise the mark would expire.
pub(crate) async fn ask_anew(handle: &RefreshHandle, key: &str) -> PublishOutcome {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        let asked = handle.request_refresh(&record(key), None, ASK_WAIT).await;
        let outcome = asked.unwrap();
        if !matches!(outcome, PublishOutcome::JustRefreshed { .. }) || tokio::time::Instant::now() > deadline
        {
            return outcome;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Publishes an event through the coalescer, as prefetch does.
pub(crate) async fn publish(world: &World, key: &str, priority: Priority) {
    publish_as(world, key, priority, None).await;
}

/// The same with another name for the upstream.
pub(crate) async fn publish_as(world: &World, key: &str, priority: Priority, id: Option<&str>) {
    use tidegate_core::refresh::coalescer::RequestParams;
    use tidegate_core::refresh::event::{Reason, RefreshEvent, SchemaVersion};
    let record = record(key);
    let store = world.store.inner();
    let read_at = store.now().await.unwrap();
    let params = RequestParams {
        priority,
        snapshot_version: None,
        read_at,
    };
    let outcome = store.request(vec![(record.clone(), params)]).await.unwrap()[0];
    let Some(version) = outcome.to_send() else { return };
    let event = RefreshEvent {
        schema_version: SchemaVersion::CURRENT,
        event_id: format!("event-{version}").try_into().unwrap(),
        source: record.source.clone(),
        key: record.key.clone(),
        params: id
            .map(|id| ("id".to_owned(), id.to_owned()))
            .into_iter()
            .collect(),
        priority,
        reason: Reason::Prefetch,
        requested_at: read_at,
        correlation_id: "test".try_into().unwrap(),
        version,
    };
    let value = Bytes::from(serde_json::to_vec(&event).unwrap());
    let sent = tidegate_log::Record {
        topic: match priority {
            Priority::High => tidegate_log::Topic::High,
            Priority::Low => tidegate_log::Topic::Low,
        },
        key: Bytes::from(key.to_owned()),
        value,
    };
    for answer in world.log.append(vec![sent]).await {
        answer.unwrap();
    }
    store.confirm_sent(vec![(record, version)]).await.unwrap();
}
