//! The name under which this process holds leases and claims.

use std::hash::{BuildHasher, Hasher, RandomState};

use tidegate_core::ids::Owner;

/// Process ids repeat across machines, and in every container.
pub(crate) fn unique_owner() -> Owner {
    let random = RandomState::new().build_hasher().finish();
    Owner::new(format!("process-{}-{random:016x}", std::process::id())).expect("short and not empty")
}
