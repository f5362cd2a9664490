//! A room among visitors, brokers, a shop and operators, all of whom fail. Everything follows from the seed.

use std::collections::BTreeMap;

use tidegate_testkit::simulation;

use super::ask::{Answer, Ask, Conduct, Connection};
use super::oracle::Oracle;
use super::{START, name};
use crate::ids::{PersonId, SessionId};
use crate::rng::Rng;
use crate::room::command::*;
use crate::room::config::{Capacity, RoomConfig};
use crate::room::ticket::{Index, Ticket, TicketState, Wave};
use crate::room::{Head, Room};
use crate::time::{Millis, Timestamp};

/// How often a broker reaps.
const SWEEP: Millis = Millis(1_000);
/// How often connections send a heartbeat: a third of its validity.
const BEAT: Millis = Millis(1_000);
const BROKERS: u64 = 3;
/// Maximum calls answered together.
const BATCH: usize = 6;

/// What a run covered, to prove that it exercised something.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    pub(super) steps: u64,
    pub(super) asked: u64,
    pub(super) admitted: u64,
    pub(super) completed: u64,
    pub(super) crashes: u64,
    pub(super) lost_answers: u64,
}

/// A room as written to disk.
#[derive(Clone)]
struct Disk {
    head: Head,
    tickets: BTreeMap<PersonId, Ticket>,
}

#[derive(Default, Clone)]
struct Visitor {
    /// The broker that it is connected to, with the stream that this broker knows.
    at: Option<(u64, Option<Connection>)>,
    pass: Option<(Index, Wave)>,
    /// The pass was redeemed, as far as the shop knows.
    inside: bool,
}

pub(super) struct World<C: Conduct> {
    rng: Rng,
    now: Timestamp,
    people: Vec<PersonId>,
    visitors: Vec<Visitor>,
    room: Room,
    /// Survives the process, and a power cut.
    written: Disk,
    synced: Disk,
    oracle: Oracle,
    /// The oracle as of the last sync.
    synced_oracle: Oracle,
    /// Applied in memory, neither persisted nor answered.
    pending: Vec<(Ask, Answer, Timestamp)>,
    /// Calls whose answer was lost.
    retries: Vec<Ask>,
    /// Connections that were replaced, or whose end is reported late.
    old: Vec<(usize, Connection)>,
    last_sweep: Timestamp,
    /// Before this time absent people keep their tickets: the process has just started.
    lost_from: Timestamp,
    last_beat: Timestamp,
    requests: u64,
    calm: bool,
    seen: Seen,
    conduct: std::marker::PhantomData<C>,
}

fn config(rng: &mut Rng) -> RoomConfig {
    RoomConfig {
        capacity: Capacity {
            seats: rng.one_in(2).then(|| 2 + rng.below(10)),
            inside: 1 + rng.below(4),
            per_second: 1 + rng.below(4),
        },
        opens_at: rng.one_in(3).then(|| START + Millis(rng.below(6_000))),
        presence_ms: Millis(3_000),
        grace_ms: Millis(6_000),
        pass_ms: Millis(4_000 + rng.below(4_000)),
        inside_ms: Millis(5_000 + rng.below(5_000)),
        remember_ms: Millis(1 + rng.below(10_000)),
        max_waiting: 5 + rng.below(20),
    }
}

impl<C: Conduct> World<C> {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = config(&mut rng);
        let count = 6 + rng.below(8) as usize;
        let mut room = Room::new(seed, config.clone());
        room.take_changed();
        let disk = Disk {
            head: room.head().clone(),
            tickets: BTreeMap::new(),
        };
        let oracle = Oracle::new(&config, count);
        Self {
            rng,
            now: START,
            people: (0..count).map(name).collect(),
            visitors: vec![Visitor::default(); count],
            room,
            written: disk.clone(),
            synced: disk,
            synced_oracle: oracle.clone(),
            oracle,
            pending: Vec::new(),
            retries: Vec::new(),
            old: Vec::new(),
            last_sweep: START,
            lost_from: START,
            last_beat: START,
            requests: 0,
            calm: false,
            seen: Seen::default(),
            conduct: std::marker::PhantomData,
        }
    }

    fn ask(&mut self, ask: Ask) {
        let answer = C::step(&ask, &mut self.room, &self.people, self.now);
        self.seen.asked += 1;
        self.pending.push((ask, answer, self.now));
    }

    /// Writes the changes, syncs if an answer waits for it, and answers.
    fn commit(&mut self) -> Result<(), String> {
        let kept = self.pending.iter().all(|(ask, ..)| C::keeps(ask));
        let sync = self.pending.iter().any(|(ask, ..)| ask.is_synced()) && self.room.has_changed();
        let changed = self.room.take_changed();
        if kept {
            if changed.head {
                self.written.head = self.room.head().clone();
            }
            for person in changed.tickets {
                match self.room.ticket(&person) {
                    Some(ticket) => self.written.tickets.insert(person, ticket.clone()),
                    None => self.written.tickets.remove(&person),
                };
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (ask, answer, at) in &pending {
            let seen = self.oracle.see(ask, answer, *at);
            seen.map_err(|why| format!("{ask:?} at {}: {why}", at.0))?;
            if let (Ask::Promote(_), Answer::Promoted(outcome)) = (ask, answer) {
                self.seen.admitted += outcome.granted.len() as u64;
            }
        }
        if sync {
            self.synced = self.written.clone();
            self.synced_oracle = self.oracle.clone();
        }
        for (ask, answer, _) in pending {
            if !self.calm && self.rng.one_in(8) {
                self.seen.lost_answers += 1;
                self.retries.push(ask);
            } else {
                self.hear(ask, answer);
            }
        }
        self.audit()
    }

    fn audit(&mut self) -> Result<(), String> {
        let views = self.room.look(&self.people);
        self.oracle.audit(&views, &self.room.overview(self.now))?;
        match C::CHECKED {
            true => self.room.check(),
            false => Ok(()),
        }
    }

    /// The process dies here; pending answers are lost.
    fn crash(&mut self) -> Result<(), String> {
        let asked = std::mem::take(&mut self.pending);
        for (ask, ..) in asked {
            if self.rng.one_in(2) {
                self.retries.push(ask);
            }
        }
        self.now = self.now + Millis(self.rng.below(4_000));
        if self.rng.one_in(2) {
            self.written = self.synced.clone();
            self.oracle = self.synced_oracle.clone();
        }
        let Disk { head, tickets } = self.written.clone();
        self.room = Room::restored(head, tickets.into_iter().collect(), self.now);
        C::restored(&mut self.room);
        self.oracle.restarted(self.now);
        self.synced_oracle = self.oracle.clone();
        self.synced = self.written.clone();
        // The connections belonged to the process.
        self.visitors.iter_mut().for_each(|visitor| visitor.at = None);
        self.old.clear();
        self.lost_from = self.now + self.room.head().config.presence_ms;
        self.retries.retain(|ask| !matches!(ask, Ask::Touch(..)));
        self.seen.crashes += 1;
        self.audit()
    }

    fn hear(&mut self, ask: Ask, answer: Answer) {
        match (ask, answer) {
            (Ask::Join(who, params), Answer::Joined(JoinOutcome::Placed { ticket, .. })) if params.stream => {
                let Some(known) = self.oracle.known(who) else {
                    return;
                };
                let connection = Connection {
                    ticket: known.number,
                    stream: ticket.ticket.stream,
                };
                if let Some((_, heard)) = &mut self.visitors[who].at {
                    self.old.extend(heard.replace(connection).map(|old| (who, old)));
                } else {
                    // The visitor left while the call was pending.
                    self.old.push((who, connection));
                }
            }
            (Ask::Look(who), Answer::Looked(Some(view))) => {
                let visitor = &mut self.visitors[who];
                if let TicketState::Granted { wave, .. } = view.ticket.state {
                    visitor.pass = Some((view.ticket.index, wave));
                }
            }
            (Ask::Redeem(who, _), Answer::Redeemed(outcome)) => {
                let inside = matches!(outcome, RedeemOutcome::Inside { .. });
                self.visitors[who].inside |= inside;
                // Some present a rejected pass again.
                self.visitors[who].pass.take_if(|_| !inside && self.rng.one_in(2));
            }
            // The broker that gets the outcome informs the admitted people.
            (Ask::Promote(_), Answer::Promoted(outcome)) => {
                let who = outcome
                    .granted
                    .iter()
                    .map(|granted| super::number(&granted.person));
                self.retries.extend(who.map(Ask::Look));
            }
            (
                Ask::Complete(who) | Ask::Leave(who) | Ask::Extend(who, _),
                Answer::Visit(InsideOutcome::Ended(_) | InsideOutcome::Unknown),
            ) => self.visitors[who].inside = false,
            _ => {}
        }
    }

    fn somebody(&mut self) -> usize {
        self.rng.below(self.people.len() as u64) as usize
    }

    fn join(&mut self, who: usize) {
        let stream = !self.rng.one_in(5);
        if stream {
            let broker = self.rng.below(BROKERS);
            let before = self.visitors[who].at.replace((broker, None));
            // The other tab, or the broker it was connected to, does not know yet.
            self.old
                .extend(before.and_then(|(_, old)| old).map(|old| (who, old)));
        }
        let params = JoinParams {
            person: self.people[who].clone(),
            stream,
            again: self.rng.one_in(2),
            draw: self.rng.below(5),
        };
        self.ask(Ask::Join(who, params));
    }

    fn redeem(&mut self, who: usize) {
        let Some((index, wave)) = self.visitors[who].pass else {
            return self.ask(Ask::Look(who));
        };
        let session = match self.rng.below(3) {
            0 => None,
            number => SessionId::new(format!("s{number}")).ok(),
        };
        let params = RedeemParams {
            person: self.people[who].clone(),
            index,
            wave,
            session,
        };
        self.ask(Ask::Redeem(who, params));
    }

    fn shop(&mut self, who: usize) {
        if !self.visitors[who].inside && !self.rng.one_in(6) {
            return self.redeem(who);
        }
        match self.rng.below(6) {
            0 | 1 => self.ask(Ask::Complete(who)),
            2 => self.ask(Ask::Leave(who)),
            3 => {
                let by = Millis(self.rng.below(9_000));
                self.ask(Ask::Extend(who, by));
            }
            // Vanishes.
            _ => self.visitors[who].inside = false,
        }
    }

    fn operate(&mut self) {
        match self.rng.below(9) {
            0 => self.ask(Ask::Control(Control::Pause)),
            1 if self.rng.one_in(3) => self.ask(Ask::Control(Control::Close)),
            1..=4 => self.ask(Ask::Control(Control::Resume)),
            5 => {
                let waves = self.room.head().wave.0 + 2;
                let through = self.rng.one_in(2).then(|| Wave(self.rng.below(waves)));
                self.ask(Ask::Void(through));
            }
            6 => {
                let who = self.somebody();
                self.ask(Ask::Reissue(who));
            }
            _ => {
                self.requests += 1;
                let change = |rng: &mut Rng| match rng.below(4) {
                    0 => None,
                    1 => Some(Change::Set(rng.below(5))),
                    2 => Some(Change::Add(rng.below(5) as i64 - 2)),
                    _ => Some(Change::Reset),
                };
                let seats = match change(&mut self.rng) {
                    None => None,
                    Some(Change::Set(seats)) => Some(Change::Set((seats > 0).then_some(seats * 3))),
                    Some(Change::Add(by)) => Some(Change::Add(by)),
                    Some(Change::Reset) => Some(Change::Reset),
                };
                let params = ResizeParams {
                    request: self.requests,
                    seats,
                    inside: change(&mut self.rng),
                    per_second: change(&mut self.rng),
                    by: String::new(),
                    why: String::new(),
                };
                self.ask(Ask::Resize(params));
            }
        }
    }

    fn act(&mut self) {
        let who = self.somebody();
        match self.rng.below(40) {
            0..=9 => self.join(who),
            10..=11 => {
                // The connection ends; the broker reports it at once, later, or never.
                if let Some((_, Some(connection))) = self.visitors[who].at.take() {
                    match self.rng.below(3) {
                        0 => self.ask(Ask::Touch(who, connection, false)),
                        1 => self.old.push((who, connection)),
                        _ => {}
                    }
                }
            }
            12 => self.ask(Ask::Leave(who)),
            13..=19 => {
                let max = 1 + self.rng.below(4);
                self.ask(Ask::Promote(max));
                if self.rng.one_in(3) {
                    self.ask(Ask::Promote(max));
                }
            }
            20..=29 => {
                let busy: Vec<usize> = (0..self.people.len())
                    .filter(|who| self.visitors[*who].inside || self.visitors[*who].pass.is_some())
                    .collect();
                match busy.is_empty() {
                    true => self.shop(who),
                    false => self.shop(busy[who % busy.len()]),
                }
            }
            30..=32 => self.ask(Ask::Look(who)),
            33 => self.operate(),
            34 => {
                let broker = self.rng.below(BROKERS);
                for visitor in &mut self.visitors {
                    visitor.at.take_if(|(at, _)| *at == broker);
                }
            }
            35..=36 => {
                if !self.old.is_empty() {
                    let index = self.rng.below(self.old.len() as u64) as usize;
                    let (who, connection) = self.old.swap_remove(index);
                    let present = self.rng.one_in(2);
                    self.ask(Ask::Touch(who, connection, present));
                }
            }
            _ => {
                if let Some(ask) = self.retries.pop() {
                    self.ask(ask);
                }
            }
        }
    }

    /// The background work of every broker.
    fn services(&mut self) {
        if self.now >= self.last_beat + BEAT {
            self.last_beat = self.now;
            for who in 0..self.people.len() {
                if let Some((_, Some(connection))) = self.visitors[who].at {
                    self.ask(Ask::Touch(who, connection, true));
                }
            }
        }
        if self.now >= self.last_sweep + SWEEP {
            self.last_sweep = self.now;
            loop {
                let max = 1 + self.rng.below(4);
                let mut params = ReapParams::all(max);
                params.absent_by = params.absent_by.filter(|_| self.now >= self.lost_from);
                self.ask(Ask::Reap(params));
                let more =
                    matches!(self.pending.last(), Some((_, Answer::Reaped(outcome, _), _)) if outcome.more);
                if !more {
                    break;
                }
            }
        }
    }
}

impl<C: Conduct> simulation::World for World<C> {
    type Report = Seen;

    fn step(&mut self) -> Result<(), String> {
        self.seen.steps += 1;
        let jump = self.rng.one_in(60);
        let by = self.rng.below(if jump { 15_000 } else { 300 });
        self.now = self.now + Millis(by);
        self.services();
        self.act();
        if self.rng.one_in(50) {
            self.crash()?;
        }
        if self.pending.len() >= BATCH || self.rng.one_in(2) {
            self.commit()?;
        }
        if self.rng.one_in(100) {
            self.crash()?;
        }
        self.seen.completed = self.oracle.completed;
        Ok(())
    }

    /// No more faults, and everybody leaves or has left. Nothing may remain.
    fn finish(&mut self) -> Result<Seen, String> {
        self.calm = true;
        self.commit()?;
        for who in 0..self.people.len() {
            self.visitors[who].at = None;
            if self.rng.one_in(2) {
                self.ask(Ask::Leave(who));
            }
        }
        self.commit()?;
        // The longest that a ticket lives by itself: waiting, admitted, inside with extensions, remembered.
        let last = self.now + Millis(60_000);
        while self.now < last {
            self.now = self.now + SWEEP;
            self.services();
            self.ask(Ask::Promote(3));
            self.commit()?;
        }
        match (
            self.oracle.slots(),
            self.room.head().slots(),
            self.room.next_due(),
        ) {
            (0, 0, None) => Ok(self.seen),
            left => Err(format!(
                "everybody is gone, and slots or tickets are kept: {left:?}"
            )),
        }
    }
}
