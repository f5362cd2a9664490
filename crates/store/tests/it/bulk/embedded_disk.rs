//! What only the embedded store promises: restarts, power cuts, poisoning, its folder, its export.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{BulkStats, Query, View};
use tidegate_core::bulk::{
    DropFinishedParams, EnqueueOutcome, EnqueueParams, Enqueued, ExpireLeasesParams, JobOutcome, JobState,
    LeaseParams, NewJob, Priority, ReleaseDueParams, ReplayParams, SealBatchParams, SettleParams, Settled,
    Settlement, Stop, default_queue,
};
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{GroupId, JobId, JobType, Owner};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_durable::{Durability, DurableError};
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, EmbeddedBulkOptions, EmbeddedBulkStore, LeasedJob};

const BEGIN: Timestamp = Timestamp(1_706_000_000_000);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(BEGIN))
}

fn on(disk: &MemoryDisk, clock: &Arc<ManualClock>) -> EmbeddedBulkStore {
    on_with(disk, clock, BulkConfig::default())
}

fn on_with(disk: &MemoryDisk, clock: &Arc<ManualClock>, config: BulkConfig) -> EmbeddedBulkStore {
    EmbeddedBulkStore::open_for_test(Arc::new(disk.clone()), config, clock.clone()).expect("the store opens")
}

fn at(folder: &Path) -> Result<EmbeddedBulkStore, StoreError> {
    EmbeddedBulkStore::open(EmbeddedBulkOptions {
        clock: clock(),
        ..EmbeddedBulkOptions::new(folder)
    })
}

fn group() -> GroupId {
    GroupId::new("customer-A").unwrap()
}

fn job(number: u64, payload: impl Into<Bytes>) -> NewJob {
    NewJob {
        id: JobId::new(format!("job-{number}")).unwrap(),
        kind: JobType::new("mail").unwrap(),
        priority: Priority::Normal,
        payload: payload.into(),
        run_at: None,
        expires_at: None,
        cost: 1,
    }
}

async fn enqueue(store: &EmbeddedBulkStore, jobs: Vec<NewJob>) -> Result<EnqueueOutcome, StoreError> {
    let params = EnqueueParams {
        group: group(),
        batch: None,
        base_priority: None,
        jobs,
    };
    Ok(store.call(params).await?.expect("not refused"))
}

async fn lease(store: &EmbeddedBulkStore, max: u32) -> Vec<LeasedJob> {
    leased(store, max).await.0
}

async fn leased(store: &EmbeddedBulkStore, max: u32) -> (Vec<LeasedJob>, Stop) {
    let owner = Owner::new("worker").unwrap();
    let outcome = store
        .lease(LeaseParams {
            queue: default_queue(),
            max,
            owner,
        })
        .await
        .unwrap();
    (outcome.jobs, outcome.stop)
}

async fn settle(store: &EmbeddedBulkStore, job: &LeasedJob, outcome: JobOutcome) -> Settled {
    let answers = vec![Settlement {
        lease: job.leased.lease,
        outcome,
        cost: None,
    }];
    store.call(SettleParams { answers }).await.unwrap()[0]
}

fn done(result: impl Into<Bytes>) -> JobOutcome {
    JobOutcome::Completed {
        result: result.into(),
    }
}

async fn stats(store: &EmbeddedBulkStore) -> BulkStats {
    match store.call(Query::BulkStats).await.unwrap().unwrap() {
        View::BulkStats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_was_answered_survives_a_power_cut() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    enqueue(&store, (0..100).map(|n| job(n, "x")).collect())
        .await
        .unwrap();
    for leased in lease(&store, 40).await {
        settle(&store, &leased, done("fine")).await;
    }
    let store = on(&disk.after_power_cut(0), &clock);
    let counts = stats(&store).await.counts;
    assert_eq!((counts.waiting, counts.completed), (60, 40));
    let again = enqueue(&store, vec![job(0, "x"), job(99, "x")]).await.unwrap();
    assert!(
        again.jobs.iter().all(|job| matches!(job, Enqueued::Duplicate(_))),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_lease_lost_in_a_power_cut_is_refused_later_and_its_window_is_spent() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 10.0.into();
    let store = on_with(&disk, &clock, config.clone());
    enqueue(&store, (0..20).map(|n| job(n, "x")).collect())
        .await
        .unwrap();
    let before = lease(&store, 3).await;
    assert_eq!(before.len(), 3);

    let store = on_with(&disk.after_power_cut(0), &clock, config);
    // Seven of ten starts were left, but the store does not know that any more: none is left.
    assert_eq!(
        leased(&store, 20).await,
        (
            Vec::new(),
            Stop::Limited {
                until: Timestamp(BEGIN.0 + 1_000)
            }
        )
    );
    clock.advance(Millis(1_000));
    let after = lease(&store, 10).await;
    assert_eq!(after.len(), 10);
    for old in &before {
        assert_eq!(settle(&store, old, done("late")).await, Settled::Stale);
        assert!(
            after
                .iter()
                .all(|new| new.leased.lease.fence > old.leased.lease.fence)
        );
    }
}

#[tokio::test]
async fn a_lease_of_a_killed_process_runs_out_at_once_and_uses_up_an_attempt() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    enqueue(&store, vec![job(1, "x")]).await.unwrap();
    assert_eq!(lease(&store, 1).await.len(), 1);

    let store = on(&disk.after_kill(), &clock);
    let expired = store.call(ExpireLeasesParams { max: 10 }).await.unwrap();
    assert_eq!((expired.delayed, expired.dead), (1, 0));
    let details = store
        .job(&group(), &JobId::new("job-1").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (details.view.state, details.view.attempts),
        (JobState::Delayed, 1)
    );
}

#[tokio::test]
async fn a_job_that_kills_its_process_is_dead_after_its_attempts() {
    let (mut disk, clock) = (MemoryDisk::default(), clock());
    enqueue(&on(&disk, &clock), vec![job(1, "x")]).await.unwrap();
    // One attempt and three retries.
    for attempt in 1..=4 {
        disk = disk.after_kill();
        let store = on(&disk, &clock);
        store.call(ExpireLeasesParams { max: 10 }).await.unwrap();
        clock.advance(Millis(60_000));
        store.call(ReleaseDueParams { max: 10 }).await.unwrap();
        let leased = lease(&store, 1).await;
        assert_eq!(leased.len(), 1, "attempt {attempt}");
        assert_eq!(leased[0].leased.attempt, attempt);
    }
    let store = on(&disk.after_kill(), &clock);
    let expired = store.call(ExpireLeasesParams { max: 10 }).await.unwrap();
    assert_eq!((expired.delayed, expired.dead), (0, 1));
}

#[tokio::test]
async fn a_failed_sync_poisons_the_store_and_loses_nothing_that_was_answered() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    enqueue(&store, vec![job(1, "x")]).await.unwrap();
    disk.fail_syncs(true);
    let failed = enqueue(&store, vec![job(2, "x")]).await.unwrap_err();
    assert!(
        matches!(failed, StoreError::Durable(DurableError::Poisoned(_))),
        "{failed}"
    );
    disk.fail_syncs(false);
    // The disk works again, but memory is ahead of it, so the store rejects every call.
    let later = enqueue(&store, vec![job(3, "x")]).await.unwrap_err();
    assert!(
        matches!(later, StoreError::Durable(DurableError::Poisoned(_))),
        "{later}"
    );
    let store = on(&disk.after_power_cut(0), &clock);
    assert_eq!(stats(&store).await.counts.waiting, 1);
}

#[tokio::test]
async fn a_failed_write_poisons_too() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    enqueue(&store, vec![job(1, "x")]).await.unwrap();
    disk.fail_commits(true);
    let failed = enqueue(&store, vec![job(2, "x")]).await.unwrap_err();
    assert!(
        failed.to_string().contains("the store answers nothing more"),
        "{failed}"
    );
    let leased = store
        .lease(LeaseParams {
            queue: default_queue(),
            max: 1,
            owner: Owner::new("worker").unwrap(),
        })
        .await;
    assert!(matches!(
        leased,
        Err(StoreError::Durable(DurableError::Poisoned(_)))
    ));
}

#[tokio::test]
async fn time_goes_on_from_where_it_was_when_the_clock_is_behind_after_a_restart() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 5.0.into();
    let store = on_with(&disk, &clock, config.clone());
    enqueue(&store, (0..20).map(|n| job(n, "x")).collect())
        .await
        .unwrap();
    assert_eq!(lease(&store, 5).await.len(), 5);
    clock.set(Timestamp(BEGIN.0 - 60_000));
    let store = on_with(&disk.after_kill(), &clock, config);
    assert_eq!(lease(&store, 5).await.len(), 0, "the window is the one of before");
    clock.advance(Millis(1_000));
    assert_eq!(lease(&store, 5).await.len(), 5);
}

#[tokio::test]
async fn a_restart_keeps_batches_groups_and_results() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    let accepted = enqueue(&store, (0..3).map(|n| job(n, "x")).collect())
        .await
        .unwrap();
    store
        .call(SealBatchParams {
            group: group(),
            batch: None,
        })
        .await
        .unwrap()
        .unwrap();
    let jobs = lease(&store, 2).await;
    settle(&store, &jobs[0], done(vec![7u8; 50_000])).await;
    settle(
        &store,
        &jobs[1],
        JobOutcome::Failed {
            error: "no such address".into(),
        },
    )
    .await;

    let store = on(&disk.after_kill(), &clock);
    let View::Batch(batch) = store
        .call(Query::Batch(group(), accepted.batch.clone()))
        .await
        .unwrap()
        .unwrap()
    else {
        panic!("a batch is answered with a batch")
    };
    assert_eq!(
        (batch.counts.total, batch.counts.success, batch.counts.failed),
        (3, 1, 1)
    );
    let page = store
        .results(&group(), &accepted.batch, None, 10)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(page.items[0].result.as_deref(), Some(&[7u8; 50_000][..]));
    assert_eq!(page.items[1].error.as_deref(), Some("no such address"));
    clock.advance(Millis(1_000));
    assert_eq!(batch.errors, ["no such address"]);
    let last = lease(&store, 1).await;
    assert_eq!(
        settle(&store, &last[0], done("")).await,
        Settled::Completed { batch_complete: true }
    );
}

#[tokio::test]
async fn large_payloads_come_back_whole_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let payload: Bytes = (0..200_000u32)
        .map(|n| (n * 7 % 251) as u8)
        .collect::<Vec<_>>()
        .into();
    let store = at(folder.path()).unwrap();
    enqueue(&store, vec![job(1, payload.clone())]).await.unwrap();
    store.close().await.unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(BEGIN.0 + 1_000)));
    let options = EmbeddedBulkOptions {
        clock: clock.clone(),
        ..EmbeddedBulkOptions::new(folder.path())
    };
    let store = EmbeddedBulkStore::open(options).unwrap();
    let leased = lease(&store, 1).await;
    assert_eq!(leased[0].payload, payload);
    settle(&store, &leased[0], done(payload.clone())).await;
    let details = store
        .job(&group(), &JobId::new("job-1").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(details.result, Some(payload));
    let dropped = store
        .call(DropFinishedParams {
            max: 10,
            older_than: Some(Millis(0)),
        })
        .await
        .unwrap();
    assert_eq!(dropped.jobs, 0, "finished in this very millisecond");
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(folder.path()).unwrap();
    let refused = at(folder.path()).unwrap_err();
    assert!(
        refused.to_string().contains("is used by another process"),
        "{refused}"
    );
    store.close().await.unwrap();
    at(folder.path()).unwrap().close().await.unwrap();
}

#[tokio::test]
async fn an_unknown_format_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    at(folder.path()).unwrap().close().await.unwrap();
    for other in [1, 99] {
        std::fs::write(folder.path().join("FORMAT"), format!("tidegate {other}\n")).unwrap();
        let refused = at(folder.path()).unwrap_err().to_string();
        let expected = format!("has format {other}, this program reads format 4");
        assert!(refused.contains(&expected), "{refused}");
    }
}

#[tokio::test]
async fn folders_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    // Half a mark of the format, of a process that was killed, locks nobody out.
    std::fs::write(folder.path().join("FORMAT.new"), "tide").unwrap();
    at(folder.path()).unwrap().close().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    let foreign = at(folder.path()).unwrap_err().to_string();
    assert!(foreign.contains("is not Tidegate's"), "{foreign}");
    let file = at(&folder.path().join("letter.txt")).unwrap_err().to_string();
    assert!(file.contains("letter.txt cannot be used"), "{file}");
    // A file system that even root cannot write to.
    let read_only = at(Path::new("/proc/tidegate")).unwrap_err().to_string();
    assert!(read_only.contains("/proc/tidegate cannot be used"), "{read_only}");
}

#[tokio::test]
async fn a_stream_makes_the_same_store_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(&folder.path().join("one")).unwrap();
    let jobs = vec![
        job(1, "text"),
        job(2, vec![0u8, 255, 1]),
        job(3, vec![b'y'; 5_000]),
    ];
    enqueue(&store, jobs).await.unwrap();
    let first = lease(&store, 1).await;
    settle(&store, &first[0], done("result")).await;
    let mut stream = Vec::new();
    let counts = store.export(&mut stream).await.unwrap();
    assert_eq!((counts.groups, counts.batches, counts.jobs), (1, 1, 3));
    store.close().await.unwrap();

    let other = folder.path().join("two");
    assert_eq!(EmbeddedBulkStore::import(&other, &stream[..]).unwrap(), counts);
    let store = at(&other).unwrap();
    let mut again = Vec::new();
    store.export(&mut again).await.unwrap();
    assert_eq!(stream, again);
    let leased = lease(&store, 5).await;
    assert_eq!(leased.len(), 2);
    assert_eq!(leased[1].payload, vec![b'y'; 5_000]);

    for (broken, why) in [
        (&stream[..stream.len() - 30], "line 7"),
        (&b""[..], "does not begin with a Tidegate header"),
        (&b"{\"header\":{\"tidegateExport\":1}}\n"[..], "has version 1"),
        (
            &b"{\"header\":{\"tidegateExport\":2}}\n"[..],
            "ends without its last line",
        ),
    ] {
        let refused = EmbeddedBulkStore::import(&folder.path().join("three"), broken)
            .unwrap_err()
            .to_string();
        assert!(refused.contains(why), "{refused:?} should contain {why:?}");
        assert!(
            !folder.path().join("three").exists(),
            "half an import leaves nothing behind"
        );
    }
}

/// The journal of the real engine, truncated at any byte after the last sync, as after a power cut.
#[tokio::test]
async fn a_torn_journal_opens_with_everything_that_was_synced() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let options = EmbeddedBulkOptions {
        durability: Durability::Sync,
        clock: clock(),
        ..EmbeddedBulkOptions::new(&whole)
    };
    let store = EmbeddedBulkStore::open(options).unwrap();
    enqueue(&store, (0..50).map(|n| job(n, vec![b'a'; 300])).collect())
        .await
        .unwrap();
    let synced = journal(&whole);
    enqueue(&store, (50..100).map(|n| job(n, vec![b'b'; 6_000])).collect())
        .await
        .unwrap();
    let written = journal(&whole);
    assert!(
        written > synced,
        "the second call was written behind the first: {synced} {written}"
    );
    for step in 0..12 {
        let torn = folder.path().join(format!("torn-{step}"));
        copy(&whole, &torn);
        let cut = synced + (written - synced) * step / 11;
        tear(&torn, cut, written, step % 2 == 1);
        let store = at(&torn).unwrap_or_else(|error| panic!("cut at {cut} of {written}: {error}"));
        let waiting = stats(&store).await.counts.waiting;
        assert!(
            waiting == 50 || waiting == 100,
            "cut at {cut} of {written}: {waiting} jobs"
        );
        enqueue(&store, vec![job(1_000, "x")]).await.expect("it goes on");
        store.close().await.unwrap();
    }
    store.close().await.unwrap();
}

fn journal_file(folder: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(folder.join("bulk"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    entries
        .filter(|path| path.extension().is_some_and(|e| e == "jnl"))
        .max()
        .expect("a journal")
}

/// Bytes of the journal up to the last that is not zero: the rest is allocated ahead.
fn journal(folder: &Path) -> usize {
    let bytes = std::fs::read(journal_file(folder)).unwrap();
    bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1)
}

/// Drops everything from `cut` on, or only one page of it, as when a disk writes out of order.
fn tear(folder: &Path, cut: usize, written: usize, hole: bool) {
    let path = journal_file(folder);
    let mut bytes = std::fs::read(&path).unwrap();
    let page = cut.next_multiple_of(4_096);
    if !hole {
        bytes[cut..].fill(0);
    } else if page + 4_096 < written {
        bytes[page..page + 4_096].fill(0);
    }
    std::fs::write(&path, bytes).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target);
        } else {
            std::fs::copy(&source, &target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_duplicate_is_not_confirmed_before_the_first_is_durable() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    disk.fail_syncs(true);
    // Both are in the inbox before the owner thread reads it: one chunk, and a sync that fails.
    let (first, second) = tokio::join!(
        enqueue(&store, vec![job(1, "x")]),
        enqueue(&store, vec![job(1, "x")])
    );
    assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
}

#[tokio::test]
async fn a_replayed_job_does_not_expire_again_after_a_restart() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    let expiring = NewJob {
        expires_at: Some(Timestamp(BEGIN.0 + 10)),
        ..job(1, "x")
    };
    enqueue(&store, vec![expiring]).await.unwrap();
    clock.advance(Millis(20));
    assert_eq!(store.call(ReleaseDueParams { max: 10 }).await.unwrap().expired, 1);
    let replay = ReplayParams {
        group: group(),
        job: JobId::new("job-1").unwrap(),
    };
    store.call(replay).await.unwrap().unwrap();

    let store = on(&disk.after_kill(), &clock);
    clock.advance(Millis(1_000));
    assert_eq!(store.call(ReleaseDueParams { max: 10 }).await.unwrap().expired, 0);
    assert_eq!(lease(&store, 1).await.len(), 1);
}

#[tokio::test]
async fn lease_records_go_when_their_jobs_are_settled_also_across_a_kill() {
    let (disk, clock) = (MemoryDisk::default(), clock());
    let store = on(&disk, &clock);
    enqueue(&store, (0..2).map(|n| job(n, "x")).collect())
        .await
        .unwrap();
    let before = disk.records();
    let jobs = lease(&store, 2).await;
    settle(&store, &jobs[0], done("")).await;
    let disk = disk.after_kill();
    let store = on(&disk, &clock);
    store.call(ExpireLeasesParams { max: 10 }).await.unwrap();
    assert_eq!(disk.records(), before + 3, "two states, one run");
}

#[tokio::test]
async fn a_stream_that_could_not_be_opened_is_not_imported() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(&folder.path().join("one")).unwrap();
    enqueue(&store, vec![job(1, "x")]).await.unwrap();
    let mut stream = Vec::new();
    store.export(&mut stream).await.unwrap();
    store.close().await.unwrap();
    let text = String::from_utf8(stream).unwrap();
    let orphan = text.replace("\"group\":1,", "\"group\":77,");
    assert_ne!(text, orphan);
    let refused = EmbeddedBulkStore::import(&folder.path().join("two"), orphan.as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("which is missing"), "{refused}");
    assert!(!folder.path().join("two").exists());
}
