//! The history.

use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

use super::harness::*;
use crate::*;

fn params(max_rows: u32) -> HistoryParams {
    HistoryParams {
        source: source("characters"),
        from: Timestamp(0),
        before: after(1_000_000),
        after: None,
        max_rows,
        max_bytes: 1 << 20,
    }
}

/// `count` changes of one record, one per second; `count - 1` of them are history.
async fn change(h: &Harness, record: &RecordRef, count: u64) {
    for version in 1..=count {
        h.write_one(full(record, version, format!("data {version}"), after(version)))
            .await;
    }
}

pub async fn a_change_is_kept_once(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    h.write_one(full(&record, 2, "one", after(5))).await;
    let replaced = h.snapshot(&record).await;
    h.write_one(full(&record, 3, "two", after(9))).await;
    let history = h.history_of(&record).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].record, record);
    assert_eq!(history[0].snapshot, replaced);
    assert_eq!(history[0].replaced_at, after(9));
}

pub async fn a_check_is_no_change(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    h.write_one(full(&record, 2, "one", after(1))).await;
    h.write_one(full(&record, 3, "one", after(2))).await;
    h.write_one(failed(&record, 4, after(3))).await;
    h.write_one(full(&record, 1, "old", after(4))).await;
    assert!(h.history_of(&record).await.is_empty());
}

pub async fn a_repeated_change_is_kept_once(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    for _ in 0..3 {
        h.write_one(full(&record, 2, "two", after(1))).await;
    }
    let history = h.history_of(&record).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].snapshot.version, Version(1));
}

pub async fn no_history_if_none_is_wanted(backend: &dyn Backend) {
    let options = SnapshotsOptions {
        history: false,
        ..patient()
    };
    let h = Harness::with(backend, options).await;
    change(&h, &record("a"), 3).await;
    assert!(h.history_of(&record("a")).await.is_empty());
    assert_eq!(h.snapshot(&record("a")).await.version, Version(3));
}

pub async fn history_comes_in_slices_oldest_first(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    change(&h, &record("a"), 6).await;
    change(&h, &record("b"), 6).await;
    let mut params = params(3);
    params.before = after(6);
    let mut seen = Vec::new();
    loop {
        let rows = h.snapshots.history(&params).await.expect("history");
        assert!(rows.len() <= 3);
        let Some(last) = rows.last() else { break };
        params.after = Some(last.cursor());
        seen.extend(
            rows.into_iter()
                .map(|row| (row.replaced_at, row.record.key.to_string())),
        );
    }
    let mut expected = Vec::new();
    for second in 2..6 {
        expected.push((after(second), "a".to_owned()));
        expected.push((after(second), "b".to_owned()));
    }
    assert_eq!(seen, expected);
    params.after = None;
    params.from = after(5);
    assert_eq!(h.snapshots.history(&params).await.expect("history").len(), 2);
    params.source = source("guilds");
    assert!(h.snapshots.history(&params).await.expect("history").is_empty());
}

pub async fn a_slice_ends_when_it_is_large(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for version in 1..=4_u8 {
        h.write_one(full(
            &record("a"),
            version.into(),
            vec![version; 1_000],
            after(version.into()),
        ))
        .await;
    }
    let mut params = params(100);
    params.max_bytes = 2_500;
    assert_eq!(h.snapshots.history(&params).await.expect("history").len(), 2);
    params.max_bytes = 1;
    assert_eq!(
        h.snapshots.history(&params).await.expect("history").len(),
        1,
        "always one"
    );
}

pub async fn deleted_rows_are_gone(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    change(&h, &record("a"), 4).await;
    let rows = h.snapshots.history(&params(2)).await.expect("history");
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    assert_eq!(h.snapshots.delete_history(&ids).await.expect("deleted"), 2);
    assert_eq!(h.snapshots.delete_history(&ids).await.expect("deleted"), 0);
    let left = h.history_of(&record("a")).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].snapshot.version, Version(3));
    assert_eq!(h.snapshot(&record("a")).await.version, Version(4));
}

pub async fn restored_rows_are_as_they_were(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    change(&h, &record("a"), 4).await;
    let rows = h.snapshots.history(&params(100)).await.expect("history");
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    h.snapshots.delete_history(&ids[..2]).await.expect("deleted");
    let restored = h
        .snapshots
        .restore_history(&rows, after(500))
        .await
        .expect("restored");
    assert_eq!(restored, 2, "one was still there");
    assert_eq!(
        h.snapshots
            .restore_history(&rows, after(500))
            .await
            .expect("restored"),
        0
    );
    let mut found = h.history_of(&record("a")).await;
    found.reverse();
    assert_eq!(found, rows);
}

pub async fn restored_rows_are_not_archived_again(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    change(&h, &record("a"), 3).await;
    let rows = h.snapshots.history(&params(100)).await.expect("history");
    h.snapshots.delete_history(&[rows[0].id]).await.expect("deleted");
    h.snapshots
        .restore_history(&rows[..1], after(500))
        .await
        .expect("restored");
    let left = h.snapshots.history(&params(100)).await.expect("history");
    assert_eq!(left, rows[1..]);
    // A row added afterwards gets its own id.
    h.write_one(full(&record("a"), 9, "nine", after(9))).await;
    let ids: Vec<_> = h
        .history_of(&record("a"))
        .await
        .iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(ids.len(), 3);
}

/// An operator may restore an archive into a fresh database.
pub async fn rows_of_another_database_hide_no_changes(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    change(&h, &record("a"), 4).await;
    let rows = h.snapshots.history(&params(100)).await.expect("history");
    let other = Harness::new(backend).await;
    let restored = other.snapshots.restore_history(&rows, after(500)).await;
    assert_eq!(restored.expect("restored"), 3);
    change(&other, &record("b"), 4).await;
    assert_eq!(other.history_of(&record("a")).await.len(), 3);
    assert_eq!(other.history_of(&record("b")).await.len(), 3);
}

pub async fn restored_rows_go_when_their_time_is_up(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    change(&h, &record("a"), 4).await;
    let rows = h.snapshots.history(&params(100)).await.expect("history");
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    h.snapshots.delete_history(&ids[..2]).await.expect("deleted");
    h.snapshots
        .restore_history(&rows[..2], after(500))
        .await
        .expect("restored");
    assert_eq!(
        h.snapshots.drop_restored(after(499), 10).await.expect("dropped"),
        0
    );
    assert_eq!(
        h.snapshots.drop_restored(after(500), 1).await.expect("dropped"),
        1
    );
    assert_eq!(
        h.snapshots.drop_restored(after(500), 10).await.expect("dropped"),
        1
    );
    assert_eq!(h.history_of(&record("a")).await.len(), 1);
}

pub async fn sources_with_history_are_listed(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    assert!(h.snapshots.history_sources().await.expect("sources").is_empty());
    let mut records = Vec::new();
    for name in ["b", "a", "ä", "B"] {
        let mut record = record("k");
        record.source = source(name);
        records.push(record);
    }
    for record in &records {
        change(&h, record, 3).await;
    }
    let sources = h.snapshots.history_sources().await.expect("sources");
    assert_eq!(sources, ["B", "a", "b", "ä"].map(source));
}
