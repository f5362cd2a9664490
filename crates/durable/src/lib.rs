//! One durable runner for every embedded state machine: bulk, refresh, rooms and the log.
//!
//! ```text
//!   callers --inbox--> apply thread: work, work, work --commit batch--> committer thread: write, sync, reply
//!      |                    |                                                |
//!      |                 a machine in memory                                 v
//!      +------------------------------ reads <----------------------------- disk
//! ```
//!
//! - [`Runner`] owns a machine ([`Persist`]) and its [`disk`]. While the committer syncs, the apply thread goes on, so commands
//!   that arrive meanwhile share the next write and the next sync ([group commit](https://www.postgresql.org/docs/current/wal-configuration.html)).
//! - [`Model`] runs the same machine without a disk: the reference for every backend.
//! - [`fjall_disk`] is the durable layer on a real disk, [`memory_disk`] one whose power a test can cut.
//!
//! Invariant: this crate knows no job, record, room or topic.

pub mod codec;
mod committer;
pub mod disk;
mod error;
pub mod fjall_disk;
pub mod folder;
pub mod memory_disk;
mod model;
mod run;
mod runner;

pub use disk::{Disk, DiskError, Op, Reader, Table};
pub use error::DurableError;
pub use model::{Model, Volatile};
pub use run::{ReplyAfter, Run};
pub use runner::{Changes, Durability, Pending, Persist, ReplyNeeds, Runner, RunnerOptions, SyncNeed};
