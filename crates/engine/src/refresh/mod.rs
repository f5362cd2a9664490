//! Refresh: keeps cached records in front of a rate-limited API fresh, driven by events in a log.
//!
//! | part | what it does | waits for |
//! |---|---|---|
//! | `reader` | answers reads from the database, requests what is stale | the database, briefly |
//! | `publisher` | coalesces requests and appends them to the log | store and log, off the read path |
//! | `consumer`, `work` | consumes events; takes each from delivery to its end | everything but the upstream |
//! | `token_dispenser` | dispenses tokens of the targets' budgets to all callers in the process | the store |
//! | `writer` | writes to the database in batches | the database |
//! | `claims` | extends claims on records, releases them | the store |
//! | `pressure` | measures the lag, estimates waits, pauses LOW | the log |
//! | `prefetch`, `retries` | request records before anybody reads them, and those whose retry is due | |
//! | `dead_letters`, `freshness_census` | dead letters; how fresh all records are | |
//! | `budgets` | reads the budgets of all processes, once a second | the store |
//! | `daily_archive` | moves old history to the archive, once a day | the database and the archive |
//!
//! Options → [`RefreshService`] → [`RefreshHandle`], [`RefreshError`]. Any number of processes may share the work,
//! each in any of the [`Roles`]. Nothing here speaks HTTP or names a particular store, log or database.

mod bounds;
mod budgets;
mod call_rate;
mod counters;
mod daily_archive;
mod database_health;
mod dead_letters;
mod error;
mod guard;
mod handle;
mod options;
mod plan;
mod publish;
mod read;
mod service;
mod shared;
mod single_flight;
mod status;
mod store_time;
mod work;

pub use budgets::{Budgets, SeenBudget};
pub use counters::{CountersView, PriorityCounts, reason_name};
pub use daily_archive::archive_daily;
pub use dead_letters::{DeadLetterPage, DeadLetterQuery, DeadLetterReader, DeadLetterView, ReplayOutcome};
pub use error::RefreshError;
pub use handle::{Breakers, RefreshHandle};
pub use options::{QuerySettings, RefreshOptions, Roles, SourceOptions, WatchSettings, WorkSettings};
pub use plan::freshness_census::FreshnessCensus;
pub use plan::pressure::{LagView, Lags};
pub use publish::publisher::PublishOutcome;
pub use read::follow::RecordFollower;
pub use read::view::{Queued, RecordView};
pub use service::RefreshService;
pub use work::token_counts::TokenCounts;
pub use work::token_dispenser::{Acquired, Token, TokenDispenser, TokensView};
