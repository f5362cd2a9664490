//! How good the estimated waiting times are, over whole simulated rooms. Everything follows from seeds, so the
//! figures are the same in every run; `--nocapture` shows them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Room;
use super::command::{InsideOutcome, JoinParams, ReapParams, RedeemOutcome, RedeemParams};
use super::config::{Capacity, RoomConfig};
use super::eta::{Eta, eta};
use super::pace::Pace;
use super::simulation::START;
use super::ticket::TicketState;
use crate::ids::PersonId;
use crate::rng::Rng;
use crate::time::{Millis, Timestamp};

/// The interval of the samples and of the room's moves.
const LOOK: u64 = 1_000;
const TICK: u64 = 100;
/// No estimates before the pace is known.
const WARM: u64 = 60_000;
const SEEDS: u64 = 10;

#[derive(Clone, Copy)]
struct Scene {
    people: usize,
    capacity: Capacity,
    /// The mean length of visits, exponentially distributed. None: over at once.
    visit_ms: Option<f64>,
    /// The mean time after which a waiting person gives up.
    patience_ms: Option<f64>,
    /// No-shows per hundred admissions.
    no_shows: u64,
}

/// An estimate and the actual wait.
struct Shown {
    eta: Eta,
    truth: f64,
}

impl Shown {
    fn error(&self) -> f64 {
        (self.eta.likely.0 as f64 - self.truth).abs() / self.truth
    }

    fn holds(&self) -> bool {
        (self.eta.low.0 as f64..=self.eta.high.0 as f64).contains(&self.truth)
    }
}

struct Stage {
    scene: Scene,
    rng: Rng,
    room: Room,
    now: Timestamp,
    people: Vec<PersonId>,
    let_in: Vec<Option<Timestamp>>,
    /// When visits end, and when people give up.
    visits: BinaryHeap<Reverse<(Timestamp, usize)>>,
    gives_up: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl Stage {
    fn new(scene: Scene, seed: u64) -> Self {
        let config = RoomConfig {
            capacity: scene.capacity,
            presence_ms: Millis(3_600_000),
            pass_ms: Millis(30_000),
            inside_ms: Millis(3_600_000),
            ..RoomConfig::default()
        };
        let mut stage = Self {
            scene,
            rng: Rng::new(seed),
            room: Room::new(seed, config),
            now: START,
            people: (0..scene.people)
                .map(|number| PersonId::new(format!("p{number}")).unwrap())
                .collect(),
            let_in: vec![None; scene.people],
            visits: BinaryHeap::new(),
            gives_up: BinaryHeap::new(),
        };
        for number in 0..scene.people {
            let params = JoinParams {
                person: stage.people[number].clone(),
                stream: true,
                again: false,
                draw: 0,
            };
            stage.room.join(&params, START);
            if let Some(mean) = scene.patience_ms {
                let after = stage.chance(mean);
                stage.gives_up.push(Reverse((START + after, number)));
            }
        }
        stage
    }

    /// An exponentially distributed span.
    fn chance(&mut self, mean: f64) -> Millis {
        Millis((-self.rng.fraction().ln() * mean) as u64)
    }

    fn waits(&self, number: usize) -> bool {
        let ticket = self.room.ticket(&self.people[number]);
        ticket.is_some_and(|ticket| matches!(ticket.state, TicketState::Waiting { .. }))
    }

    fn tick(&mut self) {
        self.now = self.now + Millis(TICK);
        while let Some(Reverse((at, number))) =
            self.gives_up.peek().copied().filter(|next| next.0.0 <= self.now)
        {
            self.gives_up.pop();
            if self.waits(number) {
                self.room.leave(&self.people[number], at);
            }
        }
        while let Some(Reverse((_, number))) = self.visits.peek().copied().filter(|next| next.0.0 <= self.now)
        {
            self.visits.pop();
            let ended = self.room.complete(&self.people[number], self.now);
            assert!(matches!(ended, InsideOutcome::Ended(_)));
        }
        self.room.reap(ReapParams::all(1_000), self.now);
        for granted in self.room.promote(1_000, self.now).granted {
            let number: usize = granted.person.as_str()[1..].parse().unwrap();
            self.let_in[number] = Some(self.now);
            if self.rng.below(100) >= self.scene.no_shows {
                self.comes(number);
            }
        }
    }

    fn comes(&mut self, number: usize) {
        let ticket = self.room.ticket(&self.people[number]).unwrap();
        let TicketState::Granted { wave, .. } = ticket.state else {
            panic!("{ticket:?} was let in")
        };
        let params = RedeemParams {
            person: self.people[number].clone(),
            index: ticket.index,
            wave,
            session: None,
        };
        let outcome = self.room.redeem(&params, self.now);
        assert!(matches!(outcome, RedeemOutcome::Inside { .. }));
        let stays = match self.scene.visit_ms {
            Some(mean) => self.chance(mean),
            None => Millis(0),
        };
        self.visits.push(Reverse((self.now + stays, number)));
    }

    /// Runs the room until nobody waits, and samples estimates at random positions throughout.
    fn run(mut self) -> Vec<Shown> {
        let (mut pace, mut asked) = (Pace::default(), Vec::new());
        loop {
            self.tick();
            let past = self.now.since(START).0;
            if !past.is_multiple_of(LOOK) {
                continue;
            }
            let view = self.room.overview(self.now);
            pace.look(&view);
            if view.waiting() == 0 {
                break;
            }
            if past < WARM || !past.is_multiple_of(10 * LOOK) {
                continue;
            }
            let rates = pace.rates().expect("people were let in");
            for _ in 0..10 {
                let number = self.rng.below(self.people.len() as u64) as usize;
                if self.waits(number) {
                    let ticket = self.room.ticket(&self.people[number]).unwrap();
                    let ahead = view.positions.ahead(ticket.index.0);
                    asked.push((number, self.now, eta(ahead, &rates)));
                }
            }
        }
        let shown = asked.into_iter().filter_map(|(number, at, eta)| {
            let truth = self.let_in[number]?.since(at).0 as f64;
            Some(Shown { eta, truth })
        });
        shown.collect()
    }
}

struct Figures {
    median: f64,
    ninetieth: f64,
    within: f64,
}

fn measure(what: &str, scene: Scene) -> Figures {
    let shown: Vec<Shown> = (0..SEEDS)
        .flat_map(|seed| Stage::new(scene, seed).run())
        .collect();
    assert!(shown.len() > 1_000, "{} positions prove nothing", shown.len());
    let mut errors: Vec<f64> = shown.iter().map(Shown::error).collect();
    errors.sort_by(f64::total_cmp);
    let figures = Figures {
        median: errors[errors.len() / 2],
        ninetieth: errors[errors.len() * 9 / 10],
        within: shown.iter().filter(|shown| shown.holds()).count() as f64 / shown.len() as f64,
    };
    println!(
        "{what}: {} positions, error of likely: median {:.1} %, 90th percentile {:.1} %; the range holds {:.1} %",
        shown.len(),
        100.0 * figures.median,
        100.0 * figures.ninetieth,
        100.0 * figures.within
    );
    figures
}

fn steady() -> Scene {
    Scene {
        people: 3_000,
        capacity: Capacity {
            seats: None,
            inside: 1_000,
            per_second: 5,
        },
        visit_ms: None,
        patience_ms: None,
        no_shows: 0,
    }
}

fn by_visits() -> Scene {
    Scene {
        people: 1_500,
        capacity: Capacity {
            seats: None,
            inside: 50,
            per_second: 100,
        },
        visit_ms: Some(20_000.0),
        ..steady()
    }
}

#[test]
fn a_steady_rate_is_estimated_well() {
    let figures = measure("steady rate", steady());
    assert!(figures.median <= 0.10 && figures.ninetieth <= 0.25);
}

#[test]
fn random_visits_are_estimated_well() {
    let figures = measure("random visits", by_visits());
    assert!(figures.median <= 0.10 && figures.ninetieth <= 0.25);
}

/// Of the people who wait for the mean time, one in five gives up before.
fn some_give_up(scene: Scene, mean_wait_ms: f64) -> Scene {
    Scene {
        patience_ms: Some(mean_wait_ms / (1.0_f64 / 0.8).ln()),
        no_shows: 20,
        ..scene
    }
}

#[test]
fn the_range_holds_although_people_leave_and_do_not_come() {
    for (what, scene) in [
        ("steady rate, 20 % leave, 20 % no-shows", steady()),
        ("random visits, 20 % leave, 20 % no-shows", by_visits()),
    ] {
        let figures = measure(what, some_give_up(scene, 300_000.0));
        assert!(figures.within >= 0.80);
    }
}
