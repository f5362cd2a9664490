//! A record as the service shows it to a reader.

use std::io;

use tidegate_core::ids::RecordId;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::config::TierConfig;
use tidegate_core::refresh::freshness::{Freshness, ReadFacts, Tier, freshness, is_stale};
use tidegate_core::refresh::status::UpdateState;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_snapshots::{MAX_DATA_BYTES, Row, Snapshot, Status, StatusState};

/// Limit: the unpacked size of one packed snapshot.
const MAX_UNPACKED: usize = 8 * MAX_DATA_BYTES;

/// Whether a refresh is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queued {
    Yes,
    /// None is needed, or none could be queued.
    No,
    /// The reader requested one, and the result is not known yet.
    Unknown,
}

/// A record as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordView {
    pub record: RecordId,
    pub snapshot: Option<Snapshot>,
    pub freshness: Freshness,
    pub tier: Tier,
    pub last_checked_at: Option<Timestamp>,
    pub last_updated_at: Option<Timestamp>,
    pub queued: Queued,
    /// How long the refresh in progress will take, if known.
    pub estimated_wait: Option<Millis>,
    /// The result of the last refresh.
    pub state: UpdateState,
    /// The last failure, if any.
    pub status: Option<Status>,
    /// The time before which a refresh request is pointless.
    pub not_before: Option<Timestamp>,
}

pub(crate) struct ViewParams<'a> {
    pub(crate) record: &'a RecordId,
    pub(crate) tiers: &'a TierConfig,
    pub(crate) row: &'a Row,
    pub(crate) queued: Queued,
    pub(crate) estimate: Option<Millis>,
    pub(crate) now: Timestamp,
}

impl RecordView {
    pub(crate) fn new(params: ViewParams<'_>) -> Self {
        let ViewParams {
            record,
            tiers,
            row,
            queued,
            estimate,
            now,
        } = params;
        let is_queued = queued == Queued::Yes;
        let status = row.status.as_ref();
        let not_before = status
            .and_then(|status| status.next_retry_at)
            .filter(|until| now < *until);
        let absent = status.is_some_and(|status| status.absent) && (not_before.is_some() || !is_queued);
        let tier = Tier::of(tiers, row.active_at, now);
        let checked_at = row.snapshot.as_ref().map(|snapshot| snapshot.last_checked_at);
        let facts = ReadFacts {
            checked_at,
            absent,
            queued: is_queued,
            tier,
        };
        let fresh = checked_at.is_some_and(|at| !is_stale(tiers, tier, at, now));
        Self {
            record: record.clone(),
            snapshot: row.snapshot.clone(),
            freshness: freshness(tiers, facts, now),
            tier,
            last_checked_at: checked_at,
            last_updated_at: row.snapshot.as_ref().map(|snapshot| snapshot.last_updated_at),
            queued,
            estimated_wait: estimate.filter(|_| is_queued),
            state: match (status.map(|status| status.state), fresh) {
                (Some(StatusState::Retrying), _) => UpdateState::Retrying,
                (Some(StatusState::Failed), _) => UpdateState::Failed,
                (None, true) => UpdateState::Success,
                (None, false) => UpdateState::Pending,
            },
            status: row.status.clone(),
            not_before,
        }
    }

    /// True only if a refresh is certainly in progress.
    pub fn update_queued(&self) -> bool {
        self.queued == Queued::Yes
    }

    /// The stored projection as JSON; none if there is no snapshot.
    pub fn data(&self) -> io::Result<Option<Vec<u8>>> {
        let unpack = |snapshot: &Snapshot| tidegate_source::unpack(&snapshot.data, MAX_UNPACKED);
        self.snapshot.as_ref().map(unpack).transpose()
    }

    /// Nothing further follows from the event of version `since`, or from any event if none is given.
    pub(crate) fn is_final(&self, since: Option<Version>) -> bool {
        let checked = self.snapshot.as_ref().map(|snapshot| snapshot.version);
        let failed = self.status.as_ref().map(|status| status.version);
        // Nobody retries that event. A follower of no particular event waits for the next one, unless requesting it
        // is pointless.
        let ended = since.is_some() || self.not_before.is_some();
        let abandoned = self.state == UpdateState::Failed && failed >= since && ended;
        match self.freshness {
            Freshness::Fresh => since.is_none() || checked >= since || abandoned,
            Freshness::NotFound => since.is_none() || failed >= since,
            _ => abandoned,
        }
    }
}
