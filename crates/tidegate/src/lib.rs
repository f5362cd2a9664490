//! Tidegate stands between a flood of work and something scarce.
//!
//! ```no_run
//! use tidegate::{Job, JobError, Options, Submission, Tidegate};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let tide = Tidegate::open(Options::new("data"))?
//!     .handler("SEND_PROMOTION", |job: Job| async move {
//!         println!("{} for {}", job.id, job.group);
//!         Ok::<_, JobError>(())
//!     })?
//!     .start()?;
//!
//! let spring = Submission::new("customer-A")?.batch("spring")?.job("promo-1", "SEND_PROMOTION", "{}")?.seal();
//! tide.submit(spring).await?;
//! let mut progress = tide.follow("customer-A", "spring")?;
//! while let Some(change) = progress.next().await {
//!     println!("{:?}", change?.counts);
//! }
//! tide.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | feature | starts with | the flood |
//! |---|---|---|---|
//! | bulk jobs, at the top level | `bulk` | [`Tidegate`] | jobs of many customers |
//! | [`refresh`] | `refresh` | [`refresh::Records`] | reads of records behind a rate-limited API |
//! | [`rooms`] | `rooms` | [`rooms::Rooms`] | people who want in |
//!
//! Each module keeps its state in a data folder. With the feature `redis`, jobs and rooms can be on a Redis server or
//! Cluster that several processes share; for records, [`refresh::RefreshOptions`] takes such a store and log. `kafka`, `postgres`, `mysql`, `s3` and `http` add backends of the refresh module.
//! Default features: `bulk`, `refresh`, `rooms`, `redis`.
//!
//! Invariant: no HTTP server and no command line; those are in `tidegate-server` and `tidegate-cli`.

#![warn(missing_docs)]

#[cfg(feature = "bulk")]
mod bulk;
#[cfg(feature = "refresh")]
pub mod refresh;
#[cfg(feature = "rooms")]
pub mod rooms;

#[cfg(feature = "bulk")]
pub use bulk::*;
pub use tidegate_core::ids;
pub use tidegate_core::time::{Millis, Timestamp};
pub use tidegate_durable::Durability;
pub use tidegate_store::StoreError;
