//! Waiting rooms, for shops and operators.

use http::Method;
use tidegate_api::{PatchCapacity, RedeemPass, Room, RoomCommand, RoomHistory, Rooms, Visit};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;

impl Client {
    /// Lists every room with its state.
    pub async fn rooms(&self) -> Result<Vec<Room>, ClientError> {
        let rooms: Rooms = self.call(Call::get(Address::of(&["rooms"]))).await?;
        Ok(rooms.rooms)
    }

    /// Reads one room.
    pub async fn room(&self, room: &str) -> Result<Room, ClientError> {
        self.call(Call::get(Address::of(&["rooms", room]))).await
    }

    /// Reads the last minutes of a room, about one sample per second.
    pub async fn room_history(&self, room: &str) -> Result<RoomHistory, ClientError> {
        self.call(Call::get(Address::of(&["rooms", room, "history"])))
            .await
    }

    /// Changes the limits of a room. Visitors who are inside stay. Without a `request` key the client does not
    /// repeat a call that may have taken effect.
    pub async fn resize_room(&self, room: &str, patch: &PatchCapacity) -> Result<Room, ClientError> {
        let call = Call::new(Method::PATCH, Address::of(&["rooms", room, "capacity"]));
        let call = call.json(patch)?;
        // A relative change must not apply twice.
        let again = patch.request.is_some();
        self.call(if again { call.idempotent() } else { call.once() })
            .await
    }

    /// Pauses a room: it admits nobody until an operator resumes it.
    pub async fn pause_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.at_the_door(room, "pause", why).await
    }

    /// Resumes a paused room, or opens a closed one again.
    pub async fn resume_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.at_the_door(room, "resume", why).await
    }

    /// Closes a room: nobody can join, it admits nobody, and the streams of waiting visitors end.
    pub async fn close_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.at_the_door(room, "close", why).await
    }

    /// Revokes all passes that no shop has redeemed. Visitors with a revoked pass get a new one.
    pub async fn void_passes(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.at_the_door(room, "void", why).await
    }

    async fn at_the_door(&self, room: &str, what: &str, why: Option<&str>) -> Result<Room, ClientError> {
        let command = RoomCommand {
            why: why.map(str::to_owned),
            through: None,
        };
        let call = Call::post(Address::of(&["rooms", room, what]));
        self.call(call.json(&command)?.idempotent()).await
    }

    /// Redeems a pass, once; the same `session` may redeem it again. Without a session the client does not
    /// repeat a call that may have taken effect.
    pub async fn redeem_pass(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        let call = Call::post(Address::of(&["rooms", room, "redeem"])).json(pass)?;
        let again = pass.session.is_some();
        self.call(if again { call.idempotent() } else { call }).await
    }

    /// Extends a visit by `for_ms` from now. Returns the problem `visit_ended` if the visit has ended.
    pub async fn extend_visit(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        self.on_visit(room, "extend", pass).await
    }

    /// Completes a visit with a purchase. Returns the problem `visit_ended` if it had ended otherwise: the seat
    /// is free again, and the shop must not sell.
    pub async fn complete_visit(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        self.on_visit(room, "complete", pass).await
    }

    /// Ends a visit without a purchase. If it had ended before, the result says how.
    pub async fn release_visit(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        self.on_visit(room, "release", pass).await
    }

    async fn on_visit(&self, room: &str, what: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        let call = Call::post(Address::of(&["rooms", room, what]));
        self.call(call.json(pass)?.idempotent()).await
    }
}
