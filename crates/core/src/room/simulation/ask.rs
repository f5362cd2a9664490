//! Every request to a room, its answers, and rooms that are wrong in one way each.

use crate::ids::PersonId;
use crate::room::Room;
use crate::room::command::*;
use crate::room::ticket::{Stream, Ticket, Wave};
use crate::time::{Millis, Timestamp};

/// A stream of one ticket of a person.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Connection {
    /// The oracle's number of the ticket.
    pub(super) ticket: u64,
    pub(super) stream: Stream,
}

#[derive(Debug, Clone)]
pub(super) enum Ask {
    Join(usize, JoinParams),
    Touch(usize, Connection, bool),
    Promote(u64),
    Redeem(usize, RedeemParams),
    Reissue(usize),
    Extend(usize, Millis),
    Complete(usize),
    Leave(usize),
    Reap(ReapParams),
    Resize(ResizeParams),
    Control(Control),
    Void(Option<Wave>),
    Look(usize),
}

#[derive(Debug, Clone)]
pub(super) enum Answer {
    Joined(JoinOutcome),
    Touched(TouchOutcome),
    Promoted(PromoteOutcome),
    Redeemed(RedeemOutcome),
    Reissued(bool),
    Visit(InsideOutcome),
    /// With every ticket as it is at that time.
    Reaped(ReapOutcome, Vec<Option<Ticket>>),
    Resized(ResizeOutcome),
    Controlled,
    Voided(Wave),
    Looked(Option<TicketView>),
}

impl Ask {
    /// Requests whose answer waits for the disk. A power cut may lose heartbeats and what a reap ended.
    pub(super) fn is_synced(&self) -> bool {
        !matches!(self, Ask::Touch(..) | Ask::Reap(_) | Ask::Look(_))
    }

    pub(super) fn of(&self, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        match self {
            Ask::Join(_, params) => Answer::Joined(room.join(params, now)),
            Ask::Touch(who, connection, present) => {
                let params = TouchParams {
                    person: people[*who].clone(),
                    stream: connection.stream,
                    present: *present,
                };
                Answer::Touched(room.touch(&params, now))
            }
            Ask::Promote(max) => Answer::Promoted(room.promote(*max, now)),
            Ask::Redeem(_, params) => Answer::Redeemed(room.redeem(params, now)),
            Ask::Reissue(who) => Answer::Reissued(room.reissue(&people[*who], now)),
            Ask::Extend(who, by) => {
                let params = ExtendParams {
                    person: people[*who].clone(),
                    by: *by,
                };
                Answer::Visit(room.extend(&params, now))
            }
            Ask::Complete(who) => Answer::Visit(room.complete(&people[*who], now)),
            Ask::Leave(who) => Answer::Visit(room.leave(&people[*who], now)),
            Ask::Reap(params) => {
                let outcome = room.reap(*params, now);
                let after = people.iter().map(|person| room.ticket(person).cloned());
                Answer::Reaped(outcome, after.collect())
            }
            Ask::Resize(params) => Answer::Resized(room.resize(params, now)),
            Ask::Control(control) => {
                room.control(*control);
                Answer::Controlled
            }
            Ask::Void(through) => Answer::Voided(room.void(*through)),
            Ask::Look(who) => Answer::Looked(room.look(&people[*who..=*who]).remove(0)),
        }
    }
}

/// The behaviour of a room; each wrong one changes a step.
pub(super) trait Conduct {
    /// Whether the room's own check runs as well. Not for wrong rooms: the oracle alone has to detect them.
    const CHECKED: bool = false;

    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        ask.of(room, people, now)
    }

    /// After an earlier run was read back.
    fn restored(_room: &mut Room) {}

    /// Whether the answer waits until the change is persisted.
    fn keeps(_ask: &Ask) -> bool {
        true
    }
}
