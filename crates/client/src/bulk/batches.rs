//! Batches: open, read, seal, pause, resume, cancel, results.

use http::Method;
use tidegate_api::{Batch, Cancelled, Job, OpenBatch, Page, Sealed};

use crate::address::Address;
use crate::client::reason;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::pages::{Items, items};

impl Client {
    /// Opens a batch for jobs. Opening an open batch again changes nothing.
    pub async fn open_batch(
        &self,
        group: &str,
        batch: &str,
        options: &OpenBatch,
    ) -> Result<Batch, ClientError> {
        let call = Call::new(Method::PUT, Address::of(&["groups", group, "batches", batch]));
        self.call(call.json(options)?).await
    }

    /// Reads one batch with its progress.
    pub async fn batch(&self, group: &str, batch: &str) -> Result<Batch, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "batches", batch])))
            .await
    }

    /// Seals a batch: it takes no more jobs, so that it can complete.
    pub async fn seal_batch(&self, group: &str, batch: &str) -> Result<Sealed, ClientError> {
        let address = Address::of(&["groups", group, "batches", batch, "seal"]);
        self.call(Call::post(address).idempotent()).await
    }

    /// Pauses a batch: the service starts no more of its jobs, and running ones continue.
    pub async fn pause_batch(
        &self,
        group: &str,
        batch: &str,
        why: Option<&str>,
    ) -> Result<Batch, ClientError> {
        let address = Address::of(&["groups", group, "batches", batch, "pause"]);
        self.call(Call::post(address).idempotent().json(&reason(why))?)
            .await
    }

    /// Resumes a paused batch.
    pub async fn resume_batch(
        &self,
        group: &str,
        batch: &str,
        why: Option<&str>,
    ) -> Result<Batch, ClientError> {
        let address = Address::of(&["groups", group, "batches", batch, "resume"]);
        self.call(Call::post(address).idempotent().json(&reason(why))?)
            .await
    }

    /// Cancels every job of a batch that is not running.
    pub async fn cancel_batch(
        &self,
        group: &str,
        batch: &str,
        why: Option<&str>,
    ) -> Result<Cancelled, ClientError> {
        let address = Address::of(&["groups", group, "batches", batch, "cancel"]);
        self.call(Call::post(address).json(&reason(why))?).await
    }

    /// Reads one page of a batch's jobs with their results, in order of submission; 100 jobs unless `limit`
    /// says otherwise.
    pub async fn results(
        &self,
        group: &str,
        batch: &str,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Page<Job>, ClientError> {
        let address = Address::of(&["groups", group, "batches", batch, "results"]);
        let address = address.ask("cursor", cursor).ask("limit", limit);
        self.call(Call::get(address)).await
    }

    /// Streams all jobs of a batch with their results, page by page.
    pub fn all_results(&self, group: &str, batch: &str) -> Items<Job> {
        let (client, group, batch) = (self.clone(), group.to_owned(), batch.to_owned());
        items(move |cursor, limit| {
            let (client, group, batch) = (client.clone(), group.clone(), batch.clone());
            async move {
                client
                    .results(&group, &batch, cursor.as_deref(), Some(limit))
                    .await
            }
        })
    }
}
