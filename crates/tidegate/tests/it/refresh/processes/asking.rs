//! Readers and users who want records refreshed, and who do not give up.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fleet::{Fleet, PATIENCE};

/// Requests that are under way at once.
const AT_ONCE: usize = 100;

/// What users were told.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Requests that became events of their own; the others found one on its way.
    pub(crate) events: usize,
    /// The last version that was promised of each record.
    pub(crate) versions: HashMap<String, u64>,
}

impl Taken {
    pub(crate) fn and(&mut self, later: Taken) {
        self.events += later.events;
        self.versions.extend(later.versions);
    }
}

impl Fleet {
    /// Reads many in one request each; an answer that says so was not queued is asked for again.
    pub(crate) async fn ask_for_all(&self, index: usize, keys: &[String]) {
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
            let taken = |n: usize| {
                let answer = &answers["records"][n]["record"];
                answer["updateQueued"] == true || answer["freshness"] == "FRESH"
            };
            let missed: Vec<String> = (0..now.len())
                .filter(|n| !taken(*n))
                .map(|n| now[n].clone())
                .collect();
            if !missed.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            left.extend(missed);
        }
    }

    /// A user's request for each, which waits for no database and is for fresh records, too; one that is not taken is
    /// made again.
    pub(crate) async fn request_all(&self, index: usize, keys: &[String]) -> Taken {
        let begun = Instant::now();
        let served = self.members[index].served();
        let mut left: VecDeque<String> = keys.iter().cloned().collect();
        let mut under_way = JoinSet::new();
        let mut all = Taken::default();
        loop {
            while under_way.len() < AT_ONCE
                && let Some(key) = left.pop_front()
            {
                let url = format!("{}/v1/records/character/{key}/refresh", served.url);
                let request = served.http.post(url).timeout(Duration::from_secs(20));
                under_way.spawn(async move {
                    let response = match request.send().await {
                        Ok(response) => response,
                        Err(error) => return (key, Err(error.to_string())),
                    };
                    let taken = response.status() == 202;
                    let answer: Value = response.json().await.unwrap_or_default();
                    let refusal = answer.to_string();
                    (key, taken.then_some(answer).ok_or(refusal))
                });
            }
            let Some(ended) = under_way.join_next().await else {
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
                    assert!(begun.elapsed() < PATIENCE, "{key} is not taken: {refusal}");
                    left.push_back(key);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}
