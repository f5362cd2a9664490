//! Tests that every recurring query finds its rows by an index, in tables of 100,000 rows.

use bytes::Bytes;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::{Millis, Timestamp};

use super::SqlSnapshots;
use super::prefetch::of_keys;
use super::statement::{Dialect, Statement};
use crate::rows::*;
use crate::{Failure, Snapshots, Write};

const NOW: Timestamp = Timestamp(1_706_000_000_000);
const ROWS: u64 = 100_000;
const BATCH: u64 = 2_000;

fn record(n: u64) -> RecordRef {
    record_of("characters", n)
}

fn record_of(source: &str, n: u64) -> RecordRef {
    RecordRef {
        source: SourceId::new(source).unwrap(),
        key: RecordKey::new(format!("key {n}")).unwrap(),
    }
}

/// Equal numbers of records, statuses and rows of history, spread over time.
async fn fill(snapshots: &SqlSnapshots) {
    snapshots.migrate().await.expect("the schema is made");
    for start in (0..ROWS).step_by(BATCH as usize) {
        let numbers = start..start + BATCH;
        let seen: Vec<_> = numbers.clone().map(|n| (record(n), NOW - Millis(n))).collect();
        snapshots.mark_active(&seen).await.expect("activity");
        let failed: Vec<_> = numbers.clone().map(failed).collect();
        snapshots.write(&failed).await.expect("a write");
        let rows: Vec<_> = numbers.map(history).collect();
        snapshots.restore_history(&rows, NOW).await.expect("history");
    }
    let dialect = snapshots.driver.dialect();
    let mut session = snapshots.driver.begin().await.expect("a transaction");
    // As if changes had written them; restored rows use another index.
    let update = "UPDATE snapshot_history SET restored_until = NULL WHERE id > 10";
    session
        .run(Statement::new(dialect, update))
        .await
        .expect("a statement");
    session.commit().await.expect("a commit");
    for table in ["snapshot", "update_status", "snapshot_history"] {
        let analyze = match dialect {
            Dialect::MySql => format!("ANALYZE TABLE {table}"),
            _ => format!("ANALYZE {table}"),
        };
        let mut session = snapshots.driver.begin().await.expect("a transaction");
        session
            .fetch(Statement::new(dialect, &analyze))
            .await
            .expect("statistics");
        session.commit().await.expect("a commit");
    }
}

fn failed(n: u64) -> Write {
    Write::Failed(Failure {
        record: record(n),
        version: Version(1),
        state: if n.is_multiple_of(2) {
            StatusState::Retrying
        } else {
            StatusState::Failed
        },
        absent: false,
        error_code: "API_5XX".to_owned(),
        error_message: "the upstream answered 503".to_owned(),
        next_retry_at: Some(NOW + Millis(n)),
        event: None,
        at: NOW - Millis(n),
    })
}

fn history(n: u64) -> HistoryRow {
    HistoryRow {
        id: n + 1,
        record: record(n),
        snapshot: Snapshot {
            data: Bytes::from_static(b"data"),
            hash: [1; 32],
            version: Version(1),
            last_checked_at: NOW,
            last_updated_at: NOW,
        },
        replaced_at: NOW - Millis(n * 1_000),
    }
}

/// The query plan of the database, as one text.
async fn plan(snapshots: &SqlSnapshots, mut statement: Statement<'_>) -> String {
    let dialect = snapshots.driver.dialect();
    let (explain, columns): (&str, &[usize]) = match dialect {
        Dialect::Sqlite => ("EXPLAIN QUERY PLAN ", &[3]),
        Dialect::Postgres => ("EXPLAIN ", &[0]),
        // table, type, key, extra.
        Dialect::MySql => ("EXPLAIN ", &[2, 3, 5, 9]),
    };
    statement.sql.insert_str(0, explain);
    let mut session = snapshots.driver.begin().await.expect("a transaction");
    let mut text = String::new();
    for row in session.fetch(statement).await.expect("a plan") {
        for column in columns {
            text.push_str(&row.maybe_text(*column).expect("a text").unwrap_or_default());
            text.push_str(" | ");
        }
        text.push('\n');
    }
    text
}

fn assert_by_index(plan: &str, index: &str, dialect: Dialect) {
    let bad: &[&str] = match dialect {
        Dialect::Sqlite => &["SCAN", "TEMP B-TREE"],
        Dialect::Postgres => &["Seq Scan", "Sort"],
        Dialect::MySql => &["| ALL |", "| index |", "filesort", "temporary"],
    };
    for bad in bad {
        assert!(!plan.contains(bad), "{bad} in:\n{plan}");
    }
    assert!(plan.contains(index), "no {index} in:\n{plan}");
}

async fn every_query_finds_its_rows_by_index(snapshots: SqlSnapshots) {
    fill(&snapshots).await;
    let dialect = snapshots.driver.dialect();
    let params = PrefetchParams {
        source: record(0).source,
        tiers: vec![PrefetchTier {
            active_since: Timestamp(0),
            checked_before: NOW + Millis(ROWS / 2),
        }],
        max: 100,
        now: NOW,
        claim_until: NOW,
    };
    // Most rows are due: a full scan with a sort would be just as possible.
    let candidates = snapshots.select_candidates(&params, 0, params.tiers[0].checked_before, 100);
    assert_by_index(&plan(&snapshots, candidates).await, "idx_prefetch", dialect);

    let due = snapshots.select_due(NOW + Millis(ROWS / 2), 100);
    assert_by_index(&plan(&snapshots, due).await, "idx_state_next_retry", dialect);

    let lapsed = LapsedParams {
        from: NOW,
        before: NOW + Millis(ROWS / 2),
        max: 100,
    };
    let lapsed = snapshots.select_lapsed(&lapsed);
    assert_by_index(&plan(&snapshots, lapsed).await, "idx_state_next_retry", dialect);

    let slice = HistoryParams {
        source: record(0).source,
        from: Timestamp(0),
        before: NOW - Millis(ROWS * 500),
        after: Some(HistoryCursor {
            replaced_at: NOW - Millis(ROWS * 900),
            id: 5,
        }),
        max_rows: 100,
        max_bytes: 1_000_000,
    };
    assert_by_index(
        &plan(&snapshots, snapshots.select_slice(&slice)).await,
        "idx_history_replaced",
        dialect,
    );

    let restored = snapshots.select_restored(NOW, 100);
    assert_by_index(&plan(&snapshots, restored).await, "idx_history_restored", dialect);

    let records: Vec<_> = (0..100).map(|n| record(n * 7)).collect();
    let key = match dialect {
        Dialect::Sqlite => "autoindex",
        Dialect::Postgres => "_pkey",
        Dialect::MySql => "PRIMARY",
    };
    let read = plan(&snapshots, snapshots.select_rows(&records)).await;
    // Its rows come from two tables, united without order.
    assert_by_index(&read.replace("| ALL | | Using temporary", ""), key, dialect);

    newcomers_are_found_by_key(&snapshots, key).await;
}

/// For a source newer than its statistics, a database may expect one row or none, and read them all.
async fn newcomers_are_found_by_key(snapshots: &SqlSnapshots, key: &str) {
    let dialect = snapshots.driver.dialect();
    let records: Vec<_> = (0..BATCH).map(|n| record_of("newcomers", n)).collect();
    let seen: Vec<_> = records.iter().map(|record| (record.clone(), NOW)).collect();
    snapshots.mark_active(&seen).await.expect("activity");
    let params = PrefetchParams {
        source: records[0].source.clone(),
        tiers: Vec::new(),
        max: 100,
        now: NOW,
        claim_until: NOW,
    };
    let wanted: Vec<_> = records.iter().step_by(100).collect();
    let keys: Vec<_> = wanted.iter().map(|record| &record.key).collect();
    let update = Statement::new(dialect, "UPDATE snapshot SET tier = 1");
    let read: Vec<_> = wanted.iter().copied().cloned().collect();
    let statements = [
        snapshots.select_rows(&read),
        snapshots.lock_rows(&wanted),
        of_keys(update, &params, &keys),
    ];
    for statement in statements {
        let plan = plan(snapshots, statement).await;
        assert!(plan.contains(key), "no {key} in:\n{plan}");
        assert!(!plan.contains("idx_prefetch"), "idx_prefetch in:\n{plan}");
        // PostgreSQL has already read the rows that it filters.
        assert!(!plan.contains("Filter"), "Filter in:\n{plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_finds_rows_by_index() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let options = crate::sqlite::SqliteOptions {
        durability: crate::sqlite::Durability::Buffered,
        snapshots: patient(),
        ..crate::sqlite::SqliteOptions::new(folder.path().join("snapshots.db"))
    };
    every_query_finds_its_rows_by_index(crate::sqlite::open(options).await.expect("the file opens")).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgres_finds_rows_by_index() {
    let server = tidegate_testkit::servers::PostgresServer::start(quick()).expect("a server");
    let options = crate::postgres::PostgresOptions {
        url: server.create_database("plans").expect("a database"),
        snapshots: patient(),
    };
    every_query_finds_its_rows_by_index(crate::postgres::open(options).expect("a pool")).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread")]
async fn mariadb_finds_rows_by_index() {
    let server = tidegate_testkit::servers::MariaDbServer::start(quick()).expect("a server");
    let options = crate::mysql::MySqlOptions {
        url: server.create_database("plans").expect("a database"),
        snapshots: patient(),
    };
    every_query_finds_its_rows_by_index(crate::mysql::open(options).expect("a pool")).await;
}

/// This data need not survive anything.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn quick() -> tidegate_testkit::servers::SqlOptions {
    tidegate_testkit::servers::SqlOptions {
        fsync: false,
        ..tidegate_testkit::servers::SqlOptions::default()
    }
}

fn patient() -> crate::SnapshotsOptions {
    let minutes = Millis::from_secs(300);
    crate::SnapshotsOptions {
        timeouts: crate::Timeouts {
            read: minutes,
            write: minutes,
            bulk: minutes,
            migrate: minutes,
        },
        ..crate::SnapshotsOptions::default()
    }
}
