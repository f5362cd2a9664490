//! Commands of operators and benchmarks to the servers themselves.

use redis::{Cmd, Value};
use tidegate_redis::Broken;

use crate::StoreError;
use crate::bulk::RedisBulkStore;

/// Keys inspected per SCAN.
const SCAN_COUNT: u32 = 1_000;

impl RedisBulkStore {
    /// Runs a command on every server that has a shard; returns the replies in order of server name.
    async fn on_servers(&self, command: &Cmd) -> Result<Vec<Value>, StoreError> {
        let mut answers = Vec::new();
        for server in self.shared.servers.masters()? {
            let unavailable = |reason: String| StoreError::Unavailable {
                server: server.name.clone(),
                reason,
            };
            let live = match server.live().await {
                Ok(live) => live,
                Err(Broken::Now(error)) => return Err(unavailable(error.to_string())),
                Err(Broken::ForGood(error)) => return Err(error.into()),
            };
            let mut connection = live.connection.clone();
            let answer = command.query_async(&mut connection).await;
            answers.push(answer.map_err(|error: redis::RedisError| unavailable(error.to_string()))?);
        }
        Ok(answers)
    }

    async fn info(&self, section: &str, field: &str) -> Result<Vec<String>, StoreError> {
        let mut command = redis::cmd("INFO");
        command.arg(section);
        let found = |answer: Value| {
            let text: String = redis::from_redis_value(answer).unwrap_or_default();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        Ok(self.on_servers(&command).await?.into_iter().map(found).collect())
    }

    /// Bytes of memory in use, over all servers.
    pub async fn used_memory(&self) -> Result<u64, StoreError> {
        let all = self.info("memory", "used_memory").await?;
        Ok(all.iter().filter_map(|text| text.parse::<u64>().ok()).sum())
    }

    /// The durability settings of the servers, in Redis terms.
    pub async fn persistence(&self) -> Result<String, StoreError> {
        let all = self.info("persistence", "aof_enabled").await?;
        if all.iter().any(|on| on != "1") {
            return Ok("none".to_owned());
        }
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("appendfsync");
        let answers = self.on_servers(&command).await?;
        let fsync = answers.into_iter().find_map(|answer| {
            let pair: Vec<String> = redis::from_redis_value(answer).ok()?;
            pair.into_iter().nth(1)
        });
        Ok(format!(
            "appendonly, fsync {}",
            fsync.unwrap_or_else(|| "unknown".to_owned())
        ))
    }

    /// One round trip to every server.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.on_servers(&redis::cmd("PING")).await.map(drop)
    }

    /// Removes everything under the prefix, irreversibly; no engine may be running.
    pub async fn remove_all(&self) -> Result<(), StoreError> {
        let pattern = self.shared.keys.pattern();
        for server in self.shared.servers.masters()? {
            let unavailable = |error: redis::RedisError| StoreError::Unavailable {
                server: server.name.clone(),
                reason: error.to_string(),
            };
            let live = match server.live().await {
                Ok(live) => live,
                Err(Broken::Now(error)) => return Err(unavailable(error)),
                Err(Broken::ForGood(error)) => return Err(error.into()),
            };
            let mut connection = live.connection.clone();
            let mut cursor = 0u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor)
                    .arg("MATCH")
                    .arg(&pattern)
                    .arg("COUNT")
                    .arg(SCAN_COUNT);
                let (next, keys): (u64, Vec<Vec<u8>>) =
                    scan.query_async(&mut connection).await.map_err(unavailable)?;
                for key in keys {
                    // One by one: keys of different shards are in different slots.
                    let removed = redis::cmd("UNLINK")
                        .arg(key)
                        .query_async::<()>(&mut connection)
                        .await;
                    removed.map_err(unavailable)?;
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        self.shared.forget_opened();
        Ok(())
    }
}
