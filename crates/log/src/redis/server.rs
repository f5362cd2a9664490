//! Calls of the log's functions on the server that has a key.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Value};
use tidegate_core::time::Timestamp;
use tidegate_store::Clock;
use tidegate_store::redis::connect::{Failure, Live, Request, Servers};

use super::scripts::LIBRARY;
use crate::{Delivered, LogError, Position};

/// Limit: how long a call is tried that nobody in particular waits for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Server {
    servers: Servers,
    /// The time, for tests; the server's own if absent.
    clock: Option<Arc<dyn Clock>>,
    /// Tells this process's requests from those of others.
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

    /// A name that no other request has.
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

    /// A call that answers with numbers.
    pub(super) async fn numbers(&self, call: &Call) -> Result<Vec<i64>, LogError> {
        let answer = self.run(call).await?;
        let number = |value: Value| redis::from_redis_value::<i64>(value);
        let numbers = match answer {
            Value::Array(values) => values.into_iter().map(number).collect(),
            value => number(value).map(|number| vec![number]),
        };
        numbers.map_err(|error| unexpected(&error.to_string()))
    }

    /// A call that answers with one number.
    pub(super) async fn number(&self, call: &Call) -> Result<i64, LogError> {
        let numbers = self.numbers(call).await?;
        numbers.first().copied().ok_or_else(|| unexpected("nothing"))
    }

    /// Records of a stream from an offset on.
    pub(super) async fn range(
        &self,
        records: String,
        partition: u32,
        from: u64,
        max: usize,
    ) -> Result<Vec<Delivered>, LogError> {
        let call = Call::plain("XRANGE", records)
            .arg(format!("{from}-0"))
            .arg("+")
            .arg("COUNT")
            .arg(max.to_string());
        let Value::Array(entries) = self.run(&call).await? else {
            return Err(unexpected("no list of records"));
        };
        entries
            .into_iter()
            .map(|entry| delivered(partition, entry))
            .collect()
    }
}

fn unexpected(answer: &str) -> LogError {
    LogError::Corrupt(format!("an answer of Redis was not understood: {answer}"))
}

/// An entry is its id and its fields: t, time, k, key, v, value.
fn delivered(partition: u32, entry: Value) -> Result<Delivered, LogError> {
    let broken = || unexpected("a record that is none of ours");
    let Value::Array(entry) = entry else {
        return Err(broken());
    };
    let [Value::BulkString(id), Value::Array(fields)] =
        <[Value; 2]>::try_from(entry).map_err(|_| broken())?
    else {
        return Err(broken());
    };
    let [
        _,
        Value::BulkString(time),
        _,
        Value::BulkString(key),
        _,
        Value::BulkString(value),
    ] = <[Value; 6]>::try_from(fields).map_err(|_| broken())?
    else {
        return Err(broken());
    };
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    let offset = id
        .split(|byte| *byte == b'-')
        .next()
        .and_then(number)
        .ok_or_else(broken)?;
    Ok(Delivered {
        position: Position { partition, offset },
        key: Bytes::from(key),
        value: Bytes::from(value),
        appended_at: Timestamp(number(&time).ok_or_else(broken)?),
    })
}

/// One call; all its keys are on one server.
#[derive(Debug)]
pub(super) struct Call {
    command: String,
    function: bool,
    keys: Vec<String>,
    args: Vec<Bytes>,
    /// The first argument says whether an earlier try may have run.
    says_again: bool,
    patience: Duration,
}

impl Call {
    pub(super) fn new<const N: usize>(function: &str, keys: [String; N]) -> Self {
        Self {
            command: format!("{}_{function}", LIBRARY.name),
            function: true,
            keys: keys.into(),
            args: Vec::new(),
            says_again: false,
            patience: PATIENCE,
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

    pub(super) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

#[async_trait]
impl Request for Call {
    fn command(&self, _live: &Live, maybe_ran: bool) -> Cmd {
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
        for arg in &self.args {
            command.arg(&arg[..]);
        }
        command
    }

    async fn prepare(&self, _live: &Live) -> Result<(), Failure> {
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
