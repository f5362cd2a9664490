//! Restores archived history into the database, for inspection there.

use object_store::path::Path;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::time::Timestamp;

use super::place::{Day, source_name};
use super::{Archive, ArchiveError, ArchiveProgress, ArchiveStep};
use crate::rows::HistoryRow;

/// Limit: rows that one call restores.
const MAX_ROWS: usize = 500;

/// Which history to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreFilter {
    /// `None`: every source.
    pub source: Option<SourceId>,
    /// `None`: every record.
    pub key: Option<RecordKey>,
    /// Rows replaced at `from` or later,
    pub from: Timestamp,
    /// and before `before`.
    pub before: Timestamp,
}

impl Default for RestoreFilter {
    /// Matches everything.
    fn default() -> Self {
        Self {
            source: None,
            key: None,
            from: Timestamp(0),
            before: Timestamp(u64::MAX),
        }
    }
}

impl RestoreFilter {
    fn takes(&self, row: &HistoryRow) -> bool {
        self.source
            .as_ref()
            .is_none_or(|source| *source == row.record.source)
            && self.key.as_ref().is_none_or(|key| *key == row.record.key)
            && (self.from..self.before).contains(&row.replaced_at)
    }

    fn takes_day(&self, day: Day) -> bool {
        day.start() < self.before && day.end() > self.from
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Objects read.
    pub objects: u64,
    /// Rows that match the filter.
    pub found: u64,
    /// Of those, the rows that were not in the database.
    pub restored: u64,
}

impl Archive {
    /// Restores history until `keep_until`; the archive keeps it as well. A repeated call changes nothing.
    pub async fn restore(
        &self,
        filter: &RestoreFilter,
        keep_until: Timestamp,
        progress: ArchiveProgress<'_>,
    ) -> Result<RestoreReport, ArchiveError> {
        let mut report = RestoreReport::default();
        for object in self.objects_for(filter).await? {
            let body = self.place.get(&object).await?;
            let mut rows = super::unpack(&self.place, &object, &body)?;
            rows.retain(|row| filter.takes(row));
            let mut restored = 0;
            for portion in rows.chunks(MAX_ROWS) {
                restored += self.snapshots.restore_history(portion, keep_until).await?;
            }
            report.objects += 1;
            report.found += rows.len() as u64;
            report.restored += restored;
            progress(ArchiveStep::Restored {
                object: object.to_string(),
                rows: restored,
            });
        }
        Ok(report)
    }

    /// The names of the objects that may hold rows for this filter, by tier, source and day.
    pub async fn objects(&self, filter: &RestoreFilter) -> Result<Vec<String>, ArchiveError> {
        let found = self.objects_for(filter).await?;
        Ok(found.iter().map(Path::to_string).collect())
    }

    /// Objects that may hold rows for this filter, according to their names.
    async fn objects_for(&self, filter: &RestoreFilter) -> Result<Vec<Path>, ArchiveError> {
        let wanted = filter.source.as_ref().map(source_name);
        let mut found = Vec::new();
        for tier in &self.settings.tiers {
            let (sources, _) = self.place.list(&Path::from(tier.name.as_str())).await?;
            for source in sources {
                if wanted
                    .as_deref()
                    .is_some_and(|wanted| source.filename() != Some(wanted))
                {
                    continue;
                }
                let (days, _) = self.place.list(&source).await?;
                for folder in days {
                    let day = folder.filename().and_then(Day::parse);
                    if day.is_some_and(|day| filter.takes_day(day)) {
                        found.extend(self.place.list(&folder).await?.1);
                    }
                }
            }
        }
        Ok(found)
    }
}
