//! What operators do: change the limits, pause, resume and close the room, and void passes.

use super::command::{Change, Control, RemoveOutcome, ResizeOutcome, ResizeParams, Resized, Status};
use super::config::{Capacity, RoomConfig};
use super::ticket::Wave;
use super::{CHANGES, Due, Overrides, Room, SeatsOverride};
use crate::time::Timestamp;

impl Room {
    /// Applies settings. Limits that override the configured ones stay.
    pub fn configure(&mut self, config: &RoomConfig) {
        if self.head.config == *config {
            return;
        }
        self.head.config = config.clone();
        // The deadlines of waiting and of remembered tickets depend on the settings.
        self.due = Due::default();
        for (person, ticket) in &self.tickets {
            self.due
                .of(ticket)
                .insert((ticket.due_at(config), person.clone()));
        }
        self.set();
    }

    fn set(&mut self) {
        self.changed.head = true;
        self.signals.update = true;
        self.signals.promote |= self.has_room();
    }

    /// Changes the limits, once per request.
    pub fn resize(&mut self, params: &ResizeParams, now: Timestamp) -> ResizeOutcome {
        let head = &mut self.head;
        if let Some(done) = head.changes.iter().find(|done| done.request == params.request) {
            return ResizeOutcome::Resized(done.capacity);
        }
        let (held, before) = (head.capacity(), head.overrides);
        let overrides = match overridden(params, held, before) {
            Ok(overrides) => overrides,
            Err(reason) => return ResizeOutcome::Invalid(reason),
        };
        head.overrides = overrides;
        let capacity = head.capacity();
        if let Err(error) = capacity.validate() {
            head.overrides = before;
            return ResizeOutcome::Invalid(error.to_string());
        }
        if head.changes.len() == CHANGES {
            head.changes.remove(0);
        }
        head.changes.push(Resized {
            request: params.request,
            at: now,
            by: params.by.clone(),
            why: params.why.clone(),
            capacity,
        });
        self.set();
        ResizeOutcome::Resized(capacity)
    }

    pub fn control(&mut self, control: Control) {
        let status = match control {
            Control::Pause => Status::Paused,
            Control::Resume => Status::Open,
            Control::Close => Status::Closed,
        };
        if self.head.status != status {
            self.head.status = status;
            self.set();
        }
    }

    /// Whether the room can be removed. If so, the caller removes it by dropping it.
    pub fn removal(&self) -> RemoveOutcome {
        if self.head.status != Status::Closed && !self.head.sold_out() {
            return RemoveOutcome::Open;
        }
        let waiting = self.positions.total() + self.early.len() as u64;
        match (waiting, self.head.slots()) {
            (0, 0) => RemoveOutcome::Removed,
            (waiting, inside) => RemoveOutcome::Used { waiting, inside },
        }
    }

    /// Voids the passes of this wave and all earlier ones; all passes so far if none is named. People with an
    /// unredeemed pass get another one.
    pub fn void(&mut self, through: Option<Wave>) -> Wave {
        let through = through.unwrap_or(self.head.wave).min(self.head.wave);
        if through > self.head.voided {
            self.head.voided = through;
            self.set();
        }
        self.head.voided
    }
}

fn overridden(params: &ResizeParams, held: Capacity, before: Overrides) -> Result<Overrides, String> {
    let seats = match params.seats {
        None => before.seats,
        Some(Change::Set(seats)) => SeatsOverride::To(seats),
        Some(Change::Reset) => SeatsOverride::Configured,
        Some(Change::Add(by)) => match held.seats {
            Some(seats) => SeatsOverride::To(Some(added("seats", seats, by)?)),
            None => {
                return Err("seats are not counted here: set a number before changing it by some".to_owned());
            }
        },
    };
    Ok(Overrides {
        seats,
        inside: changed("inside", params.inside, held.inside, before.inside)?,
        per_second: changed(
            "per_second",
            params.per_second,
            held.per_second,
            before.per_second,
        )?,
    })
}

fn changed(
    name: &str,
    change: Option<Change<u64>>,
    held: u64,
    before: Option<u64>,
) -> Result<Option<u64>, String> {
    Ok(match change {
        None => before,
        Some(Change::Set(value)) => Some(value),
        Some(Change::Add(by)) => Some(added(name, held, by)?),
        Some(Change::Reset) => None,
    })
}

/// Rejects a result below zero: a sum clamped at zero would be too large after the opposite change.
fn added(name: &str, held: u64, by: i64) -> Result<u64, String> {
    match by.is_negative() && by.unsigned_abs() > held {
        true => Err(format!(
            "{name} is {held}: {} fewer would be below zero",
            by.unsigned_abs()
        )),
        false => Ok(held.saturating_add_signed(by)),
    }
}
