//! Concurrent callers, and a database that becomes unavailable.

use std::time::Duration;

use tidegate_core::refresh::Version;

use super::harness::*;
use crate::*;

/// Two minutes, if every attempt fails at once.
const MAX_TRIES: u32 = 1_200;

/// Writes versions of one record from several processes concurrently, in no particular order.
async fn race(h: &Harness, record: &RecordRef) {
    let mut tasks = Vec::new();
    for writer in 0..8_u64 {
        let snapshots = if writer % 2 == 0 {
            h.snapshots.clone()
        } else {
            h.another().await
        };
        let record = record.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..10_u64 {
                let version = 1 + (writer * 7 + round * 13) % 80;
                let write = full(&record, version, format!("data {version}"), after(version));
                snapshots.write(&[write]).await.expect("a write");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a writer");
    }
    let newest = (0..8)
        .flat_map(|writer| (0..10).map(move |round| 1 + (writer * 7 + round * 13) % 80))
        .max();
    let newest = newest.expect("versions");
    let snapshot = h.snapshot(record).await;
    assert_eq!(snapshot.version, Version(newest));
    assert_eq!(snapshot.data, format!("data {newest}"));
}

pub async fn writers_of_one_record_end_with_the_newest(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(full(&record("a"), 0, "data 0", T0)).await;
    race(&h, &record("a")).await;
}

pub async fn first_writers_of_one_record_end_with_the_newest(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for n in 0..3 {
        race(&h, &record(format!("new {n}"))).await;
    }
}

pub async fn overlapping_batches_all_succeed(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let mut tasks = Vec::new();
    for writer in 0..6_u64 {
        let snapshots = h.another().await;
        tasks.push(tokio::spawn(async move {
            for round in 0..5_u64 {
                let version = 1 + round * 6 + writer;
                let mut writes: Vec<_> = (0..40)
                    .map(|n| match n % 4 {
                        3 => failed(&record(format!("r{n}")), version, after(version)),
                        _ => full(
                            &record(format!("r{n}")),
                            version,
                            format!("{version}"),
                            after(version),
                        ),
                    })
                    .collect();
                // Each writer uses its own order.
                writes.rotate_left(writer as usize * 6);
                let seen: Vec<_> = writes
                    .iter()
                    .map(|write| (write.record().clone(), after(version)))
                    .collect();
                snapshots.write(&writes).await.expect("a write");
                snapshots.mark_active(&seen).await.expect("activity");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a writer");
    }
    for n in (0..40).filter(|n| n % 4 != 3) {
        assert_eq!(h.snapshot(&record(format!("r{n}"))).await.data, "30");
    }
}

pub async fn failures_at_once_are_all_counted(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let mut tasks = Vec::new();
    for n in 0..8_u64 {
        let snapshots = h.another().await;
        tasks.push(tokio::spawn(async move {
            snapshots
                .write(&[failed(&record("a"), 1, after(n))])
                .await
                .expect("a write");
        }));
    }
    for task in tasks {
        task.await.expect("a writer");
    }
    assert_eq!(h.status(&record("a")).await.fail_count, 8);
}

pub async fn readers_see_whole_snapshots(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(full(&record("a"), 1, vec![1; 50_000], T0)).await;
    let writer = {
        let snapshots = h.another().await;
        tokio::spawn(async move {
            for version in 2..40_u8 {
                let data = vec![version; 50_000];
                let write = full(&record("a"), version.into(), data, after(version.into()));
                snapshots.write(&[write]).await.expect("a write");
            }
        })
    };
    let mut last = Version(0);
    while !writer.is_finished() {
        let snapshot = h.snapshot(&record("a")).await;
        let expected = vec![snapshot.version.0 as u8; 50_000];
        assert!(snapshot.data == expected && snapshot.hash == hash(&expected));
        assert!(snapshot.version >= last);
        last = snapshot.version;
    }
    writer.await.expect("the writer");
}

pub async fn a_change_by_another_process_is_seen(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let other = h.another().await;
    for version in 1..=5 {
        h.write_one(full(&record("a"), version, format!("{version}"), T0))
            .await;
        let rows = other.read(&[record("a")]).await.expect("a read");
        assert_eq!(
            rows[0].snapshot.as_ref().expect("a snapshot").version,
            Version(version)
        );
    }
}

/// Handles opened before a restart keep working afterwards.
pub async fn the_database_may_be_restarted(backend: &dyn Backend) {
    let h = Harness::on(backend.fresh_to_restart().await, patient()).await;
    for round in 1..=2_u64 {
        h.write_one(full(&record("a"), round, format!("{round}"), after(round)))
            .await;
        h.database.restart().await;
        let row = read_again(&h, record("a")).await;
        assert_eq!(row.snapshot.expect("a snapshot").version, Version(round));
        let next = full(&record("b"), round, format!("{round}"), after(round));
        write_again(&h, next).await;
        assert_eq!(h.snapshot(&record("b")).await.version, Version(round));
    }
}

/// Retries transient errors, as a worker does.
async fn read_again(h: &Harness, record: RecordRef) -> Row {
    let records = [record];
    for _ in 0..MAX_TRIES {
        match h.snapshots.read(&records).await {
            Ok(mut rows) => return rows.remove(0),
            Err(error) => pause(error).await,
        }
    }
    panic!("the database does not come back");
}

async fn write_again(h: &Harness, write: Write) {
    let writes = [write];
    for _ in 0..MAX_TRIES {
        match h.snapshots.write(&writes).await {
            Ok(_) => return,
            Err(error) => pause(error).await,
        }
    }
    panic!("the database does not come back");
}

async fn pause(error: SnapshotsError) {
    assert!(error.is_retryable(), "{error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
