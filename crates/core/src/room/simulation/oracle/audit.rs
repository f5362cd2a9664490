//! Compares what a room shows with what it answered.

use super::{Checked, Oracle, Place, Stage, ensure, wrong};
use crate::room::command::{RoomView, TicketView};
use crate::room::ticket::TicketState;

impl Oracle {
    /// Checks a ticket as the room shows it.
    pub(super) fn looked(&mut self, who: usize, view: Option<&TicketView>) -> Checked {
        let (Some(known), Some(view)) = (self.people[who].clone(), view) else {
            return ensure(self.people[who].is_none() && view.is_none(), || {
                format!("{who} is {view:?}, expected {:?}", self.people[who])
            });
        };
        let ticket = &view.ticket;
        let (mut stage, mut wave) = (known.stage.clone(), None);
        match &ticket.state {
            TicketState::Early { present_until, .. } => stage = Stage::Early(*present_until),
            TicketState::Waiting { present_until } => stage = Stage::Waiting(*present_until),
            TicketState::Granted { until, wave: its, .. } => {
                (stage, wave) = (Stage::Granted { until: *until }, Some(*its));
            }
            TicketState::Inside { until: shown, .. } => match &mut stage {
                Stage::Inside { until, .. } => *until = *shown,
                _ => return wrong(format!("{who} is inside, expected {known:?}")),
            },
            TicketState::Ended { end, at } => stage = Stage::Ended(*end, *at),
        }
        ensure(stage == known.stage, || {
            format!("{who} is {stage:?}, expected {known:?}")
        })?;
        ensure(known.index.is_none_or(|index| index == ticket.index.0), || {
            format!("{who} has place {:?}, expected {known:?}", ticket.index)
        })?;
        if let Stage::Waiting(_) = stage {
            // Early people are ahead of everybody who joined later, drawn or not.
            let ahead = self.people.iter().flatten().filter(|other| {
                matches!(other.stage, Stage::Waiting(_) | Stage::Early(_)) && other.place < known.place
            });
            let ahead = ahead.count() as u64;
            ensure((view.ahead, view.waiting) == (ahead, self.waiting()), || {
                format!(
                    "{who} has {} of {} ahead, expected {ahead}",
                    view.ahead, view.waiting
                )
            })?;
        }
        if let Some(known) = &mut self.people[who] {
            known.index = Some(ticket.index.0);
            known.wave = wave.or(known.wave);
        }
        Ok(())
    }

    /// Compares what the room shows with everything it answered.
    pub(in crate::room::simulation) fn audit(
        &mut self,
        views: &[Option<TicketView>],
        room: &RoomView,
    ) -> Checked {
        for (who, view) in views.iter().enumerate() {
            self.looked(who, view.as_ref())?;
        }
        let mut line: Vec<(Place, Option<u64>)> = self
            .people
            .iter()
            .flatten()
            .filter(|known| matches!(known.stage, Stage::Waiting(_)))
            .map(|known| (known.place, known.index))
            .collect();
        line.sort();
        ensure(line.is_sorted_by_key(|(_, index)| *index), || {
            format!("the line is not in its order: {line:?}")
        })?;
        let granted = self.count(|stage| matches!(stage, Stage::Granted { .. }));
        let shown = (
            room.granted,
            room.granted + room.inside,
            room.waiting(),
            room.early,
        );
        let expected = (granted, self.slots(), self.waiting(), self.early());
        ensure(shown == expected, || {
            format!("granted, slots, waiting, early are {shown:?}, expected {expected:?}")
        })?;
        let counted = (room.counts.completed, room.counts.admitted);
        ensure(counted == (self.completed, self.admitted.len() as u64), || {
            format!("{counted:?} completed and admitted, expected {}", self.completed)
        })?;
        ensure(
            (room.capacity, room.status) == (self.capacity, self.status),
            || {
                format!(
                    "{:?} {:?}, expected {:?}",
                    room.capacity, room.status, self.capacity
                )
            },
        )
    }
}
