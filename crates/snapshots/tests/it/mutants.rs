//! The suite catches mutants: each backend has one fault and fails the case for it. SQLite behind the same wrapper passes.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;
use tidegate_snapshots::conformance::{Backend, Database, case};
use tidegate_snapshots::sqlite::{self, Durability, SqliteOptions};
use tidegate_snapshots::*;
use tidegate_testkit::conformance::catches;
use wrapped::{Fault, Wrapped};

use crate::wrapped;

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
        panic!("no case that is named here looks past the trait");
    }
}

/// The named case passes without the fault and fails with it.
async fn caught<F: Fault + Default>(name: &str) {
    let right = Arc::new(Wrong::<Flawless>(PhantomData));
    catches(case(name), right, Arc::new(Wrong::<F>(PhantomData))).await;
}

/// No fault.
#[derive(Debug, Default)]
struct Flawless;
impl Fault for Flawless {}

/// Writes without comparing versions.
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
    caught::<Unfenced>("write::an_older_version_is_refused").await;
    caught::<Unfenced>("status::an_older_failure_changes_nothing").await;
    caught::<Unfenced>("concurrent::writers_of_one_record_end_with_the_newest").await;
}

/// Returns the outcomes of a batch in another order.
#[derive(Debug, Default)]
struct OutOfOrder;

impl Fault for OutOfOrder {
    fn after_write(&self, outcomes: &mut Vec<WriteOutcome>) {
        outcomes.reverse();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_mixes_up_outcomes_is_found() {
    caught::<OutOfOrder>("write::outcomes_come_in_the_order_of_the_batch").await;
}

/// Treats every check as a change, as if it never compared hashes.
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
    caught::<NeverTheSame>("write::an_unchanged_record_never_stays_stale").await;
    caught::<NeverTheSame>("history::a_check_is_no_change").await;
}

/// Releases claimed records at once.
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
    caught::<ClaimsTwice>("retries::a_claim_holds_until_it_ends").await;
    caught::<ClaimsTwice>("retries::two_claimers_never_get_the_same").await;
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
    caught::<LosesCandidates>("prefetch::two_schedulers_never_get_the_same").await;
    caught::<LosesCandidates>("prefetch::activity_decides_the_tier").await;
}
