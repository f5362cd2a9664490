//! The state of one record, and every transition of it as a pure function. The module above draws them.
//!
//! A record has two slots, LOW and HIGH: an event that is on its way and not settled. A slot is *sent* once the
//! log has confirmed it, or once a worker has seen it. One that is not sent after `send_timeout` counts as never
//! sent, so that a process that died before sending holds up nobody.
//!
//! Scripts restate this over one hash per record: keep it small, whole numbers only.

use serde::{Deserialize, Serialize};

use super::config::CoalescerConfig;
use super::version::Version;
use crate::ids::Owner;
use crate::priority::Priority;
use crate::time::{Millis, Timestamp};

/// An event on its way.
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

/// The last settled refresh: absorbs readers who looked before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub at: Timestamp,
    /// Readers are absorbed until then.
    pub until: Timestamp,
    pub settlement: Settlement,
}

/// Everything that is remembered of one record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordState {
    /// The last version that was issued or seen.
    pub issued: Version,
    /// The highest version that was settled; 0 if none is known.
    pub completed: Version,
    /// LOW events below this version are replaced by a HIGH that is certainly in the log; 0 if there is none.
    pub superseded: Version,
    pub low: Option<Pending>,
    pub high: Option<Pending>,
    pub claim: Option<Claim>,
    pub mark: Option<Mark>,
}

/// Somebody wants a record refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestParams {
    pub priority: Priority,
    /// The version of the snapshot that the reader saw; `None` if there was none or it does not matter.
    pub snapshot_version: Option<Version>,
    /// When the reader looked. A replay or retry, which wants a refresh whatever was there, passes the current time.
    pub read_at: Timestamp,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RequestOutcome {
    /// Send an event of this version, then confirm.
    Published { version: Version },
    /// Send a HIGH event of this version, then confirm; it replaces the LOW that is queued.
    Upgraded { version: Version },
    /// An event of this version is on its way or being fetched.
    AlreadyProcessing { version: Version },
    /// A refresh was settled after the reader looked.
    JustRefreshed { at: Timestamp, settlement: Settlement },
}

impl RequestOutcome {
    /// As users and metrics name it.
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

    /// Whether what failed under this version is tried again by it, or worked meanwhile. The event that failed counts as
    /// on its way until it is settled: that is no other try.
    pub fn makes_good(self, failed: Version) -> bool {
        match self {
            Self::Published { .. } | Self::Upgraded { .. } => true,
            Self::AlreadyProcessing { version } => version > failed,
            Self::JustRefreshed { settlement, .. } => settlement == Settlement::Done,
        }
    }

    /// A refresh is on its way: what `updateQueued` says.
    pub fn is_queued(self) -> bool {
        !matches!(self, Self::JustRefreshed { .. })
    }
}

/// A worker wants to fetch.
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
    /// Fetch it.
    Go,
    /// Settled already, or a LOW that is replaced by a HIGH in the log: acknowledge without a call.
    Obsolete,
    /// Another worker is fetching this record; its claim ends then.
    Busy { until: Timestamp },
}

/// How a refresh ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Settlement {
    /// The snapshot is written.
    Done,
    /// It will not work: dead letter and negative result are written.
    Failed,
    /// It waits in the status table; the retry is a request of its own.
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

    /// Drops what time has ended: slots that the log no longer has or never got, and claims.
    pub fn expire(&mut self, config: &CoalescerConfig, now: Timestamp) {
        for priority in Priority::ALL {
            let slot = self.slot_mut(priority);
            if slot.is_some_and(|pending| config.pending_ends(priority, pending) <= now) {
                *slot = None;
            }
        }
        self.claim.take_if(|claim| claim.until <= now);
    }

    /// From here on the state may be forgotten, if nothing happens before.
    ///
    /// Invariant: time alone gives a later version than any that was issued, so that forgetting repeats none.
    pub fn idle_at(&self, config: &CoalescerConfig) -> Timestamp {
        let versions_pass = Timestamp(self.issued.0 / Version::PER_MILLI + 1);
        let pending = Priority::ALL
            .into_iter()
            .filter_map(|priority| Some(config.pending_ends(priority, self.slot(priority)?)));
        let claim = self.claim.as_ref().map(|claim| claim.until);
        // Redelivered events are recognised as completed until then.
        let mark = self.mark.map(|mark| mark.at + config.remember_ms);
        pending
            .chain(claim)
            .chain(mark)
            .fold(versions_pass, Timestamp::max)
    }

    pub fn is_idle(&self, config: &CoalescerConfig, now: Timestamp) -> bool {
        self.idle_at(config) <= now
    }

    /// An event of this version is settled already, or a LOW that is replaced by a HIGH in the log.
    ///
    /// Invariant: a HIGH replaces no HIGH. The one that replaces could be replaced in turn before a worker comes to it: a
    /// record that is asked for faster than the log moves would never be fetched.
    pub fn is_obsolete(&self, version: Version, priority: Priority) -> bool {
        let replaced = priority == Priority::Low && version < self.superseded;
        version <= self.completed || replaced
    }

    /// The event that a worker or the log is busy with, the most urgent first.
    fn on_its_way(&self) -> Option<Version> {
        let claim = self.claim.as_ref().map(|claim| claim.version);
        let queued = self.high.or(self.low).map(|pending| pending.version);
        claim.or(queued)
    }

    /// The event of this version is certainly in the log.
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

/// Issues a version if nothing is on its way, and says what the caller has to send.
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

/// The log has the event: from here on it replaces the LOW before it. False if it is not waited for any more.
pub fn confirm_sent(
    state: Option<RecordState>,
    config: &CoalescerConfig,
    version: Version,
    now: Timestamp,
) -> (Option<RecordState>, bool) {
    on_known(state, config, now, |state| state.mark_sent(version))
}

/// The event could not be sent: its slot is free again, and a LOW that it would have replaced stands as before.
/// False if there is no such unsent event.
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

/// Lets the claim last longer, counted from `now`. False if it is lost: another worker may be fetching.
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

/// Gives a claim back without settling, so that another worker need not wait for its end.
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

/// A worker has the event in hand. A record that is not known is fetched: forgetting must lose nothing.
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
    // It came out of the log, so it is in the log, whether or not the sender lived to say so.
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

/// A refresh came to its end: everything up to its version is completed, and readers who looked before are
/// absorbed for a while. Also right when the claim was lost: what was written is written.
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
