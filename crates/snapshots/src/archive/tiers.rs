//! Moves history from tier to tier as it ages.

use object_store::path::Path;
use tidegate_core::time::Timestamp;

use super::place::Day;
use super::{Archive, ArchiveError, ArchiveProgress, ArchiveReport, ArchiveStep, ArchiveTier};

impl Archive {
    /// Moves objects that are too old for their tier to the right one.
    pub(super) async fn move_on(
        &self,
        now: Timestamp,
        progress: ArchiveProgress<'_>,
        report: &mut ArchiveReport,
    ) -> Result<(), ArchiveError> {
        for tier in &self.settings.tiers {
            let (sources, _) = self.place.list(&Path::from(tier.name.as_str())).await?;
            for source in sources {
                let (days, _) = self.place.list(&source).await?;
                for folder in days {
                    let day = folder.filename().and_then(Day::parse);
                    let target = day.and_then(|day| self.settings.tier_of(day.age(now)));
                    if let Some(target) = target.filter(|target| target.from > tier.from) {
                        self.move_day(&folder, target, progress, report).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn move_day(
        &self,
        folder: &Path,
        target: &ArchiveTier,
        progress: ArchiveProgress<'_>,
        report: &mut ArchiveReport,
    ) -> Result<(), ArchiveError> {
        let (_, objects) = self.place.list(folder).await?;
        for from in objects {
            let to: Path = std::iter::once(target.name.as_str().into())
                .chain(from.parts().skip(1))
                .collect();
            // Read and write, do not copy: a copy cannot change the storage class, and nobody verifies it.
            let body = self.place.get(&from).await?;
            super::unpack(&self.place, &from, &body)?;
            self.place.put(&to, body, target.storage_class.as_deref()).await?;
            self.place.delete(&from).await?;
            report.moved += 1;
            progress(ArchiveStep::Moved {
                from: from.to_string(),
                to: to.to_string(),
            });
        }
        Ok(())
    }
}
