//! The settling period: whether the store knows who is present. After a restart of the store, or an outage longer
//! than the presence period, everybody who waits counts as absent. The first people whose heartbeat gets through
//! would then overtake others ahead of them who were connected all the time. So nobody is admitted until all had time
//! for a heartbeat.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Pause between two checks whether the heartbeats got through.
const AGAIN: Duration = Duration::from_millis(100);
/// Long enough for all: processes repeat failed heartbeats at once, and browsers reconnect within seconds.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Settling(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When a call to the store last failed; initially, the start of this process.
    lost: Instant,
    /// Since then, every stream of this process has sent a heartbeat.
    heard: bool,
    /// Since then, there was a moment without anybody waiting.
    nobody: bool,
}

impl Settling {
    pub(super) fn begin(now: Instant) -> Self {
        Self(Mutex::new(State {
            lost: now,
            heard: false,
            nobody: false,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store did not answer.
    pub(super) fn lose(&self, now: Instant) {
        *self.state() = State {
            lost: now,
            heard: false,
            nobody: false,
        };
    }

    /// All streams of this process have sent a heartbeat, the first of them at `begun`.
    pub(super) fn heartbeats_sent(&self, begun: Instant) {
        let mut state = self.state();
        state.heard |= state.lost <= begun;
    }

    /// Nobody waits, so nobody can be overtaken.
    pub(super) fn nobody_waits(&self) {
        self.state().nobody = true;
    }

    /// The end of the settling period; none if it is over. By then, streams of other processes had their time, too:
    /// they send a heartbeat every third of `presence`, and sooner after an outage.
    pub(super) fn settling_until(&self, presence: Duration, now: Instant) -> Option<Instant> {
        let state = self.state();
        if state.nobody {
            return None;
        }
        let all_had_time = state.lost + (presence / 2).min(LONGEST);
        let until = match state.heard {
            true => all_had_time,
            false => all_had_time.max(now + AGAIN),
        };
        (until > now).then_some(until)
    }

    /// Whether a missing heartbeat proves that somebody has left.
    pub(super) fn sees_absence(&self, presence: Duration, now: Instant) -> bool {
        now >= self.state().lost + presence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENCE: Duration = Duration::from_secs(15);

    #[test]
    fn nobody_is_admitted_before_all_had_time_for_a_heartbeat() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let settling = Settling::begin(begun);
        settling.heartbeats_sent(after(1));
        assert_eq!(
            settling.settling_until(PRESENCE, after(1)),
            Some(begun + PRESENCE / 2)
        );
        assert_eq!(settling.settling_until(PRESENCE, after(8)), None);
        assert!(!settling.sees_absence(PRESENCE, after(14)) && settling.sees_absence(PRESENCE, after(15)));
        settling.lose(after(20));
        // A round that began before the outage says nothing about the time after it.
        settling.heartbeats_sent(after(19));
        assert_eq!(
            settling.settling_until(PRESENCE, after(60)),
            Some(after(60) + AGAIN)
        );
        settling.heartbeats_sent(after(60));
        assert_eq!(settling.settling_until(PRESENCE, after(60)), None);
    }

    #[test]
    fn where_nobody_waits_nobody_is_overtaken() {
        let begun = Instant::now();
        let settling = Settling::begin(begun);
        settling.nobody_waits();
        assert_eq!(settling.settling_until(PRESENCE, begun), None);
        settling.lose(begun);
        assert!(settling.settling_until(PRESENCE, begun).is_some());
    }
}
