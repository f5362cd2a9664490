//! Writes and reads of snapshots.

use bytes::Bytes;
use tidegate_core::refresh::Version;

use super::harness::*;
use crate::*;

pub async fn a_first_write_is_stored(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    assert_eq!(
        h.write_one(full(&record, 7, "one", T0)).await,
        WriteOutcome::Updated
    );
    let row = h.row(&record).await;
    let expected = Snapshot {
        data: Bytes::from_static(b"one"),
        hash: hash(b"one"),
        version: Version(7),
        last_checked_at: T0,
        last_updated_at: T0,
    };
    assert_eq!(row.snapshot, Some(expected));
    assert_eq!((row.status, row.active_at), (None, None));
}

pub async fn nothing_is_known_of_what_was_never_written(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    assert_eq!(h.row(&record("a")).await, Row::default());
    assert!(h.snapshots.read(&[]).await.expect("a read of nothing").is_empty());
}

pub async fn another_hash_replaces_the_data(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    assert_eq!(
        h.write_one(full(&record, 2, "two", after(1))).await,
        WriteOutcome::Updated
    );
    let snapshot = h.snapshot(&record).await;
    assert_eq!(snapshot.data, "two");
    assert_eq!(snapshot.hash, hash(b"two"));
    assert_eq!(snapshot.version, Version(2));
    assert_eq!(
        (snapshot.last_checked_at, snapshot.last_updated_at),
        (after(1), after(1))
    );
}

pub async fn the_same_hash_moves_only_the_check(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    let mut same = full(&record, 2, "other bytes", after(5));
    if let Write::Full { hash: claimed, .. } = &mut same {
        *claimed = hash(b"one");
    }
    assert_eq!(h.write_one(same).await, WriteOutcome::Unchanged);
    let snapshot = h.snapshot(&record).await;
    assert_eq!(snapshot.data, "one", "equal by hash, so the bytes stay");
    assert_eq!(snapshot.version, Version(2));
    assert_eq!(
        (snapshot.last_checked_at, snapshot.last_updated_at),
        (after(5), T0)
    );
}

pub async fn a_check_never_goes_back_in_time(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", after(10))).await;
    // A newer event, checked by a worker whose clock is behind.
    assert_eq!(
        h.write_one(full(&record, 2, "one", after(3))).await,
        WriteOutcome::Unchanged
    );
    let snapshot = h.snapshot(&record).await;
    assert_eq!(
        (snapshot.version, snapshot.last_checked_at),
        (Version(2), after(10))
    );
    h.write_one(full(&record, 3, "two", after(4))).await;
    assert_eq!(h.snapshot(&record).await.last_checked_at, after(10));
}

pub async fn a_first_write_leaves_activity_alone(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.active(&record, T0).await;
    assert_eq!(
        h.write_one(full(&record, 1, "one", T0)).await,
        WriteOutcome::Updated
    );
    let row = h.row(&record).await;
    assert_eq!(row.snapshot.expect("a snapshot").data, "one");
    assert_eq!(row.active_at, Some(T0), "a write leaves activity alone");
}

pub async fn an_older_version_is_refused(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 5, "new", T0)).await;
    let stale = WriteOutcome::Stale { stored: Version(5) };
    assert_eq!(h.write_one(full(&record, 4, "old", after(9))).await, stale);
    let snapshot = h.snapshot(&record).await;
    assert_eq!(
        (snapshot.data.as_ref(), snapshot.version),
        (b"new".as_ref(), Version(5))
    );
    assert_eq!(snapshot.last_checked_at, T0);
}

pub async fn an_older_check_is_refused(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 5, "new", T0)).await;
    let stale = WriteOutcome::Stale { stored: Version(5) };
    assert_eq!(h.write_one(full(&record, 4, "new", after(9))).await, stale);
    assert_eq!(h.snapshot(&record).await.last_checked_at, T0);
}

pub async fn the_same_version_again_changes_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let write = full(&record, 5, "new", T0);
    h.write_one(write.clone()).await;
    let once = h.row(&record).await;
    assert_eq!(h.write_one(write).await, WriteOutcome::Unchanged);
    assert_eq!(h.row(&record).await, once);
    assert!(h.history_of(&record).await.is_empty());
}

/// A check that finds no change still makes the record fresh, every time.
pub async fn an_unchanged_record_never_stays_stale(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    for round in 1..=20 {
        let at = after(round * 3_600);
        assert_eq!(
            h.write_one(full(&record, 1 + round, "one", at)).await,
            WriteOutcome::Unchanged
        );
        let snapshot = h.snapshot(&record).await;
        assert_eq!((snapshot.last_checked_at, snapshot.last_updated_at), (at, T0));
    }
    assert!(h.history_of(&record).await.is_empty());
}

pub async fn outcomes_come_in_the_order_of_the_batch(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (same, other, newer, new) = (record("same"), record("other"), record("newer"), record("new"));
    for known in [&same, &other, &newer] {
        h.write_one(full(known, 5, "one", T0)).await;
    }
    let outcomes = h
        .write(&[
            full(&newer, 4, "two", after(1)),
            full(&other, 6, "two", after(1)),
            failed(&record("failing"), 6, after(1)),
            full(&new, 6, "two", after(1)),
            full(&same, 6, "one", after(1)),
            full(&same, 7, "one", after(2)),
        ])
        .await;
    assert_eq!(
        outcomes,
        [
            WriteOutcome::Stale { stored: Version(5) },
            WriteOutcome::Updated,
            WriteOutcome::Updated,
            WriteOutcome::Updated,
            WriteOutcome::Unchanged,
            WriteOutcome::Unchanged,
        ]
    );
    assert_eq!(h.snapshot(&other).await.data, "two");
    assert_eq!(h.snapshot(&new).await.data, "two");
    assert_eq!(h.snapshot(&newer).await.data, "one");
    assert_eq!(h.snapshot(&same).await.version, Version(7));
    assert_eq!(h.status(&record("failing")).await.fail_count, 1);
}

pub async fn one_record_twice_in_a_batch_ends_with_the_newest(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (rising, falling) = (record("rising"), record("falling"));
    let outcomes = h
        .write(&[
            full(&rising, 1, "one", T0),
            full(&falling, 2, "two", T0),
            full(&rising, 2, "two", after(1)),
            full(&falling, 1, "one", after(1)),
        ])
        .await;
    let stale = WriteOutcome::Stale { stored: Version(2) };
    assert_eq!(
        outcomes,
        [
            WriteOutcome::Updated,
            WriteOutcome::Updated,
            WriteOutcome::Updated,
            stale
        ]
    );
    assert_eq!(h.snapshot(&rising).await.data, "two");
    assert_eq!(h.snapshot(&falling).await.data, "two");
    assert_eq!(h.history_of(&rising).await.len(), 1);
}

pub async fn an_empty_batch_is_fine(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    assert!(h.write(&[]).await.is_empty());
    h.snapshots.mark_active(&[]).await.expect("no activity");
    assert!(h.snapshots.handled(&[]).await.expect("no marks").is_empty());
    assert_eq!(h.snapshots.mark_handled(&[]).await.expect("no marks"), 0);
    assert_eq!(h.snapshots.delete_history(&[]).await.expect("no rows"), 0);
    assert_eq!(h.snapshots.restore_history(&[], T0).await.expect("no rows"), 0);
}

pub async fn a_hundred_records_of_seventeen_kilobytes(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let records: Vec<_> = (0..100).map(|n| record(format!("r{n}"))).collect();
    for round in 1..=3_u8 {
        let data = |n: usize| vec![round.wrapping_mul(7).wrapping_add(n as u8); 17_000];
        let writes: Vec<_> = records
            .iter()
            .enumerate()
            .map(|(n, record)| full(record, round.into(), data(n), after(round.into())))
            .collect();
        assert_eq!(h.write(&writes).await, vec![WriteOutcome::Updated; 100]);
        let rows = h.snapshots.read(&records).await.expect("a read");
        for (n, row) in rows.into_iter().enumerate() {
            assert_eq!(row.snapshot.expect("a snapshot").data, data(n));
        }
    }
}

pub async fn a_megabyte_is_stored(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("large");
    let data: Vec<u8> = (0..1_000_000_u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    h.write_one(full(&record, 1, data.clone(), T0)).await;
    assert!(h.snapshot(&record).await.data == data);
}

pub async fn several_megabytes_in_one_batch_are_stored(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let records: Vec<_> = (0..20).map(|n| record(format!("r{n}"))).collect();
    let data = |n: usize| vec![n as u8; 1_000_000];
    let writes: Vec<_> = records
        .iter()
        .enumerate()
        .map(|(n, record)| full(record, 1, data(n), T0))
        .collect();
    assert_eq!(h.write(&writes).await, vec![WriteOutcome::Updated; 20]);
    for (n, record) in records.iter().enumerate() {
        assert!(h.snapshot(record).await.data == data(n));
    }
}

pub async fn too_much_data_is_refused_and_nothing_written(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (fine, large) = (record("fine"), record("large"));
    let writes = [
        full(&fine, 1, "one", T0),
        full(&large, 1, vec![0; MAX_DATA_BYTES + 1], T0),
    ];
    let error = h.snapshots.write(&writes).await.expect_err("too much");
    assert!(matches!(error, SnapshotsError::Invalid(_)), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(h.row(&fine).await, Row::default());
}

pub async fn a_version_beyond_counting_is_refused(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let error = h
        .snapshots
        .write(&[full(&record("a"), u64::MAX, "one", T0)])
        .await;
    assert!(matches!(error, Err(SnapshotsError::Invalid(_))), "{error:?}");
    let largest = i64::MAX as u64;
    h.write_one(full(&record("a"), largest, "one", T0)).await;
    assert_eq!(h.snapshot(&record("a")).await.version, Version(largest));
}

pub async fn no_data_is_data_too(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(full(&record("a"), 1, "", T0)).await;
    assert_eq!(h.snapshot(&record("a")).await.data, "");
    h.write_one(full(&record("a"), 2, "one", after(1))).await;
    assert_eq!(h.history_of(&record("a")).await[0].snapshot.data, "");
}
