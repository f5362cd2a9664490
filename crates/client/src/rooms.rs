//! Waiting rooms, for shops and operators.

use http::Method;
use tidegate_api::{PatchCapacity, RedeemPass, Room, RoomCommand, RoomHistory, Rooms, Visit};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;

impl Client {
    /// Every room, with what happens in it.
    pub async fn rooms(&self) -> Result<Vec<Room>, ClientError> {
        let rooms: Rooms = self.call(Call::get(Address::of(&["rooms"]))).await?;
        Ok(rooms.rooms)
    }

    pub async fn room(&self, room: &str) -> Result<Room, ClientError> {
        self.call(Call::get(Address::of(&["rooms", room]))).await
    }

    /// The last minutes of a room.
    pub async fn room_history(&self, room: &str) -> Result<RoomHistory, ClientError> {
        self.call(Call::get(Address::of(&["rooms", room, "history"])))
            .await
    }

    /// Changes the limits. Nobody who is inside has to go. With a `request` the call may be made again.
    pub async fn resize_room(&self, room: &str, patch: &PatchCapacity) -> Result<Room, ClientError> {
        let call = Call::new(Method::PATCH, Address::of(&["rooms", room, "capacity"]));
        let call = call.json(patch)?;
        // By so many more, twice, would be too many.
        let again = patch.request.is_some();
        self.call(if again { call.idempotent() } else { call.once() })
            .await
    }

    /// Lets nobody in until it is resumed.
    pub async fn pause_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.at_the_door(room, "pause", why).await
    }

    /// Goes on after a pause, or opens a closed room again.
    pub async fn resume_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.at_the_door(room, "resume", why).await
    }

    /// Nobody comes, nobody is let in, and those who wait are told.
    pub async fn close_room(&self, room: &str, why: Option<&str>) -> Result<Room, ClientError> {
        self.at_the_door(room, "close", why).await
    }

    /// Takes back all passes that were not redeemed; visitors who wait with one get another.
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

    /// Redeems a pass, once. With a session the call may be made again.
    pub async fn redeem_pass(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        let call = Call::post(Address::of(&["rooms", room, "redeem"])).json(pass)?;
        let again = pass.session.is_some();
        self.call(if again { call.idempotent() } else { call }).await
    }

    /// Lets a visitor stay inside for longer. A visit that has ended is a problem, `visit_ended`.
    pub async fn extend_visit(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        self.on_visit(room, "extend", pass).await
    }

    /// The visitor has what it came for. If the visit had ended otherwise, that is a problem, `visit_ended`: its seat was
    /// given back, and nothing may be sold.
    pub async fn complete_visit(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        self.on_visit(room, "complete", pass).await
    }

    /// The visitor goes without having bought. If the visit had ended, tells how.
    pub async fn release_visit(&self, room: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        self.on_visit(room, "release", pass).await
    }

    async fn on_visit(&self, room: &str, what: &str, pass: &RedeemPass) -> Result<Visit, ClientError> {
        let call = Call::post(Address::of(&["rooms", room, what]));
        self.call(call.json(pass)?.idempotent()).await
    }
}
