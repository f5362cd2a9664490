//! Cases that only a failing disk can show.

use bytes::Bytes;
use tidegate_core::clock::ManualClock;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::DurableError;
use tidegate_durable::memory_disk::MemoryDisk;

use super::*;
use crate::{CommitOutcome, CommittedOffset};

fn record(number: u32) -> Record {
    Record {
        topic: Topic::High,
        key: Bytes::from(format!("key-{number}")),
        value: Bytes::from_static(b"value"),
    }
}

fn consumer() -> ConsumeParams {
    ConsumeParams {
        topic: Topic::High,
        group: "high-worker".into(),
        owner: "test".into(),
        max_buffered: 100,
    }
}

/// A long send timeout: a busy disk must not fail a test.
fn patient() -> LogSettings {
    LogSettings {
        send_timeout: Millis(60_000),
        ..LogSettings::default()
    }
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_answered_any_more() {
    let disk = MemoryDisk::default();
    let clock = Arc::new(ManualClock::at(Timestamp(1_000)));
    let log = EmbeddedLog::open_for_test(Arc::new(disk.clone()), patient(), clock).unwrap();
    let position = log.append(vec![record(1)]).await.remove(0).unwrap();
    let consumer = log.consume(consumer()).await.unwrap();
    let batch = consumer.next(10, Duration::ZERO).await.unwrap();
    assert_eq!(batch.records.len(), 1);

    disk.fail_syncs(true);
    let poisoned = |error: LogError| {
        assert!(
            matches!(error, LogError::Durable(DurableError::Poisoned(_))),
            "{error}"
        )
    };
    poisoned(log.append(vec![record(2)]).await.remove(0).unwrap_err());
    disk.fail_syncs(false);
    poisoned(log.append(vec![record(3)]).await.remove(0).unwrap_err());
    let offset = CommittedOffset {
        partition: position.partition,
        next: position.offset + 1,
    };
    poisoned(consumer.commit(&[offset]).await.unwrap_err());
    poisoned(consumer.next(10, Duration::ZERO).await.unwrap_err());
    poisoned(log.lag(Topic::High, "high-worker").await.unwrap_err());
    poisoned(log.check().await.unwrap_err());
}

#[tokio::test]
async fn a_wall_clock_that_steps_back_leaves_times_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(10_000)));
    let options = EmbeddedLogOptions {
        clock: clock.clone(),
        settings: patient(),
        ..EmbeddedLogOptions::new(folder.path().join("log"))
    };
    let log = EmbeddedLog::open(options.clone()).unwrap();
    log.append(vec![record(1)]).await.remove(0).unwrap();
    log.close().await;
    drop(log);
    clock.set(Timestamp(4_000));
    let log = EmbeddedLog::open(options).unwrap();
    let position = log.append(vec![record(1)]).await.remove(0).unwrap();
    let from = Position {
        offset: 0,
        ..position
    };
    let read = log.read(Topic::High, from, 10).await.unwrap();
    let times: Vec<u64> = read.iter().map(|record| record.appended_at.0).collect();
    assert_eq!(times, [10_000, 10_000]);
}

#[tokio::test]
async fn a_large_backlog_of_old_records_goes_in_bounded_steps() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let mut options = EmbeddedLogOptions {
        clock: clock.clone(),
        settings: patient(),
        ..EmbeddedLogOptions::new(folder.path().join("log"))
    };
    options.settings.sweep_every = Millis(10);
    options.settings.high.retention = Millis(5_000);
    let log = EmbeddedLog::open(options).unwrap();
    for _ in 0..5 {
        let answers = log.append(vec![record(1); 1_000]).await;
        assert!(answers.iter().all(Result::is_ok));
    }
    clock.advance(Millis(4_000));
    let kept = log.append(vec![record(1); 10]).await.remove(0).unwrap();
    clock.advance(Millis(2_000));
    let waited = tokio::time::timeout(Duration::from_secs(120), async {
        loop {
            let lag = log.lag(Topic::High, "any").await.unwrap();
            if lag.records() == 10 {
                return lag.partitions[kept.partition as usize];
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let lag = waited.await.expect("old records go");
    assert_eq!((lag.start, lag.end), (5_000, 5_010));
    assert_eq!(lag.oldest, Some(Timestamp(1_004_000)));
}

#[tokio::test]
async fn a_full_queue_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = EmbeddedLogOptions::new(folder.path().join("log"));
    options.settings = patient();
    options.settings.max_queued = 10;
    let log = EmbeddedLog::open(options).unwrap();
    let answers = log.append((0..11).map(record).collect()).await;
    assert!(
        answers.iter().all(|answer| *answer == Err(LogError::Full)),
        "{answers:?}"
    );
    let answers = log.append((0..10).map(record).collect()).await;
    assert!(answers.iter().all(Result::is_ok), "the room is given back");
    let consumer = log.consume(consumer()).await.unwrap();
    let batch = consumer.next(100, Duration::ZERO).await.unwrap();
    assert_eq!(batch.records.len(), 10);
    let offset = CommittedOffset {
        partition: batch.records[0].position.partition,
        next: 1,
    };
    assert_eq!(
        consumer.commit(&[offset]).await.unwrap(),
        [CommitOutcome::Committed]
    );
}

#[tokio::test]
async fn what_was_answered_survives_a_power_cut_and_nothing_else_is_seen() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(Timestamp(1_000))));
    let log = EmbeddedLog::open_for_test(Arc::new(disk.clone()), patient(), clock.clone()).unwrap();
    let answers = log.append((0..50).map(record).collect()).await;
    assert!(answers.iter().all(Result::is_ok));
    let member = log.consume(consumer()).await.unwrap();
    let batch = member.next(10, Duration::ZERO).await.unwrap();
    let done = batch.records[0].position;
    let offset = CommittedOffset {
        partition: done.partition,
        next: done.offset + 1,
    };
    assert_eq!(
        member.commit(&[offset]).await.unwrap(),
        [CommitOutcome::Committed]
    );
    // What fails to sync is neither answered nor delivered.
    disk.fail_syncs(true);
    log.append(vec![record(99)]).await.remove(0).unwrap_err();

    let after = disk.after_power_cut(0);
    let log = EmbeddedLog::open_for_test(Arc::new(after), patient(), clock).unwrap();
    let lag = log.lag(Topic::High, "high-worker").await.unwrap();
    assert_eq!(lag.records(), 49);
    let kept: u64 = lag.partitions.iter().map(|lag| lag.end - lag.start).sum();
    assert_eq!(kept, 50);
}

#[tokio::test]
async fn commits_that_meet_in_one_write_never_move_an_offset_back() {
    let (disk, clock) = (MemoryDisk::default(), Arc::new(ManualClock::at(Timestamp(1_000))));
    let log = EmbeddedLog::open_for_test(Arc::new(disk.clone()), patient(), clock.clone()).unwrap();
    let partition = log.append(vec![record(1); 20]).await.remove(0).unwrap().partition;
    let member = log.consume(consumer()).await.unwrap();
    member.next(100, Duration::ZERO).await.unwrap();
    for next in [5, 10, 15, 20] {
        let offset = |next| [CommittedOffset { partition, next }];
        let (later, earlier) = (offset(next), offset(next - 3));
        let (one, other) = tokio::join!(member.commit(&later), member.commit(&earlier));
        assert!(one.is_ok() && other.is_ok());
        let lag = log.lag(Topic::High, "high-worker").await.unwrap();
        assert_eq!(lag.partitions[partition as usize].committed, Some(next));
    }
    let log = EmbeddedLog::open_for_test(Arc::new(disk.after_kill()), patient(), clock).unwrap();
    let lag = log.lag(Topic::High, "high-worker").await.unwrap();
    assert_eq!(lag.partitions[partition as usize].committed, Some(20));
}
