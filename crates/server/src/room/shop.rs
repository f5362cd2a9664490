//! What a shop does with a pass in hand, decided in one place for the API and the library.
//!
//! A signature says only that the pass was given once. What it is worth is up to the room, which may have been lost and
//! made again, and to the ticket, which the person may have left for another one since.

use tidegate_core::ids::{PersonId, SessionId};
use tidegate_core::room::command::{ExtendParams, InsideOutcome, RedeemOutcome, RedeemParams};
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::room::RoomHandle;
use tidegate_store::StoreError;

use super::pass::{Claims, PassRefused};

/// Where the visitor of a pass is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visited {
    /// Let in, and not there yet; the pass can be redeemed before then.
    Granted {
        until: Timestamp,
    },
    /// Inside until then.
    Inside {
        until: Timestamp,
    },
    Ended(End),
}

/// Why a pass does not do what the shop asked for. The texts are for the shop.
#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    #[error(transparent)]
    Pass(#[from] PassRefused),
    #[error("the pass was redeemed before, by another session or by none")]
    Used,
    #[error("an operator took the pass back; the visitor finds another on the waiting page")]
    Void,
    #[error("the pass was not redeemed in time; the visitor has to queue again")]
    TooLate,
    #[error("the pass is of a ticket that there is not any more; the visitor has to queue again")]
    Gone,
    #[error("the pass has not been redeemed, so its visitor is not inside; redeem it first")]
    NotInside,
    #[error("the visit had ended before ({}): {}", .0.name(), given_back(.0))]
    Ended(End),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn given_back(end: &End) -> &'static str {
    match end {
        End::Completed => "its slot is given back, its seat stays taken",
        End::Left | End::Lost | End::NoShow | End::Expired => {
            "its slot and its seat are given back; the visitor has to queue again"
        }
    }
}

/// A pass whose signature is good, at the room that it is for.
#[derive(Debug)]
pub struct PresentedPass<'a> {
    room: &'a RoomHandle,
    claims: &'a Claims,
}

impl<'a> PresentedPass<'a> {
    pub fn new(room: &'a RoomHandle, claims: &'a Claims) -> Self {
        Self { room, claims }
    }

    fn person(&self) -> &PersonId {
        &self.claims.person
    }

    /// Lets its visitor in, once; the same session may ask again.
    pub async fn redeem(&self, session: Option<SessionId>) -> Result<Visited, ShopError> {
        self.of_this_room().await?;
        let params = RedeemParams {
            person: self.person().clone(),
            index: self.claims.index,
            wave: self.claims.wave,
            session,
        };
        match self.room.store().redeem(self.room.name(), params).await? {
            RedeemOutcome::Inside { until } => Ok(Visited::Inside { until }),
            RedeemOutcome::AlreadyRedeemed => Err(ShopError::Used),
            RedeemOutcome::Voided => Err(ShopError::Void),
            RedeemOutcome::TooLate => Err(ShopError::TooLate),
            RedeemOutcome::Unknown => Err(ShopError::Gone),
        }
    }

    /// What it is worth, without redeeming it.
    pub async fn check(&self) -> Result<Visited, ShopError> {
        match self.ticket().await? {
            TicketState::Granted { until, .. } => Ok(Visited::Granted { until }),
            TicketState::Inside { until, .. } => Ok(Visited::Inside { until }),
            TicketState::Ended { end, .. } => Ok(Visited::Ended(end)),
            TicketState::Early { .. } | TicketState::Waiting { .. } => Err(ShopError::Gone),
        }
    }

    /// Lets its visitor stay for so long from now on; never shorter. A visit that has ended does not go on.
    pub async fn extend(&self, by: Millis) -> Result<Visited, ShopError> {
        self.ticket().await?;
        let params = ExtendParams {
            person: self.person().clone(),
            by,
        };
        match visited(self.room.store().extend(self.room.name(), params).await?)? {
            Visited::Ended(end) => Err(ShopError::Ended(end)),
            stays => Ok(stays),
        }
    }

    /// Its visitor has what it came for: the slot is free, the seat stays taken. Said twice, it counts once. If the visit
    /// had ended otherwise, nothing is sold: somebody else may have the seat.
    pub async fn complete(&self) -> Result<Visited, ShopError> {
        self.ticket().await?;
        let outcome = self
            .room
            .store()
            .complete(self.room.name(), self.person())
            .await?;
        match visited(outcome)? {
            Visited::Ended(end) if end != End::Completed => Err(ShopError::Ended(end)),
            done => Ok(done),
        }
    }

    /// Its visitor goes without having bought: slot and seat come back, once. If the visit had ended, tells how.
    pub async fn release(&self) -> Result<Visited, ShopError> {
        self.ticket().await?;
        visited(self.room.store().leave(self.room.name(), self.person()).await?)
    }

    /// A room of the same name that was lost gave passes, too.
    async fn of_this_room(&self) -> Result<(), ShopError> {
        let seen = self.room.seen_or_look().await?;
        match seen.view.born == self.claims.born {
            true => Ok(()),
            false => Err(ShopError::Gone),
        }
    }

    /// Where the ticket of the pass stands. A pass of an earlier ticket says nothing about the next one, and one that was
    /// taken back nothing about who came in with another.
    async fn ticket(&self) -> Result<TicketState, ShopError> {
        self.of_this_room().await?;
        let found = self.room.look(self.person()).await?;
        let state = found
            .filter(|found| found.ticket.index == self.claims.index)
            .map(|found| found.ticket.state)
            .ok_or(ShopError::Gone)?;
        let void = match state {
            TicketState::Granted { wave, .. } | TicketState::Inside { wave, .. }
                if wave != self.claims.wave =>
            {
                true
            }
            // Its visitor may not have been given another yet.
            TicketState::Granted { wave, .. } => self.room.look_at_it().await?.view.voided >= wave,
            _ => false,
        };
        match void {
            true => Err(ShopError::Void),
            false => Ok(state),
        }
    }
}

fn visited(outcome: InsideOutcome) -> Result<Visited, ShopError> {
    match outcome {
        InsideOutcome::Inside { until } => Ok(Visited::Inside { until }),
        InsideOutcome::Ended(end) => Ok(Visited::Ended(end)),
        InsideOutcome::NotInside => Err(ShopError::NotInside),
        InsideOutcome::Unknown => Err(ShopError::Gone),
    }
}
