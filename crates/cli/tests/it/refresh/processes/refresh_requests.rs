//! Reads and refresh requests that are retried until the service accepts them.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fleet::{Fleet, PATIENCE};

/// Limit: concurrent requests.
const AT_ONCE: usize = 100;

/// The answers to refresh requests.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    /// Requests that published a refresh event; the others joined one in flight.
    pub(crate) events: usize,
    /// The last version that the service promised of each record.
    pub(crate) versions: HashMap<String, u64>,
}

impl Accepted {
    pub(crate) fn add(&mut self, later: Accepted) {
        self.events += later.events;
        self.versions.extend(later.versions);
    }
}

impl Fleet {
    /// Reads all records, many per call, until each of them is queued or fresh.
    pub(crate) async fn read_until_queued(&self, index: usize, keys: &[String]) {
        let begun = Instant::now();
        let served = self.members[index].served();
        let mut left: Vec<String> = keys.to_vec();
        while !left.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{} are not queued", left.len());
            let now: Vec<String> = left.drain(..left.len().min(500)).collect();
            let records: Vec<Value> = now
                .iter()
                .map(|key| json!({ "source": "character", "key": key }))
                .collect();
            let sent = served
                .http
                .post(format!("{}/v1/records/read", served.url))
                .json(&json!({ "records": records }))
                .send()
                .await;
            let answers: Value = match sent {
                Ok(response) => response.json().await.unwrap(),
                Err(_) => Value::Null,
            };
            let queued = |n: usize| {
                let answer = &answers["records"][n]["record"];
                answer["updateQueued"] == true || answer["freshness"] == "FRESH"
            };
            let missed: Vec<String> = (0..now.len())
                .filter(|n| !queued(*n))
                .map(|n| now[n].clone())
                .collect();
            if !missed.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            left.extend(missed);
        }
    }

    /// Requests a refresh of each record, also of fresh ones. That needs no database. Requests that are refused are
    /// retried.
    pub(crate) async fn request_all(&self, index: usize, keys: &[String]) -> Accepted {
        let begun = Instant::now();
        let served = self.members[index].served();
        let mut left: VecDeque<String> = keys.iter().cloned().collect();
        let mut in_flight = JoinSet::new();
        let mut all = Accepted::default();
        loop {
            while in_flight.len() < AT_ONCE
                && let Some(key) = left.pop_front()
            {
                let url = format!("{}/v1/records/character/{key}/refresh", served.url);
                let request = served.http.post(url).timeout(Duration::from_secs(20));
                in_flight.spawn(async move {
                    let response = match request.send().await {
                        Ok(response) => response,
                        Err(error) => return (key, Err(error.to_string())),
                    };
                    let accepted = response.status() == 202;
                    let answer: Value = response.json().await.unwrap_or_default();
                    let refusal = answer.to_string();
                    (key, accepted.then_some(answer).ok_or(refusal))
                });
            }
            let Some(ended) = in_flight.join_next().await else {
                return all;
            };
            match ended.unwrap() {
                (key, Ok(answer)) => {
                    let own = answer["outcome"] == "PUBLISHED" || answer["outcome"] == "UPGRADED";
                    all.events += usize::from(own);
                    all.versions
                        .extend(answer["version"].as_u64().map(|version| (key, version)));
                }
                (key, Err(refusal)) => {
                    assert!(begun.elapsed() < PATIENCE, "{key} is not accepted: {refusal}");
                    left.push_back(key);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}
