//! The suite bites: backends that are wrong in one way each fail the case that is about it, and SQLite behind the same
//! wrapper passes it.

use crate::wrapped;

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;
use tidegate_snapshots::conformance::{Backend, Case, Database, cases};
use tidegate_snapshots::sqlite::{self, Durability, SqliteOptions};
use tidegate_snapshots::*;
use wrapped::{Fault, Wrapped};

struct Wrong<F>(PhantomData<F>);

struct File<F> {
    folder: TempDir,
    fault: PhantomData<F>,
}

#[async_trait]
impl<F: Fault + Default> Backend for Wrong<F> {
    async fn fresh(&self) -> Arc<dyn Database> {
        Arc::new(File::<F> {
            folder: TempDir::new().expect("a temporary folder"),
            fault: PhantomData,
        })
    }
}

#[async_trait]
impl<F: Fault + Default> Database for File<F> {
    async fn open(&self, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, SnapshotsError> {
        let options = SqliteOptions {
            durability: Durability::Buffered,
            snapshots,
            ..SqliteOptions::new(self.folder.path().join("snapshots.db"))
        };
        Ok(Arc::new(Wrapped {
            inner: Arc::new(sqlite::open(options).await?),
            fault: F::default(),
        }))
    }

    async fn execute(&self, _sql: &'static str) {
        panic!("no case that is named here looks past the seam");
    }
}

async fn conforms<F: Fault + Default>(case: Case) -> bool {
    let run = tokio::spawn(async move { case.run(&Wrong::<F>(PhantomData)).await });
    match run.await {
        Ok(()) => true,
        Err(error) => {
            assert!(error.is_panic(), "{case:?} was cancelled");
            false
        }
    }
}

/// The named case passes without the fault and fails with it.
async fn bites<F: Fault + Default>(name: &str) {
    let found = cases().into_iter().find(|case| case.name == name);
    let case = found.unwrap_or_else(|| panic!("there is no case {name}"));
    assert!(
        conforms::<Flawless>(case).await,
        "{name} fails on a backend that conforms"
    );
    assert!(
        !conforms::<F>(case).await,
        "{name} passes on a backend that does not conform"
    );
}

/// A fault that is none.
#[derive(Debug, Default)]
struct Flawless;
impl Fault for Flawless {}

/// Writes without looking at versions.
#[derive(Debug, Default)]
struct Unfenced;

impl Fault for Unfenced {
    fn before_write(&self, writes: &[Write]) -> Vec<Write> {
        let mut writes = writes.to_vec();
        for write in &mut writes {
            match write {
                Write::Full { version, .. } => *version = Version(1_000),
                Write::Failed(failure) | Write::Parked(failure) => failure.version = Version(1_000),
            }
        }
        writes
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_without_fence_is_found() {
    bites::<Unfenced>("write::an_older_version_is_refused").await;
    bites::<Unfenced>("status::an_older_failure_changes_nothing").await;
    bites::<Unfenced>("concurrent::writers_of_one_record_end_with_the_newest").await;
}

/// Tells the outcomes of a batch in another order.
#[derive(Debug, Default)]
struct OutOfOrder;

impl Fault for OutOfOrder {
    fn after_write(&self, outcomes: &mut Vec<WriteOutcome>) {
        outcomes.reverse();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_mixes_up_outcomes_is_found() {
    bites::<OutOfOrder>("write::outcomes_come_in_the_order_of_the_batch").await;
}

/// Takes every check for a change, as if hashes were never compared.
#[derive(Debug, Default)]
struct NeverTheSame;

impl Fault for NeverTheSame {
    fn before_write(&self, writes: &[Write]) -> Vec<Write> {
        let mut writes = writes.to_vec();
        for write in &mut writes {
            if let Write::Full { hash, at, .. } = write {
                hash[..8].copy_from_slice(&at.0.to_le_bytes());
            }
        }
        writes
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_compares_no_hashes_is_found() {
    bites::<NeverTheSame>("write::an_unchanged_record_never_stays_stale").await;
    bites::<NeverTheSame>("history::a_check_is_no_change").await;
}

/// Gives claimed records back at once.
#[derive(Debug, Default)]
struct ClaimsTwice;

#[async_trait]
impl Fault for ClaimsTwice {
    async fn after_claim(&self, inner: &dyn Snapshots, claimed: &[Retry]) {
        let again = claimed.iter().map(|retry| {
            Write::Parked(Failure {
                record: retry.record.clone(),
                version: retry.status.version,
                state: retry.status.state,
                absent: retry.status.absent,
                error_code: retry.status.last_error_code.clone(),
                error_message: retry.status.last_error_message.clone(),
                next_retry_at: retry.status.next_retry_at,
                event: retry.status.event.clone(),
                at: Timestamp(retry.status.updated_at.0 + 1),
            })
        });
        inner.write(&again.collect::<Vec<_>>()).await.expect("a write");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_hands_out_retries_twice_is_found() {
    bites::<ClaimsTwice>("retries::a_claim_holds_until_it_ends").await;
    bites::<ClaimsTwice>("retries::two_claimers_never_get_the_same").await;
}

/// Loses the last candidate of every claim.
#[derive(Debug, Default)]
struct LosesCandidates;

impl Fault for LosesCandidates {
    fn after_stale(&self, claimed: &mut Vec<Prefetched>) {
        claimed.pop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_loses_candidates_is_found() {
    bites::<LosesCandidates>("prefetch::two_schedulers_never_get_the_same").await;
    bites::<LosesCandidates>("prefetch::activity_decides_the_tier").await;
}
