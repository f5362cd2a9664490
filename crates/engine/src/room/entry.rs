//! Whether somebody may take a ticket, and how: limits per address and person, proof of work, the draw.

use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{JoinOutcome, JoinParams};
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::Timestamp;
use tidegate_store::StoreError;

use super::address::AddressBlock;
use super::draw::{DrawSecret, draw};
use super::identity::TokenRefused;
use super::joins::{Joins, TooMany};
use super::proof::{ProofConfig, ProofRefused, Proofs};
use super::state::RoomHandle;

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
}

impl Entry<'_> {
    /// Checks whether the visitor may join; returns the parameters of the join.
    pub async fn check(
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

    /// Gives the address its count back if the room rejected the visitor.
    pub fn joined(&self, applicant: &Applicant, outcome: &JoinOutcome, now: Timestamp) {
        if matches!(outcome, JoinOutcome::Refused(_)) {
            self.joins.give_back(applicant.from, now);
        }
    }
}
