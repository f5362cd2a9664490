//! One visitor's stream: the current ticket, and every change of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{Status, TicketView, TouchParams};
use tidegate_core::room::ticket::{Stream, TicketState};
use tidegate_store::StoreError;
use tokio::time::Instant;

use super::registry::{Mailbox, Note};
use super::state::{RoomState, Seen};

/// How often a stream reads a ticket that no overview covers: an admitted one.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// Longest time without an update while waiting: estimates move, too.
const UPDATE_AFTER: Duration = Duration::from_secs(10);
/// Longest silence: proxies and browsers must see that the connection is alive.
const QUIET: Duration = Duration::from_secs(15);
/// People behind come and go all the time, so they alone trigger fewer updates than the position does.
const UPDATE_BEHIND_AFTER: Duration = Duration::from_secs(3);

/// What a stream sends.
#[derive(Debug, Clone)]
pub enum Update {
    /// The position of the ticket, or its current state.
    Ticket(TicketView),
    /// A newer stream of the same person superseded this one: it ends and changes nothing.
    Superseded,
    /// A keep-alive after a silence.
    Quiet,
}

/// A stream. Dropping it reports the visitor as absent to the store.
#[derive(Debug)]
pub struct Visit {
    state: Arc<RoomState>,
    person: PersonId,
    stream: Stream,
    mailbox: Arc<Mailbox>,
    now: TicketView,
    /// The status of the room as last sent: paused, sold out, open.
    room_status: Option<(Status, bool, bool)>,
    sent: Instant,
    /// When the stream last read the ticket.
    looked: Instant,
    begun: bool,
    over: bool,
}

impl Visit {
    pub(super) fn begin(state: Arc<RoomState>, person: PersonId, now: TicketView) -> Self {
        let mailbox = state.registry.add(&person, &now.ticket);
        // A person admitted between the join and this point is in no later overview, so compare with the last one.
        if let Some(seen) = state.seen() {
            state.registry.compare_one(&person, &seen.view);
        }
        Self {
            mailbox,
            stream: now.ticket.stream,
            state,
            person,
            now,
            room_status: None,
            sent: Instant::now(),
            looked: Instant::now(),
            begun: false,
            over: false,
        }
    }

    pub fn person(&self) -> &PersonId {
        &self.person
    }

    /// The last overview of the room.
    pub fn seen(&self) -> Option<Arc<Seen>> {
        self.state.seen()
    }

    /// The next update; the first comes at once. None when the stream is over: the ticket has ended, or another
    /// stream superseded this one.
    pub async fn next(&mut self) -> Option<Update> {
        if self.over {
            return None;
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.moved();
            return Some(self.update());
        }
        // The room may have gone before anybody could leave a note here.
        while !self.state.gone.is_cancelled() {
            match self.mailbox.next().await {
                Note::Superseded => {
                    self.over = true;
                    return Some(Update::Superseded);
                }
                Note::Gone => break,
                Note::Look => {
                    if self.look().await {
                        return Some(self.update());
                    }
                }
                Note::Beat => {
                    if let Some(update) = self.turn().await {
                        return Some(update);
                    }
                }
            }
        }
        self.vanished();
        Some(self.update())
    }

    /// What to send when this stream's slice is due.
    async fn turn(&mut self) -> Option<Update> {
        if let Some(read) = self.moved() {
            let update = self.update();
            self.state.counters.broadcasts.observe(self.sent - read);
            return Some(update);
        }
        let now = Instant::now();
        let again = match self.waits() {
            true => now - self.sent >= UPDATE_AFTER,
            false => now - self.looked >= READ_AGAIN && self.look().await,
        };
        if again {
            return Some(self.update());
        }
        (now - self.sent >= QUIET).then(|| {
            self.sent = now;
            Update::Quiet
        })
    }

    fn waits(&self) -> bool {
        matches!(
            self.now.ticket.state,
            TicketState::Waiting { .. } | TicketState::Early { .. }
        )
    }

    fn update(&mut self) -> Update {
        self.sent = Instant::now();
        self.over = matches!(self.now.ticket.state, TicketState::Ended { .. });
        self.state.counters.updates.fetch_add(1, Ordering::Relaxed);
        Update::Ticket(self.now.clone())
    }

    /// Recomputes the position. If there is an update, returns when the underlying overview was read.
    fn moved(&mut self) -> Option<Instant> {
        let seen = self.state.seen()?;
        let view = &seen.view;
        let room_status = Some((
            view.status,
            view.sold_out(),
            view.opens_at.is_none_or(|at| at <= view.now),
        ));
        let turned = self.room_status != room_status;
        self.room_status = room_status;
        let index = self.now.ticket.index.0;
        // The overview is older than the ticket, or the ticket no longer waits: in that case a note follows, too.
        if !matches!(self.now.ticket.state, TicketState::Waiting { .. }) || !view.positions.has(index) {
            return turned.then_some(seen.read);
        }
        // The number ahead only shrinks: an overview from before the last update must not raise it.
        let ahead = view.positions.ahead(index).min(self.now.ahead);
        let waiting = view.waiting().max(ahead + 1);
        let behind = waiting != self.now.waiting && self.sent.elapsed() >= UPDATE_BEHIND_AFTER;
        let moved = ahead != self.now.ahead || behind || turned;
        if moved {
            (self.now.ahead, self.now.waiting) = (ahead, waiting);
        }
        moved.then_some(seen.read)
    }

    /// Reads the ticket. True if its state has changed.
    async fn look(&mut self) -> bool {
        self.looked = Instant::now();
        let found = match self.state.look(&self.person).await {
            Ok(Some(found)) => found,
            Ok(None) => return self.vanished(),
            // The stream reads it again with the next note, or after a while.
            Err(error) => {
                tracing::debug!(%error, room = %self.state.name, "failed to read a ticket");
                return false;
            }
        };
        if found.ticket.stream != self.stream {
            // The note comes with the next heartbeat.
            return false;
        }
        let found = match self.reissued(&found).await {
            Ok(true) => self
                .state
                .look(&self.person)
                .await
                .ok()
                .flatten()
                .unwrap_or(found),
            Ok(false) => found,
            Err(error) => {
                tracing::debug!(%error, room = %self.state.name, "failed to reissue a pass");
                found
            }
        };
        self.state.registry.found(&self.person, &found.ticket);
        let changed = state_of(&found) != state_of(&self.now) || found.ahead != self.now.ahead;
        self.now = found;
        changed
    }

    /// Issues another pass if this one was voided.
    async fn reissued(&self, found: &TicketView) -> Result<bool, StoreError> {
        let TicketState::Granted { wave, .. } = found.ticket.state else {
            return Ok(false);
        };
        let seen = self.state.seen();
        let voided = seen.is_some_and(|seen| seen.view.voided >= wave);
        match voided {
            true => self.state.store.reissue(&self.state.name, &self.person).await,
            false => Ok(false),
        }
    }

    /// The store has dropped the ticket: it ended long ago, or went with its room.
    fn vanished(&mut self) -> bool {
        self.now.ticket.state = TicketState::Ended {
            end: tidegate_core::room::ticket::End::Lost,
            at: self.now.ticket.joined_at,
        };
        true
    }
}

/// The parts of a ticket that make a change worth sending; heartbeats do not.
fn state_of(view: &TicketView) -> (u8, u64, u64) {
    match &view.ticket.state {
        TicketState::Early { .. } => (0, 0, 0),
        TicketState::Waiting { .. } => (1, view.ticket.index.0, 0),
        TicketState::Granted { wave, until, .. } => (2, wave.0, until.0),
        TicketState::Inside { until, .. } => (3, until.0, 0),
        TicketState::Ended { at, .. } => (4, at.0, 0),
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.state.registry.remove(&self.person, self.stream);
        if self.waits() {
            let gone = TouchParams {
                person: self.person.clone(),
                stream: self.stream,
                present: false,
            };
            // If too many streams end at once, the missing heartbeat says the same a little later.
            let _ = self.state.ended.try_send(gone);
        }
    }
}
