//! The state of one record, and each of its transitions as a pure function. The parent module draws them.
//!
//! A record has two slots, LOW and HIGH, each for one event that is pending. A slot is *sent* once the log has
//! confirmed it, or once a worker has seen it. A slot still unsent after `send_timeout` counts as never sent,
//! so that a process that died before sending blocks nobody.
//!
//! Scripts restate this over one hash per record: keep it small, whole numbers only.

use serde::{Deserialize, Serialize};

use super::config::CoalescerConfig;
use super::version::Version;
use crate::ids::Owner;
use crate::priority::Priority;
use crate::time::{Millis, Timestamp};

/// A pending event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    pub version: Version,
    pub since: Timestamp,
    /// The log has it.
    pub sent: bool,
}

/// A worker that is fetching the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub version: Version,
    pub owner: Owner,
    pub until: Timestamp,
}

/// The last settled refresh: absorbs requests of readers who read before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub at: Timestamp,
    /// The mark absorbs requests until then.
    pub until: Timestamp,
    pub settlement: Settlement,
}

/// The whole state of one record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordState {
    /// The last version that was issued or seen.
    pub issued: Version,
    /// The highest settled version; 0 if none is known.
    pub completed: Version,
    /// A HIGH event that is certainly in the log supersedes LOW events below this version; 0 if there is none.
    pub superseded: Version,
    pub low: Option<Pending>,
    pub high: Option<Pending>,
    pub claim: Option<Claim>,
    pub mark: Option<Mark>,
}

/// A request to refresh a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestParams {
    pub priority: Priority,
    /// The version of the snapshot that the reader saw; `None` if there was none or it does not matter.
    pub snapshot_version: Option<Version>,
    /// When the reader read the snapshot. A replay or retry, which wants a refresh in any case, passes the
    /// current time.
    pub read_at: Timestamp,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RequestOutcome {
    /// The caller sends an event of this version, then confirms.
    Published { version: Version },
    /// The caller sends a HIGH event of this version, then confirms; it supersedes the queued LOW.
    Upgraded { version: Version },
    /// An event of this version is pending or a worker is fetching it.
    AlreadyProcessing { version: Version },
    /// A refresh was settled after the reader read.
    JustRefreshed { at: Timestamp, settlement: Settlement },
}

impl RequestOutcome {
    /// The name for users and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Published { .. } => "PUBLISHED",
            Self::Upgraded { .. } => "UPGRADED",
            Self::AlreadyProcessing { .. } => "ALREADY_PROCESSING",
            Self::JustRefreshed { .. } => "JUST_REFRESHED",
        }
    }

    /// The version of the event that the caller must send.
    pub fn to_send(self) -> Option<Version> {
        match self {
            Self::Published { version } | Self::Upgraded { version } => Some(version),
            Self::AlreadyProcessing { .. } | Self::JustRefreshed { .. } => None,
        }
    }

    /// Whether version `failed` needs no further retry: this outcome retries it, or a refresh succeeded
    /// meanwhile. The failed event itself stays pending until it is settled and does not count as a retry.
    pub fn makes_good(self, failed: Version) -> bool {
        match self {
            Self::Published { .. } | Self::Upgraded { .. } => true,
            Self::AlreadyProcessing { version } => version > failed,
            Self::JustRefreshed { settlement, .. } => settlement == Settlement::Done,
        }
    }

    /// Whether a refresh is pending: the value of `updateQueued`.
    pub fn is_queued(self) -> bool {
        !matches!(self, Self::JustRefreshed { .. })
    }
}

/// A worker's request to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginParams {
    pub version: Version,
    pub priority: Priority,
    pub owner: Owner,
    /// How long nobody else may fetch this record.
    pub claim_for: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BeginOutcome {
    /// The worker should fetch.
    Go,
    /// Already settled, or a LOW superseded by a HIGH in the log: acknowledge without a call.
    Obsolete,
    /// Another worker is fetching this record; its claim expires then.
    Busy { until: Timestamp },
}

/// How a refresh ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Settlement {
    /// The snapshot is written.
    Done,
    /// A permanent failure: dead letter and negative result are written.
    Failed,
    /// It waits in the status table; the retry is a separate request.
    Parked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettleParams {
    pub version: Version,
    pub priority: Priority,
    pub settlement: Settlement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettleOutcome {
    Settled,
    /// This version, or a later one, was settled before.
    AlreadySettled,
}

impl RecordState {
    fn slot(&self, priority: Priority) -> Option<Pending> {
        match priority {
            Priority::High => self.high,
            Priority::Low => self.low,
        }
    }

    fn slot_mut(&mut self, priority: Priority) -> &mut Option<Pending> {
        match priority {
            Priority::High => &mut self.high,
            Priority::Low => &mut self.low,
        }
    }

    /// Drops what has timed out: slots that the log no longer has or never got, and claims.
    pub fn expire(&mut self, config: &CoalescerConfig, now: Timestamp) {
        for priority in Priority::ALL {
            let slot = self.slot_mut(priority);
            if slot.is_some_and(|pending| config.pending_ends(priority, pending) <= now) {
                *slot = None;
            }
        }
        self.claim.take_if(|claim| claim.until <= now);
    }

    /// When the state may be forgotten, if nothing happens before.
    ///
    /// Invariant: time alone gives a later version than any issued one, so forgetting never reissues a version.
    pub fn idle_at(&self, config: &CoalescerConfig) -> Timestamp {
        let versions_pass = Timestamp(self.issued.0 / Version::PER_MILLI + 1);
        let pending = Priority::ALL
            .into_iter()
            .filter_map(|priority| Some(config.pending_ends(priority, self.slot(priority)?)));
        let claim = self.claim.as_ref().map(|claim| claim.until);
        // Until then, redelivered events are recognised as completed.
        let mark = self.mark.map(|mark| mark.at + config.remember_ms);
        pending
            .chain(claim)
            .chain(mark)
            .fold(versions_pass, Timestamp::max)
    }

    pub fn is_idle(&self, config: &CoalescerConfig, now: Timestamp) -> bool {
        self.idle_at(config) <= now
    }

    /// Whether an event of this version is already settled, or is a LOW superseded by a HIGH in the log.
    ///
    /// Invariant: a HIGH supersedes no HIGH. Otherwise each could be superseded before a worker reaches it, and
    /// a record requested faster than the log moves would never be fetched.
    pub fn is_obsolete(&self, version: Version, priority: Priority) -> bool {
        let replaced = priority == Priority::Low && version < self.superseded;
        version <= self.completed || replaced
    }

    /// The pending or fetched event, the most urgent first.
    fn on_its_way(&self) -> Option<Version> {
        let claim = self.claim.as_ref().map(|claim| claim.version);
        let queued = self.high.or(self.low).map(|pending| pending.version);
        claim.or(queued)
    }

    /// Marks the event of this version as certainly in the log.
    fn mark_sent(&mut self, version: Version) -> bool {
        let mut known = false;
        for slot in [&mut self.low, &mut self.high] {
            if let Some(pending) = slot.as_mut().filter(|pending| pending.version == version) {
                pending.sent = true;
                known = true;
            }
        }
        if self.high.is_some_and(|high| high.version == version) {
            self.superseded = self.superseded.max(version);
            self.low.take_if(|low| low.version < version);
        }
        known
    }
}

/// Issues a version if nothing is pending, and returns what the caller has to send.
pub fn request(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    params: RequestParams,
    now: Timestamp,
) -> (Option<RecordState>, RequestOutcome) {
    let mut state = state.unwrap_or_default();
    state.expire(config, now);
    let upgrade = params.priority == Priority::High && state.low.is_some() && state.high.is_none();
    if let Some(version) = state.on_its_way()
        && (state.claim.is_some() || !upgrade)
    {
        return (Some(state), RequestOutcome::AlreadyProcessing { version });
    }
    let saw_older = params.snapshot_version.is_some_and(|seen| seen < state.completed);
    if let Some(Mark {
        at,
        until,
        settlement,
    }) = state.mark
        && !upgrade
        && now < until
        && (params.read_at <= at || saw_older)
    {
        return (Some(state), RequestOutcome::JustRefreshed { at, settlement });
    }
    let version = Version::next(state.issued, params.snapshot_version, now);
    state.issued = version;
    *state.slot_mut(params.priority) = Some(Pending {
        version,
        since: now,
        sent: false,
    });
    let outcome = match upgrade {
        true => RequestOutcome::Upgraded { version },
        false => RequestOutcome::Published { version },
    };
    (Some(state), outcome)
}

/// Records that the log has the event: from here on it supersedes the LOW before it. Returns false if it is no
/// longer pending.
pub fn confirm_sent(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    version: Version,
    now: Timestamp,
) -> (Option<RecordState>, bool) {
    on_known(state, config, now, |state| state.mark_sent(version))
}

/// Frees the slot of an event that could not be sent; the LOW that it would have superseded stays valid.
/// Returns false if there is no such unsent event.
pub fn send_failed(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    version: Version,
    now: Timestamp,
) -> (Option<RecordState>, bool) {
    on_known(state, config, now, |state| {
        let failed = |pending: &mut Pending| pending.version == version && !pending.sent;
        state.high.take_if(failed).or(state.low.take_if(failed)).is_some()
    })
}

/// Extends the claim, counted from `now`. Returns false if it is lost: another worker may be fetching.
pub fn extend(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    params: &BeginParams,
    now: Timestamp,
) -> (Option<RecordState>, bool) {
    on_known(state, config, now, |state| {
        let own = |claim: &&mut Claim| claim.version == params.version && claim.owner == params.owner;
        let claim = state.claim.as_mut().filter(own);
        claim
            .map(|claim| claim.until = claim.until.max(now + params.claim_for))
            .is_some()
    })
}

/// Returns a claim without settling, so that another worker need not wait until it expires.
pub fn abandon(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    version: Version,
    owner: &Owner,
    now: Timestamp,
) -> (Option<RecordState>, bool) {
    on_known(state, config, now, |state| {
        let own = |claim: &mut Claim| claim.version == version && claim.owner == *owner;
        state.claim.take_if(own).is_some()
    })
}

fn on_known(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    now: Timestamp,
    change: impl FnOnce(&mut RecordState) -> bool,
) -> (Option<RecordState>, bool) {
    let Some(mut state) = state else {
        return (None, false);
    };
    state.expire(config, now);
    let changed = change(&mut state);
    (Some(state), changed)
}

/// Starts the fetch of a worker that received the event. An unknown record is fetched: forgetting must lose
/// nothing.
pub fn begin(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    params: &BeginParams,
    now: Timestamp,
) -> (Option<RecordState>, BeginOutcome) {
    let mut state = state.unwrap_or_default();
    state.expire(config, now);
    state.issued = state.issued.max(params.version);
    if state.is_obsolete(params.version, params.priority) {
        return (Some(state), BeginOutcome::Obsolete);
    }
    // It came out of the log, so it is in the log, even if the sender died before confirming.
    state.mark_sent(params.version);
    if let Some(claim) = &state.claim
        && (claim.version != params.version || claim.owner != params.owner)
    {
        let until = claim.until;
        return (Some(state), BeginOutcome::Busy { until });
    }
    state.claim = Some(Claim {
        version: params.version,
        owner: params.owner.clone(),
        until: now + params.claim_for,
    });
    (Some(state), BeginOutcome::Go)
}

/// Settles a refresh: everything up to its version is completed, and requests of readers who read before are
/// absorbed for a while. Valid even if the claim was lost: a written result stays written.
pub fn settle(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    params: SettleParams,
    now: Timestamp,
) -> (Option<RecordState>, SettleOutcome) {
    let mut state = state.unwrap_or_default();
    state.expire(config, now);
    state.claim.take_if(|claim| claim.version <= params.version);
    if params.version <= state.completed {
        return (Some(state), SettleOutcome::AlreadySettled);
    }
    state.issued = state.issued.max(params.version);
    state.completed = params.version;
    state.low.take_if(|low| low.version <= params.version);
    state.high.take_if(|high| high.version <= params.version);
    state.mark = Some(Mark {
        at: now,
        until: now + config.mark_for(params.priority),
        settlement: params.settlement,
    });
    (Some(state), SettleOutcome::Settled)
}

#[cfg(test)]
#[path = "coalescer_tests.rs"]
mod tests;
