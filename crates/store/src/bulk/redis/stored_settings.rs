//! Settings belong to the store: its processes agree on them, or do not start. Changing them is a command that the store
//! remembers.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::time::Timestamp;
use tidegate_redis::{Args, Error, Failure, Items, Live};

use super::transfer::{Place, parts};
use super::{RedisBulkOptions, RedisBulkStore, SCHEMA, Shared, eval, scripts, settings};
use crate::StoreError;

/// Limit: changes that the store remembers.
const CHANGES_KEPT: usize = 100;
/// Limit: differences in a message.
const NAMED: usize = 8;

/// What a process does if its settings differ from those of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OnOtherSettings {
    /// It does not use the store, and says what differs.
    #[default]
    Refuse,
    /// It uses those of the store.
    Follow,
    /// It replaces those of the store.
    Replace { by: String, why: String },
}

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Its name in the settings file.
    pub field: String,
    pub stored: String,
    pub here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, stored, here } = self;
        write!(f, "{field} is {stored} in the store and {here} here")
    }
}

/// One change of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsChange {
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// `stored` was replaced by `here`.
    pub fields: Vec<Difference>,
}

/// A change as a process sends it; the store adds the time.
#[derive(Debug, Serialize)]
struct NewChange<'a> {
    by: &'a str,
    why: &'a str,
    fields: Vec<Difference>,
}

/// The settings of a store, and their latest changes.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSettings {
    pub config: BulkConfig,
    /// The newest last.
    pub changes: Vec<SettingsChange>,
}

fn named(differences: &[Difference]) -> String {
    let mut text: Vec<String> = differences
        .iter()
        .take(NAMED)
        .map(Difference::to_string)
        .collect();
    if differences.len() > NAMED {
        text.push(format!("and {} more differ", differences.len() - NAMED));
    }
    text.join("; ")
}

impl RedisBulkStore {
    /// The settings in use: those of the options, or of the store if it was opened to follow them.
    pub fn config(&self) -> BulkConfig {
        (*self.shared.config()).clone()
    }

    /// The settings of a store that is not opened; none if there is no such store, or no process has opened it yet.
    pub async fn settings_of(options: &RedisBulkOptions) -> Result<Option<StoredSettings>, StoreError> {
        let (servers, keys, caller) = parts(options)?;
        let place = Place::new(&servers, &keys, &caller, options);
        let mut items = place.call(0, &scripts::SETTINGS, "", &Args::default()).await?;
        let text = items.text()?;
        if text.is_empty() {
            return Ok(None);
        }
        let corrupt = |error: String| StoreError::Corrupt(format!("the settings of the store: {error}"));
        let mut stored = StoredSettings {
            config: settings::stored(&text).map_err(corrupt)?,
            changes: Vec::new(),
        };
        let mut changes = items.items()?;
        while !changes.is_empty() {
            let change = serde_json::from_str(&changes.text()?);
            stored
                .changes
                .push(change.map_err(|error| corrupt(error.to_string()))?);
        }
        Ok(Some(stored))
    }

    /// Makes the settings of the options those of the store. Returns what differed.
    pub async fn replace_settings(
        options: RedisBulkOptions,
        by: &str,
        why: &str,
    ) -> Result<Vec<Difference>, StoreError> {
        let before = Self::settings_of(&options).await?;
        let differences = before.map(|before| settings::differences(&before.config, &options.config));
        Self::open(RedisBulkOptions {
            on_other_settings: OnOtherSettings::Replace {
                by: by.to_owned(),
                why: why.to_owned(),
            },
            ..options
        })
        .await?;
        Ok(differences.unwrap_or_default())
    }
}

impl Shared {
    /// Opens a shard, once per run of the server.
    pub(super) async fn open_shard(&self, shard: u32, live: &Live) -> Result<(), Failure> {
        if self.opened().get(&shard) == Some(&live.run_id) {
            return Ok(());
        }
        let Some(stored) = self.try_open(shard, live, "", None).await? else {
            self.opened().insert(shard, live.run_id.clone());
            return Ok(());
        };
        let fields = settings::differences(&stored, &self.config());
        // Settings that changed while this process ran are no reason to end it.
        let running = self.opened().contains_key(&shard);
        let mut change = None;
        let mode = match &self.on_other_settings {
            // Another version of this program wrote the same settings in another way.
            _ if fields.is_empty() => "replace",
            OnOtherSettings::Replace { by, why } if !running => {
                change = Some(NewChange { by, why, fields });
                "replace"
            }
            OnOtherSettings::Follow => {
                self.follow(&stored)
                    .map_err(|reason| self.unsuitable(shard, reason))?;
                "follow"
            }
            _ if running => {
                tracing::warn!(
                    "the settings of the store have changed: {}; restart this process with the same settings",
                    named(&fields)
                );
                "follow"
            }
            _ => {
                return Err(self.unsuitable(
                    shard,
                    format!(
                        "the settings of this process differ from those of the store: {}. Start it with the same \
                         settings, let it use those of the store with redis.follow_settings = true, or change them \
                         for all processes with `tidegate config apply`",
                        named(&fields)
                    ),
                ));
            }
        };
        self.try_open(shard, live, mode, change.as_ref()).await?;
        self.opened().insert(shard, live.run_id.clone());
        Ok(())
    }

    /// One call; returns the stored settings if they are not these and the shard was not opened.
    async fn try_open(
        &self,
        shard: u32,
        live: &Live,
        mode: &str,
        change: Option<&NewChange<'_>>,
    ) -> Result<Option<BulkConfig>, Failure> {
        let mut connection = live.connection.clone();
        let config = self.config();
        let mut command = eval(&scripts::OPEN, &self.keys.meta(shard));
        command
            .arg(self.caller.time())
            .arg(SCHEMA)
            .arg(self.shards)
            .arg(shard)
            .arg(settings::for_scripts(&config))
            .arg(&live.run_id)
            .arg(settings::compared(&config))
            .arg(mode)
            .arg(change.map_or_else(String::new, |change| {
                serde_json::to_string(change).expect("plain values")
            }))
            .arg(CHANGES_KEPT);
        let answer = command
            .query_async::<redis::Value>(&mut connection)
            .await
            .map_err(|error| Failure::Redis(error, Some(live.clone())))?;
        let mut items = Items::of(answer).map_err(Failure::Fatal)?;
        let said = items.text().map_err(Failure::Fatal)?;
        if said == "settings" {
            let text = items.text().map_err(Failure::Fatal)?;
            let stored = settings::stored(&text);
            return stored.map(Some).map_err(|error| {
                let reason = format!("this version of Tidegate does not know its settings: {error}");
                self.unsuitable(shard, reason)
            });
        }
        let detail = items.int().map_err(Failure::Fatal)?;
        let reason = match said.as_str() {
            "ok" => return Ok(None),
            "importing" => {
                "an import into it was not finished; import again, which clears it first".to_owned()
            }
            "shards" => format!(
                "it was created with {detail} shards, not {}; export it and import it into a new prefix to change \
                 that",
                self.shards
            ),
            _ => format!(
                "it has schema {detail}, this program knows schema {SCHEMA}; use the version of Tidegate that wrote \
                 it, or export there and import here"
            ),
        };
        Err(self.unsuitable(shard, reason))
    }

    fn unsuitable(&self, shard: u32, reason: String) -> Failure {
        Failure::Fatal(Error::Unsuitable {
            server: format!("the store under {:?}", self.keys.meta(shard)),
            reason,
        })
    }

    /// Takes over the settings of the store. The jobs that this process runs must be where it looks for them.
    fn follow(&self, stored: &BulkConfig) -> Result<(), String> {
        let own = self.config();
        for (kind, settings) in &own.job_types {
            let there = stored
                .job_types
                .get(kind)
                .and_then(|settings| settings.queue.as_ref());
            if let Some(queue) = &settings.queue
                && there != Some(queue)
            {
                let there = there.map_or_else(
                    || "the default queue".to_owned(),
                    |there| format!("queue {there}"),
                );
                return Err(format!(
                    "jobs of type {kind} go to queue {queue} here and to {there} in the store. Change the settings of \
                     the store with `tidegate config apply`"
                ));
            }
        }
        self.set_config(own.following(stored));
        Ok(())
    }
}
