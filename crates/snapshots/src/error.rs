//! Errors, as opposed to rejections, which are outcomes.

use tidegate_core::time::Millis;

use crate::sql::schema::SCHEMA_VERSION;

/// The command that migrates a database to the schema of this program.
pub const MIGRATE_COMMAND: &str = "tidegate migrate";

/// A database could not do its work. A write that lost against a newer version has an outcome, not an error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SnapshotsError {
    #[error("{database} is unavailable: {reason}")]
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
    #[error("{database} rejected a statement: {reason}")]
    Rejected { database: String, reason: String },
    #[error("invalid value: {0}")]
    Invalid(String),
    #[error("{database} holds corrupt data: {reason}")]
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
    /// Whether the same call may succeed later without an operator: after a lost connection, a deadlock, a busy or
    /// full database. Not after a mismatched schema or value.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            SnapshotsError::Unavailable { .. } | SnapshotsError::Timeout { .. }
        )
    }
}
