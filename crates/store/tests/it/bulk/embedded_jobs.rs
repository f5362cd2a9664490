//! What the embedded store keeps of single jobs across a power cut: their runs, and what operators changed.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::record::RunOutcome;
use tidegate_core::bulk::{
    ChangeJobsParams, DeathReason, DelayReason, EnqueueParams, ExpireLeasesParams, JobCommand, JobOutcome,
    JobState, LeaseParams, NewJob, Priority, PurgeParams, ReleaseDueParams, SettleParams, Settlement,
    default_queue,
};
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{GroupId, JobId, JobType, Owner};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, EmbeddedBulkStore, JobDetails, LeasedJob};

const BEGIN: Timestamp = Timestamp(1_706_000_000_000);

fn on(disk: &MemoryDisk, clock: &Arc<ManualClock>) -> EmbeddedBulkStore {
    EmbeddedBulkStore::open_for_test(Arc::new(disk.clone()), BulkConfig::default(), clock.clone())
        .expect("the store opens")
}

fn group() -> GroupId {
    GroupId::new("A").unwrap()
}

fn id(name: &str) -> JobId {
    JobId::new(name).unwrap()
}

async fn enqueue(store: &EmbeddedBulkStore, names: &[&str]) {
    let job = |name: &&str| NewJob {
        id: id(name),
        kind: JobType::new("mail").unwrap(),
        priority: Priority::Normal,
        payload: Bytes::new(),
        run_at: None,
        cost: 1,
        expires_at: None,
    };
    let params = EnqueueParams {
        group: group(),
        batch: None,
        base_priority: None,
        jobs: names.iter().map(job).collect(),
    };
    store.call(params).await.unwrap().expect("not refused");
}

async fn lease(store: &EmbeddedBulkStore) -> LeasedJob {
    let params = LeaseParams {
        queue: default_queue(),
        max: 1,
        owner: Owner::new("worker-7").unwrap(),
    };
    store.lease(params).await.unwrap().jobs.remove(0)
}

async fn settle(store: &EmbeddedBulkStore, job: &LeasedJob, outcome: JobOutcome) {
    let lease = job.leased.lease;
    let answers = vec![Settlement {
        lease,
        outcome,
        cost: None,
    }];
    store.call(SettleParams { answers }).await.unwrap();
}

fn retry() -> JobOutcome {
    JobOutcome::Retry {
        error: "Connection reset".into(),
        after: None,
        overloaded: false,
    }
}

async fn change(store: &EmbeddedBulkStore, name: &str, command: JobCommand) -> JobState {
    let params = ChangeJobsParams {
        group: group(),
        jobs: vec![id(name)],
        command,
    };
    store.call(params).await.unwrap().remove(0).expect("not refused")
}

async fn read(store: &EmbeddedBulkStore, name: &str) -> JobDetails {
    store
        .job(&group(), &id(name))
        .await
        .unwrap()
        .expect("it is there")
}

#[tokio::test]
async fn runs_survive_a_power_cut() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(BEGIN)));
    let store = on(&disk, &clock);
    enqueue(&store, &["a"]).await;
    let job = lease(&store).await;
    settle(&store, &job, retry()).await;
    let before = read(&store, "a").await;

    let disk = disk.after_kill();
    let store = on(&disk, &clock);
    assert_eq!(read(&store, "a").await, before);
    clock.advance(Millis(60_000));
    store.call(ReleaseDueParams { max: 10 }).await.unwrap();
    let job = lease(&store).await;

    // The lease is lost with the process, and its run with it counts as one that nobody ended.
    let disk = disk.after_kill();
    let store = on(&disk, &clock);
    store.call(ExpireLeasesParams { max: 10 }).await.unwrap();
    let runs = read(&store, "a").await.runs;
    let seen: Vec<_> = runs
        .iter()
        .map(|run| (run.number, run.outcome, run.started_at))
        .collect();
    assert_eq!(
        seen,
        [
            (1, Some(RunOutcome::Retry), Some(BEGIN)),
            (2, Some(RunOutcome::LeaseExpired), None)
        ],
        "{job:?}"
    );

    clock.advance(Millis(60_000));
    store.call(ReleaseDueParams { max: 10 }).await.unwrap();
    let job = lease(&store).await;
    settle(&store, &job, JobOutcome::Completed { result: "ok".into() }).await;
    let store = on(&disk.after_kill(), &clock);
    let last = read(&store, "a").await.runs.remove(2);
    assert_eq!((last.number, last.outcome), (3, Some(RunOutcome::Completed)));
    assert_eq!(last.worker.as_str(), "worker-7");
}

#[tokio::test]
async fn what_an_operator_changed_survives_a_power_cut() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(BEGIN)));
    let store = on(&disk, &clock);
    enqueue(&store, &["running", "urgent", "later", "now", "plain"]).await;
    let at = BEGIN + Millis(3_600_000);
    let job = lease(&store).await;
    assert_eq!(job.id, id("running"));
    let high = JobCommand::Reprioritise {
        priority: Priority::High,
    };
    change(&store, "urgent", high).await;
    change(&store, "later", JobCommand::Reschedule { run_at: at }).await;
    change(&store, "now", JobCommand::Reschedule { run_at: at }).await;
    change(&store, "now", JobCommand::RunNow).await;
    assert_eq!(
        change(&store, "running", JobCommand::Cancel).await,
        JobState::Running
    );

    let store = on(&disk.after_kill(), &clock);
    clock.advance(Millis(2_000));
    assert_eq!(read(&store, "urgent").await.view.priority, Priority::High);
    let delayed = read(&store, "later").await.view.delayed;
    assert_eq!(delayed, Some((at, DelayReason::Scheduled)));
    assert_eq!(lease(&store).await.id, id("urgent"));
    assert_eq!(lease(&store).await.id, id("now"));
    assert_eq!(lease(&store).await.id, id("plain"));
    let cancelled = read(&store, "running").await.view;
    assert_eq!(cancelled.dead, Some(DeathReason::Cancelled), "{cancelled:?}");
}

#[tokio::test]
async fn a_dropped_job_leaves_no_run_behind() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(BEGIN)));
    let store = on(&disk, &clock);
    enqueue(&store, &["first"]).await;
    let job = lease(&store).await;
    settle(&store, &job, JobOutcome::Failed { error: "no".into() }).await;
    let purge = PurgeParams {
        group: group(),
        job: id("first"),
    };
    store.call(purge).await.unwrap().expect("it is dead");
    let before = disk.records();
    enqueue(&store, &["second"]).await;
    for _ in 0..15 {
        let job = lease(&store).await;
        settle(&store, &job, retry()).await;
        if read(&store, "second").await.view.state == JobState::Dead {
            break;
        }
        clock.advance(Millis(3_600_000));
        store.call(ReleaseDueParams { max: 10 }).await.unwrap();
    }
    let purge = PurgeParams {
        group: group(),
        job: id("second"),
    };
    store
        .call(purge)
        .await
        .unwrap()
        .expect("its attempts are used up");
    assert_eq!(disk.records(), before, "the job, its state and its runs are gone");
}
