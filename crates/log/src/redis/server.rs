//! Calls the log's functions on the server that has the key.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Value};
use tidegate_core::time::Timestamp;
use tidegate_store::Clock;
use tidegate_store::redis::connect::{Failure, Live, Request, Servers};

use super::keys::PartitionKeys;
use super::scripts::LIBRARY;
use crate::{Delivered, LogError, Position};

/// Limit: how long to retry a call that no caller in particular waits for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Server {
    servers: Servers,
    /// A test clock; without one, the server's own clock applies.
    clock: Option<Arc<dyn Clock>>,
    /// Distinguishes this process's requests from those of others.
    pub(super) name: String,
    requests: AtomicU64,
}

impl Server {
    pub(super) fn new(urls: &[String], clock: Option<Arc<dyn Clock>>) -> Result<Self, LogError> {
        Ok(Self {
            servers: Servers::with_library(urls, &LIBRARY.text)?,
            clock,
            name: format!("{:016x}", RandomState::new().build_hasher().finish()),
            requests: AtomicU64::new(0),
        })
    }

    pub(super) fn time(&self) -> String {
        let given = self.clock.as_ref();
        given.map_or_else(String::new, |clock| clock.now().0.to_string())
    }

    /// A unique request name.
    pub(super) fn request(&self) -> String {
        format!(
            "{}-{:x}",
            self.name,
            self.requests.fetch_add(1, Ordering::Relaxed)
        )
    }

    pub(super) async fn run(&self, call: &Call) -> Result<Value, LogError> {
        Ok(self.servers.run(&call.keys[0], call).await?)
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
        let adopt = Call::new("adopt", [keys.records(), keys.head()]).arg(self.time());
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
            Some(lease) => Call::new("fetch", [keys.lease(lease.group), keys.records()])
                .saying_run()
                .arg(lease.member.to_owned())
                .number(lease.fence)
                .number(from)
                .arg(to.to_owned())
                .arg(max.to_string()),
            None => Call::plain("XRANGE", keys.records())
                .arg(format!("{from}-0"))
                .arg(to.to_owned())
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

/// One call; all its keys are on one server.
#[derive(Debug)]
pub(super) struct Call {
    command: String,
    function: bool,
    keys: Vec<String>,
    args: Vec<Bytes>,
    /// The first argument says whether an earlier attempt may have run.
    says_again: bool,
    /// The first argument is the current run of the server.
    says_run: bool,
    patience: Duration,
    /// It was sent, and no reply said that it did not run.
    maybe_ran: AtomicBool,
}

impl Call {
    pub(super) fn new<const N: usize>(function: &str, keys: [String; N]) -> Self {
        Self {
            command: format!("{}_{function}", LIBRARY.name),
            function: true,
            keys: keys.into(),
            args: Vec::new(),
            says_again: false,
            says_run: false,
            patience: PATIENCE,
            maybe_ran: AtomicBool::new(false),
        }
    }

    fn plain(command: &str, key: String) -> Self {
        Self {
            command: command.to_owned(),
            function: false,
            ..Self::new("", [key])
        }
    }

    pub(super) fn arg(mut self, arg: impl Into<Bytes>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    pub(super) fn saying_again(mut self) -> Self {
        self.says_again = true;
        self
    }

    pub(super) fn saying_run(mut self) -> Self {
        self.says_run = true;
        self
    }

    pub(super) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether it may have run although no reply came.
    pub(super) fn maybe_ran(&self) -> bool {
        self.maybe_ran.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Request for Call {
    fn command(&self, live: &Live, maybe_ran: bool) -> Cmd {
        self.maybe_ran.store(true, Ordering::Relaxed);
        let mut command = match self.function {
            true => redis::cmd("FCALL"),
            false => redis::cmd(&self.command),
        };
        if self.function {
            command.arg(&self.command).arg(self.keys.len());
        }
        for key in &self.keys {
            command.arg(key);
        }
        if self.says_again {
            command.arg(if maybe_ran { "1" } else { "" });
        }
        if self.says_run {
            command.arg(&live.run_id);
        }
        for arg in &self.args {
            command.arg(&arg[..]);
        }
        command
    }

    async fn prepare(&self, _live: &Live) -> Result<(), Failure> {
        Ok(())
    }

    fn refused(&self, maybe_ran: bool) {
        self.maybe_ran.store(maybe_ran, Ordering::Relaxed);
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
