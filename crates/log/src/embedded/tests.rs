//! Cases that only a failing disk can show.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::ManualClock;

use super::disk::{Loaded, Stored};
use super::*;
use crate::{CommitOutcome, Mark};

/// A real disk whose sync fails on demand.
#[derive(Debug)]
struct Failing {
    real: FjallDisk,
    fails: AtomicBool,
}

impl Disk for Failing {
    fn load(&self) -> Result<Loaded, DiskError> {
        self.real.load()
    }

    fn write(&self, ops: Vec<Op>) -> Result<(), DiskError> {
        self.real.write(ops)
    }

    fn sync(&self) -> Result<(), DiskError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(DiskError("input/output error".into()));
        }
        self.real.sync()
    }

    fn appended_at(&self, place: Place, offset: u64) -> Result<Option<Timestamp>, DiskError> {
        self.real.appended_at(place, offset)
    }

    fn read(&self, span: &Span) -> Result<Vec<Stored>, DiskError> {
        self.real.read(span)
    }
}

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
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(Failing {
        real: FjallDisk::open(folder.path()).unwrap(),
        fails: AtomicBool::new(false),
    });
    let clock = Arc::new(ManualClock::at(Timestamp(1_000)));
    let log = EmbeddedLog::on(disk.clone(), patient(), clock).unwrap();
    let position = log.append(vec![record(1)]).await.remove(0).unwrap();
    let consumer = log.consume(consumer()).await.unwrap();
    let batch = consumer.next(10, Duration::ZERO).await.unwrap();
    assert_eq!(batch.records.len(), 1);

    disk.fails.store(true, Ordering::SeqCst);
    let poisoned = |error: LogError| assert!(matches!(error, LogError::Poisoned(_)), "{error}");
    poisoned(log.append(vec![record(2)]).await.remove(0).unwrap_err());
    disk.fails.store(false, Ordering::SeqCst);
    poisoned(log.append(vec![record(3)]).await.remove(0).unwrap_err());
    let mark = Mark {
        partition: position.partition,
        next: position.offset + 1,
    };
    poisoned(consumer.commit(&[mark]).await.unwrap_err());
    poisoned(consumer.next(10, Duration::ZERO).await.unwrap_err());
    poisoned(log.lag(Topic::High, "high-worker").await.unwrap_err());
    poisoned(log.check().await.unwrap_err());
}

#[tokio::test]
async fn a_wall_clock_that_steps_back_leaves_times_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(10_000)));
    let options = EmbeddedOptions {
        clock: clock.clone(),
        settings: patient(),
        ..EmbeddedOptions::new(folder.path().join("log"))
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
    let mut options = EmbeddedOptions {
        clock: clock.clone(),
        settings: patient(),
        ..EmbeddedOptions::new(folder.path().join("log"))
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
    let mut options = EmbeddedOptions::new(folder.path().join("log"));
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
    let mark = Mark {
        partition: batch.records[0].position.partition,
        next: 1,
    };
    assert_eq!(
        consumer.commit(&[mark]).await.unwrap(),
        [CommitOutcome::Committed]
    );
}
