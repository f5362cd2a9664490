//! Claims records for a prefetch.
//!
//! The tier of a record follows from when a user last requested it, and so changes on its own as time passes. No
//! index can follow that. By time of check, a hot record that is an hour late hides behind millions of cold ones that
//! are not. By activity, a query would have to read all cold ones to find the latest. So each row carries its tier as
//! a hint: a request makes a record hottest, and a claim that meets a cooled-down row moves it to its right tier.
//! Each row moves once per tier and visit.
//!
//! `prefetch_at` is `last_checked_at` for an unclaimed record. A claim sets it such that the record is due again when
//! the claim ends; a failure, such that it is not due before its retry. A record that is requested while claimed
//! changes its tier, and looks due by the time set for the other one: `claimed_until` reveals that, and a claim that
//! meets it corrects the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tidegate_core::ids::RecordKey;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::prefetch::overdue;
use tidegate_core::time::Timestamp;

use super::SqlSnapshots;
use super::driver::{Fault, Session};
use super::record::{column, key, time, version};
use super::statement::{Statement, Value};
use crate::rows::{MAX_TIERS, PrefetchParams, Prefetched, RecordRef};

/// Hint of a record that a user has just requested.
pub(super) const HOTTEST: i64 = 0;
/// Hint of the last tier, and of a record that nobody ever requested.
pub(super) const COLDEST: i64 = 255;
/// How often a claim repeats because it met only rows that had cooled down.
const MAX_PASSES: u32 = 4;
/// Limit: keys in one update.
const MAX_KEYS: usize = 1_000;

/// A row that is due according to its hint.
#[derive(Debug)]
struct Candidate {
    key: RecordKey,
    version: Version,
    hint: i64,
    /// Index of its right tier.
    tier: usize,
    prefetch_at: Timestamp,
    claimed_until: Timestamp,
}

impl SqlSnapshots {
    pub(super) async fn claim_candidates(&self, params: &PrefetchParams) -> Result<Vec<Prefetched>, Fault> {
        let mut claimed = Vec::new();
        for _ in 0..MAX_PASSES {
            let wanted = params.max.saturating_sub(claimed.len() as u32);
            if wanted == 0 {
                break;
            }
            let (due, misplaced) = match self.claim_pass(params, wanted).await {
                Ok(pass) => pass,
                // Return the rows already claimed: nobody else gets them.
                Err(_) if !claimed.is_empty() => break,
                Err(fault) => return Err(fault),
            };
            claimed.extend(due.into_iter().map(|candidate| candidate.claimed(params)));
            // Misplaced rows took the places of rows behind them.
            if misplaced == 0 {
                break;
            }
        }
        Ok(claimed)
    }

    /// Claims the due rows among the first ones, and returns how many of the others were misplaced.
    async fn claim_pass(
        &self,
        params: &PrefetchParams,
        wanted: u32,
    ) -> Result<(Vec<Candidate>, usize), Fault> {
        let mut session = self.driver.begin().await?;
        let candidates = self.candidates(session.as_mut(), params, wanted).await?;
        let (due, misplaced) = split(params, candidates, wanted as usize);
        self.schedule(session.as_mut(), params, &due).await?;
        self.put_in_place(session.as_mut(), params, &misplaced).await?;
        session.commit().await?;
        Ok((due, misplaced.len()))
    }

    /// The `wanted` most overdue rows of every hint.
    async fn candidates(
        &self,
        session: &mut dyn Session,
        params: &PrefetchParams,
        wanted: u32,
    ) -> Result<Vec<Candidate>, Fault> {
        let mut candidates = Vec::new();
        for hint in (0..MAX_TIERS as i64 - 1).chain([COLDEST]) {
            let tier = &params.tiers[tier_of_hint(params, hint)];
            let select = self.select_candidates(params, hint, tier.checked_before, wanted);
            for row in session.fetch(select).await? {
                candidates.push(Candidate {
                    key: key(row.bytes(0)?)?,
                    version: version(row.int(1)?),
                    hint,
                    tier: tier_of(params, row.maybe_int(2)?.map(time)),
                    prefetch_at: time(row.int(3)?),
                    claimed_until: time(row.int(4)?),
                });
            }
        }
        Ok(candidates)
    }

    pub(super) fn select_candidates<'a>(
        &self,
        params: &'a PrefetchParams,
        hint: i64,
        checked_before: Timestamp,
        wanted: u32,
    ) -> Statement<'a> {
        let dialect = self.driver.dialect();
        Statement::new(
            dialect,
            "SELECT record_key, version, active_at, prefetch_at, claimed_until FROM snapshot WHERE ",
        )
        .source(params.source.as_str())
        .push(" AND tier = ")
        .int(hint)
        .push(" AND prefetch_at < ")
        .int(column(checked_before.0))
        .push(" ORDER BY prefetch_at LIMIT ")
        .int(wanted.into())
        .push(dialect.skip_locked())
    }

    /// Makes claimed rows due again when the claim ends, and not before.
    async fn schedule(
        &self,
        session: &mut dyn Session,
        params: &PrefetchParams,
        due: &[Candidate],
    ) -> Result<(), Fault> {
        for tier in 0..params.tiers.len() {
            let keys = keys(due.iter().filter(|candidate| candidate.tier == tier));
            for keys in keys.chunks(MAX_KEYS) {
                let update = Statement::new(self.driver.dialect(), "UPDATE snapshot SET tier = ")
                    .int(hint_of_tier(params, tier))
                    .push(", prefetch_at = ")
                    .int(column(due_when(params, tier, params.claim_until).0))
                    .push(", claimed_until = ")
                    .int(column(params.claim_until.0));
                session.run(of_keys(update, params, keys)).await?;
            }
        }
        Ok(())
    }

    /// Moves rows to their right tier, and claimed ones to their right time.
    async fn put_in_place(
        &self,
        session: &mut dyn Session,
        params: &PrefetchParams,
        misplaced: &[Candidate],
    ) -> Result<(), Fault> {
        let mut places: BTreeMap<(usize, Option<Timestamp>), Vec<&Candidate>> = BTreeMap::new();
        for candidate in misplaced {
            let claimed = Some(candidate.claimed_until).filter(|until| *until > params.now);
            places
                .entry((candidate.tier, claimed))
                .or_default()
                .push(candidate);
        }
        for ((tier, claimed), candidates) in places {
            for keys in keys(candidates.into_iter()).chunks(MAX_KEYS) {
                let mut update = Statement::new(self.driver.dialect(), "UPDATE snapshot SET tier = ")
                    .int(hint_of_tier(params, tier));
                if let Some(until) = claimed {
                    update = update
                        .push(", prefetch_at = ")
                        .int(column(due_when(params, tier, until).0));
                }
                session.run(of_keys(update, params, keys)).await?;
            }
        }
        Ok(())
    }
}

/// The check time that makes a record of this tier due at `until`.
fn due_when(params: &PrefetchParams, tier: usize, until: Timestamp) -> Timestamp {
    params.tiers[tier].checked_before + until.since(params.now)
}

impl Candidate {
    fn claimed(self, params: &PrefetchParams) -> Prefetched {
        Prefetched {
            record: RecordRef {
                source: params.source.clone(),
                key: self.key,
            },
            version: self.version,
            tier: self.tier,
        }
    }

    fn checked_before(&self, params: &PrefetchParams) -> Timestamp {
        params.tiers[self.tier].checked_before
    }
}

/// Splits into rows to claim, most overdue first, and rows that are only misplaced.
fn split(
    params: &PrefetchParams,
    candidates: Vec<Candidate>,
    wanted: usize,
) -> (Vec<Candidate>, Vec<Candidate>) {
    let is_claimed = |candidate: &Candidate| candidate.claimed_until > params.now;
    let is_due = |candidate: &Candidate| {
        !is_claimed(candidate) && candidate.prefetch_at < candidate.checked_before(params)
    };
    let (mut due, mut misplaced): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_due);
    due.sort_by_key(|candidate| {
        let interval = params.now.since(candidate.checked_before(params));
        let overdue = overdue(interval, candidate.prefetch_at, params.now);
        (Reverse(overdue), candidate.prefetch_at, candidate.tier)
    });
    misplaced.extend(due.split_off(wanted.min(due.len())));
    misplaced
        .retain(|candidate| is_claimed(candidate) || candidate.hint != hint_of_tier(params, candidate.tier));
    (due, misplaced)
}

/// The first tier that fits a record with this activity.
fn tier_of(params: &PrefetchParams, active_at: Option<Timestamp>) -> usize {
    let fits = |active_at: Timestamp| {
        params
            .tiers
            .iter()
            .position(|tier| tier.active_since <= active_at)
    };
    active_at.and_then(fits).unwrap_or(params.tiers.len() - 1)
}

/// Hints of tiers that this request does not have belong to the last one.
fn tier_of_hint(params: &PrefetchParams, hint: i64) -> usize {
    usize::try_from(hint).unwrap_or(0).min(params.tiers.len() - 1)
}

fn hint_of_tier(params: &PrefetchParams, tier: usize) -> i64 {
    if tier + 1 == params.tiers.len() {
        COLDEST
    } else {
        tier as i64
    }
}

fn keys<'c>(candidates: impl Iterator<Item = &'c Candidate>) -> Vec<&'c RecordKey> {
    let mut keys: Vec<_> = candidates.map(|candidate| &candidate.key).collect();
    keys.sort_unstable();
    keys
}

pub(super) fn of_keys<'a>(
    update: Statement<'a>,
    params: &'a PrefetchParams,
    keys: &[&'a RecordKey],
) -> Statement<'a> {
    let keys = keys.iter().map(|key| Value::Bytes(key.as_str().as_bytes()));
    update
        .push(" WHERE ")
        .source(params.source.as_str())
        .push(" AND record_key IN (")
        .values(keys)
        .push(")")
}
