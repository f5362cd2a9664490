//! Whether somebody gets a ticket, and how: limits per address and person, proof of work, the draw. While the store is
//! unavailable, whether the room admits somebody without a ticket.

use tidegate_core::clock::Clock;
use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{JoinOutcome, JoinParams, Refused, TicketView};
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::Timestamp;
use tidegate_store::StoreError;

use super::address::AddressBlock;
use super::draw::{DrawSecret, draw};
use super::fail_open::{self, FailOpen};
use super::identity::TokenRefused;
use super::joins::{Joins, TooMany};
use super::pass::Claims;
use super::proof::{ProofConfig, ProofRefused, Proofs};
use super::state::RoomHandle;
use super::ticket::SeenTicket;
use super::visit::Visit;

/// A visitor who asks for a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    /// The person in this room.
    pub person: PersonId,
    /// The identity is new, so it has no ticket.
    pub fresh: bool,
    /// The shop's token has expired: the visitor can only find an existing ticket.
    pub late: bool,
    /// The address of the request.
    pub from: AddressBlock,
}

/// What the visitor asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct JoinOptions<'a> {
    /// Takes a new ticket if the last one has ended.
    pub again: bool,
    /// The solution of a challenge.
    pub proof: Option<&'a str>,
}

/// What became of a visitor who asked for a ticket.
#[derive(Debug)]
pub enum Entered<T> {
    /// The visitor has a ticket.
    Ticket(T),
    /// The store is unavailable and the room fails open: these are the claims of a pass without a ticket.
    FailedOpen(Claims),
    /// The visitor gets no ticket now.
    Refused(EntryRefused),
}

/// A ticket, and whether there is anything to follow.
#[derive(Debug)]
pub enum Begun {
    /// The ticket has not ended; this follows it.
    Visit(Visit),
    /// The last ticket has ended, and the visitor did not ask for another.
    Ended(TicketView),
}

/// Why the visitor gets no ticket now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryRefused {
    /// The shop's token has expired.
    Token(TokenRefused),
    /// Too many joins from the address, or by the person.
    TooMany(TooMany),
    /// The room requires proof of work, and the request has none.
    ProofNeeded,
    /// The proof of work is invalid.
    Proof(ProofRefused),
    /// The room accepts nobody new.
    Room(Refused),
}

/// The rules of one room.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The room.
    pub room: &'a RoomHandle,
    /// Counts joins.
    pub joins: &'a Joins,
    /// Checks proofs.
    pub proofs: &'a Proofs,
    /// Whether the room requires proof of work.
    pub proof: Option<&'a ProofConfig>,
    /// Whether a person whose visit was completed may join again.
    pub again: bool,
    /// The secret behind the room's draws.
    pub draws: &'a DrawSecret,
    /// Whether the room may admit people without the store.
    pub fail_open: FailOpen,
    /// The time of this process. The store may be unavailable.
    pub clock: &'a dyn Clock,
}

impl Entry<'_> {
    /// Takes a ticket, or finds the visitor's, and follows it.
    pub async fn visit(
        &self,
        applicant: &Applicant,
        options: JoinOptions<'_>,
    ) -> Result<Entered<Begun>, StoreError> {
        let visit = |params| async move {
            Ok::<_, StoreError>(match self.room.visit(params).await? {
                Ok(visit) => Ok(Begun::Visit(visit)),
                Err(JoinOutcome::Ended(ticket) | JoinOutcome::Placed { ticket, .. }) => {
                    Ok(Begun::Ended(ticket))
                }
                Err(JoinOutcome::Refused(refused)) => Err(refused),
            })
        };
        self.enter(applicant, options, visit).await
    }

    /// Takes a ticket, or finds the visitor's, which may have ended.
    pub async fn join(
        &self,
        applicant: &Applicant,
        options: JoinOptions<'_>,
    ) -> Result<Entered<SeenTicket>, StoreError> {
        let join = |params| async move {
            let ticket = match self.room.join(params).await? {
                JoinOutcome::Placed { ticket, .. } | JoinOutcome::Ended(ticket) => ticket,
                JoinOutcome::Refused(refused) => return Ok(Err(refused)),
            };
            let seen = self.room.seen_or_read().await?;
            Ok::<_, StoreError>(Ok(SeenTicket { ticket, seen }))
        };
        self.enter(applicant, options, join).await
    }

    /// Checks whether the visitor may join, then joins by `take`.
    async fn enter<T, Taken>(
        &self,
        applicant: &Applicant,
        options: JoinOptions<'_>,
        take: impl FnOnce(JoinParams) -> Taken,
    ) -> Result<Entered<T>, StoreError>
    where
        Taken: Future<Output = Result<Result<T, Refused>, StoreError>>,
    {
        let taken = async {
            match self.check(applicant, options, self.clock.now()).await? {
                Ok(params) => Ok(take(params).await?.map_err(EntryRefused::Room)),
                Err(refused) => Ok::<_, StoreError>(Err(refused)),
            }
        };
        match taken.await {
            Ok(Ok(ticket)) => Ok(Entered::Ticket(ticket)),
            Ok(Err(refused)) => {
                if let EntryRefused::Room(_) = refused {
                    self.joins.give_back(applicant.from, self.clock.now());
                }
                Ok(Entered::Refused(refused))
            }
            Err(error) => match self.admit_without_store(&applicant.person, &error) {
                Some(claims) => Ok(Entered::FailedOpen(claims)),
                None => Err(error),
            },
        }
    }

    /// Checks whether the visitor may join; returns the parameters of the join.
    async fn check(
        &self,
        applicant: &Applicant,
        options: JoinOptions<'_>,
        now: Timestamp,
    ) -> Result<Result<JoinParams, EntryRefused>, StoreError> {
        let found = match applicant.fresh {
            true => None,
            false => self.room.look(&applicant.person).await?,
        };
        let state = found.map(|found| found.ticket.state);
        let ended = matches!(state, Some(TicketState::Ended { .. }));
        // A person who has a ticket, or only learns how it ended, takes nothing.
        let takes_nothing = (state.is_some() && !ended) || (ended && !options.again);
        if applicant.late && !takes_nothing {
            return Ok(Err(EntryRefused::Token(TokenRefused::Expired)));
        }
        let counted = self
            .joins
            .take(&applicant.person, applicant.from, takes_nothing, now);
        if let Err(too_many) = counted {
            return Ok(Err(EntryRefused::TooMany(too_many)));
        }
        if let (Some(config), false) = (self.proof, takes_nothing) {
            let Some(proof) = options.proof else {
                return Ok(Err(EntryRefused::ProofNeeded));
            };
            let room = self.room.name();
            if let Err(refused) = self.proofs.verify(config, proof, room, applicant.from, now) {
                return Ok(Err(EntryRefused::Proof(refused)));
            }
        }
        let end = End::Completed;
        let completed = matches!(state, Some(TicketState::Ended { end: how, .. }) if how == end);
        let seen = self.room.seen_or_read().await?;
        Ok(Ok(JoinParams {
            draw: draw(&self.draws.seed(seen.view.opens_at), &applicant.person),
            person: applicant.person.clone(),
            stream: false,
            again: options.again && (self.again || !completed),
        }))
    }

    /// Whether the room admits everybody now if the store is unavailable.
    pub fn fails_open(&self) -> bool {
        let seen = self.room.seen();
        let view = seen.as_deref().map(|seen| &seen.view);
        self.fail_open.holds(view, self.clock.now())
    }

    /// The claims of a pass for a visitor whom the store could not serve. None if another error than an outage is the
    /// reason, or if the room does not fail open.
    pub fn admit_without_store(&self, person: &PersonId, error: &StoreError) -> Option<Claims> {
        if !fail_open::is_outage(error) {
            return None;
        }
        let seen = self.room.seen();
        let view = seen.as_deref().map(|seen| &seen.view);
        // The time now, because the call that failed may have taken long.
        let claims = self.fail_open.admit(person, view, self.clock.now())?;
        let room = self.room.name();
        tracing::warn!(%room, %error, "the store is unavailable, and the room fails open: it admits everybody");
        Some(claims)
    }
}
