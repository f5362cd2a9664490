//! What one attempt needs: the claim on its record, and a token of its target.
//!
//! From `begin` on, the record counts as being fetched, and the coalescer admits no further event for it. So LOW
//! waits for its token first: while it waits, a reader's HIGH replaces it and overtakes. HIGH begins before it
//! waits, because nothing is more urgent.

use std::time::Duration;

use tidegate_core::budget::LimitedBy;
use tidegate_core::priority::Priority;
use tidegate_core::refresh::coalescer::BeginOutcome;
use tidegate_core::time::Millis;

use super::claims::Claim;
use super::event::{Attempt, Work};
use super::token_dispenser::{Acquired, Token};

/// First pause while another worker fetches the record; doubles each time.
const BUSY_FIRST: Duration = Duration::from_millis(10);
/// Limit: the pause between two checks of a record that another worker fetches.
const BUSY_PAUSE: Duration = Duration::from_millis(250);

/// The result of `begin`.
enum Begun {
    Claimed(Claim),
    Obsolete,
    /// Another worker is fetching the record.
    Busy,
}

/// The result of `begin` once no other worker fetches the record.
enum First {
    Claimed(Claim),
    Obsolete,
}

/// Whether an attempt may call its target.
pub(super) enum Turn {
    /// It holds the claim on its record and knows about its token.
    Ready(Claim, Permit),
    /// A later event covers this one.
    Obsolete,
}

/// Whether an attempt still holds its record between two calls.
pub(super) enum Between {
    StillClaimed(Claim),
    /// Others may fetch the record meanwhile.
    Released,
}

impl Between {
    /// The claim, if it is still held.
    pub(super) fn claim(self) -> Option<Claim> {
        match self {
            Self::StillClaimed(claim) => Some(claim),
            Self::Released => None,
        }
    }
}

/// The result of waiting for a token.
pub(super) enum Permit {
    Token(Token),
    LongWait { wait: Millis, by: LimitedBy },
}

impl Work {
    /// True once no other worker fetches the record; false if the event is obsolete.
    async fn look(&self, attempt: &Attempt<'_>) -> Option<bool> {
        let mut pause = BUSY_FIRST;
        loop {
            let state = self.inspections.call(attempt.record.clone()).await?;
            let Some(state) = state else { return Some(true) };
            if state.is_obsolete(attempt.event.version, attempt.event.priority) {
                return Some(false);
            }
            let own = self.claims.params(attempt.event.version, attempt.event.priority);
            match state.claim {
                Some(claim) if claim.version != own.version || claim.owner != own.owner => {
                    self.busy(attempt, &mut pause).await?;
                }
                _ => return Some(true),
            }
        }
    }

    async fn begin(&self, attempt: &Attempt<'_>) -> Option<Begun> {
        let (version, priority) = (attempt.event.version, attempt.event.priority);
        let params = self.claims.params(version, priority);
        let begun = match self.begins.call((attempt.record.clone(), params)).await? {
            BeginOutcome::Go => Begun::Claimed(self.claims.hold(attempt.record.clone(), version, priority)),
            BeginOutcome::Obsolete => Begun::Obsolete,
            BeginOutcome::Busy { .. } => Begun::Busy,
        };
        Some(begun)
    }

    /// Begins before anything else, however long another worker fetches.
    async fn begin_first(&self, attempt: &Attempt<'_>) -> Option<First> {
        let mut pause = BUSY_FIRST;
        loop {
            match self.begin(attempt).await? {
                Begun::Claimed(claim) => return Some(First::Claimed(claim)),
                Begun::Obsolete => return Some(First::Obsolete),
                Begun::Busy => self.busy(attempt, &mut pause).await?,
            }
        }
    }

    async fn busy(&self, attempt: &Attempt<'_>, pause: &mut Duration) -> Option<()> {
        if *pause == BUSY_FIRST {
            self.shared.counters.conflicts.add(1);
        }
        attempt.sleep(*pause).await?;
        *pause = (*pause * 2).min(BUSY_PAUSE);
        Some(())
    }

    /// Waits for the right to call at this moment. Gives back a token that this record does not use.
    pub(super) async fn ready(&self, attempt: &Attempt<'_>, held: Option<Claim>) -> Option<Turn> {
        let mut held = held;
        loop {
            let claim = match (held.take(), attempt.event.priority) {
                (Some(claim), _) => Some(claim),
                (None, Priority::High) => match self.begin_first(attempt).await? {
                    First::Claimed(claim) => Some(claim),
                    First::Obsolete => return Some(Turn::Obsolete),
                },
                (None, Priority::Low) => match self.look(attempt).await? {
                    true => None,
                    false => return Some(Turn::Obsolete),
                },
            };
            let permit = self.token(attempt).await?;
            let begun = match claim {
                Some(claim) => Begun::Claimed(claim),
                None => self.begin(attempt).await?,
            };
            match (begun, permit) {
                // The token expired on the way: the call would arrive among those of later tokens.
                (Begun::Claimed(claim), Permit::Token(token)) if !token.is_valid() => {
                    self.shared.counters.tokens_late.add(1);
                    held = Some(claim);
                }
                (Begun::Claimed(claim), permit) => return Some(Turn::Ready(claim, permit)),
                (begun, permit) => {
                    if let Permit::Token(token) = permit {
                        token.give_back();
                    }
                    if matches!(begun, Begun::Obsolete) {
                        return Some(Turn::Obsolete);
                    }
                }
            }
        }
    }

    /// While LOW waits between two attempts, it does not count as fetching: a reader's HIGH may overtake it.
    pub(super) async fn stand_back(&self, attempt: &Attempt<'_>, claim: Claim) -> Option<Between> {
        if attempt.event.priority == Priority::High {
            return Some(Between::StillClaimed(claim));
        }
        let store = &self.shared.options.store;
        let own = self.claims.params(attempt.event.version, attempt.event.priority);
        let name = (attempt.record.clone(), own.version, own.owner);
        self.shared
            .store_call(attempt.lost, || store.abandon(vec![name.clone()]))
            .await?;
        claim.settled();
        Some(Between::Released)
    }

    async fn token(&self, attempt: &Attempt<'_>) -> Option<Permit> {
        let patience = self.shared.options.work.park_after_ms;
        let acquire =
            self.token_dispenser
                .acquire_within(&attempt.source.target, attempt.event.priority, patience);
        let acquired = tokio::select! {
            biased;
            () = attempt.lost.cancelled() => return None,
            acquired = acquire => acquired,
        };
        match acquired {
            Acquired::Token(token) => Some(Permit::Token(token)),
            Acquired::LongWait { wait, by } => Some(Permit::LongWait { wait, by }),
            Acquired::Closed => None,
        }
    }
}
