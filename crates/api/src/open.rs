//! The identity of a caller, its roles, and the audit log.

use serde::{Deserialize, Serialize};

use crate::Time;

/// A permission of an API key. `ADMIN` includes all others.
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
    /// Changes, pauses, cancels, replays and purges, and reads the audit log.
    Admin,
}

/// The identity under which the service handles the caller's requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The name of the API key.
    pub name: String,
    /// The permissions of the key.
    pub roles: Vec<Role>,
    /// The groups that the key may access; empty means every group. A `*` at the end matches any suffix.
    pub groups: Vec<String>,
    /// The CSRF token of a browser session: send it as `x-csrf-token` with every change.
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
    /// When the service wrote the entry.
    pub at: Time,
    /// The name of the API key that sent the command.
    pub who: String,
    /// The command, like `group.pause`.
    pub what: String,
    /// The object of the command, like the name of a group.
    pub on: String,
    /// The reason that the caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The arguments of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
    /// Why the service refused the command. The entry of the attempt precedes this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
