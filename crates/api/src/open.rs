//! Who is asking, and what was done by whom.

use serde::{Deserialize, Serialize};

use crate::Time;

/// What a key may do. ADMIN includes all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Role {
    /// Reads everything but the audit log.
    Read,
    /// Submits jobs and requests refreshes.
    Submit,
    /// Leases and settles jobs.
    Work,
    /// Redeems passes of waiting rooms and ends visits.
    Shop,
    /// Changes, pauses, cancels, replays and purges.
    Admin,
}

/// Who the service takes the caller for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The key's name.
    pub name: String,
    pub roles: Vec<Role>,
    /// The key is good for these groups only; for all if empty. A `*` at the end stands for any rest.
    pub groups: Vec<String>,
    /// In a browser session: send it as `x-csrf-token` with every change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csrf: Option<String>,
    /// Whether the configuration has keys, so that requests need one.
    pub keys_required: bool,
}

/// One entry of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub at: Time,
    /// The name of the key.
    pub who: String,
    /// The command, like `group.pause`.
    pub what: String,
    /// What the command was about.
    pub on: String,
    /// The reason that the caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
    /// Why the service refused the command. The entry of the attempt comes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
