//! Callbacks: delivers the end of a batch to a URL, and retries until it is delivered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Serialize;
use tidegate_api::{BatchCounts, BatchStatus, Time};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::clock::Clock;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::bulk::CompletedBatch;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};

use super::call::{Address, Within};
use super::sign::message_id;
use crate::bulk::convert::{batch_counts, status, time};
use crate::config::Config;

/// The pauses between attempts within one claim. A claim expires after a minute, and the holder of the next one continues.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];
/// How long all attempts within one claim may take.
const WITHIN: Duration = Duration::from_secs(40);
/// Limit: how much of a response the client reads. Its content does not matter.
const MAX_ANSWER: u64 = 64 * 1024;
/// How long the service retries a callback that the configuration no longer has.
const GIVE_UP_UNKNOWN: Millis = Millis(3 * 86_400_000);

pub(crate) struct Callbacks {
    all: BTreeMap<String, Callback>,
    store: Arc<dyn BulkStore>,
    clock: Arc<dyn Clock>,
}

struct Callback {
    address: Address,
    timeout: Duration,
    give_up_after: Millis,
    delivered: AtomicU64,
    failed: AtomicU64,
}

/// The message of a callback.
#[derive(Serialize)]
struct Message<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: Time,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    group: &'a str,
    batch: &'a str,
    status: BatchStatus,
    counts: BatchCounts,
    errors: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<serde_json::Value>,
}

impl Callbacks {
    /// Checks the settings. The error names the setting and what is wrong with it.
    pub(crate) fn new(
        config: &Config,
        client: &Client,
        store: Arc<dyn BulkStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for (name, callback) in &config.callbacks {
            let what = format!("callbacks.{name}");
            let callback = Callback {
                address: Address::new(
                    client,
                    &what,
                    &callback.url,
                    callback.secret.as_deref(),
                    &callback.headers,
                )?,
                timeout: callback.timeout_ms.into(),
                give_up_after: callback.give_up_after_ms,
                delivered: AtomicU64::new(0),
                failed: AtomicU64::new(0),
            };
            all.insert(name.clone(), callback);
        }
        Ok(Self { all, store, clock })
    }

    /// The number of delivered and of failed calls, by callback.
    pub(crate) fn counts(&self) -> Vec<(String, u64, u64)> {
        let counted = |(name, callback): (&'_ String, &'_ Callback)| {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            (name.clone(), count(&callback.delivered), count(&callback.failed))
        };
        self.all.iter().map(counted).collect()
    }

    /// Delivers the callback of a batch. It is `Ok` if the batch has no callback, too, and after the last attempt failed.
    pub(crate) async fn deliver(&self, completed: CompletedBatch) -> Result<(), String> {
        let Some(name) = &completed.callback else {
            return Ok(());
        };
        let (callback, give_up_after) = match self.all.get(name) {
            Some(callback) => (Some(callback), callback.give_up_after),
            None => (None, GIVE_UP_UNKNOWN),
        };
        let outcome = match callback {
            Some(callback) => self.try_within_claim(callback, &completed).await,
            None => Attempt::Retry(format!("callback {name:?} is not configured")),
        };
        let error = match outcome {
            Attempt::Delivered => return Ok(()),
            Attempt::Failed(error) => error,
            Attempt::Retry(error) => match self.finished_at(&completed).await {
                Some(at) if self.clock.now().since(at) > give_up_after => {
                    format!("{error}; retried for {give_up_after}")
                }
                _ => return Err(error),
            },
        };
        let (group, batch) = (&completed.group, &completed.batch);
        tracing::error!(%group, %batch, callback = name, error, "failed to deliver a callback; the service does not retry it");
        Ok(())
    }

    async fn finished_at(&self, completed: &CompletedBatch) -> Option<Timestamp> {
        let query = Query::Batch(completed.group.clone(), completed.batch.clone());
        match self.store.call(query).await {
            Ok(Ok(View::Batch(view))) => view.finished_at,
            _ => None,
        }
    }

    async fn try_within_claim(&self, callback: &Callback, completed: &CompletedBatch) -> Attempt {
        let attempts = async {
            let mut pauses = PAUSES.iter();
            loop {
                let attempt = self.try_once(callback, completed).await;
                let counter = match attempt {
                    Attempt::Delivered => &callback.delivered,
                    _ => &callback.failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                match (&attempt, pauses.next()) {
                    (Attempt::Retry(_), Some(pause)) => tokio::time::sleep(*pause).await,
                    _ => return attempt,
                }
            }
        };
        let slow = |_| Attempt::Retry("no response in time".into());
        tokio::time::timeout(WITHIN, attempts).await.unwrap_or_else(slow)
    }

    async fn try_once(&self, callback: &Callback, completed: &CompletedBatch) -> Attempt {
        let now = self.clock.now();
        let (group, batch) = (completed.group.as_str(), completed.batch.as_str());
        let summary = completed.summary.as_ref();
        let message = Message {
            kind: match completed.status {
                tidegate_core::bulk::BatchStatus::Failed => "batch.failed",
                tidegate_core::bulk::BatchStatus::Cancelled => "batch.cancelled",
                _ => "batch.completed",
            },
            timestamp: time(now),
            data: Data {
                group,
                batch,
                status: status(completed.status),
                counts: batch_counts(completed.counts),
                errors: &completed.errors,
                summary: summary.and_then(|bytes| serde_json::from_slice(bytes).ok()),
            },
        };
        let body = match serde_json::to_vec(&message) {
            Ok(body) => body,
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        let id = message_id("batch", group, batch);
        let within = Within {
            timeout: callback.timeout,
            max_answer: MAX_ANSWER,
            send_by: None,
        };
        let call = callback.address.post(&id, now, body, &[], within);
        match call.await {
            Ok(reply) if reply.status.is_success() => Attempt::Delivered,
            Ok(reply) if reply.status == StatusCode::GONE => Attempt::Failed("answered 410 Gone".into()),
            Ok(reply) => Attempt::Retry(format!("answered {}", reply.status)),
            Err(error) => Attempt::Retry(error.to_string()),
        }
    }
}

/// The outcome of one attempt.
#[derive(Debug)]
enum Attempt {
    Delivered,
    /// It may succeed later.
    Retry(String),
    /// It failed for good.
    Failed(String),
}
