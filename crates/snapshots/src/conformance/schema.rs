//! A database with a missing or wrong schema.

use super::harness::*;
use crate::*;

pub async fn a_database_without_schema_says_so(backend: &dyn Backend) {
    let database = backend.fresh().await;
    let snapshots = database.open(patient()).await.expect("the database opens");
    let error = snapshots.check().await.expect_err("there is no schema");
    assert!(matches!(error, SnapshotsError::NoSchema { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("schema {SCHEMA_VERSION}")) && text.contains(MIGRATE_COMMAND),
        "{text}"
    );
    assert!(!error.is_retryable());
}

pub async fn calls_without_a_schema_say_so(backend: &dyn Backend) {
    let database = backend.fresh().await;
    let snapshots = database.open(patient()).await.expect("the database opens");
    let errors = [
        snapshots.read(&[record("a")]).await.err(),
        snapshots.write(&[full(&record("a"), 1, "one", T0)]).await.err(),
        snapshots.claim_retries(T0, after(1), 1).await.err(),
        snapshots.mark_active(&[(record("a"), T0)]).await.err(),
        snapshots.history_sources().await.err(),
    ];
    for error in errors {
        assert!(
            matches!(error, Some(SnapshotsError::NoSchema { .. })),
            "{error:?}"
        );
    }
}

pub async fn a_migrated_database_is_fine(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.snapshots.check().await.expect("the schema is there");
    h.another().await.check().await.expect("the schema is there");
}

pub async fn migrating_twice_changes_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(full(&record("a"), 1, "one", T0)).await;
    h.snapshots.migrate().await.expect("nothing to do");
    h.snapshots.check().await.expect("the schema is there");
    assert_eq!(h.snapshot(&record("a")).await.data, "one");
}

pub async fn migrating_at_once_works(backend: &dyn Backend) {
    let database = backend.fresh().await;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let snapshots = database.open(patient()).await.expect("the database opens");
        tasks.push(tokio::spawn(async move {
            snapshots.migrate().await.expect("the schema is made");
            snapshots.check().await.expect("the schema is there");
        }));
    }
    for task in tasks {
        task.await.expect("a process");
    }
}

pub async fn a_newer_schema_is_refused(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.database
        .execute("INSERT INTO schema_version (version) VALUES (77)")
        .await;
    for error in [
        h.snapshots.check().await.expect_err("another schema"),
        h.snapshots.migrate().await.expect_err("another schema"),
    ] {
        assert!(
            matches!(error, SnapshotsError::OtherSchema { found: 77, .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("schema 77") && text.contains(&format!("schema {SCHEMA_VERSION}")),
            "{text}"
        );
        assert!(!error.is_retryable());
    }
}
