//! Tickets of visitors without a stream: reading one keeps it, as a stream does.

use std::sync::Arc;

use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{TicketView, TouchParams};
use tidegate_core::room::ticket::TicketState;
use tidegate_store::StoreError;

use super::state::{RoomHandle, Seen};

/// A ticket, with the overview of its room.
#[derive(Debug, Clone)]
pub struct SeenTicket {
    pub ticket: TicketView,
    pub seen: Arc<Seen>,
}

impl RoomHandle {
    /// Reads a ticket, which counts as a heartbeat; none without a ticket. A visitor whose pass was voided gets another
    /// one.
    pub async fn keep(&self, person: &PersonId) -> Result<Option<SeenTicket>, StoreError> {
        let Some(mut ticket) = self.look(person).await? else {
            return Ok(None);
        };
        let seen = self.seen_or_read().await?;
        match ticket.ticket.state {
            TicketState::Early { .. } | TicketState::Waiting { .. } => {
                let touch = TouchParams {
                    person: person.clone(),
                    stream: ticket.ticket.stream,
                    present: true,
                };
                self.store().touch(self.name(), vec![touch]).await?;
            }
            TicketState::Granted { wave, .. } if seen.view.voided >= wave => {
                self.store().reissue(self.name(), person).await?;
                ticket = self.look(person).await?.unwrap_or(ticket);
            }
            _ => {}
        }
        Ok(Some(SeenTicket { ticket, seen }))
    }
}
