//! The configured archive, and its daily run.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::clock::Clock;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_snapshots::Snapshots;
use tidegate_snapshots::archive::{Archive, ArchiveError, ArchivePlace, ArchiveSettings, ArchiveTier};
use tokio_util::sync::CancellationToken;

use super::open;
use crate::config::{ArchiveConfig, Config};
use crate::service::ServiceError;

const DAY_MS: u64 = 86_400_000;
const MINUTE_MS: u64 = 60_000;
/// Limit: how long the task sleeps before it reads the clock again, because somebody may set the clock.
const CLOCK_CHECK: Duration = Duration::from_secs(30);
/// The pause after a failure that may pass.
const RETRY_PAUSE: Duration = Duration::from_secs(600);
const ATTEMPTS: u32 = 6;

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

/// The time of the next run after `now`.
fn next(config: &ArchiveConfig, now: Timestamp) -> Timestamp {
    // The check of the settings has accepted it.
    let minutes = u64::from(config.minutes().unwrap_or_default());
    let offset = i64::from(config.utc_offset_minutes) * MINUTE_MS as i64;
    let local = now.0.saturating_add_signed(offset);
    let today = local - local % DAY_MS + minutes * MINUTE_MS;
    let next = if today > local { today } else { today + DAY_MS };
    Timestamp(next.saturating_add_signed(-offset))
}

/// Runs the archive once a day. If several processes do so, they do the same work twice, which does no harm.
pub(crate) async fn daily(
    archive: Archive,
    config: ArchiveConfig,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let mut due = next(&config, clock.now());
    loop {
        while clock.now() < due {
            let wait = Duration::from(due.since(clock.now())).min(CLOCK_CHECK);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
        }
        tokio::select! {
            () = once(&archive, &*clock) => {}
            () = stop.cancelled() => return,
        }
        due = next(&config, clock.now());
    }
}

async fn once(archive: &Archive, clock: &dyn Clock) {
    for _ in 0..ATTEMPTS {
        match archive.run(clock.now(), &|_| {}).await {
            Ok(report) => {
                let (rows, objects, moved) = (report.rows, report.objects, report.moved);
                tracing::info!(rows, objects, moved, "archived the history");
                return;
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "failed to archive the history; the service retries");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(%error, "failed to archive the history");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_is_at_the_configured_time_in_the_zone() {
        let config = |at: &str, offset| ArchiveConfig {
            at: at.into(),
            utc_offset_minutes: offset,
            ..ArchiveConfig::default()
        };
        let hour = 60 * MINUTE_MS;
        let day = 20_000 * DAY_MS;
        for (config, now, expected) in [
            (config("03:00", 0), day, day + 3 * hour),
            (config("03:00", 0), day + 3 * hour, day + DAY_MS + 3 * hour),
            (config("03:00", 0), day + 4 * hour, day + DAY_MS + 3 * hour),
            // 03:00 in Seoul is 18:00 UTC on the previous day.
            (config("03:00", 540), day, day + 18 * hour),
            (config("03:00", -480), day, day + 11 * hour),
        ] {
            assert_eq!(
                next(&config, Timestamp(now)),
                Timestamp(expected),
                "{config:?} at {now}"
            );
        }
    }
}
