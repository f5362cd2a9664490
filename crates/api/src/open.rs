//! Who is asking, and what was done by whom.

use serde::{Deserialize, Serialize};

use crate::Time;

/// What a key may do. Each one is a right of its own; `admin` has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Role {
    Read,
    Submit,
    Work,
    /// Redeems passes of waiting rooms, and says what became of visits.
    Shop,
    Admin,
}

/// Who the server takes you for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    pub name: String,
    pub roles: Vec<Role>,
    /// Only these groups, if any are named; `*` at the end stands for any rest.
    pub groups: Vec<String>,
    /// Send it as `x-csrf-token` with every change that a browser's session makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csrf: Option<String>,
    /// Keys are configured: whoever has none is refused.
    pub keys_required: bool,
}

/// One thing that somebody did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub at: Time,
    pub who: String,
    /// Like `group.pause`.
    pub what: String,
    /// What it was done to.
    pub on: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
    /// It was not done, and why not. Its entry without this stands before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
