//! Whole histories of a room: people who join, drop, reconnect elsewhere and vanish; brokers and a store that
//! die at any step; answers that get lost and are retried; a shop and operators who act at any time.
//!
//! - `ask`: every request. `world`: who sends them, and what fails. `oracle`: which answers are valid.

mod ask;
mod oracle;
mod world;

use tidegate_testkit::{seeds, simulation};

use self::ask::{Answer, Ask, Conduct};
use self::world::{Seen, World};
use super::Room;
use super::command::{InsideOutcome, JoinParams};
use super::ticket::TicketState;
use crate::ids::PersonId;
use crate::time::{Millis, Timestamp};

pub(super) const START: Timestamp = Timestamp(1_790_000_000_000);
const SEEDS: u64 = 3_000;
const STEPS: u64 = 250;

/// People are numbers, and their names sort in the same order.
fn name(number: usize) -> PersonId {
    PersonId::new(format!("p{number:02}")).unwrap()
}

fn number(person: &PersonId) -> usize {
    person.as_str()[1..].parse().unwrap()
}

struct Right;

impl Conduct for Right {
    const CHECKED: bool = true;
}

#[test]
fn every_promise_holds_whatever_goes_wrong() {
    let mut sum = Seen::default();
    for seed in seeds::fixed(SEEDS) {
        let seen = simulation::holds(seed, STEPS, World::<Right>::new);
        sum.steps += seen.steps;
        sum.asked += seen.asked;
        sum.admitted += seen.admitted;
        sum.completed += seen.completed;
        sum.crashes += seen.crashes;
        sum.lost_answers += seen.lost_answers;
    }
    println!("{SEEDS} seeds: {sum:?}");
    assert!(
        seeds::again().is_some() || sum.admitted > 5 * SEEDS && sum.completed > SEEDS && sum.crashes > SEEDS,
        "{sum:?} is too little to prove anything"
    );
}

/// The oracle alone detects the wrong room within this many seeds, and says why.
fn caught<C: Conduct>(says: &str) {
    simulation::caught(0..300, STEPS, says, World::<C>::new);
}

struct LetsInOneTooMany;

impl Conduct for LetsInOneTooMany {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        let before = room.head.overrides;
        if let Ask::Promote(_) = ask {
            room.head.overrides.inside = Some(room.head.capacity().inside + 1);
        }
        let answer = ask.of(room, people, now);
        if let Ask::Promote(_) = ask {
            room.head.overrides = before;
        }
        answer
    }
}

#[test]
fn one_too_many_is_caught() {
    caught::<LetsInOneTooMany>("although Inside");
}

struct ForgetsPlaces;

impl Conduct for ForgetsPlaces {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        if let Ask::Join(_, params) = ask
            && let Some(ticket) = room.ticket(&params.person)
            && matches!(ticket.state, TicketState::Waiting { present_until } if present_until <= now)
        {
            // A person who was absent goes to the end.
            let mut ticket = ticket.clone();
            room.replace(&params.person, None, now);
            ticket.index.0 = room.head.next_index;
            room.head.next_index += 1;
            room.replace(&params.person, Some(ticket), now);
        }
        ask.of(room, people, now)
    }
}

#[test]
fn a_place_that_is_forgotten_is_caught() {
    caught::<ForgetsPlaces>("has place");
}

struct GivesSlotsBackTwice;

/// Where the wrong room counts the slots that it freed once too often: above the bits of the incarnation.
const EXTRA: u32 = 32;

impl Conduct for GivesSlotsBackTwice {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        let (before, waiting) = (room.head.overrides, room.positions.total());
        let free = room.head.slots();
        if let Ask::Promote(_) = ask {
            let inside = room.head.capacity().inside;
            room.head.overrides.inside = Some(inside + (room.head.incarnation >> EXTRA));
        }
        let answer = ask.of(room, people, now);
        if let Ask::Promote(_) = ask {
            room.head.overrides = before;
        }
        let again = (room.head.slots(), room.positions.total()) == (free, waiting);
        if let (Ask::Leave(_), Answer::Visit(InsideOutcome::Ended(_)), true) = (ask, &answer, again) {
            // A second call for one visit, as after a lost answer.
            room.head.incarnation += 1 << EXTRA;
        }
        answer
    }
}

#[test]
fn a_slot_that_comes_back_twice_is_caught() {
    caught::<GivesSlotsBackTwice>("although Inside");
}

struct SellsSeatsAgain;

impl Conduct for SellsSeatsAgain {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        let answer = ask.of(room, people, now);
        if let Ask::Complete(_) = ask {
            // The slot of a purchase is freed together with its seat.
            room.head.counts.completed = 0;
        }
        answer
    }
}

#[test]
fn a_seat_that_is_sold_again_is_caught() {
    caught::<SellsSeatsAgain>("completed");
}

struct PassesOver;

impl Conduct for PassesOver {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        let first = match ask {
            Ask::Promote(_) if room.queue.len() > 1 => room.queue.pop_first(),
            _ => None,
        };
        let answer = ask.of(room, people, now);
        room.queue.extend(first);
        answer
    }
}

#[test]
fn somebody_who_is_passed_over_is_caught() {
    caught::<PassesOver>("was let in before");
}

struct HasNoGrace;

impl Conduct for HasNoGrace {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        match ask {
            Ask::Reap(_) => ask.of(room, people, now + Millis(1_000)),
            _ => ask.of(room, people, now),
        }
    }
}

#[test]
fn a_place_that_is_lost_within_the_grace_time_is_caught() {
    caught::<HasNoGrace>("ended as Lost");
}

struct KeepsSlots;

impl Conduct for KeepsSlots {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        if let Ask::Reap(_) = ask {
            // Visits never expire.
            let tickets = &room.tickets;
            room.due
                .others
                .retain(|(_, person)| !matches!(tickets[person].state, TicketState::Inside { .. }));
        }
        ask.of(room, people, now)
    }
}

#[test]
fn a_slot_that_never_comes_back_is_caught() {
    caught::<KeepsSlots>("a sweep at");
}

struct GivesTwoTickets;

impl Conduct for GivesTwoTickets {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        if let Ask::Join(
            _,
            JoinParams {
                person, again: true, ..
            },
        ) = ask
            && room.ticket(person).is_some_and(|ticket| ticket.holds_slot())
        {
            room.replace(person, None, now);
        }
        ask.of(room, people, now)
    }
}

#[test]
fn a_second_ticket_is_caught() {
    caught::<GivesTwoTickets>("a second ticket");
}

struct ForgetsTheLastSecond;

impl Conduct for ForgetsTheLastSecond {
    fn restored(room: &mut Room) {
        room.head.recent.clear();
    }
}

#[test]
fn a_rate_that_begins_anew_after_a_restart_is_caught() {
    caught::<ForgetsTheLastSecond>("although Rate");
}

struct AnswersTooSoon;

impl Conduct for AnswersTooSoon {
    fn keeps(ask: &Ask) -> bool {
        !matches!(ask, Ask::Redeem(..))
    }
}

#[test]
fn an_answer_that_is_not_kept_is_caught() {
    caught::<AnswersTooSoon>("expected");
}

struct HearsOldConnections;

impl Conduct for HearsOldConnections {
    fn step(ask: &Ask, room: &mut Room, people: &[PersonId], now: Timestamp) -> Answer {
        let Ask::Touch(who, connection, present) = ask else {
            return ask.of(room, people, now);
        };
        let mut connection = *connection;
        if let Some(ticket) = room.ticket(&people[*who]) {
            connection.stream = ticket.stream;
        }
        Ask::Touch(*who, connection, *present).of(room, people, now)
    }
}

#[test]
fn an_old_connection_that_is_heard_is_caught() {
    caught::<HearsOldConnections>("is old, and was heard");
}
