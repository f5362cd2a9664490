//! Keys are any text, and equal only if every byte is.

use tidegate_core::ids::{MAX_ID_BYTES, RecordKey};

use super::harness::*;
use crate::*;

const ODD: [&str; 24] = [
    "a",
    "A",
    "a ",
    " a",
    "ä",
    "a\u{308}",
    "Ä",
    "ß",
    "ss",
    "é",
    "e",
    "'",
    "''",
    "\"",
    "\\",
    "%",
    "_",
    "\0",
    "a\0",
    "\n",
    "🦀",
    "日本語",
    "$1",
    "'; DROP TABLE snapshot; --",
];

pub async fn every_key_is_its_own_record(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let records: Vec<_> = ODD.iter().map(record).collect();
    let writes: Vec<_> = records
        .iter()
        .map(|record| full(record, 1, record.key.as_str().to_owned(), T0))
        .collect();
    assert_eq!(h.write(&writes).await, vec![WriteOutcome::Updated; ODD.len()]);
    let fail: Vec<_> = records.iter().map(|record| failed(record, 2, T0)).collect();
    h.write(&fail).await;
    for record in &records {
        h.active(record, after(1)).await;
    }
    for row in h
        .snapshots
        .read(&records)
        .await
        .expect("a read")
        .iter()
        .zip(&records)
    {
        let (row, record) = row;
        assert_eq!(
            row.snapshot.as_ref().expect("a snapshot").data,
            record.key.as_str()
        );
        assert_eq!(row.status.as_ref().expect("a status").fail_count, 1);
        assert_eq!(row.active_at, Some(after(1)));
    }
    let retries = h.retries(after(100), after(200), 100).await;
    let mut claimed: Vec<_> = retries.into_iter().map(|retry| retry.record).collect();
    let mut expected = records;
    claimed.sort();
    expected.sort();
    assert_eq!(claimed, expected);
}

pub async fn keys_differ_by_source(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let sources = ["characters", "Characters", "guilds", "characters "];
    let records = sources.map(|name| RecordRef {
        source: source(name),
        key: RecordKey::new("7").expect("a key"),
    });
    let writes: Vec<_> = records
        .iter()
        .map(|record| full(record, 1, record.source.as_str().to_owned(), T0))
        .collect();
    h.write(&writes).await;
    for row in h
        .snapshots
        .read(&records)
        .await
        .expect("a read")
        .iter()
        .zip(sources)
    {
        assert_eq!(row.0.snapshot.as_ref().expect("a snapshot").data, row.1);
    }
}

pub async fn a_key_of_256_bytes(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let long = "é".repeat(MAX_ID_BYTES / 2);
    let mut other = long.clone();
    other.pop();
    other.push('è');
    let records = [record(&long), record(&other)].map(|mut record| {
        record.source = source(&"ü".repeat(MAX_ID_BYTES / 2));
        record
    });
    h.write(&[full(&records[0], 1, "one", T0), full(&records[1], 1, "two", T0)])
        .await;
    h.write(&[full(&records[0], 2, "three", T0), failed(&records[1], 2, T0)])
        .await;
    assert_eq!(h.snapshot(&records[0]).await.data, "three");
    assert_eq!(h.snapshot(&records[1]).await.data, "two");
    assert_eq!(h.history_of(&records[0]).await.len(), 1);
}

pub async fn a_read_answers_in_its_order_and_twice_if_asked_twice(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let (a, b) = (record("a"), record("b"));
    h.write(&[full(&a, 1, "a", T0), full(&b, 1, "b", T0)]).await;
    let asked = [b.clone(), record("c"), a.clone(), b];
    let rows = h.snapshots.read(&asked).await.expect("a read");
    let data: Vec<_> = rows
        .into_iter()
        .map(|row| row.snapshot.map(|snapshot| snapshot.data))
        .collect();
    assert_eq!(data, [Some("b".into()), None, Some("a".into()), Some("b".into())]);
}

pub async fn more_records_than_fit_a_statement(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let records: Vec<_> = (0..2_500).map(|n| record(format!("r{n}"))).collect();
    let writes: Vec<_> = records.iter().map(|record| full(record, 1, "one", T0)).collect();
    assert_eq!(h.write(&writes).await, vec![WriteOutcome::Updated; records.len()]);
    let again: Vec<_> = records
        .iter()
        .map(|record| full(record, 2, "two", after(1)))
        .collect();
    assert_eq!(h.write(&again).await, vec![WriteOutcome::Updated; records.len()]);
    let rows = h.snapshots.read(&records).await.expect("a read");
    assert!(rows.iter().all(|row| {
        row.snapshot
            .as_ref()
            .is_some_and(|snapshot| snapshot.data == "two")
    }));
}
