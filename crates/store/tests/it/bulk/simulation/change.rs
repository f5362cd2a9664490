//! An operator's commands on single jobs, and the progress of running ones.

use tidegate_core::bulk::{ChangeJobsParams, JobCommand, LeaseExtension, LeaseRef, Priority, Progress};
use tidegate_core::ids::JobId;
use tidegate_core::time::Millis;

use super::Simulation;

impl Simulation {
    /// Operators act only in worlds without a fairness check.
    pub(super) fn change_jobs(&mut self) {
        if self.profile.plain || self.next_job == 0 {
            return;
        }
        let index = self.rng.below(self.profile.groups);
        let group = self.group(index);
        let jobs = (0..self.rng.between(1, 6))
            .map(|_| JobId::new(format!("job-{}", self.rng.below(self.next_job))).expect("a short name"))
            .collect();
        let command = match self.rng.below(4) {
            0 => JobCommand::Cancel,
            1 => JobCommand::RunNow,
            2 => JobCommand::Reschedule {
                run_at: self.wall + Millis(self.rng.below(3_000)),
            },
            _ => JobCommand::Reprioritise {
                priority: *self.rng.pick(&Priority::ALL),
            },
        };
        let _ = self.risky(ChangeJobsParams { group, jobs, command });
        self.oracle.disordered.insert(index);
        // Jobs may have left ready, and the answer names states only.
        self.ready = None;
    }

    /// A lease to extend; its worker sometimes reports how far it is.
    pub(super) fn extension(&mut self, lease: LeaseRef) -> LeaseExtension {
        let progress = self.rng.percent(50).then(|| Progress {
            percent: self.rng.below(101) as u8,
            text: format!("step {}", self.rng.below(10)),
        });
        LeaseExtension { lease, progress }
    }
}
