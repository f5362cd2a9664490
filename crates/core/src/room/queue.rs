//! The queue of a room: join, heartbeat, leave, promote and reissue.

use super::command::{
    Granted, InsideOutcome, JoinOutcome, JoinParams, PromoteOutcome, Refused, Status, Stop, TakenOver,
    TouchOutcome, TouchParams,
};
use super::ticket::{End, Index, Stream, Ticket, TicketState, Wave};
use super::{DRAW_STEP, INSPECTIONS, Room};
use crate::ids::PersonId;
use crate::time::{Millis, Timestamp};

const SECOND: Millis = Millis(1_000);
/// Limit: stream numbers of one ticket before they equal those of the person's next one. A stream that outlived its
/// ticket, and even the memory of it, has no effect on another ticket.
const STREAMS: u64 = 1 << 20;

impl Room {
    /// Issues a ticket, or finds the one that the person has.
    pub fn join(&mut self, params: &JoinParams, now: Timestamp) -> JoinOutcome {
        if let Some(ticket) = self.tickets.get(&params.person) {
            let ended = matches!(ticket.state, TicketState::Ended { .. });
            if !ended {
                return self.resume(params, ticket.clone(), now);
            }
            if !params.again {
                return JoinOutcome::Ended(self.view_of(ticket));
            }
        }
        if let Some(refused) = self.refuses() {
            return JoinOutcome::Refused(refused);
        }
        self.reserve_indices(now);
        let index = Index(self.head.next_index);
        let present_until = now + self.head.config.presence_ms;
        let ticket = Ticket {
            index,
            joined_at: now,
            stream: Stream(index.0 * STREAMS + u64::from(params.stream)),
            state: match self.head.is_early(now) {
                true => TicketState::Early {
                    draw: params.draw,
                    present_until,
                },
                false => TicketState::Waiting { present_until },
            },
        };
        self.head.next_index += 1;
        self.head.counts.joined += 1;
        self.signals.promote |= self.has_room();
        let view = self.placed(&params.person, ticket, now);
        JoinOutcome::Placed {
            ticket: view,
            new: true,
        }
    }

    fn refuses(&self) -> Option<Refused> {
        let waiting = self.positions.total() + self.early.len() as u64;
        match () {
            () if self.head.status == Status::Closed => Some(Refused::Closed),
            () if self.head.sold_out() => Some(Refused::SoldOut),
            () if waiting >= self.head.config.max_waiting => Some(Refused::Full),
            () => None,
        }
    }

    fn resume(&mut self, params: &JoinParams, mut ticket: Ticket, now: Timestamp) -> JoinOutcome {
        if params.stream {
            let older_may_be_open = !ticket.stream.0.is_multiple_of(STREAMS) && !ticket.is_absent(now);
            ticket.stream.0 += 1;
            if older_may_be_open {
                self.signals.taken_over.push(TakenOver {
                    person: params.person.clone(),
                    by: ticket.stream,
                });
            }
        }
        self.renew(&mut ticket, now);
        let view = self.placed(&params.person, ticket, now);
        JoinOutcome::Placed {
            ticket: view,
            new: false,
        }
    }

    fn placed(&mut self, person: &PersonId, ticket: Ticket, now: Timestamp) -> super::command::TicketView {
        self.replace(person, Some(ticket.clone()), now);
        self.view_of(&ticket)
    }

    fn renew(&mut self, ticket: &mut Ticket, now: Timestamp) {
        let presence = self.head.config.presence_ms;
        if let TicketState::Early { present_until, .. } | TicketState::Waiting { present_until } =
            &mut ticket.state
        {
            // A person who returns may be the first that can be admitted.
            self.signals.promote |= *present_until <= now && self.has_room();
            *present_until = now + presence;
        }
    }

    /// A heartbeat of a stream, or its end.
    pub fn touch(&mut self, params: &TouchParams, now: Timestamp) -> TouchOutcome {
        let Some(mut ticket) = self.tickets.get(&params.person).cloned() else {
            return TouchOutcome::Gone;
        };
        if ticket.stream != params.stream {
            return TouchOutcome::Superseded;
        }
        match &mut ticket.state {
            TicketState::Ended { .. } => return TouchOutcome::Gone,
            TicketState::Granted { .. } | TicketState::Inside { .. } => return TouchOutcome::Kept,
            TicketState::Early { present_until, .. } | TicketState::Waiting { present_until }
                if !params.present =>
            {
                *present_until = (*present_until).min(now);
            }
            TicketState::Early { .. } | TicketState::Waiting { .. } => self.renew(&mut ticket, now),
        }
        self.replace(&params.person, Some(ticket), now);
        TouchOutcome::Kept
    }

    /// The person leaves, in whatever state. Frees the slot.
    pub fn leave(&mut self, person: &PersonId, now: Timestamp) -> InsideOutcome {
        let Some(ticket) = self.tickets.get(person).cloned() else {
            return InsideOutcome::Unknown;
        };
        match ticket.state {
            TicketState::Ended { end, .. } => return InsideOutcome::Ended(end),
            TicketState::Early { .. } | TicketState::Waiting { .. } => self.head.counts.left += 1,
            TicketState::Granted { .. } | TicketState::Inside { .. } => self.head.counts.left_inside += 1,
        }
        self.end(person, ticket, End::Left, now);
        InsideOutcome::Ended(End::Left)
    }

    /// Ends a ticket. Frees its slot if it held one.
    pub(super) fn end(&mut self, person: &PersonId, mut ticket: Ticket, end: End, now: Timestamp) {
        let held = ticket.holds_slot();
        ticket.state = TicketState::Ended { end, at: now };
        self.replace(person, Some(ticket), now);
        self.signals.promote |= held && self.has_room();
        self.signals.update |= held;
    }

    /// Once the room has opened, reserves indices for the early tickets before everybody who joins from now on.
    fn reserve_indices(&mut self, now: Timestamp) {
        let head = &mut self.head;
        if !head.is_early(now) && head.draw_next == head.draw_end && !self.early.is_empty() {
            head.draw_next = head.next_index;
            head.next_index += self.early.len() as u64;
            head.draw_end = head.next_index;
            self.changed.head = true;
        }
    }

    /// Draws some of the early tickets and assigns their indices. Returns true if all of them are drawn.
    fn draw(&mut self, now: Timestamp) -> bool {
        for _ in 0..DRAW_STEP {
            self.reserve_indices(now);
            let Some((_, person)) = self.early.first().cloned() else {
                // Those who left before the draw leave unused indices.
                self.head.draw_next = self.head.draw_end;
                return true;
            };
            let Some(mut ticket) = self.tickets.get(&person).cloned() else {
                unreachable!("an early entry has a ticket")
            };
            if let TicketState::Early { present_until, .. } = ticket.state {
                ticket.state = TicketState::Waiting { present_until };
            }
            ticket.index = Index(self.head.draw_next);
            self.head.draw_next += 1;
            self.replace(&person, Some(ticket), now);
            self.signals.update = true;
        }
        self.early.is_empty()
    }

    /// Admits the next people, at most `max`, within every limit.
    pub fn promote(&mut self, max: u64, now: Timestamp) -> PromoteOutcome {
        let stopped = |stop| PromoteOutcome {
            granted: Vec::new(),
            stop,
        };
        match self.head.status {
            Status::Paused => return stopped(Stop::Paused),
            Status::Closed => return stopped(Stop::Closed),
            Status::Open => {}
        }
        if let Some(at) = self.head.config.opens_at.filter(|at| *at > now) {
            return stopped(Stop::NotOpen { at });
        }
        if !self.draw(now) {
            return stopped(Stop::More);
        }
        if self.head.sold_out() {
            return stopped(Stop::SoldOut);
        }
        let (mut granted, mut inspected) = (Vec::new(), 0);
        let stop = loop {
            if granted.len() as u64 >= max || inspected >= max.saturating_add(INSPECTIONS) {
                break Stop::More;
            }
            inspected += 1;
            let Some((&index, person)) = self.queue.first_key_value() else {
                break Stop::Nobody;
            };
            let person = person.clone();
            let Some(mut ticket) = self.tickets.get(&person).cloned() else {
                unreachable!("everybody in the queue has a ticket")
            };
            if let TicketState::Waiting { present_until } = ticket.state
                && present_until <= now
            {
                // Absent: the next heartbeat puts the person back.
                self.queue.remove(&index);
                continue;
            }
            if let Some(stop) = self.full(now) {
                break stop;
            }
            if granted.is_empty() {
                self.head.wave.0 += 1;
            }
            ticket.state = TicketState::Granted {
                wave: self.head.wave,
                at: now,
                until: now + self.head.config.pass_ms,
            };
            self.replace(&person, Some(ticket), now);
            self.admitted(now);
            granted.push(Granted { person, index });
        };
        self.signals.update |= !granted.is_empty();
        PromoteOutcome { granted, stop }
    }

    /// The limit that keeps the next person out.
    fn full(&mut self, now: Timestamp) -> Option<Stop> {
        let (capacity, slots) = (self.head.capacity(), self.head.slots());
        if slots >= capacity.inside {
            return Some(Stop::Inside);
        }
        if capacity
            .seats
            .is_some_and(|seats| self.head.counts.completed + slots >= seats)
        {
            return Some(Stop::Seats);
        }
        self.head.recent.retain(|(at, _)| *at + SECOND > now);
        let recent: u64 = self.head.recent.iter().map(|(_, count)| count).sum();
        (recent >= capacity.per_second).then(|| Stop::Rate {
            until: self
                .head
                .recent
                .first()
                .map_or(now + SECOND, |(at, _)| *at + SECOND),
        })
    }

    fn admitted(&mut self, now: Timestamp) {
        self.head.counts.admitted += 1;
        match self.head.recent.last_mut() {
            Some((at, count)) if *at == now => *count += 1,
            _ => self.head.recent.push((now, 1)),
        }
    }

    /// Issues a fresh pass to a person whose pass was voided. Returns true if there was one to issue.
    pub fn reissue(&mut self, person: &PersonId, now: Timestamp) -> bool {
        let Some(mut ticket) = self.tickets.get(person).cloned() else {
            return false;
        };
        let TicketState::Granted { wave, until, .. } = ticket.state else {
            return false;
        };
        if wave > self.head.voided || until <= now {
            return false;
        }
        if self.head.wave <= self.head.voided {
            self.head.wave = Wave(self.head.voided.0 + 1);
        }
        ticket.state = TicketState::Granted {
            wave: self.head.wave,
            at: now,
            until: now + self.head.config.pass_ms,
        };
        self.replace(person, Some(ticket), now);
        true
    }
}
