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
        self.on_room(room, "pause", command(why, None)).await
    }

    /// Resumes a paused room, or opens a closed one again.
    pub async fn resume_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.on_room(room, "resume", command(why, None)).await
    }

    /// Closes a room: nobody can join, it admits nobody, and the streams of waiting visitors end.
    pub async fn close_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.on_room(room, "close", command(why, None)).await
    }

    /// Revokes passes that no shop has redeemed: those of the admission wave `through` and of all earlier ones,
    /// or all so far without it. Visitors with a revoked pass get a new one.
    pub async fn void_passes(
        &self,
        room: &str,
        through: Option<u64>,
        why: Option<&str>,
    ) -> Result<Room, ClientError> {
        self.on_room(room, "void", command(why, through)).await
    }

    async fn on_room(&self, room: &str, what: &str, command: RoomCommand) -> Result<Room, ClientError> {
        let call = Call::post(Address::of(&["rooms", room, what]));
        self.call(call.json(&command)?.idempotent()).await
    }

    /// Deletes a room that is over and that the configuration does not name. Returns the problem `conflict` if
    /// the room is neither closed nor sold out, or if somebody waits or is inside.
    pub async fn delete_room(&self, room: &str, why: Option<&str>) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, Address::of(&["rooms", room]));
        self.fetch(&call.json(&command(why, None))?).await.map(drop)
    }

    /// Reads the public keys of passes, a JWK Set. With them a shop verifies passes by itself.
    pub async fn pass_keys(&self) -> Result<serde_json::Value, ClientError> {
        self.call(Call::get(Address::bare("/.well-known/jwks.json")))
            .await
    }

    /// Checks a pass without redeeming it: the result says where its visitor is.
    pub async fn check_pass(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        self.on_visit(room, "check", pass).await
    }

    /// Redeems a pass, once; the same `session` may redeem it again. Without a session the client does not
    /// repeat a call that may have taken effect.
    pub async fn redeem_pass(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        let call = Call::post(Address::of(&["rooms", room, "redeem"])).json(pass)?;
        let again = pass.session.is_some();
        self.call(if again { call.idempotent() } else { call }).await
    }

    /// Extends a visit by `duration_ms` from now. Returns the problem `visit_ended` if the visit has ended.
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

/// The arguments of a command, as the body of a request.
fn command(why: Option<&str>, through: Option<u64>) -> RoomCommand {
    RoomCommand {
        why: why.map(str::to_owned),
        through,
    }
}
