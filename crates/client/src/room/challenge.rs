//! The proof of work that a room may require of its visitors.

use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;

/// The proof of work that a room requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Challenge {
    /// The text to solve: find a nonce of at most 32 letters, digits, `-` or `_`, so that SHA-256 of this text and
    /// the nonce begins with `bits` zero bits. Join with this text, a dot and the nonce as `proof`. None if the
    /// room requires no proof.
    pub challenge: Option<String>,
    /// How many zero bits the hash must begin with.
    pub bits: Option<u8>,
}

impl Client {
    /// Reads the proof-of-work challenge of a room. The service accepts each challenge once, and only from the
    /// address that requested it.
    pub async fn room_challenge(&self, room: &str) -> Result<Challenge, ClientError> {
        self.call(Call::get(Address::of(&["rooms", room, "challenge"])))
            .await
    }
}
