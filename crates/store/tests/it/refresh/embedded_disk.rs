//! What the embedded refresh store preserves through kills, power cuts and failing disks.

use std::sync::Arc;

use tempfile::TempDir;
use tidegate_core::budget::{BudgetConfig, LimitedBy};
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{Owner, RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::priority::Priority::{High, Low};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RequestOutcome, RequestParams, SettleOutcome, SettleParams, Settlement,
};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::DurableError;
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_store::StoreError;
use tidegate_store::bulk::{EmbeddedBulkOptions, EmbeddedBulkStore};
use tidegate_store::refresh::{
    EmbeddedRefreshOptions, EmbeddedRefreshStore, RefreshSettings, RefreshStore, TakeOutcome,
};

const START: Timestamp = Timestamp(1_706_000_000_000);

fn record(key: &str) -> RecordId {
    RecordId {
        source: SourceId::new("character").unwrap(),
        key: RecordKey::new(key).unwrap(),
    }
}

fn target() -> TargetId {
    TargetId::new("nexon").unwrap()
}

fn settings(budget: BudgetConfig) -> RefreshSettings {
    RefreshSettings {
        budgets: [(target(), budget)].into(),
        ..RefreshSettings::default()
    }
}

struct World {
    clock: Arc<ManualClock>,
    disk: MemoryDisk,
    settings: RefreshSettings,
    store: EmbeddedRefreshStore,
}

fn open(
    disk: &MemoryDisk,
    settings: &RefreshSettings,
    clock: &Arc<ManualClock>,
) -> Result<EmbeddedRefreshStore, StoreError> {
    EmbeddedRefreshStore::open_for_test(Arc::new(disk.clone()), settings.clone(), clock.clone())
}

impl World {
    fn new(budget: BudgetConfig) -> Self {
        let (clock, disk) = (Arc::new(ManualClock::at(START)), MemoryDisk::default());
        let settings = settings(budget);
        let store = open(&disk, &settings, &clock).unwrap();
        Self {
            clock,
            disk,
            settings,
            store,
        }
    }

    fn on(self, disk: MemoryDisk) -> Self {
        let store = open(&disk, &self.settings, &self.clock).unwrap();
        Self { disk, store, ..self }
    }

    fn after_power_cut(self) -> Self {
        let disk = self.disk.after_power_cut(0);
        self.on(disk)
    }

    fn after_kill(self) -> Self {
        let disk = self.disk.after_kill();
        self.on(disk)
    }

    async fn request(&self, record: &RecordId, priority: Priority) -> RequestOutcome {
        let params = RequestParams {
            priority,
            snapshot_version: None,
            read_at: self.clock.now(),
        };
        self.store.request(vec![(record.clone(), params)]).await.unwrap()[0]
    }

    async fn begin(&self, record: &RecordId, version: Version, owner: &str) -> BeginOutcome {
        let params = BeginParams {
            version,
            priority: High,
            owner: Owner::new(owner).unwrap(),
            claim_for: Millis(30_000),
        };
        self.store.begin(vec![(record.clone(), params)]).await.unwrap()[0]
    }

    async fn settle(&self, record: &RecordId, version: Version) -> SettleOutcome {
        let params = SettleParams {
            version,
            priority: High,
            settlement: Settlement::Done,
        };
        self.store.settle(vec![(record.clone(), params)]).await.unwrap()[0]
    }

    async fn take(&self, priority: Priority, max: u64) -> Result<TakeOutcome, StoreError> {
        self.store.take(&target(), priority, max).await
    }
}

#[tokio::test]
async fn versions_and_ends_survive_a_power_cut() {
    let world = World::new(BudgetConfig::default());
    let (queued, done) = (record("queued"), record("done"));
    let version = world.request(&queued, High).await.to_send().unwrap();
    let settled = world.request(&done, High).await.to_send().unwrap();
    assert_eq!(world.begin(&done, settled, "one").await, BeginOutcome::Go);
    assert_eq!(world.settle(&done, settled).await, SettleOutcome::Settled);
    let world = world.after_power_cut();
    let already = RequestOutcome::AlreadyProcessing { version };
    assert_eq!(world.request(&queued, High).await, already);
    assert_eq!(world.begin(&done, settled, "two").await, BeginOutcome::Obsolete);
    assert_eq!(world.settle(&queued, version).await, SettleOutcome::Settled);
    let world = world.after_power_cut();
    let state = world.store.look(vec![queued]).await.unwrap().remove(0).unwrap();
    assert_eq!((state.completed, state.high), (version, None), "it stays settled");
}

#[tokio::test]
async fn claims_and_confirmations_survive_a_kill() {
    let world = World::new(BudgetConfig::default());
    let record = record("a");
    let version = world.request(&record, High).await.to_send().unwrap();
    let sent = vec![(record.clone(), version)];
    assert_eq!(world.store.confirm_sent(sent).await.unwrap(), [true]);
    assert_eq!(world.begin(&record, version, "one").await, BeginOutcome::Go);
    let world = world.after_kill();
    let busy = world.begin(&record, version, "two").await;
    assert!(matches!(busy, BeginOutcome::Busy { .. }), "{busy:?}");
    world.clock.advance(Millis(60_000));
    let already = RequestOutcome::AlreadyProcessing { version };
    assert_eq!(world.request(&record, High).await, already, "it was sent");
}

#[tokio::test]
async fn versions_grow_although_the_clock_steps_back_over_a_restart() {
    let world = World::new(BudgetConfig::default());
    let (record, other) = (record("a"), record("b"));
    let version = world.request(&record, High).await.to_send().unwrap();
    let unsent = vec![(record.clone(), version)];
    assert_eq!(world.store.send_failed(unsent).await.unwrap(), [true]);
    // Idle, so that only the clock is persisted.
    world.clock.advance(Millis(1_000));
    let last = world.request(&other, High).await;
    assert!(last.to_send().is_some());
    world.clock.set(START - Millis(86_400_000));
    let world = world.after_power_cut();
    let next = world.request(&record, High).await.to_send().unwrap();
    assert!(next > version, "{next} after {version}");
}

#[tokio::test]
async fn a_budget_begins_empty_and_its_day_is_never_counted_too_low() {
    let world = World::new(BudgetConfig {
        per_day: 10_000,
        day_reserve: 0,
        day_block: 100,
        ..BudgetConfig::default()
    });
    world.clock.advance(Millis(60_000));
    let mut used = 0;
    for _ in 0..50 {
        if let TakeOutcome::Taken { tokens, .. } = world.take(High, 7).await.unwrap() {
            used += tokens;
        }
        world.clock.advance(Millis(20));
    }
    assert!(used > 300, "{used}");
    let world = world.after_power_cut();
    let limited = world.take(High, 1).await.unwrap();
    let wait = TakeOutcome::Limited {
        wait: Millis(1_003),
        by: LimitedBy::Rate,
    };
    assert_eq!(limited, wait);
    let kept = world.store.budget(&target()).await.unwrap().day_used;
    assert!(
        (used..used + 100).contains(&kept),
        "{kept} for {used}: at most one block too much"
    );
}

#[tokio::test]
async fn a_hold_survives_a_power_cut() {
    let world = World::new(BudgetConfig::default());
    world.store.hold(&target(), Millis(30_000)).await.unwrap();
    let world = world.after_power_cut();
    let expected = TakeOutcome::Limited {
        wait: Millis(30_000),
        by: LimitedBy::Hold,
    };
    assert_eq!(world.take(Low, 1).await.unwrap(), expected);
}

#[tokio::test]
async fn a_grant_whose_day_cannot_be_kept_is_not_given() {
    let world = World::new(BudgetConfig {
        day_block: 10,
        ..BudgetConfig::default()
    });
    world.clock.advance(Millis(60_000));
    assert!(world.take(High, 10).await.is_ok(), "the first block");
    world.disk.fail_syncs(true);
    let refused = world.take(High, 1).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Durable(DurableError::Poisoned(_))),
        "{refused}"
    );
    world.disk.fail_syncs(false);
    let refused = world.take(High, 1).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Durable(DurableError::Poisoned(_))),
        "it stays so: {refused}"
    );
}

#[tokio::test]
async fn grants_within_a_kept_block_cost_no_write() {
    let world = World::new(BudgetConfig::default());
    world.clock.advance(Millis(60_000));
    assert!(world.take(High, 5).await.is_ok());
    world.disk.fail_commits(true);
    world.disk.fail_syncs(true);
    assert!(world.take(High, 5).await.is_ok());
}

#[tokio::test]
async fn a_failed_write_stops_the_store() {
    let world = World::new(BudgetConfig::default());
    world.disk.fail_commits(true);
    let params = RequestParams {
        priority: High,
        snapshot_version: None,
        read_at: START,
    };
    let refused = world
        .store
        .request(vec![(record("a"), params)])
        .await
        .unwrap_err();
    assert!(
        matches!(refused, StoreError::Durable(DurableError::Poisoned(_))),
        "{refused}"
    );
    world.disk.fail_commits(false);
    assert!(
        world.store.look(vec![record("a")]).await.is_err(),
        "memory is ahead of the disk"
    );
    let world = world.after_power_cut();
    assert!(world.request(&record("a"), High).await.to_send().is_some());
}

#[tokio::test]
async fn idle_records_leave_the_disk() {
    let world = World::new(BudgetConfig::default());
    for index in 0..500 {
        let record = record(&format!("key-{index}"));
        let version = world.request(&record, High).await.to_send().unwrap();
        assert_eq!(world.settle(&record, version).await, SettleOutcome::Settled);
    }
    assert!(world.disk.records() >= 500, "{}", world.disk.records());
    // A check now and then is enough; it rides along with other calls.
    for _ in 0..5 {
        world.clock.advance(Millis(15 * 60_000));
        world.request(&record("other"), Low).await;
    }
    assert!(world.disk.records() < 10, "{}", world.disk.records());
}

#[tokio::test]
async fn the_data_folder_is_shared_with_bulk_but_not_with_another_process() {
    let folder = TempDir::new().unwrap();
    let bulk = EmbeddedBulkStore::open(EmbeddedBulkOptions::new(folder.path())).unwrap();
    let options = EmbeddedRefreshOptions {
        settings: settings(BudgetConfig::default()),
        ..EmbeddedRefreshOptions::new(folder.path())
    };
    let store = EmbeddedRefreshStore::open(options.clone()).unwrap();
    let second = EmbeddedRefreshStore::open(options.clone()).unwrap_err();
    assert!(
        matches!(second, StoreError::Durable(DurableError::Locked(_))),
        "{second}"
    );
    let version = {
        let params = RequestParams {
            priority: High,
            snapshot_version: None,
            read_at: START,
        };
        store.request(vec![(record("a"), params)]).await.unwrap()[0]
            .to_send()
            .unwrap()
    };
    store.close().await.unwrap();
    let closed = store.look(vec![record("a")]).await.unwrap_err();
    assert!(matches!(closed, StoreError::Closed), "{closed}");
    let again = EmbeddedRefreshStore::open(options).unwrap();
    let state = again.look(vec![record("a")]).await.unwrap().remove(0).unwrap();
    assert_eq!(state.issued, version);
    bulk.close().await.unwrap();
}
