//! Calls the log's functions on the server that has the key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tidegate_core::clock::Clock;
use tidegate_core::time::Timestamp;
use tidegate_redis::{Call, Caller, Script, Servers};

use super::keys::PartitionKeys;
use super::scripts;
use crate::{Delivered, LogError, Position};

/// Limit: how long to retry a call that no caller in particular waits for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Server {
    servers: Servers,
    pub(super) caller: Caller,
}

/// A call of the log: short of patience.
pub(super) fn call<const N: usize>(script: &'static Script, keys: [String; N]) -> Call {
    let mut keys = keys.into_iter();
    let first = keys.next().unwrap_or_default();
    let call = Call::function(script, first).patience(PATIENCE);
    keys.fold(call, Call::also)
}

impl Server {
    pub(super) fn new(urls: &[String], clock: Option<Arc<dyn Clock>>) -> Result<Self, LogError> {
        Ok(Self {
            servers: Servers::new(urls, &scripts::LIBRARY)?,
            caller: Caller::new(clock),
        })
    }

    pub(super) async fn run(&self, call: &Call) -> Result<Value, LogError> {
        Ok(self.servers.run(call.key(), call).await?)
    }

    /// A call that returns numbers.
    pub(super) async fn numbers(&self, call: &Call) -> Result<Vec<i64>, LogError> {
        let answer = self.run(call).await?;
        let number = |value: Value| redis::from_redis_value::<i64>(value);
        let numbers = match answer {
            Value::Array(values) => values.into_iter().map(number).collect(),
            value => number(value).map(|number| vec![number]),
        };
        numbers.map_err(|error| unexpected(&error.to_string()))
    }

    /// A call that returns one number.
    pub(super) async fn number(&self, call: &Call) -> Result<i64, LogError> {
        let numbers = self.numbers(call).await?;
        numbers.first().copied().ok_or_else(|| unexpected("nothing"))
    }

    /// Records of a partition from an offset on; none if the lease is lost. Adopts foreign entries first: an
    /// unreadable entry must not block those behind it.
    pub(super) async fn range(
        &self,
        keys: &PartitionKeys,
        lease: Option<&Lease<'_>>,
        from: Position,
        max: usize,
    ) -> Result<Option<Vec<Delivered>>, LogError> {
        let Position { partition, offset } = from;
        let Some(entries) = self.entries(keys, lease, (offset, "+"), max).await? else {
            return Ok(None);
        };
        let records: Vec<Delivered> = (entries.iter())
            .map_while(|entry| delivered(partition, entry))
            .collect();
        // Our offsets are consecutive. Where they are not, records were dropped, or some entries are foreign.
        let ours = (offset..)
            .zip(&records)
            .all(|(offset, record)| record.position.offset == offset);
        if ours && records.len() == entries.len() {
            return Ok(Some(records));
        }
        let adopt = call(&scripts::ADOPT, [keys.records(), keys.head()]).arg(self.caller.time());
        let Some(last) = self
            .number(&adopt)
            .await?
            .checked_sub(1)
            .filter(|last| *last >= 0)
        else {
            return Ok(Some(Vec::new()));
        };
        let to = format!("{last}-1");
        let Some(entries) = self.entries(keys, lease, (offset, &to), max).await? else {
            return Ok(None);
        };
        let record = |entry: &Value| {
            delivered(partition, entry).ok_or_else(|| unexpected(&format!("a record in {}", keys.records())))
        };
        entries.iter().map(record).collect::<Result<_, _>>().map(Some)
    }

    async fn entries(
        &self,
        keys: &PartitionKeys,
        lease: Option<&Lease<'_>>,
        (from, to): (u64, &str),
        max: usize,
    ) -> Result<Option<Vec<Value>>, LogError> {
        let call = match lease {
            Some(lease) => call(&scripts::FETCH, [keys.lease(lease.group), keys.records()])
                .run_id()
                .arg(lease.member)
                .number(lease.fence)
                .number(from)
                .arg(to)
                .arg(max.to_string()),
            None => Call::command("XRANGE", keys.records())
                .patience(PATIENCE)
                .arg(format!("{from}-0"))
                .arg(to)
                .arg("COUNT")
                .arg(max.to_string()),
        };
        match self.run(&call).await? {
            Value::Array(entries) => Ok(Some(entries)),
            Value::Nil => Ok(None),
            _ => Err(unexpected("no list of records")),
        }
    }
}

/// The lease under which to read.
#[derive(Debug)]
pub(super) struct Lease<'a> {
    pub(super) group: &'a str,
    pub(super) member: &'a str,
    pub(super) fence: u64,
}

fn unexpected(answer: &str) -> LogError {
    LogError::Corrupt(format!("an answer of Redis was not understood: {answer}"))
}

/// One of our entries is its id, `offset-1`, and its fields: t, time, k, key, v, value. None: a foreign entry.
fn delivered(partition: u32, entry: &Value) -> Option<Delivered> {
    let Value::Array(entry) = entry else { return None };
    let [Value::BulkString(id), Value::Array(fields)] = entry.as_slice() else {
        return None;
    };
    let [
        t,
        Value::BulkString(time),
        k,
        Value::BulkString(key),
        v,
        Value::BulkString(value),
    ] = fields.as_slice()
    else {
        return None;
    };
    let named = |field: &Value, name: &[u8]| matches!(field, Value::BulkString(bytes) if bytes == name);
    if !(named(t, b"t") && named(k, b"k") && named(v, b"v")) {
        return None;
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let offset = std::str::from_utf8(id)
        .ok()?
        .strip_suffix("-1")
        .and_then(number)?;
    Some(Delivered {
        position: Position { partition, offset },
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        appended_at: Timestamp(std::str::from_utf8(time).ok().and_then(number)?),
    })
}
