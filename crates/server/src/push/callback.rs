//! Callbacks: somebody is told when a batch is decided, until they have heard it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Serialize;
use tidegate_api::{BatchCounts, BatchStatus, Time};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::CompletedBatch;
use tidegate_store::{Clock, Store, StoreExt};

use super::call::{Address, Within};
use super::sign::message_id;
use crate::config::Config;
use crate::convert::{batch_counts, status, time};

/// Tries within one claim: at once, then after these. The claim runs out a minute after it was made, and whoever
/// holds the next one goes on.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];
/// How long all tries within one claim may take.
const WITHIN: Duration = Duration::from_secs(40);
/// Limit: how much of an answer is read; nobody looks at it.
const MAX_ANSWER: u64 = 64 * 1024;
/// A callback that is not in the configuration any more.
const GIVE_UP_UNKNOWN: Millis = Millis(3 * 86_400_000);

pub(crate) struct Callbacks {
    all: BTreeMap<String, Callback>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

struct Callback {
    address: Address,
    timeout: Duration,
    give_up_after: Millis,
    told: AtomicU64,
    failed: AtomicU64,
}

/// What is told.
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
    /// Which settings cannot be used, and why.
    pub(crate) fn new(
        config: &Config,
        client: &Client,
        store: Arc<dyn Store>,
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
                told: AtomicU64::new(0),
                failed: AtomicU64::new(0),
            };
            all.insert(name.clone(), callback);
        }
        Ok(Self { all, store, clock })
    }

    /// Calls that were heard, and those that were not, by callback.
    pub(crate) fn counts(&self) -> Vec<(String, u64, u64)> {
        let counted = |(name, callback): (&'_ String, &'_ Callback)| {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            (name.clone(), count(&callback.told), count(&callback.failed))
        };
        self.all.iter().map(counted).collect()
    }

    /// Ok: told, or nobody is to be told, or it was given up.
    pub(crate) async fn tell(&self, completed: CompletedBatch) -> Result<(), String> {
        let Some(name) = &completed.callback else {
            return Ok(());
        };
        let (callback, give_up_after) = match self.all.get(name) {
            Some(callback) => (Some(callback), callback.give_up_after),
            None => (None, GIVE_UP_UNKNOWN),
        };
        let outcome = match callback {
            Some(callback) => self.try_within_claim(callback, &completed).await,
            None => Tried::Again(format!("callback {name:?} is not configured")),
        };
        let error = match outcome {
            Tried::Delivered => return Ok(()),
            Tried::Never(error) => error,
            Tried::Again(error) => match self.decided_at(&completed).await {
                Some(at) if self.clock.now().since(at) > give_up_after => {
                    format!("{error}; tried for {give_up_after}")
                }
                _ => return Err(error),
            },
        };
        let (group, batch) = (&completed.group, &completed.batch);
        tracing::error!(%group, %batch, callback = name, error, "the callback was given up");
        Ok(())
    }

    async fn decided_at(&self, completed: &CompletedBatch) -> Option<Timestamp> {
        let query = Query::Batch(completed.group.clone(), completed.batch.clone());
        match self.store.call(query).await {
            Ok(Ok(View::Batch(view))) => view.finished_at,
            _ => None,
        }
    }

    async fn try_within_claim(&self, callback: &Callback, completed: &CompletedBatch) -> Tried {
        let tries = async {
            let mut pauses = PAUSES.iter();
            loop {
                let tried = self.try_once(callback, completed).await;
                let counter = match tried {
                    Tried::Delivered => &callback.told,
                    _ => &callback.failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                match (&tried, pauses.next()) {
                    (Tried::Again(_), Some(pause)) => tokio::time::sleep(*pause).await,
                    _ => return tried,
                }
            }
        };
        let slow = |_| Tried::Again("no answer in time".into());
        tokio::time::timeout(WITHIN, tries).await.unwrap_or_else(slow)
    }

    async fn try_once(&self, callback: &Callback, completed: &CompletedBatch) -> Tried {
        let now = self.clock.now();
        let (group, batch) = (completed.group.as_str(), completed.batch.as_str());
        let summary = completed.summary.as_ref();
        let message = Message {
            kind: match completed.status {
                tidegate_core::bulk::BatchStatus::Failed => "batch.failed",
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
            Err(error) => return Tried::Never(error.to_string()),
        };
        let id = message_id("batch", group, batch);
        let within = Within {
            timeout: callback.timeout,
            max_answer: MAX_ANSWER,
            send_by: None,
        };
        let call = callback.address.post(&id, now, body, &[], within);
        match call.await {
            Ok(reply) if reply.status.is_success() => Tried::Delivered,
            Ok(reply) if reply.status == StatusCode::GONE => Tried::Never("answered 410 Gone".into()),
            Ok(reply) => Tried::Again(format!("answered {}", reply.status)),
            Err(error) => Tried::Again(error.to_string()),
        }
    }
}

#[derive(Debug)]
enum Tried {
    Delivered,
    /// It may work later.
    Again(String),
    Never(String),
}
