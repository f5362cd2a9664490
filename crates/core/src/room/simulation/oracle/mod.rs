//! Predicts a room's behaviour from nothing but its answers. The simulation shows every persisted answer to the
//! oracle in order, and the oracle reports what is wrong with it. `audit` compares what the room shows with all
//! of that.

mod audit;

use super::ask::{Answer, Ask, Connection};
use crate::room::command::*;
use crate::room::config::{Capacity, RoomConfig};
use crate::room::ticket::{End, Stream, Ticket, TicketState, Wave};
use crate::time::{Millis, Timestamp};

type Checked = Result<(), String>;

/// The state of a ticket, as far as the answers show it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    /// Before the draw, or waiting; present until then.
    Early(Timestamp),
    Waiting(Timestamp),
    Granted {
        until: Timestamp,
    },
    Inside {
        until: Timestamp,
        by: RedeemParams,
    },
    Ended(End, Timestamp),
}

/// Early people by their draw, then everybody else by their index.
type Place = (bool, u64, usize);

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) stage: Stage,
    place: Place,
    /// None between the draw and the next read.
    index: Option<u64>,
    stream: Option<Stream>,
    /// The wave of the pass last seen.
    wave: Option<Wave>,
    /// Distinguishes the tickets of one person.
    pub(super) number: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Oracle {
    config: RoomConfig,
    capacity: Capacity,
    status: Status,
    voided: Wave,
    people: Vec<Option<Known>>,
    tickets: u64,
    last_index: Option<u64>,
    pub(super) completed: u64,
    pub(super) admitted: Vec<Timestamp>,
    resized: Vec<(u64, Capacity)>,
}

fn wrong<T>(why: impl Into<String>) -> Result<T, String> {
    Err(why.into())
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(why()),
    }
}

impl Oracle {
    pub(super) fn new(config: &RoomConfig, people: usize) -> Self {
        Self {
            config: config.clone(),
            capacity: config.capacity,
            status: Status::Open,
            voided: Wave(0),
            people: vec![None; people],
            tickets: 0,
            last_index: None,
            completed: 0,
            admitted: Vec::new(),
            resized: Vec::new(),
        }
    }

    pub(super) fn known(&self, who: usize) -> Option<&Known> {
        self.people[who].as_ref()
    }

    fn count(&self, which: impl Fn(&Stage) -> bool) -> u64 {
        let known = self.people.iter().flatten();
        known.filter(|known| which(&known.stage)).count() as u64
    }

    fn waiting(&self) -> u64 {
        self.count(|stage| matches!(stage, Stage::Waiting(_)))
    }

    fn early(&self) -> u64 {
        self.count(|stage| matches!(stage, Stage::Early(_)))
    }

    pub(super) fn slots(&self) -> u64 {
        self.count(|stage| matches!(stage, Stage::Granted { .. } | Stage::Inside { .. }))
    }

    fn sold_out(&self) -> bool {
        self.capacity.seats.is_some_and(|seats| self.completed >= seats)
    }

    fn is_early(&self, now: Timestamp) -> bool {
        self.config.opens_at.is_some_and(|at| at > now)
    }

    fn due_at(&self, stage: &Stage) -> Timestamp {
        match stage {
            Stage::Early(sign) | Stage::Waiting(sign) => *sign + self.config.grace_ms,
            Stage::Granted { until } | Stage::Inside { until, .. } => *until,
            Stage::Ended(_, at) => *at + self.config.remember_ms,
        }
    }

    /// The process ended: its connections died with it, and the grace time begins.
    pub(super) fn restarted(&mut self, now: Timestamp) {
        for known in self.people.iter_mut().flatten() {
            if let Stage::Early(sign) | Stage::Waiting(sign) = &mut known.stage {
                *sign = now;
                known.stream = None;
            }
        }
    }

    pub(super) fn see(&mut self, ask: &Ask, answer: &Answer, now: Timestamp) -> Checked {
        match (ask, answer) {
            (Ask::Join(who, params), Answer::Joined(outcome)) => self.joined(*who, params, outcome, now),
            (Ask::Touch(who, connection, present), Answer::Touched(outcome)) => {
                self.touched(*who, *connection, *present, *outcome, now)
            }
            (Ask::Promote(max), Answer::Promoted(outcome)) => self.promoted(*max, outcome, now),
            (Ask::Redeem(who, params), Answer::Redeemed(outcome)) => {
                self.redeemed(*who, params, outcome, now)
            }
            (Ask::Reissue(who), Answer::Reissued(given)) => self.reissued(*who, *given, now),
            (Ask::Extend(who, by), Answer::Visit(outcome)) => self.extended(*who, *by, outcome, now),
            (Ask::Complete(who), Answer::Visit(outcome)) => self.completed(*who, outcome, now),
            (Ask::Leave(who), Answer::Visit(outcome)) => self.left(*who, outcome, now),
            (Ask::Reap(params), Answer::Reaped(outcome, after)) => self.reaped(*params, outcome, after, now),
            (Ask::Resize(params), Answer::Resized(outcome)) => self.resized(params, outcome),
            (Ask::Control(control), Answer::Controlled) => {
                self.status = match control {
                    Control::Pause => Status::Paused,
                    Control::Resume => Status::Open,
                    Control::Close => Status::Closed,
                };
                Ok(())
            }
            (Ask::Void(_), Answer::Voided(through)) => {
                ensure(*through >= self.voided, || {
                    format!("{through:?} after {:?} were void", self.voided)
                })?;
                self.voided = *through;
                Ok(())
            }
            (Ask::Look(who), Answer::Looked(view)) => self.looked(*who, view.as_ref()),
            _ => wrong("an answer to something else"),
        }
    }

    fn refusal(&self) -> Option<Refused> {
        if self.status == Status::Closed {
            return Some(Refused::Closed);
        }
        if self.sold_out() {
            return Some(Refused::SoldOut);
        }
        (self.waiting() + self.early() >= self.config.max_waiting).then_some(Refused::Full)
    }

    fn joined(&mut self, who: usize, params: &JoinParams, outcome: &JoinOutcome, now: Timestamp) -> Checked {
        let sign = now + self.config.presence_ms;
        let before = self.people[who].clone();
        let ended = matches!(
            before,
            Some(Known {
                stage: Stage::Ended(..),
                ..
            })
        );
        match outcome {
            JoinOutcome::Refused(why) => {
                ensure(before.is_none() || (ended && params.again), || {
                    "somebody with a ticket was refused".to_owned()
                })?;
                ensure(self.refusal() == Some(*why), || {
                    format!("refused as {why:?}, expected {:?}", self.refusal())
                })
            }
            JoinOutcome::Ended(_) => ensure(ended && !params.again, || {
                format!("the answer says that the ticket has ended: {before:?}")
            }),
            JoinOutcome::Placed { ticket, new: true } => {
                ensure(before.is_none() || (ended && params.again), || {
                    format!("a second ticket beside {before:?}")
                })?;
                ensure(self.refusal().is_none(), || "placed, not refused".to_owned())?;
                let index = ticket.ticket.index.0;
                ensure(self.last_index.is_none_or(|last| index > last), || {
                    format!("place {index} after {:?}", self.last_index)
                })?;
                self.last_index = Some(index);
                self.tickets += 1;
                let early = self.is_early(now);
                self.people[who] = Some(Known {
                    stage: match early {
                        true => Stage::Early(sign),
                        false => Stage::Waiting(sign),
                    },
                    place: match early {
                        true => (false, params.draw, who),
                        false => (true, index, 0),
                    },
                    index: Some(index),
                    stream: Some(ticket.ticket.stream),
                    wave: None,
                    number: self.tickets,
                });
                self.looked(who, Some(ticket))
            }
            JoinOutcome::Placed { ticket, new: false } => {
                let Some(known) = self.people[who].as_mut().filter(|_| !ended) else {
                    return wrong(format!("an old ticket that was not there: {before:?}"));
                };
                let stream = ticket.ticket.stream;
                ensure(
                    !params.stream || known.stream.is_none_or(|old| stream > old),
                    || format!("{stream:?} after {:?}", known.stream),
                )?;
                known.stream = Some(stream);
                if let Stage::Early(until) | Stage::Waiting(until) = &mut known.stage {
                    *until = sign;
                }
                self.looked(who, Some(ticket))
            }
        }
    }

    fn touched(
        &mut self,
        who: usize,
        connection: Connection,
        present: bool,
        outcome: TouchOutcome,
        now: Timestamp,
    ) -> Checked {
        let presence = self.config.presence_ms;
        let newest = self.people[who].as_mut().filter(|known| {
            !matches!(known.stage, Stage::Ended(..))
                && known.number == connection.ticket
                && known.stream == Some(connection.stream)
        });
        let Some(known) = newest else {
            return ensure(outcome != TouchOutcome::Kept, || {
                format!("{connection:?} is old, and was heard: {:?}", self.people[who])
            });
        };
        ensure(outcome == TouchOutcome::Kept, || {
            format!("{connection:?} of {known:?} is {outcome:?}")
        })?;
        if let Stage::Early(sign) | Stage::Waiting(sign) = &mut known.stage {
            *sign = match present {
                true => now + presence,
                false => now.min(*sign),
            };
        }
        Ok(())
    }

    /// The limit that stops admissions, if any.
    fn stop(&self, now: Timestamp) -> Option<Stop> {
        let recent = self.recent(now);
        if self.slots() >= self.capacity.inside {
            return Some(Stop::Inside);
        }
        let taken = self.completed + self.slots();
        if self.capacity.seats.is_some_and(|seats| taken >= seats) {
            return Some(Stop::Seats);
        }
        let first = recent.first().copied().unwrap_or(now);
        (recent.len() as u64 >= self.capacity.per_second).then(|| Stop::Rate {
            until: first + Millis(1_000),
        })
    }

    /// Admissions within the second that ends now.
    fn recent(&self, now: Timestamp) -> Vec<Timestamp> {
        let within = self.admitted.iter().filter(|at| **at + Millis(1_000) > now);
        within.copied().collect()
    }

    /// The next person to admit: the first one present.
    fn next(&self, now: Timestamp) -> Option<usize> {
        let waits = self.people.iter().enumerate().filter_map(|(who, known)| {
            let known = known.as_ref()?;
            let present = matches!(known.stage, Stage::Waiting(sign) if sign > now);
            present.then_some((known.place, who))
        });
        waits.min().map(|(_, who)| who)
    }

    fn promoted(&mut self, max: u64, outcome: &PromoteOutcome, now: Timestamp) -> Checked {
        let door = match (self.status, self.config.opens_at) {
            (Status::Paused, _) => Some(Stop::Paused),
            (Status::Closed, _) => Some(Stop::Closed),
            (Status::Open, Some(at)) if at > now => Some(Stop::NotOpen { at }),
            _ => None,
        };
        if let Some(door) = door {
            return ensure(outcome.stop == door && outcome.granted.is_empty(), || {
                format!("{outcome:?} although {door:?}")
            });
        }
        for known in self.people.iter_mut().flatten() {
            if let Stage::Early(sign) = known.stage {
                (known.stage, known.index) = (Stage::Waiting(sign), None);
            }
        }
        for granted in &outcome.granted {
            let Some(next) = self.next(now) else {
                return wrong(format!("{} was let in, and nobody is there", granted.person));
            };
            let who = super::number(&granted.person);
            ensure(who == next, || {
                format!(
                    "{who} was let in before {next}: {:?} {:?}",
                    self.people[who], self.people[next]
                )
            })?;
            if let Some(stop) = self.stop(now) {
                return wrong(format!(
                    "{who} was let in although {stop:?} of {:?}: {} slots, {} completed",
                    self.capacity,
                    self.slots(),
                    self.completed
                ));
            }
            ensure(!self.sold_out(), || {
                format!("{who} was let in, and it is sold out")
            })?;
            self.admitted.push(now);
            let until = now + self.config.pass_ms;
            if let Some(known) = &mut self.people[who] {
                ensure(known.index.is_none_or(|index| index == granted.index.0), || {
                    format!("{granted:?} had another place: {known:?}")
                })?;
                known.index = Some(granted.index.0);
                known.stage = Stage::Granted { until };
            }
        }
        let expected = match (self.sold_out(), self.next(now)) {
            (true, _) => Stop::SoldOut,
            _ if outcome.granted.len() as u64 >= max => Stop::More,
            (_, None) => Stop::Nobody,
            (_, Some(_)) => match self.stop(now) {
                Some(stop) => stop,
                None => return wrong(format!("{outcome:?}, and there is room for the next one")),
            },
        };
        let same = std::mem::discriminant(&outcome.stop) == std::mem::discriminant(&expected);
        ensure(same, || {
            format!("stopped by {:?}, expected {expected:?}", outcome.stop)
        })
    }

    fn redeemed(
        &mut self,
        who: usize,
        params: &RedeemParams,
        outcome: &RedeemOutcome,
        now: Timestamp,
    ) -> Checked {
        let voided = params.wave <= self.voided;
        let inside_ms = self.config.inside_ms;
        let Some(known) = &mut self.people[who] else {
            return ensure(*outcome == RedeemOutcome::Unknown, || {
                format!("{outcome:?} of nobody")
            });
        };
        let its_own = known.index == Some(params.index.0);
        let good = its_own && known.wave == Some(params.wave) && !voided;
        match (&known.stage, outcome) {
            (Stage::Granted { until }, RedeemOutcome::Inside { until: answered }) => {
                ensure(its_own && !voided && *until > now, || {
                    format!("{params:?} was taken: {known:?}")
                })?;
                ensure(*answered == now + inside_ms, || {
                    format!("inside until {answered:?}")
                })?;
                known.stage = Stage::Inside {
                    until: *answered,
                    by: params.clone(),
                };
                Ok(())
            }
            (Stage::Granted { until }, _) => ensure(!good || *until <= now, || {
                format!("a good pass was refused: {outcome:?}, {known:?}")
            }),
            (Stage::Inside { until, by }, RedeemOutcome::Inside { until: answered }) => {
                ensure(by == params && by.session.is_some() && until == answered, || {
                    format!("a pass was taken twice: {params:?}, {known:?}")
                })
            }
            (Stage::Inside { by, .. }, _) => ensure(by != params || by.session.is_none(), || {
                format!("the same session was refused: {outcome:?}, {known:?}")
            }),
            (_, RedeemOutcome::Inside { .. }) => wrong(format!("a pass of {known:?} was taken")),
            _ => Ok(()),
        }
    }

    fn reissued(&mut self, who: usize, given: bool, now: Timestamp) -> Checked {
        let pass_ms = self.config.pass_ms;
        let Some(known) = self.people[who].as_mut().filter(|_| given) else {
            return ensure(!given, || "a pass for nobody".to_owned());
        };
        match &mut known.stage {
            Stage::Granted { until } if *until > now => {
                *until = now + pass_ms;
                known.wave = None;
                Ok(())
            }
            _ => wrong(format!("another pass for {known:?}")),
        }
    }

    fn extended(&mut self, who: usize, by: Millis, outcome: &InsideOutcome, now: Timestamp) -> Checked {
        match (self.people[who].as_mut().map(|known| &mut known.stage), outcome) {
            (Some(Stage::Inside { until, .. }), InsideOutcome::Inside { until: answered })
                if *until > now =>
            {
                ensure(*answered == (*until).max(now + by), || {
                    format!("{until:?} and {by} from {now:?} are {answered:?}")
                })?;
                *until = *answered;
                Ok(())
            }
            (Some(Stage::Inside { until, .. }), InsideOutcome::Ended(End::Expired)) if *until <= now => {
                Ok(())
            }
            (Some(Stage::Ended(end, _)), InsideOutcome::Ended(answered)) if end == answered => Ok(()),
            (Some(Stage::Early(_) | Stage::Waiting(_) | Stage::Granted { .. }), InsideOutcome::NotInside)
            | (None, InsideOutcome::Unknown) => Ok(()),
            (stage, outcome) => wrong(format!("extend: {outcome:?} of {stage:?}")),
        }
    }

    fn completed(&mut self, who: usize, outcome: &InsideOutcome, now: Timestamp) -> Checked {
        match (self.people[who].as_mut().map(|known| &mut known.stage), outcome) {
            (
                Some(stage @ (Stage::Granted { .. } | Stage::Inside { .. })),
                InsideOutcome::Ended(End::Completed),
            ) => {
                *stage = Stage::Ended(End::Completed, now);
                self.completed += 1;
                Ok(())
            }
            (Some(Stage::Ended(end, _)), InsideOutcome::Ended(answered)) if end == answered => Ok(()),
            (Some(Stage::Early(_) | Stage::Waiting(_)), InsideOutcome::NotInside)
            | (None, InsideOutcome::Unknown) => Ok(()),
            (stage, outcome) => wrong(format!("complete: {outcome:?} of {stage:?}")),
        }
    }

    fn left(&mut self, who: usize, outcome: &InsideOutcome, now: Timestamp) -> Checked {
        match (self.people[who].as_mut().map(|known| &mut known.stage), outcome) {
            (Some(Stage::Ended(end, _)), InsideOutcome::Ended(answered)) if end == answered => Ok(()),
            (None, InsideOutcome::Unknown) => Ok(()),
            (Some(stage), InsideOutcome::Ended(End::Left)) if !matches!(stage, Stage::Ended(..)) => {
                *stage = Stage::Ended(End::Left, now);
                Ok(())
            }
            (stage, outcome) => wrong(format!("leave: {outcome:?} of {stage:?}")),
        }
    }

    /// A reap ends nothing early, and leaves nothing that is due and may be ended.
    fn reaped(
        &mut self,
        params: ReapParams,
        outcome: &ReapOutcome,
        after: &[Option<Ticket>],
        now: Timestamp,
    ) -> Checked {
        let mut tally = ReapOutcome {
            now: outcome.now,
            more: outcome.more,
            ..ReapOutcome::default()
        };
        for (who, after) in after.iter().enumerate() {
            let Some(known) = self.people[who].clone() else {
                continue;
            };
            let spared =
                !params.counts_absent(now) && matches!(known.stage, Stage::Early(_) | Stage::Waiting(_));
            let due = !spared && self.due_at(&known.stage) <= now;
            let end = match after.as_ref().map(|ticket| &ticket.state) {
                Some(TicketState::Ended { end, .. }) => Some(*end),
                _ => None,
            };
            let expected = match &known.stage {
                Stage::Early(_) | Stage::Waiting(_) => End::Lost,
                Stage::Granted { .. } => End::NoShow,
                Stage::Inside { .. } => End::Expired,
                Stage::Ended(..) => {
                    if after.is_none() {
                        ensure(due, || format!("{who} was forgotten too soon: {known:?}"))?;
                        tally.forgotten += 1;
                        self.people[who] = None;
                    } else {
                        ensure(!due || outcome.more, || {
                            format!("{who} is not forgotten: {known:?}")
                        })?;
                    }
                    continue;
                }
            };
            let Some(end) = end else {
                ensure(!due || outcome.more, || {
                    format!("a sweep at {now:?} left {who} behind: {known:?}")
                })?;
                continue;
            };
            ensure(due && end == expected, || {
                format!("{who} ended as {end:?} at {now:?}: {known:?}")
            })?;
            match end {
                End::Lost => tally.lost += 1,
                End::NoShow => tally.no_shows += 1,
                _ => tally.expired += 1,
            }
            if let Some(known) = &mut self.people[who] {
                known.stage = Stage::Ended(end, now);
            }
        }
        ensure(tally == *outcome, || format!("{outcome:?}, and it was {tally:?}"))
    }

    fn resized(&mut self, params: &ResizeParams, outcome: &ResizeOutcome) -> Checked {
        // None: below zero.
        let changed = |change: Option<Change<u64>>, held: u64, configured: u64| match change {
            None => Some(held),
            Some(Change::Set(value)) => Some(value),
            Some(Change::Add(by)) => held.checked_add_signed(by),
            Some(Change::Reset) => Some(configured),
        };
        let (held, configured) = (self.capacity, self.config.capacity);
        let seats = match (params.seats, held.seats) {
            (None, held) => Some(held),
            (Some(Change::Set(seats)), _) => Some(seats),
            (Some(Change::Reset), _) => Some(configured.seats),
            (Some(Change::Add(by)), Some(held)) => held.checked_add_signed(by).map(Some),
            (Some(Change::Add(_)), None) => None,
        };
        let before = self
            .resized
            .iter()
            .find(|(request, _)| *request == params.request);
        let expected = match (before, seats) {
            (Some((_, capacity)), _) => Some(*capacity),
            (None, None) => None,
            (None, Some(seats)) => changed(params.inside, held.inside, configured.inside)
                .zip(changed(params.per_second, held.per_second, configured.per_second))
                .map(|(inside, per_second)| Capacity {
                    seats,
                    inside,
                    per_second,
                }),
        };
        let Some(expected) = expected else {
            return ensure(matches!(outcome, ResizeOutcome::Invalid(_)), || {
                format!("limits below zero, or of seats that are not counted: {outcome:?}")
            });
        };
        ensure(*outcome == ResizeOutcome::Resized(expected), || {
            format!("{outcome:?}, expected {expected:?}")
        })?;
        if before.is_none() {
            self.resized.push((params.request, expected));
            self.capacity = expected;
        }
        Ok(())
    }
}
