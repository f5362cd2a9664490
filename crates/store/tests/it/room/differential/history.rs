//! Random histories of a waiting room on two stores side by side: same commands, same times, same outcomes, same rooms.
//! The reference is the pure state machine.
//!
//! Time only advances here: a backward step is an offset, which one store has for everything and another per room.

use std::fmt::Debug;
use std::sync::Arc;

use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{PersonId, RoomId, SessionId};
use tidegate_core::rng::Rng;
use tidegate_core::room::command::{
    Change, Control, ExtendParams, InsideOutcome, JoinOutcome, JoinParams, ReapParams, RedeemOutcome,
    RedeemParams, Refused, RemoveOutcome, ResizeOutcome, ResizeParams, Signals, Status, Stop, TicketView,
    TouchOutcome, TouchParams,
};
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_core::room::ticket::{End, Index, Stream, TicketState, Wave};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::room::RoomStore;
use tidegate_testkit::Seen;
use tidegate_testkit::differential::same;

use super::compare::{comparable, listening};

/// When the first history begins.
pub(super) const START: Timestamp = Timestamp(1_706_000_000_000);

/// Names that sort, break and end in unexpected ways.
const ODD: [&str; 10] = ["a", "B", "b", "{c}", "d:e", "f g", "ä", "루나", "%7B", "\u{0}"];

/// How many people there are, and how large batches get.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) people: u64,
    pub(super) batch: u64,
    /// Steps between two comparisons of every ticket.
    pub(super) look_every: u64,
    /// Percent of steps that change when the room opens.
    pub(super) doors: u64,
}

impl Size {
    /// So few that they interact often.
    pub(super) const FEW: Self = Self {
        people: 10,
        batch: 4,
        look_every: 4,
        doors: 2,
    };
    /// Overlapping draws, people who leave meanwhile, and several words of the bitmap.
    pub(super) const DOORS: Self = Self {
        people: 150,
        batch: 50,
        look_every: 4,
        doors: 20,
    };
    /// More than one draw step, one inspection of the queue and one function call cover.
    pub(super) const CROWD: Self = Self {
        people: 1_600,
        batch: 700,
        look_every: 10,
        doors: 2,
    };
}

/// The result of one history.
#[derive(Debug)]
pub(super) struct Lived {
    pub(super) seen: Seen,
    /// The signals of the reference, step by step, without silent steps.
    pub(super) signals: Vec<Signals>,
}

struct History {
    seed: u64,
    step: u64,
    size: Size,
    rng: Rng,
    room: RoomId,
    clock: Arc<ManualClock>,
    reference: Arc<dyn RoomStore>,
    other: Arc<dyn RoomStore>,
    config: RoomConfig,
    people: Vec<PersonId>,
    requests: u64,
    lived: Lived,
}

/// Runs one history in its own room; panics where the stores differ.
pub(super) async fn run(
    seed: u64,
    (size, steps): (Size, u64),
    room: RoomId,
    clock: Arc<ManualClock>,
    (reference, other): (Arc<dyn RoomStore>, Arc<dyn RoomStore>),
) -> Result<Lived, StoreError> {
    let name = |number: u64| match ODD.get(number as usize) {
        Some(odd) => (*odd).to_owned(),
        None => format!("person-{number}"),
    };
    let mut history = History {
        seed,
        step: 0,
        size,
        rng: Rng::new(seed),
        room,
        clock,
        reference,
        other,
        config: RoomConfig::default(),
        people: (0..size.people)
            .map(|number| PersonId::new(name(number)).expect("a short name"))
            .collect(),
        requests: 0,
        lived: Lived {
            seen: Seen::default(),
            signals: Vec::new(),
        },
    };
    history.config = history.random_config();
    history.open().await?;
    for step in 0..steps {
        history.step = step;
        history.pass_time();
        history.one().await?;
        history.overview().await?;
        if step % size.look_every == 0 {
            history.look().await?;
        }
    }
    history.look().await?;
    Ok(history.lived)
}

/// Makes the same call to both stores and returns their common answer. The other one may also receive its own signals.
macro_rules! both {
    ($history:ident, $store:ident => $ask:expr) => {{
        let (one, notified) = {
            let $store = &$history.reference;
            listening($store.signals(), &$history.room, $ask).await
        };
        let (other, heard) = {
            let $store = &$history.other;
            listening($store.signals(), &$history.room, $ask).await
        };
        let missed = (
            notified.promote && !heard.promote,
            notified.update && !heard.update,
        );
        if notified.any() {
            $history.lived.signals.push(notified);
        }
        $history.same(
            concat!("signals that were missed: ", stringify!($ask)),
            (false, false),
            missed,
        );
        $history.same(stringify!($ask), one?, other?)
    }};
}

impl History {
    fn same<T: PartialEq + Debug>(&self, asked: &str, one: T, other: T) -> T {
        let place = (("seed", self.seed), ("step", self.step), self.clock.now());
        same(&(place, self.size, &self.config), &asked, one, other)
    }

    fn pass_time(&mut self) {
        let span = match self.rng.below(1_000) {
            0..=549 => 0,
            550..=849 => self.rng.between(1, 40),
            850..=959 => self.rng.between(50, 900),
            960..=994 => self.rng.between(900, 4_000),
            _ => self.rng.between(4_000, 100_000),
        };
        self.clock.advance(Millis(span));
    }

    fn capacity(&mut self) -> Capacity {
        let many = self.size.people;
        Capacity {
            seats: match self.rng.percent(50) {
                true => Some(self.rng.between(0, 3 * many)),
                false => None,
            },
            inside: self.rng.between(1, many / 2),
            per_second: *self.rng.pick(&[0, 1, 3, many, 10 * many]),
        }
    }

    /// Spans whose sums are equal, so that deadlines of different kinds meet.
    fn random_config(&mut self) -> RoomConfig {
        let opens_in = self.rng.between(1, 1_500);
        let mut span = || Millis(*self.rng.pick(&[1, 40, 400, 400, 800, 800, 2_500]));
        let spans = [span(), span(), span(), span(), span()];
        RoomConfig {
            capacity: self.capacity(),
            opens_at: match self.rng.below(10) {
                0..=4 => None,
                5 => Some(self.clock.now()),
                _ => Some(self.clock.now() + Millis(opens_in)),
            },
            presence_ms: spans[0],
            grace_ms: spans[1],
            pass_ms: spans[2],
            inside_ms: spans[3],
            remember_ms: spans[4],
            max_waiting: match self.rng.percent(30) {
                true => self.rng.between(1, self.size.people),
                false => 1_000_000,
            },
        }
    }

    fn person(&mut self) -> PersonId {
        self.rng.pick(&self.people).clone()
    }

    fn batch<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = match self.rng.percent(40) {
            true => 1,
            false => self.rng.between(0, self.size.batch),
        };
        (0..len).map(|_| make(self)).collect()
    }

    /// What the reference knows of a person: most commands concern existing tickets.
    async fn ticket(&mut self) -> Result<(PersonId, Option<TicketView>), StoreError> {
        let person = self.person();
        let found = self.reference.look(&self.room, vec![person.clone()]).await?;
        Ok((person, found.into_iter().next().flatten()))
    }

    /// An admitted person, if a few tries find one.
    async fn let_in(&mut self) -> Result<(PersonId, Option<TicketView>), StoreError> {
        for _ in 0..6 {
            let (person, found) = self.ticket().await?;
            if found.as_ref().is_some_and(|view| view.ticket.holds_slot()) {
                return Ok((person, found));
            }
        }
        self.ticket().await
    }

    async fn one(&mut self) -> Result<(), StoreError> {
        if self.rng.percent(self.size.doors) {
            let soon = Millis(*self.rng.pick(&[0, 1, 30, 500]));
            self.config.opens_at = self.rng.percent(80).then(|| self.clock.now() + soon);
            return self.open().await;
        }
        match self.rng.below(100) {
            0..=24 => self.join().await,
            25..=39 => self.touch().await,
            40..=57 => self.promote().await,
            58..=67 => self.redeem().await,
            68..=70 => self.reissue().await,
            71..=73 => self.extend().await,
            74..=78 => self.complete().await,
            79..=81 => self.leave().await,
            82..=88 => self.reap().await,
            89..=92 => self.resize().await,
            93..=94 => self.control().await,
            95..=96 => self.void().await,
            97..=98 => self.configure().await,
            _ if self.rng.percent(50) => self.remove().await,
            _ => self.open().await,
        }
    }

    /// Removes a room that is over, or tries to. Creates a removed one again, by the first of two calls.
    async fn remove(&mut self) -> Result<(), StoreError> {
        let (room, config) = (self.room.clone(), self.config.clone());
        if self.rng.percent(50) {
            both!(self, store => store.control(&room, Control::Close));
            for person in self.people.clone() {
                both!(self, store => store.leave(&room, &person));
            }
        }
        let outcome = both!(self, store => store.remove(&room));
        self.lived.seen.count(match outcome {
            RemoveOutcome::Removed => "removed",
            RemoveOutcome::Open => "not removed: open",
            RemoveOutcome::Used { .. } => "not removed: used",
        });
        let other = self.random_config();
        let status = [Status::Open, Status::Paused, Status::Closed][self.rng.below(3) as usize];
        both!(self, store => store.create(&room, config.clone(), status));
        both!(self, store => store.create(&room, other.clone(), Status::Open));
        Ok(())
    }

    async fn open(&mut self) -> Result<(), StoreError> {
        let (room, config) = (self.room.clone(), self.config.clone());
        both!(self, store => store.open(&room, config.clone()));
        Ok(())
    }

    async fn configure(&mut self) -> Result<(), StoreError> {
        let fresh = self.random_config();
        match self.rng.below(4) {
            0 => self.config = fresh,
            1 => self.config.grace_ms = fresh.grace_ms,
            2 => self.config.remember_ms = fresh.remember_ms,
            _ => (self.config.opens_at, self.config.capacity) = (fresh.opens_at, fresh.capacity),
        }
        self.lived.seen.count("configured");
        self.open().await
    }

    async fn join(&mut self) -> Result<(), StoreError> {
        let joins = self.batch(|history| JoinParams {
            person: history.person(),
            stream: history.rng.percent(60),
            again: history.rng.percent(50),
            // Some draws are equal: then the name decides.
            draw: match history.rng.percent(50) {
                true => history.rng.below(3),
                false => history.rng.below(1 << 52),
            },
        });
        let room = self.room.clone();
        for outcome in both!(self, store => store.join(&room, joins.clone())) {
            self.lived.seen.count(match outcome {
                JoinOutcome::Placed { new: true, ticket } => match ticket.ticket.state {
                    TicketState::Early { .. } => "early",
                    _ => "placed",
                },
                JoinOutcome::Placed { new: false, .. } => "came back",
                JoinOutcome::Ended(_) => "already ended",
                JoinOutcome::Refused(Refused::Closed) => "refused: closed",
                JoinOutcome::Refused(Refused::SoldOut) => "refused: sold out",
                JoinOutcome::Refused(Refused::Full) => "refused: full",
            });
        }
        Ok(())
    }

    async fn touch(&mut self) -> Result<(), StoreError> {
        let people = self.batch(Self::person);
        let (room, found) = (
            self.room.clone(),
            self.reference.look(&self.room, people.clone()).await?,
        );
        let mut touches = Vec::with_capacity(people.len());
        for (person, view) in people.into_iter().zip(found) {
            let known = view.map_or(0, |view| view.ticket.stream.0);
            let stream = match self.rng.below(10) {
                0 => known + 1,
                1 => known.saturating_sub(1),
                _ => known,
            };
            touches.push(TouchParams {
                person,
                stream: Stream(stream),
                present: self.rng.percent(70),
            });
        }
        for outcome in both!(self, store => store.touch(&room, touches.clone())) {
            self.lived.seen.count(match outcome {
                TouchOutcome::Kept => "kept",
                TouchOutcome::Superseded => "superseded",
                TouchOutcome::Gone => "gone",
            });
        }
        Ok(())
    }

    async fn promote(&mut self) -> Result<(), StoreError> {
        let room = self.room.clone();
        let max = match self.rng.below(10) {
            0 => 0,
            1..=4 => self.rng.between(1, 3),
            _ => self.rng.between(1, self.size.people),
        };
        let outcome = both!(self, store => store.promote(&room, max));
        if !outcome.granted.is_empty() {
            self.lived.seen.count("let in");
        }
        self.lived.seen.count(match outcome.stop {
            Stop::More => "stopped: more",
            Stop::Nobody => "stopped: nobody",
            Stop::Inside => "stopped: inside",
            Stop::Seats => "stopped: seats",
            Stop::SoldOut => "stopped: sold out",
            Stop::Rate { .. } => "stopped: rate",
            Stop::NotOpen { .. } => "stopped: not open",
            Stop::Paused => "stopped: paused",
            Stop::Closed => "stopped: closed",
        });
        Ok(())
    }

    async fn redeem(&mut self) -> Result<(), StoreError> {
        let (person, found) = self.let_in().await?;
        let (mut index, mut wave) = (Index(self.rng.below(9)), Wave(self.rng.below(9)));
        if let Some(view) = found {
            index = view.ticket.index;
            if let TicketState::Granted { wave: of, .. } | TicketState::Inside { wave: of, .. } =
                view.ticket.state
            {
                wave = of;
            }
        }
        match self.rng.below(20) {
            0 => index.0 += 1,
            1 => wave.0 += 1,
            2 => wave.0 = wave.0.saturating_sub(1),
            3 => (index, wave) = (Index(u64::MAX), Wave(u64::MAX)),
            _ => {}
        }
        let sessions = [None, Some("s"), Some("t")];
        let session = self.rng.pick(&sessions).map(SessionId::new);
        let params = RedeemParams {
            person,
            index,
            wave,
            session: session.map(|session| session.expect("a short name")),
        };
        let room = self.room.clone();
        let outcome = both!(self, store => store.redeem(&room, params.clone()));
        self.lived.seen.count(match outcome {
            RedeemOutcome::Inside { .. } => "redeemed",
            RedeemOutcome::AlreadyRedeemed => "already redeemed",
            RedeemOutcome::Voided => "voided pass",
            RedeemOutcome::TooLate => "too late",
            RedeemOutcome::Unknown => "unknown pass",
        });
        Ok(())
    }

    async fn reissue(&mut self) -> Result<(), StoreError> {
        let (room, (person, _)) = (self.room.clone(), self.let_in().await?);
        let given = both!(self, store => store.reissue(&room, &person));
        self.lived
            .seen
            .count(if given { "given anew" } else { "not given anew" });
        Ok(())
    }

    fn count_inside(&mut self, outcome: &InsideOutcome) {
        self.lived.seen.count(match outcome {
            InsideOutcome::Inside { .. } => "inside",
            InsideOutcome::Ended(End::Completed) => "completed",
            InsideOutcome::Ended(End::Left) => "left",
            InsideOutcome::Ended(End::Lost) => "lost",
            InsideOutcome::Ended(End::NoShow) => "no show",
            InsideOutcome::Ended(End::Expired) => "expired",
            InsideOutcome::NotInside => "not inside",
            InsideOutcome::Unknown => "unknown person",
        });
    }

    async fn extend(&mut self) -> Result<(), StoreError> {
        let (room, (person, _)) = (self.room.clone(), self.let_in().await?);
        let by = Millis(*self.rng.pick(&[0, 1, 500, 3_000, u64::MAX]));
        let params = ExtendParams { person, by };
        let outcome = both!(self, store => store.extend(&room, params.clone()));
        self.count_inside(&outcome);
        Ok(())
    }

    async fn complete(&mut self) -> Result<(), StoreError> {
        let (room, (person, _)) = (self.room.clone(), self.let_in().await?);
        let outcome = both!(self, store => store.complete(&room, &person));
        self.count_inside(&outcome);
        Ok(())
    }

    async fn leave(&mut self) -> Result<(), StoreError> {
        let (room, (person, _)) = (self.room.clone(), self.ticket().await?);
        let outcome = both!(self, store => store.leave(&room, &person));
        self.count_inside(&outcome);
        Ok(())
    }

    async fn reap(&mut self) -> Result<(), StoreError> {
        let room = self.room.clone();
        let max = match self.rng.below(5) {
            0..=2 => self.rng.below(3),
            3 => self.rng.between(1, self.size.people),
            _ => 10_000,
        };
        // Mostly in time; sometimes too late, or while nobody knows who is present.
        let absent_by = match self.rng.below(8) {
            0 => None,
            1 => Some(Timestamp(1)),
            _ => Some(Timestamp(u64::MAX)),
        };
        let params = ReapParams { max, absent_by };
        let outcome = both!(self, store => store.reap(&room, params));
        for (count, what) in [
            (outcome.lost, "reaped: lost"),
            (outcome.no_shows, "reaped: no shows"),
            (outcome.expired, "reaped: expired"),
            (outcome.forgotten, "reaped: forgotten"),
            (u64::from(outcome.more), "reaped: more"),
        ] {
            if count > 0 {
                self.lived.seen.count(what);
            }
        }
        Ok(())
    }

    fn change<T>(&mut self, set: impl FnOnce(&mut Rng) -> T) -> Option<Change<T>> {
        match self.rng.below(8) {
            0..=2 => None,
            3..=4 => Some(Change::Set(set(&mut self.rng))),
            5 => Some(Change::Add(self.rng.between(0, 9).cast_signed() - 4)),
            6 => Some(Change::Reset),
            _ => Some(Change::Add(*self.rng.pick(&[
                i64::MIN,
                -1_000_000,
                2_000_000_000,
                i64::MAX,
            ]))),
        }
    }

    async fn resize(&mut self) -> Result<(), StoreError> {
        let (room, many) = (self.room.clone(), self.size.people);
        if self.rng.percent(80) {
            self.requests += 1;
        }
        // Numbers that a double cannot distinguish.
        let request = u64::MAX - self.requests;
        let number = |rng: &mut Rng| match rng.below(12) {
            0 => u64::MAX,
            1 => 100_001,
            _ => rng.between(0, many),
        };
        let params = ResizeParams {
            request,
            seats: self.change(|rng| rng.percent(70).then(|| number(rng))),
            inside: self.change(number),
            per_second: self.change(number),
            by: "operator \"7\"".to_owned(),
            why: "봄".to_owned(),
        };
        let outcome = both!(self, store => store.resize(&room, params.clone()));
        self.lived.seen.count(match outcome {
            ResizeOutcome::Resized(_) => "resized",
            ResizeOutcome::Invalid(_) => "not resized",
        });
        Ok(())
    }

    async fn control(&mut self) -> Result<(), StoreError> {
        let room = self.room.clone();
        let controls = [Control::Pause, Control::Resume, Control::Resume, Control::Close];
        let control = *self.rng.pick(&controls);
        both!(self, store => store.control(&room, control));
        // Rarely for long: little happens meanwhile.
        if control != Control::Resume && self.rng.percent(70) {
            self.overview().await?;
            self.promote().await?;
            self.join().await?;
            both!(self, store => store.control(&room, Control::Resume));
        }
        Ok(())
    }

    async fn void(&mut self) -> Result<(), StoreError> {
        let room = self.room.clone();
        let through = match self.rng.below(3) {
            0 => None,
            1 => Some(Wave(self.rng.below(12))),
            _ => Some(Wave(u64::MAX)),
        };
        both!(self, store => store.void(&room, through));
        self.lived.seen.count("voided");
        self.reissue().await
    }

    async fn overview(&mut self) -> Result<(), StoreError> {
        let room = self.room.clone();
        both!(self, store => async { store.overview(&room).await.map(comparable) });
        Ok(())
    }

    /// Compares every ticket.
    async fn look(&mut self) -> Result<(), StoreError> {
        let (room, people) = (self.room.clone(), self.people.clone());
        both!(self, store => store.look(&room, people.clone()));
        Ok(())
    }
}
