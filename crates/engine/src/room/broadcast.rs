//! Schedules when each stream of a room receives its position: once a second, and a large crowd in slices. In one
//! burst, the last of fifty thousand streams would receive a view as old as all the others took. In slices, each
//! slice gets a fresh view, and the work spreads over the second.

use std::time::Duration;

use tokio::time::Instant;

/// Slices of a second. Limit: one process makes at most this many overviews per second for its positions.
pub(super) const PARTS: u8 = 8;
const PART: Duration = Duration::from_millis(1_000 / PARTS as u64);
/// Number of streams that justifies a separate slice, with its own overview of the room.
const CROWD: usize = 256;

/// The slices that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slices(u8);

impl Slices {
    pub(super) fn has(self, part: u8) -> bool {
        self.0 >> part & 1 != 0
    }

    pub(super) fn any(self) -> bool {
        self.0 != 0
    }
}

#[derive(Debug)]
pub(super) struct BroadcastSchedule {
    begun: Instant,
    /// Slices of a second that have passed since then.
    over: u64,
}

/// How many slices are due together: all for a small crowd, one for a large one. A power of two, so that no stream
/// waits much longer than a second while a crowd grows or shrinks.
fn together(streams: usize) -> u64 {
    match streams / CROWD {
        0..2 => 8,
        2..8 => 4,
        8..32 => 2,
        _ => 1,
    }
}

impl BroadcastSchedule {
    pub(super) fn begin(now: Instant) -> Self {
        Self { begun: now, over: 0 }
    }

    /// The slices that became due since the last call.
    pub(super) fn due(&mut self, now: Instant, streams: usize) -> Slices {
        let (together, slices) = (together(streams), u64::from(PARTS));
        let passed = (now.saturating_duration_since(self.begun).as_millis() / PART.as_millis()) as u64;
        // After a stall every slice is due once, however many turns it missed.
        let first = (self.over + 1).max((passed + 1).saturating_sub(slices));
        let begins = (first..=passed).filter(|part| part.is_multiple_of(together));
        let due = begins.fold(0, |due, part| {
            let turn = (1_u16 << together) - 1;
            due | (turn << (part % slices)) as u8
        });
        self.over = passed.max(self.over);
        Slices(due)
    }

    /// When the next slice is due.
    pub(super) fn next(&self, streams: usize) -> Instant {
        let together = together(streams);
        let next = (self.over / together + 1) * together;
        self.begun + PART * u32::try_from(next).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: [usize; 5] = [1, 600, 3_000, 20_000, 1_000_000];

    /// The schedule of every slice over some seconds, in milliseconds.
    fn schedule(mut streams: impl FnMut(u64) -> usize, seconds: u64) -> Vec<Vec<u64>> {
        let begun = Instant::now();
        let mut schedule = BroadcastSchedule::begin(begun);
        let mut heard = vec![Vec::new(); PARTS.into()];
        loop {
            let at = (schedule.next(streams(schedule.over)) - begun).as_millis() as u64;
            if at > seconds * 1_000 {
                return heard;
            }
            let due = schedule.due(begun + Duration::from_millis(at), streams(schedule.over));
            for part in (0..PARTS).filter(|part| due.has(*part)) {
                heard[usize::from(part)].push(at);
            }
        }
    }

    #[test]
    fn everybody_has_one_turn_a_second() {
        for streams in MANY {
            for heard in schedule(|_| streams, 10) {
                assert!((9..=10).contains(&heard.len()), "{streams}: {heard:?}");
                let apart = heard.windows(2).all(|pair| pair[1] - pair[0] == 1_000);
                assert!(apart, "{streams}: {heard:?}");
            }
        }
    }

    #[test]
    fn a_large_crowd_has_its_turns_one_part_after_the_other() {
        let all = schedule(|_| 20_000, 3);
        let mut firsts: Vec<u64> = all.iter().map(|heard| heard[0]).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, [125, 250, 375, 500, 625, 750, 875, 1_000]);
        let small = schedule(|_| 10, 3);
        assert!(small.iter().all(|heard| heard[0] == 1_000), "{small:?}");
    }

    #[test]
    fn a_crowd_that_grows_and_shrinks_leaves_nobody_out() {
        for heard in schedule(|part| MANY[part as usize / 5 % MANY.len()], 60) {
            let longest = heard.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(longest <= 1_875, "{longest}: {heard:?}");
        }
    }

    #[test]
    fn after_a_stall_everybody_has_one_turn() {
        let begun = Instant::now();
        let mut schedule = BroadcastSchedule::begin(begun);
        let due = schedule.due(begun + Duration::from_secs(3_600), 20_000);
        assert_eq!(due, Slices(u8::MAX));
        assert!(!schedule.due(begun + Duration::from_secs(3_600), 20_000).any());
        assert_eq!(schedule.next(20_000), begun + Duration::from_millis(3_600_125));
        assert!(!schedule.due(begun, 20_000).any(), "time does not go back");
    }
}
