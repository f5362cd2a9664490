//! What the embedded store still knows after a restart: dead jobs, purged jobs, since when a group waits, and the
//! callback of a batch.

use std::sync::Arc;

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{BatchView, DeadFilter, GroupView, Query, View};
use tidegate_core::bulk::*;
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{BatchId, GroupId, JobId, JobType, Owner};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, EmbeddedBulkStore};

const BEGIN: Timestamp = Timestamp(1_706_000_000_000);

fn group() -> GroupId {
    GroupId::new("customer-A").unwrap()
}

fn batch() -> BatchId {
    BatchId::new("spring").unwrap()
}

fn open(disk: &MemoryDisk, clock: &Arc<ManualClock>) -> EmbeddedBulkStore {
    EmbeddedBulkStore::open_for_test(Arc::new(disk.clone()), BulkConfig::default(), clock.clone()).unwrap()
}

async fn enqueue(store: &EmbeddedBulkStore, ids: impl Iterator<Item = u32>) {
    let job = |id: u32| NewJob {
        id: JobId::new(format!("job-{id}")).unwrap(),
        kind: JobType::new("mail").unwrap(),
        priority: Priority::Normal,
        payload: "hello".into(),
        run_at: None,
        expires_at: None,
        cost: 1,
    };
    let params = EnqueueParams {
        group: group(),
        batch: Some(batch()),
        base_priority: None,
        jobs: ids.map(job).collect(),
    };
    store.call(params).await.unwrap().unwrap();
}

async fn fail(store: &EmbeddedBulkStore, max: u32) {
    let params = LeaseParams {
        queue: default_queue(),
        max,
        owner: Owner::new("worker").unwrap(),
    };
    let leased = store.lease(params).await.unwrap().jobs;
    let answers = leased.iter().map(|job| Settlement {
        lease: job.leased.lease,
        outcome: JobOutcome::Failed { error: "no".into() },
        cost: None,
    });
    let answers = answers.collect();
    store.call(SettleParams { answers }).await.unwrap();
}

async fn purge(store: &EmbeddedBulkStore, id: u32) -> Result<(), Refusal> {
    let params = PurgeParams {
        group: group(),
        job: JobId::new(format!("job-{id}")).unwrap(),
    };
    store.call(params).await.unwrap()
}

async fn dead(store: &EmbeddedBulkStore) -> Vec<String> {
    let page = store.dead(&DeadFilter::default(), None, 100).await.unwrap();
    assert_eq!(page.next, None);
    page.items
        .iter()
        .map(|dead| {
            assert_eq!((&dead.group, &dead.details.view.batch), (&group(), &batch()));
            assert_eq!(dead.details.error.as_deref(), Some("no"));
            dead.details.id.to_string()
        })
        .collect()
}

async fn views(store: &EmbeddedBulkStore) -> (GroupView, BatchView) {
    let View::Group(of_group) = store.call(Query::Group(group())).await.unwrap().unwrap() else {
        panic!("a group is answered with a group");
    };
    let query = Query::Batch(group(), batch());
    let View::Batch(of_batch) = store.call(query).await.unwrap().unwrap() else {
        panic!("a batch is answered with a batch");
    };
    (of_group, of_batch)
}

#[tokio::test]
async fn dead_jobs_purges_callbacks_and_waiting_survive_a_power_cut() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(BEGIN)));
    let store = open(&disk, &clock);
    let params = OpenBatchParams {
        group: group(),
        batch: batch(),
        base_priority: None,
        options: BatchOptions {
            callback: Some("mailer".into()),
            ..Default::default()
        },
    };
    store.call(params).await.unwrap().unwrap();
    enqueue(&store, 0..4).await;
    fail(&store, 4).await;
    clock.advance(Millis(7_400));
    enqueue(&store, 4..6).await;
    assert_eq!(purge(&store, 2).await, Ok(()));
    let (group_before, batch_before) = views(&store).await;
    assert_eq!(group_before.waiting_since, Some(BEGIN + Millis(7_000)));
    assert_eq!(batch_before.counts.failed, 4);

    let disk = disk.after_power_cut(0);
    clock.advance(Millis(60_000));
    let store = open(&disk, &clock);
    assert_eq!(dead(&store).await, ["job-3", "job-1", "job-0"]);
    let (group_after, batch_after) = views(&store).await;
    assert_eq!(group_after.waiting_since, group_before.waiting_since);
    assert_eq!(batch_after.callback.as_deref(), Some("mailer"));
    assert_eq!(
        batch_after.counts, batch_before.counts,
        "also the one that is gone"
    );
    assert!(matches!(purge(&store, 2).await, Err(Refusal::UnknownJob { .. })));
    assert_eq!(purge(&store, 3).await, Ok(()));

    let store = open(&disk.after_power_cut(0), &clock);
    assert_eq!(dead(&store).await, ["job-1", "job-0"]);
    assert_eq!(views(&store).await.1.counts, batch_before.counts);
}

async fn drop_all(store: &EmbeddedBulkStore) -> u32 {
    let params = DropFinishedParams {
        max: 100,
        older_than: Some(Millis(1)),
    };
    store.call(params).await.unwrap().jobs
}

async fn state(store: &EmbeddedBulkStore, id: &str) -> JobState {
    let details = store.job(&group(), &JobId::new(id).unwrap()).await;
    details.unwrap().unwrap().view.state
}

#[tokio::test]
async fn ids_of_dropped_jobs_survive_a_power_cut_until_their_batch_is_decided() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(BEGIN)));
    let store = open(&disk, &clock);
    enqueue(&store, 0..3).await;
    fail(&store, 3).await;
    clock.advance(Millis(1_000));
    assert_eq!(drop_all(&store).await, 3);
    // Its counts are synced with the next command.
    enqueue(&store, 3..4).await;

    let disk = disk.after_power_cut(0);
    // The window of before counts as spent.
    clock.advance(Millis(60_000));
    let store = open(&disk, &clock);
    enqueue(&store, 0..5).await;
    assert_eq!(views(&store).await.1.counts.total, 5, "only job-4 is new");
    let seal = SealBatchParams {
        group: group(),
        batch: Some(batch()),
    };
    store.call(seal).await.unwrap().unwrap();
    fail(&store, 2).await;
    let claim = ClaimAggregationParams {
        owner: Owner::new("aggregator").unwrap(),
        max: 1,
        claim_for: Millis(1_000),
    };
    let claimed = store.call(claim).await.unwrap().remove(0);
    let finish = FinishAggregationParams {
        group: group(),
        batch: batch(),
        claim: claimed.claim,
        summary: Ok("sum".into()),
    };
    assert_eq!(store.call(finish).await.unwrap(), Ok(BatchStatus::Failed));

    let store = open(&disk.after_power_cut(0), &clock);
    let again = EnqueueParams {
        group: group(),
        batch: Some(BatchId::new("summer").unwrap()),
        base_priority: None,
        jobs: vec![NewJob {
            id: JobId::new("job-0").unwrap(),
            kind: JobType::new("mail").unwrap(),
            priority: Priority::Normal,
            payload: "hello".into(),
            run_at: None,
            expires_at: None,
            cost: 1,
        }],
    };
    let again = store.call(again).await.unwrap().unwrap();
    assert!(matches!(again.jobs[..], [Enqueued::Accepted(_)]), "{again:?}");
}

#[tokio::test]
async fn a_job_replayed_after_its_batch_was_cancelled_still_runs_after_a_power_cut() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(BEGIN)));
    let store = open(&disk, &clock);
    enqueue(&store, 0..3).await;
    let cancel = CancelParams {
        scope: Scope::Batch(group(), batch()),
        max: 2,
    };
    assert!(store.call(cancel).await.unwrap().unwrap().more);
    let replay = ReplayParams {
        group: group(),
        job: JobId::new("job-0").unwrap(),
    };
    store.call(replay).await.unwrap().unwrap();

    clock.advance(Millis(60_000));
    let store = open(&disk.after_power_cut(0), &clock);
    store.call(ReleaseDueParams { max: 100 }).await.unwrap();
    assert_eq!(
        state(&store, "job-2").await,
        JobState::Dead,
        "the cancellation goes on"
    );
    assert_eq!(
        state(&store, "job-0").await,
        JobState::Waiting,
        "but not for this one"
    );
    fail(&store, 10).await;
    assert_eq!(state(&store, "job-0").await, JobState::Dead);
}
