//! export and import of a store on Redis, in the stream that every backend reads and writes.
//!
//! There is no snapshot: a store in use changes between two pages of an export. The stream is well-formed all
//! the same (no job without its batch, no batch without its group, true counts). But jobs that are added or
//! dropped meanwhile may be missing, and running jobs may run again after the import. For a migration, stop the
//! engines first.
//!
//! An import marks each shard before it writes and removes the mark at the end, shard 0 first and last. A
//! marked shard is part of an incomplete store: nobody opens it, and the next import clears it.

mod export;
mod import;

use std::io::{BufRead, Write};

use async_trait::async_trait;
use redis::{Cmd, Value};
use tidegate_redis::{Args, Caller, Failure, Items, Live, Request, Script, Servers};

use super::keys::Keys;
use super::{OnOtherSettings, SCHEMA, Shared, eval, scripts};
use crate::StoreError;
use crate::bulk::transfer::{Counts, ExportReader};
use crate::bulk::{MAX_SHARDS, RedisBulkOptions, RedisBulkStore};

type StoreResult<T> = Result<T, StoreError>;

/// An import that has not written for this long counts as abandoned.
const ABANDONED_MS: u64 = 60_000;

impl RedisBulkStore {
    /// Writes everything the store keeps. Concurrent changes may be included or not; see the module
    /// documentation.
    pub async fn export(&self, out: impl Write) -> Result<Counts, StoreError> {
        let shared: &Shared = &self.shared;
        let place = Place {
            servers: &shared.servers,
            keys: &shared.keys,
            shards: shared.shards,
            caller: &shared.caller,
        };
        export::export(&place, out).await
    }

    /// Like [`RedisBulkStore::export`], for a store that is not opened: its settings stay as they are, and a
    /// missing store is not created. Ignores `options.config`.
    pub async fn export_of(options: &RedisBulkOptions, out: impl Write) -> Result<Counts, StoreError> {
        let (servers, keys, caller) = parts(options)?;
        let place = Place::new(&servers, &keys, &caller, options);
        for shard in 0..options.shards {
            if place.overview(shard).await?.is_none() {
                return Err(place.unsuitable(
                    shard,
                    "there is none; is the key prefix right, and the number of the database?",
                ));
            }
        }
        export::export(&place, out).await
    }

    /// The number of shards of the store that these options name, if it exists; ignores `options.shards`.
    pub async fn shards_of(options: &RedisBulkOptions) -> Result<Option<u32>, StoreError> {
        let options = &RedisBulkOptions {
            shards: 1,
            ..options.clone()
        };
        let (servers, keys, caller) = parts(options)?;
        let found = Place::new(&servers, &keys, &caller, options).overview(0).await?;
        Ok(found.map(|found| found.shards).filter(|&shards| shards > 0))
    }

    /// Creates a store from a stream. It can be opened once the import is complete.
    ///
    /// Jobs go to the queues that `options.config` names for their types, and stay there.
    pub async fn import(options: RedisBulkOptions, input: impl BufRead) -> Result<Counts, StoreError> {
        let reader = ExportReader::new(input)?;
        let (servers, keys, caller) = parts(&options)?;
        let place = Place::new(&servers, &keys, &caller, &options);
        place.make_room().await?;
        let store = Self::open(RedisBulkOptions {
            on_other_settings: OnOtherSettings::Replace {
                by: "import".to_owned(),
                why: String::new(),
            },
            ..options.clone()
        })
        .await?;
        let counts = import::import(&place, &store.shared, reader).await?;
        store.shared.share_known_limits().await?;
        Ok(counts)
    }
}

pub(super) fn parts(options: &RedisBulkOptions) -> StoreResult<(Servers, Keys, Caller)> {
    let RedisBulkOptions {
        urls,
        prefix,
        shards,
        clock,
        ..
    } = options;
    if !(1..=MAX_SHARDS).contains(shards) {
        return Err(StoreError::Config(format!(
            "shards = {shards}: it may be from 1 to {MAX_SHARDS}"
        )));
    }
    if prefix.contains(['{', '}']) {
        return Err(StoreError::Config(format!(
            "the key prefix {prefix:?} has a brace, which would change where a Cluster keeps the keys"
        )));
    }
    let servers = Servers::new(urls, &scripts::LIBRARY)?;
    Ok((servers, Keys::new(prefix), Caller::new(clock.clone())))
}

/// The location of a store, opened or not. Calls from here never open it.
pub(super) struct Place<'a> {
    servers: &'a Servers,
    keys: &'a Keys,
    shards: u32,
    caller: &'a Caller,
}

/// The contents of a shard.
#[derive(Debug)]
struct Found {
    schema: u32,
    shards: u32,
    groups: u64,
    /// The import in progress, or "".
    mark: String,
    /// The finished import, or "".
    imported_by: String,
    /// Milliseconds since the last call.
    silent: u64,
}

impl<'a> Place<'a> {
    pub(super) fn new(
        servers: &'a Servers,
        keys: &'a Keys,
        caller: &'a Caller,
        options: &RedisBulkOptions,
    ) -> Self {
        Self {
            servers,
            keys,
            shards: options.shards,
            caller,
        }
    }

    fn unsuitable(&self, shard: u32, reason: impl Into<String>) -> StoreError {
        StoreError::Unsuitable {
            server: format!("the store under {:?}", self.keys.meta(shard)),
            reason: reason.into(),
        }
    }

    /// `who` begins the id of the call and identifies the import.
    pub(super) async fn call(
        &self,
        shard: u32,
        script: &Script,
        who: &str,
        args: &Args,
    ) -> StoreResult<Items> {
        let call = PlaceCall {
            key: self.keys.meta(shard),
            time: self.caller.time(),
            script,
            who,
            args,
        };
        Ok(Items::of(self.servers.run(&call.key, &call).await?)?)
    }

    /// The contents of a shard; rejected unless this program created it, with the same number of shards.
    async fn overview(&self, shard: u32) -> StoreResult<Option<Found>> {
        let mut items = self.call(shard, &scripts::OVERVIEW, "", &Args::default()).await?;
        if items.is_empty() {
            return Ok(None);
        }
        let found = Found {
            schema: items.small()?,
            shards: items.small()?,
            groups: items.unsigned()?,
            mark: items.text()?,
            imported_by: items.text()?,
            silent: items.unsigned()?,
        };
        if found.schema != SCHEMA {
            return Err(self.unsuitable(
                shard,
                format!(
                    "it has schema {}, this program knows schema {SCHEMA}",
                    found.schema
                ),
            ));
        }
        Ok(Some(found))
    }

    /// The same for all requested shards.
    async fn overview_all(&self) -> StoreResult<Vec<Option<Found>>> {
        let mut all = Vec::new();
        for shard in 0..self.shards {
            let found = self.overview(shard).await?;
            if let Some(found) = &found
                && found.shards != self.shards
            {
                let reason = format!("it was created with {} shards, not {}", found.shards, self.shards);
                return Err(self.unsuitable(shard, reason));
            }
            all.push(found);
        }
        Ok(all)
    }

    /// Rejects a store in use, and clears what an incomplete import left behind.
    async fn make_room(&self) -> StoreResult<()> {
        let all = self.overview_all().await?;
        if let Some(Some(first)) = all.first()
            && !first.mark.is_empty()
        {
            let of_import = all.iter().flatten().filter(|found| found.mark == first.mark);
            let silent = of_import.map(|found| found.silent).min().unwrap_or(0);
            if silent < ABANDONED_MS {
                return Err(self.unsuitable(
                    0,
                    format!(
                        "another import wrote to it {} s ago; wait for its end, or for a minute if it is gone",
                        silent / 1_000
                    ),
                ));
            }
            tracing::warn!("an import was not finished; clearing what it left");
            self.clear(&first.mark).await?;
            return self.all_empty(&self.overview_all().await?);
        }
        self.all_empty(&all)
    }

    fn all_empty(&self, all: &[Option<Found>]) -> StoreResult<()> {
        for (found, shard) in all.iter().zip(0..) {
            if found
                .as_ref()
                .is_some_and(|found| found.groups > 0 || !found.mark.is_empty())
            {
                return Err(self.unsuitable(
                    shard,
                    "it is not empty; import makes a new store: use another key prefix",
                ));
            }
        }
        Ok(())
    }

    /// Removes everything of one import, shard 0 last: its mark stands for all.
    async fn clear(&self, who: &str) -> StoreResult<()> {
        let mut args = Args::default();
        args.text(who);
        for shard in (0..self.shards).rev() {
            // A shard that the import did not reach may be in use.
            let ours = |found: &Found| found.mark == who || found.imported_by == who;
            if !self.overview(shard).await?.is_some_and(|found| ours(&found)) {
                continue;
            }
            loop {
                let mut items = self.call(shard, &scripts::CLEAR, who, &args).await?;
                if items.text()? != "ok" {
                    return Err(self.unsuitable(shard, "another import has begun"));
                }
                if !items.flag()? {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// One call that does not open the shard.
struct PlaceCall<'a> {
    key: String,
    time: String,
    script: &'a Script,
    who: &'a str,
    args: &'a Args,
}

#[async_trait]
impl Request for PlaceCall<'_> {
    fn command(&self, _: &Live, maybe_ran: bool) -> Cmd {
        let mut command = eval(self.script, &self.key);
        command.arg(&self.time).arg(if maybe_ran { "1" } else { "" });
        command.arg(self.who).arg(0).arg(0).arg("").arg("").arg("");
        for bytes in self.args.each() {
            command.arg(bytes);
        }
        command
    }

    async fn prepare(&self, _: &Live) -> Result<(), Failure> {
        Ok(())
    }
}

/// Skips what a changing call returns before its own items.
fn without_facts(mut items: Items) -> StoreResult<Items> {
    match items.value()? {
        Value::Array(_) => Ok(items),
        other => Err(StoreError::Corrupt(format!(
            "a script answered {other:?} where facts were expected"
        ))),
    }
}
