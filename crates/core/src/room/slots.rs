//! Passes that are redeemed, visits that go on or end, and what time ends.

use super::Room;
use super::command::{ExtendParams, InsideOutcome, ReapOutcome, ReapParams, RedeemOutcome, RedeemParams};
use super::config::MAX_SPAN;
use super::ticket::{End, Ticket, TicketState};
use crate::ids::PersonId;
use crate::time::Timestamp;

impl Room {
    /// A pass is shown: once.
    pub fn redeem(&mut self, params: &RedeemParams, now: Timestamp) -> RedeemOutcome {
        let ticket = self.tickets.get(&params.person);
        let Some(mut ticket) = ticket.filter(|ticket| ticket.index == params.index).cloned() else {
            return RedeemOutcome::Unknown;
        };
        match &ticket.state {
            TicketState::Granted { wave, .. } | TicketState::Inside { wave, .. } if *wave != params.wave => {
                // A pass of before the ticket was given another.
                match params.wave <= self.head.voided {
                    true => RedeemOutcome::Voided,
                    false => RedeemOutcome::Unknown,
                }
            }
            TicketState::Granted { wave, .. } if *wave <= self.head.voided => RedeemOutcome::Voided,
            TicketState::Granted { until, .. } if *until <= now => RedeemOutcome::TooLate,
            TicketState::Granted { wave, .. } => {
                let until = now + self.head.config.inside_ms;
                ticket.state = TicketState::Inside {
                    wave: *wave,
                    until,
                    session: params.session.clone(),
                };
                self.head.counts.redeemed += 1;
                self.replace(&params.person, Some(ticket), now);
                RedeemOutcome::Inside { until }
            }
            TicketState::Inside { until, session, .. } => {
                match session.is_some() && *session == params.session {
                    true => RedeemOutcome::Inside { until: *until },
                    false => RedeemOutcome::AlreadyRedeemed,
                }
            }
            TicketState::Ended { end: End::NoShow, .. } => RedeemOutcome::TooLate,
            TicketState::Ended {
                end: End::Completed | End::Expired,
                ..
            } => RedeemOutcome::AlreadyRedeemed,
            TicketState::Ended { .. } | TicketState::Early { .. } | TicketState::Waiting { .. } => {
                RedeemOutcome::Unknown
            }
        }
    }

    /// Lets somebody stay inside for longer.
    pub fn extend(&mut self, params: &ExtendParams, now: Timestamp) -> InsideOutcome {
        let Some(mut ticket) = self.tickets.get(&params.person).cloned() else {
            return InsideOutcome::Unknown;
        };
        match &mut ticket.state {
            TicketState::Ended { end, .. } => InsideOutcome::Ended(*end),
            // Its time is over, although nobody has looked yet.
            TicketState::Inside { until, .. } if *until <= now => InsideOutcome::Ended(End::Expired),
            TicketState::Inside { until, .. } => {
                *until = (*until).max(now + params.by.min(MAX_SPAN));
                let until = *until;
                self.replace(&params.person, Some(ticket), now);
                InsideOutcome::Inside { until }
            }
            _ => InsideOutcome::NotInside,
        }
    }

    /// Has what it came for: the slot is free, the seat stays taken. Said twice, it counts once.
    pub fn complete(&mut self, person: &PersonId, now: Timestamp) -> InsideOutcome {
        let Some(ticket) = self.tickets.get(person).cloned() else {
            return InsideOutcome::Unknown;
        };
        match ticket.state {
            TicketState::Ended { end, .. } => InsideOutcome::Ended(end),
            TicketState::Early { .. } | TicketState::Waiting { .. } => InsideOutcome::NotInside,
            // A slot that nobody has taken back yet is still its own.
            TicketState::Granted { .. } | TicketState::Inside { .. } => {
                self.head.counts.completed += 1;
                self.end(person, ticket, End::Completed, now);
                self.signals.tell = true;
                InsideOutcome::Ended(End::Completed)
            }
        }
    }

    /// Does what time asks for, as far as it may.
    pub fn reap(&mut self, params: ReapParams, now: Timestamp) -> ReapOutcome {
        let absent = params.counts_absent(now);
        let mut outcome = ReapOutcome {
            now,
            ..ReapOutcome::default()
        };
        for _ in 0..params.max {
            let first = self.due.first(absent).filter(|(at, _)| *at <= now);
            let Some((_, person)) = first.cloned() else {
                return outcome;
            };
            let Some(ticket) = self.tickets.get(&person).cloned() else {
                unreachable!("what is due has a ticket")
            };
            self.reap_one(&person, ticket, &mut outcome, now);
        }
        outcome.more = self.due.first(absent).is_some_and(|(at, _)| *at <= now);
        outcome
    }

    fn reap_one(&mut self, person: &PersonId, ticket: Ticket, outcome: &mut ReapOutcome, now: Timestamp) {
        let counts = &mut self.head.counts;
        let end = match ticket.state {
            TicketState::Ended { .. } => {
                outcome.forgotten += 1;
                return self.replace(person, None, now);
            }
            TicketState::Early { .. } | TicketState::Waiting { .. } => {
                (outcome.lost, counts.lost) = (outcome.lost + 1, counts.lost + 1);
                End::Lost
            }
            TicketState::Granted { .. } => {
                (outcome.no_shows, counts.no_shows) = (outcome.no_shows + 1, counts.no_shows + 1);
                End::NoShow
            }
            TicketState::Inside { .. } => {
                (outcome.expired, counts.expired) = (outcome.expired + 1, counts.expired + 1);
                End::Expired
            }
        };
        self.end(person, ticket, end, now);
    }
}
