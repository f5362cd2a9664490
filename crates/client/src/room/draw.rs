//! The draw of early visitors, so that everybody can check it.

use serde::{Deserialize, Serialize};
use tidegate_api::Time;

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;

/// The values that verify a draw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Draw {
    /// The opening of the draw; none for a room without an opening.
    pub opens_at: Option<Time>,
    /// SHA-256 of the seed, in hexadecimal; none without an opening.
    pub commitment: Option<String>,
    /// The seed in hexadecimal; none before the opening. The first 52 bits of SHA-256 over seed and person decide:
    /// the smaller number goes first.
    pub seed: Option<String>,
}

impl Client {
    /// Reads the commitment of a draw and, after the opening, its seed. `opens_at` names an earlier opening, for
    /// visitors who joined before it moved; the current one without it.
    pub async fn room_draw(&self, room: &str, opens_at: Option<Time>) -> Result<Draw, ClientError> {
        let address = Address::of(&["rooms", room, "draw"]).ask("opensAt", opens_at);
        self.call(Call::get(address)).await
    }
}
