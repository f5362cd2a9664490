//! Decodes the replies of the refresh scripts.

use tidegate_core::budget::{Ask, Bucket, BudgetState, DayCount, LimitedBy};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, Claim, Mark, Pending, RecordState, RequestOutcome, Settlement,
};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_redis::Items;

use crate::StoreError;
use crate::refresh::TakeOutcome;

/// What a process has seen of a target's budget; it never goes back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) day: DayCount,
    pub(super) hold_until: Timestamp,
}

impl Seen {
    /// Replies may arrive out of order.
    pub(super) fn learn(&mut self, reported: Seen) {
        self.day.turn(reported.day.day);
        if reported.day.day == self.day.day {
            self.day.used = self.day.used.max(reported.day.used);
            self.day.low = self.day.low.max(reported.day.low);
        }
        self.hold_until = self.hold_until.max(reported.hold_until);
    }
}

fn odd(what: &str, found: impl std::fmt::Debug) -> StoreError {
    StoreError::Corrupt(format!("a script answered {found:?} where {what} was expected"))
}

fn version(items: &mut Items) -> Result<Version, StoreError> {
    Ok(Version(items.unsigned()?))
}

pub(super) fn settlement_name(settlement: Settlement) -> &'static str {
    match settlement {
        Settlement::Done => "DONE",
        Settlement::Failed => "FAILED",
        Settlement::Parked => "PARKED",
    }
}

fn settlement(items: &mut Items) -> Result<Settlement, StoreError> {
    let name = items.text()?;
    [Settlement::Done, Settlement::Failed, Settlement::Parked]
        .into_iter()
        .find(|settlement| settlement_name(*settlement) == name)
        .ok_or_else(|| odd("how a refresh ended", name))
}

pub(super) fn requested(items: &mut Items) -> Result<RequestOutcome, StoreError> {
    Ok(match items.int()? {
        1 => RequestOutcome::Published {
            version: version(items)?,
        },
        2 => RequestOutcome::Upgraded {
            version: version(items)?,
        },
        3 => RequestOutcome::AlreadyProcessing {
            version: version(items)?,
        },
        4 => RequestOutcome::JustRefreshed {
            at: items.time()?,
            settlement: settlement(items)?,
        },
        other => return Err(odd("the outcome of a request", other)),
    })
}

pub(super) fn begun(items: &mut Items) -> Result<BeginOutcome, StoreError> {
    Ok(match items.int()? {
        0 => BeginOutcome::Obsolete,
        1 => BeginOutcome::Go,
        2 => BeginOutcome::Busy { until: items.time()? },
        other => return Err(odd("whether to fetch", other)),
    })
}

/// A part of the state, if present.
fn part<T>(
    items: &mut Items,
    read: impl FnOnce(&mut Items) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut part = items.items()?;
    match part.len() {
        0 => Ok(None),
        _ => read(&mut part).map(Some),
    }
}

fn pending(items: &mut Items) -> Result<Pending, StoreError> {
    Ok(Pending {
        version: version(items)?,
        since: items.time()?,
        sent: items.flag()?,
    })
}

/// None if the record is unknown.
pub(super) fn state(items: &mut Items) -> Result<Option<RecordState>, StoreError> {
    if items.is_empty() {
        return Ok(None);
    }
    Ok(Some(RecordState {
        issued: version(items)?,
        completed: version(items)?,
        superseded: version(items)?,
        low: part(items, pending)?,
        high: part(items, pending)?,
        claim: part(items, |claim| {
            Ok(Claim {
                version: version(claim)?,
                owner: claim.name()?,
                until: claim.time()?,
            })
        })?,
        mark: part(items, |mark| {
            Ok(Mark {
                at: mark.time()?,
                until: mark.time()?,
                settlement: settlement(mark)?,
            })
        })?,
    }))
}

pub(super) fn seen(items: &mut Items) -> Result<Seen, StoreError> {
    Ok(Seen {
        day: day(items)?,
        hold_until: items.time()?,
    })
}

fn day(items: &mut Items) -> Result<DayCount, StoreError> {
    Ok(DayCount {
        day: items.unsigned()?,
        used: items.unsigned()?,
        low: items.unsigned()?,
    })
}

pub(super) fn took(items: &mut Items) -> Result<TakeOutcome, StoreError> {
    if items.flag()? {
        return Ok(TakeOutcome::Taken {
            tokens: items.unsigned()?,
            valid_for: Millis(items.unsigned()?),
        });
    }
    Ok(TakeOutcome::Limited {
        wait: Millis(items.unsigned()?),
        by: match items.int()? {
            1 => LimitedBy::Rate,
            2 => LimitedBy::LowCap,
            3 => LimitedBy::Day,
            4 => LimitedBy::Hold,
            other => return Err(odd("a limit", other)),
        },
    })
}

pub(super) fn budget(items: &mut Items) -> Result<BudgetState, StoreError> {
    let bucket = |items: &mut Items| {
        Ok::<_, StoreError>(Bucket {
            level: items.unsigned()?,
            at: items.time()?,
        })
    };
    let ask = |items: &mut Items| {
        Ok::<_, StoreError>(Ask {
            tokens: items.unsigned()?,
            until: items.time()?,
        })
    };
    Ok(BudgetState {
        all: bucket(items)?,
        low: bucket(items)?,
        high_ask: ask(items)?,
        low_ask: ask(items)?,
        low_credit: items.unsigned()?,
        day: day(items)?,
        hold_until: items.time()?,
    })
}
