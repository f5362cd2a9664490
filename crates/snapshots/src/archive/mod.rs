//! The archive: moves old history out of the database into compressed objects, and from tier to tier as it ages. It
//! can also restore history.
//!
//! An object holds rows of one source and one day, and its name says which: `{tier}/{source}/{day}/{first id}-{last
//! id}.tga`. The same rows make the same object under the same name, so a run that stopped anywhere can be repeated
//! without harm:
//!
//! 1. read the oldest rows of a source, up to one day and one portion;
//! 2. write the object, and read it back: it has to be the same, byte for byte;
//! 3. only then delete the rows.
//!
//! A crash between 2 and 3 leaves the rows in both places, and the next run overwrites the object with itself.
//! Invariant: the current snapshot of a record is not history, and the archive never touches it.
//!
//! The caller decides when this runs. Two concurrent runs do no harm; they only do the work twice.

mod object;
mod place;
mod restore;
mod tiers;

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::ids::SourceId;
use tidegate_core::time::{Millis, Timestamp};

pub use place::ArchivePlace;
#[cfg(feature = "s3")]
pub use place::S3Options;
pub use restore::{RestoreFilter, RestoreReport};

use crate::rows::{HistoryParams, HistoryRow};
use crate::{Snapshots, SnapshotsError};
use place::{Day, object_path};

const DAY: Millis = Millis::from_secs(24 * 60 * 60);
/// Limit: restored rows that one call drops.
const MAX_DROPPED: u32 = 1_000;
/// Limit: bytes of data in one object, whatever is configured. Memory holds them twice during the write.
const MAX_OBJECT_BYTES: usize = 256 << 20;

/// Where the archive keeps history of a certain age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveTier {
    /// The first part of its objects' names.
    pub name: String,
    /// History older than this belongs here, or to a later tier.
    pub from: Millis,
    /// The storage class on S3; a folder has none.
    pub storage_class: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// Ordered by age; the age of the first tier is how long history stays in the database. Default: `warm` from 30
    /// days (STANDARD), `cold` from 90 days (STANDARD_IA), `archive` from 180 days (GLACIER).
    pub tiers: Vec<ArchiveTier>,
    /// Rows in one object (default 10,000).
    pub object_rows: u32,
    /// Bytes of data in one object before compression (default 32 MB). A single row may be larger.
    pub object_bytes: usize,
    /// Compression level: 1 is fast, 19 is small (default 3).
    pub compression: i32,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        let tier = |name: &str, days: u64, class: &str| ArchiveTier {
            name: name.to_owned(),
            from: Millis(days * DAY.0),
            storage_class: Some(class.to_owned()),
        };
        Self {
            tiers: vec![
                tier("warm", 30, "STANDARD"),
                tier("cold", 90, "STANDARD_IA"),
                tier("archive", 180, "GLACIER"),
            ],
            object_rows: 10_000,
            object_bytes: 32 << 20,
            compression: 3,
        }
    }
}

impl ArchiveSettings {
    /// The error names the setting that cannot work.
    pub fn check(&self) -> Result<(), ArchiveError> {
        let wrong = |reason: String| Err(ArchiveError::Settings(reason));
        if self.tiers.is_empty() {
            return wrong("there is no tier; configure at least one".to_owned());
        }
        for pair in self.tiers.windows(2) {
            if pair[0].from >= pair[1].from {
                return wrong(format!(
                    "tier {:?} begins at {}, which is not before tier {:?} at {}",
                    pair[0].name, pair[0].from, pair[1].name, pair[1].from
                ));
            }
        }
        for (index, tier) in self.tiers.iter().enumerate() {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if tier.name.is_empty() || !tier.name.bytes().all(plain) {
                return wrong(format!("tier {:?} needs a name of a-z, 0-9 and -", tier.name));
            }
            if self.tiers[..index].iter().any(|other| other.name == tier.name) {
                return wrong(format!("two tiers have the name {:?}", tier.name));
            }
        }
        if self.object_rows == 0 || self.object_bytes == 0 || self.object_bytes > MAX_OBJECT_BYTES {
            return wrong(format!(
                "an object needs at least one row, and 1 to {MAX_OBJECT_BYTES} bytes; {} rows and {} bytes are set",
                self.object_rows, self.object_bytes
            ));
        }
        Ok(())
    }

    /// The tier for history of this age; `None`: it stays in the database.
    fn tier_of(&self, age: Millis) -> Option<&ArchiveTier> {
        self.tiers.iter().rev().find(|tier| tier.from <= age)
    }
}

/// Errors of the archive.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Snapshots(#[from] SnapshotsError),
    #[error("invalid archive settings: {0}")]
    Settings(String),
    #[error("{place} cannot be used for {object}: {reason}")]
    Storage {
        place: String,
        object: String,
        reason: String,
    },
    #[error("{object} in {place} is damaged: {reason}; the rows stay where they were")]
    Damaged {
        place: String,
        object: String,
        reason: String,
    },
}

impl ArchiveError {
    /// Whether the same call may succeed later without an operator. An unavailable place may come back, and a retry
    /// loses nothing.
    pub fn is_retryable(&self) -> bool {
        match self {
            ArchiveError::Snapshots(error) => error.is_retryable(),
            ArchiveError::Storage { .. } => true,
            ArchiveError::Settings(_) | ArchiveError::Damaged { .. } => false,
        }
    }
}

/// One completed step, reported as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveStep {
    /// Rows left the database.
    Stored { object: String, rows: u64, bytes: u64 },
    /// An object moved to a later tier.
    Moved { from: String, to: String },
    /// Rows restored some time ago left the database again.
    Dropped { rows: u64 },
    /// The archive read an object and restored rows of it.
    Restored { object: String, rows: u64 },
}

/// Receives every step.
pub type ArchiveProgress<'a> = &'a (dyn Fn(ArchiveStep) + Send + Sync);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveReport {
    pub rows: u64,
    pub objects: u64,
    /// As stored, compressed.
    pub bytes: u64,
    pub moved: u64,
    pub dropped: u64,
}

#[derive(Debug)]
pub struct Archive {
    snapshots: Arc<dyn Snapshots>,
    place: ArchivePlace,
    settings: ArchiveSettings,
}

impl Archive {
    pub fn new(
        snapshots: Arc<dyn Snapshots>,
        place: ArchivePlace,
        settings: ArchiveSettings,
    ) -> Result<Self, ArchiveError> {
        settings.check()?;
        Ok(Self {
            snapshots,
            place,
            settings,
        })
    }

    /// Archives everything that is old enough at `now`.
    pub async fn run(
        &self,
        now: Timestamp,
        progress: ArchiveProgress<'_>,
    ) -> Result<ArchiveReport, ArchiveError> {
        let mut report = ArchiveReport::default();
        self.drop_restored(now, progress, &mut report).await?;
        for source in self.snapshots.history_sources().await? {
            while self.store_next(&source, now, progress, &mut report).await? {}
        }
        self.move_on(now, progress, &mut report).await?;
        Ok(report)
    }

    async fn drop_restored(
        &self,
        now: Timestamp,
        progress: ArchiveProgress<'_>,
        report: &mut ArchiveReport,
    ) -> Result<(), ArchiveError> {
        loop {
            let rows = self.snapshots.drop_restored(now, MAX_DROPPED).await?;
            if rows > 0 {
                report.dropped += rows;
                progress(ArchiveStep::Dropped { rows });
            }
            if rows < MAX_DROPPED.into() {
                return Ok(());
            }
        }
    }

    /// Stores the oldest rows of a source as one object. Returns false if none is old enough.
    async fn store_next(
        &self,
        source: &SourceId,
        now: Timestamp,
        progress: ArchiveProgress<'_>,
        report: &mut ArchiveReport,
    ) -> Result<bool, ArchiveError> {
        // Only days that are completely over: an object never gets a second part later.
        let before = Day::of(now - self.settings.tiers[0].from).start();
        let params = HistoryParams {
            source: source.clone(),
            from: Timestamp(0),
            before,
            after: None,
            max_rows: self.settings.object_rows,
            max_bytes: self.settings.object_bytes,
        };
        let rows = one_day(self.snapshots.history(&params).await?);
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(false);
        };
        let day = Day::of(first.replaced_at);
        // Days before `before` are old enough for the first tier at least.
        let tier = self
            .settings
            .tier_of(day.age(now))
            .unwrap_or(&self.settings.tiers[0]);
        let path = object_path(&tier.name, source, day, first.id, last.id);
        let body = object::pack(&rows, self.settings.compression)
            .map_err(|reason| self.place.damaged(&path, reason))?;
        self.place
            .put(&path, body.clone(), tier.storage_class.as_deref())
            .await?;
        let ids: Vec<u64> = rows.iter().map(|row| row.id).collect();
        self.snapshots.delete_history(&ids).await?;
        report.rows += ids.len() as u64;
        report.objects += 1;
        report.bytes += body.len() as u64;
        progress(ArchiveStep::Stored {
            object: path.to_string(),
            rows: ids.len() as u64,
            bytes: body.len() as u64,
        });
        Ok(true)
    }
}

/// The rows of the first day among these.
fn one_day(mut rows: Vec<HistoryRow>) -> Vec<HistoryRow> {
    if let Some(first) = rows.first().map(|row| Day::of(row.replaced_at)) {
        let count = rows
            .iter()
            .take_while(|row| Day::of(row.replaced_at) == first)
            .count();
        rows.truncate(count);
    }
    rows
}

/// Decodes the rows of an object.
fn unpack(
    place: &ArchivePlace,
    path: &object_store::path::Path,
    body: &Bytes,
) -> Result<Vec<HistoryRow>, ArchiveError> {
    object::unpack(body).map_err(|reason| place.damaged(path, reason))
}
