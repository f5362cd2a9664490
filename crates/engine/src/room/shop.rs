//! What a shop does with a presented pass, decided in one place for the API and the library.
//!
//! A valid signature proves only that this service issued the pass. Whether the pass still counts depends on the room
//! and on the ticket. The room may have been lost and created again, and the person may have another ticket by now. A pass
//! that was issued while the room failed open has no ticket: then its own expiry and the permission decide.

use tidegate_core::clock::Clock;
use tidegate_core::ids::{PersonId, SessionId};
use tidegate_core::room::command::{ExtendParams, InsideOutcome, RedeemOutcome, RedeemParams};
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;

use super::RoomHandle;
use super::fail_open::{self, FailOpen};
use super::pass::{Claims, PassRefused};

/// Where the visitor with the pass is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visited {
    /// Admitted, not inside yet; the pass can be redeemed before then.
    Granted {
        until: Timestamp,
    },
    /// Inside until then.
    Inside {
        until: Timestamp,
    },
    Ended(End),
}

/// Why a shop's request with a pass failed. The texts are for the shop.
#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    #[error(transparent)]
    Pass(#[from] PassRefused),
    #[error("the pass was already redeemed, by another session or without one")]
    Used,
    #[error("an operator voided the pass; the visitor gets another one on the waiting page")]
    Void,
    #[error("the pass was not redeemed in time; the visitor has to queue again")]
    TooLate,
    #[error("the ticket of the pass no longer exists; the visitor has to queue again")]
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

/// A pass with a valid signature, in the room that it is for.
#[derive(Debug)]
pub struct PresentedPass<'a> {
    room: &'a RoomHandle,
    claims: &'a Claims,
    service: Option<Service<'a>>,
}

/// What the service of the room adds.
#[derive(Debug, Clone, Copy)]
struct Service<'a> {
    fail_open: FailOpen,
    clock: &'a dyn Clock,
}

impl<'a> PresentedPass<'a> {
    /// The ticket alone decides.
    pub fn new(room: &'a RoomHandle, claims: &'a Claims) -> Self {
        Self {
            room,
            claims,
            service: None,
        }
    }

    /// Also accepts passes that the room issued without a ticket, as `fail_open` permits. A check then knows the time, too:
    /// it rejects a pass that was not redeemed in time, although the store may not have ended its ticket yet.
    pub fn with_service(self, fail_open: FailOpen, clock: &'a dyn Clock) -> Self {
        Self {
            service: Some(Service { fail_open, clock }),
            ..self
        }
    }

    /// The service, if the pass was issued while failing open.
    fn without_ticket(&self) -> Option<Service<'a>> {
        self.service.filter(|_| fail_open::issued(self.claims))
    }

    /// The visit of a pass without a ticket; none for other passes.
    fn visit_without_ticket(&self) -> Result<Option<Visited>, PassRefused> {
        let Some(Service { fail_open, clock }) = self.service else {
            return Ok(None);
        };
        let until = fail_open.visit(self.claims, clock.now())?;
        Ok(until.map(|until| Visited::Inside { until }))
    }

    /// Whether the time of the service is past this one.
    fn is_past(&self, until: Timestamp) -> bool {
        self.service.is_some_and(|service| until <= service.clock.now())
    }

    fn person(&self) -> &PersonId {
        &self.claims.person
    }

    /// Redeems the pass, once; the same session may repeat the call.
    pub async fn redeem(&self, session: Option<SessionId>) -> Result<Visited, ShopError> {
        if let Some(visited) = self.visit_without_ticket()? {
            return Ok(visited);
        }
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

    /// Returns the state of the visit without redeeming the pass.
    pub async fn check(&self) -> Result<Visited, ShopError> {
        if let Some(visited) = self.visit_without_ticket()? {
            return Ok(visited);
        }
        match self.ticket().await? {
            // Only a visitor who is not inside needs an unexpired pass: a visit may outlast the pass.
            TicketState::Granted { until, .. } if self.is_past(until) => Err(ShopError::TooLate),
            TicketState::Granted { until, .. } => Ok(Visited::Granted { until }),
            TicketState::Inside { until, .. } => Ok(Visited::Inside { until }),
            TicketState::Ended { end, .. } => Ok(Visited::Ended(end)),
            TicketState::Early { .. } | TicketState::Waiting { .. } => Err(ShopError::Gone),
        }
    }

    /// Extends the visit to this long from now; never shortens it. An ended visit stays ended.
    pub async fn extend(&self, by: Millis) -> Result<Visited, ShopError> {
        if let Some(Service { clock, .. }) = self.without_ticket() {
            let until = clock.now() + by;
            return Ok(Visited::Inside { until });
        }
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

    /// Completes the visit: the slot is free, the seat stays taken. A repeated call counts once. If the visit had ended
    /// otherwise, nothing is sold: another person may have the seat.
    pub async fn complete(&self) -> Result<Visited, ShopError> {
        if self.without_ticket().is_some() {
            return Ok(Visited::Ended(End::Completed));
        }
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

    /// The visitor leaves without buying: slot and seat are free again, once. If the visit had ended, returns how.
    pub async fn release(&self) -> Result<Visited, ShopError> {
        if self.without_ticket().is_some() {
            return Ok(Visited::Ended(End::Left));
        }
        self.ticket().await?;
        visited(self.room.store().leave(self.room.name(), self.person()).await?)
    }

    /// Rejects passes of a lost room of the same name.
    async fn of_this_room(&self) -> Result<(), ShopError> {
        let seen = self.room.seen_or_read().await?;
        match seen.view.incarnation == self.claims.incarnation {
            true => Ok(()),
            false => Err(ShopError::Gone),
        }
    }

    /// The ticket of the pass. A pass of an earlier ticket says nothing about the next one. A voided pass says nothing
    /// about a visitor who was admitted with another.
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
            // The visitor may not have got another one yet.
            TicketState::Granted { wave, .. } => self.room.read_overview().await?.view.voided >= wave,
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
