//! What can fail, as opposed to what is refused.

use tidegate_core::time::Millis;

use crate::sql::schema::SCHEMA_VERSION;

/// What brings a database to the schema of this program.
pub const MIGRATE_COMMAND: &str = "tidegate migrate";

/// A database could not do its work. Writes that lost against a newer version are answers, not errors.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SnapshotsError {
    #[error("{database} cannot be used now: {reason}")]
    Unavailable { database: String, reason: String },
    #[error("{database} did not answer within {after}")]
    Timeout { database: String, after: Millis },
    #[error(
        "{database} has no schema of Tidegate, this program needs schema {SCHEMA_VERSION}; \
         create it with `{MIGRATE_COMMAND}`"
    )]
    NoSchema { database: String },
    #[error("{database} has schema {found}, this program needs schema {SCHEMA_VERSION}; {}", other_schema_help(*.found))]
    OtherSchema { database: String, found: u32 },
    #[error("{database} refused a statement: {reason}")]
    Rejected { database: String, reason: String },
    #[error("what is to be stored does not fit: {0}")]
    Invalid(String),
    #[error("what {database} holds cannot be read: {reason}")]
    Corrupt { database: String, reason: String },
}

fn other_schema_help(found: u32) -> String {
    if found < SCHEMA_VERSION {
        format!("bring it up to date with `{MIGRATE_COMMAND}`")
    } else {
        "it was written by a newer version of Tidegate: use that version".to_owned()
    }
}

impl SnapshotsError {
    /// Whether the same call may work later without anyone stepping in: a lost connection, a deadlock, a busy or
    /// full database. Not a schema or a value that does not fit.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            SnapshotsError::Unavailable { .. } | SnapshotsError::Timeout { .. }
        )
    }
}
