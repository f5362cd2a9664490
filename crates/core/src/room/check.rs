//! Proves the invariants by recounting everything.

use super::Room;
use super::ticket::TicketState;

impl Room {
    /// Returns the first contradiction; none in a healthy room.
    pub fn check(&self) -> Result<(), String> {
        let (mut granted, mut inside, mut waiting, mut early) = (0, 0, 0, 0);
        for (person, ticket) in &self.tickets {
            let due = match ticket.state {
                TicketState::Early { .. } | TicketState::Waiting { .. } => &self.due.absences,
                _ => &self.due.others,
            };
            if !due.contains(&(ticket.due_at(&self.head.config), person.clone())) {
                return Err(format!("{person} has no deadline: {ticket:?}"));
            }
            match ticket.state {
                TicketState::Granted { .. } => granted += 1,
                TicketState::Inside { .. } => inside += 1,
                TicketState::Waiting { .. } => {
                    waiting += 1;
                    if !self.positions.has(ticket.index.0) {
                        return Err(format!("{person} waits without a position: {ticket:?}"));
                    }
                }
                TicketState::Early { .. } => early += 1,
                TicketState::Ended { .. } => {}
            }
        }
        for (index, person) in &self.queue {
            let ticket = self.tickets.get(person);
            if ticket.is_none_or(|ticket| ticket.index != *index || !self.positions.has(index.0)) {
                return Err(format!("{person} is queued at {index:?} with {ticket:?}"));
            }
        }
        let same = |what: &str, stored: u64, counted: u64| match stored == counted {
            true => Ok(()),
            false => Err(format!("{what}: {stored} stored, {counted} counted")),
        };
        same("granted", self.head.granted, granted)?;
        same("inside", self.head.inside, inside)?;
        same("waiting", self.positions.total(), waiting)?;
        same("early", self.early.len() as u64, early)?;
        let deadlines = self.due.absences.len() + self.due.others.len();
        same("deadlines", deadlines as u64, self.tickets.len() as u64)
    }
}
