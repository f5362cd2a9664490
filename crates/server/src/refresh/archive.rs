//! The configured archive.

use std::sync::Arc;

use tidegate_core::budget::{DAY_MS, DayZone};
use tidegate_core::time::Millis;
use tidegate_snapshots::Snapshots;
use tidegate_snapshots::archive::{Archive, ArchiveError, ArchivePlace, ArchiveSettings, ArchiveTier};

use super::open;
use crate::config::{ArchiveConfig, Config};
use crate::service::ServiceError;

/// Converts the settings to those of the archive itself.
pub(crate) fn archive_settings(config: &ArchiveConfig) -> ArchiveSettings {
    let tiers = config.tiers.iter().map(|tier| ArchiveTier {
        name: tier.name.clone(),
        from: Millis(u64::from(tier.from_days) * DAY_MS),
        storage_class: tier.storage_class.clone(),
    });
    ArchiveSettings {
        tiers: tiers.collect(),
        object_rows: config.object_rows,
        compression: config.compression,
        ..ArchiveSettings::default()
    }
}

/// Opens the configured archive and its database. Starts nothing else, for use by commands.
pub async fn open_archive(config: &Config) -> Result<Archive, ServiceError> {
    config.validate()?;
    let none = || {
        let message = "refresh.archive.to is not set: name a folder or s3://bucket/prefix";
        ServiceError::Setting(message.to_owned())
    };
    if config.refresh.archive.to.is_none() {
        return Err(none());
    }
    let snapshots = open::snapshots(config).await?;
    archive(config, snapshots)?.ok_or_else(none)
}

/// Returns the configured archive; `None` without one.
pub(crate) fn archive(
    config: &Config,
    snapshots: Arc<dyn Snapshots>,
) -> Result<Option<Archive>, ServiceError> {
    let section = &config.refresh.archive;
    let Some(to) = &section.to else { return Ok(None) };
    let target = target(to, section)?;
    Ok(Some(Archive::new(snapshots, target, archive_settings(section))?))
}

fn target(to: &str, section: &ArchiveConfig) -> Result<ArchivePlace, ServiceError> {
    match to.strip_prefix("s3://") {
        Some(bucket) => s3(bucket, section),
        None => Ok(ArchivePlace::folder(to)?),
    }
}

#[cfg(feature = "s3")]
fn s3(bucket: &str, section: &ArchiveConfig) -> Result<ArchivePlace, ServiceError> {
    let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
    let secret = section.secret_access_key.as_ref();
    Ok(ArchivePlace::s3(tidegate_snapshots::archive::S3Options {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        region: section.region.clone(),
        endpoint: section.endpoint.clone(),
        access_key_id: section.access_key_id.clone(),
        secret_access_key: secret.map(|secret| secret.expose().to_owned()),
        allow_http: section.allow_http,
    })?)
}

#[cfg(not(feature = "s3"))]
fn s3(_: &str, _: &ArchiveConfig) -> Result<ArchivePlace, ServiceError> {
    crate::config::need_feature("refresh.archive.to = \"s3://…\"", "s3", false)?;
    unreachable!("the check refuses a missing feature")
}

impl From<ArchiveError> for ServiceError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Settings(reason) => ServiceError::Setting(format!("refresh.archive: {reason}")),
            other => ServiceError::Refresh(other.to_string()),
        }
    }
}

/// When the daily run begins.
pub(crate) fn daily_run(config: &ArchiveConfig) -> DayZone {
    DayZone {
        utc_offset_minutes: config.utc_offset_minutes,
        // The check of the settings has accepted it.
        day_starts_at_minutes: config.minutes().unwrap_or_default(),
    }
}
