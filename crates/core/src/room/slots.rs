//! Redeems passes, extends and ends visits, and reaps what time has ended.

use super::Room;
use super::command::{ExtendParams, InsideOutcome, ReapOutcome, ReapParams, RedeemOutcome, RedeemParams};
use super::config::MAX_SPAN;
use super::ticket::{End, Ticket, TicketState};
use crate::ids::PersonId;
use crate::time::Timestamp;

impl Room {
    /// Redeems a pass, once.
    pub fn redeem(&mut self, params: &RedeemParams, now: Timestamp) -> RedeemOutcome {
        let ticket = self.tickets.get(&params.person);
        let Some(mut ticket) = ticket.filter(|ticket| ticket.index == params.index).cloned() else {
            return RedeemOutcome::Unknown;
        };
        match &ticket.state {
            TicketState::Granted { wave, .. } | TicketState::Inside { wave, .. } if *wave != params.wave => {
                // A pass from before the ticket was reissued another.
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

    /// Extends a visit.
    pub fn extend(&mut self, params: &ExtendParams, now: Timestamp) -> InsideOutcome {
        let Some(mut ticket) = self.tickets.get(&params.person).cloned() else {
            return InsideOutcome::Unknown;
        };
        match &mut ticket.state {
            TicketState::Ended { end, .. } => InsideOutcome::Ended(*end),
            // It has expired, although no reap has run yet.
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

    /// Completes a visit: frees the slot, the seat stays taken. Idempotent.
    pub fn complete(&mut self, person: &PersonId, now: Timestamp) -> InsideOutcome {
        let Some(ticket) = self.tickets.get(person).cloned() else {
            return InsideOutcome::Unknown;
        };
        match ticket.state {
            TicketState::Ended { end, .. } => InsideOutcome::Ended(end),
            TicketState::Early { .. } | TicketState::Waiting { .. } => InsideOutcome::NotInside,
            // Until a reap frees the slot, the ticket still holds it.
            TicketState::Granted { .. } | TicketState::Inside { .. } => {
                self.head.counts.completed += 1;
                self.end(person, ticket, End::Completed, now);
                self.signals.update = true;
                InsideOutcome::Ended(End::Completed)
            }
        }
    }

    /// Ends and forgets what is due, within the given bounds.
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
