//! Refresh: cached records in front of a limited API, kept fresh by events in a log.
//!
//! | part | what it does | waits for |
//! |---|---|---|
//! | `reader` | answers reads from the database, asks for what is stale | the database, shortly |
//! | `asker` | coalesces requests and appends them to the log | store and log, off the readers' path |
//! | `worker`, `work` | consumes events; takes each from delivery to its end | everything but the upstream |
//! | `allowance` | tokens of the targets' budgets for all callers in the process | the store |
//! | `writer` | writes to the database in batches | the database |
//! | `claims` | keeps claims on records alive, gives them back | the store |
//! | `pressure` | looks at the lag: estimates, and when LOW stands back | the log |
//! | `prefetch`, `retries` | ask for records before anybody does, and for those that are due again | |
//! | `dead_letters`, `mix` | what was given up; how fresh everything is | |
//!
//! Options → [`RefreshService`] → [`RefreshHandle`], [`RefreshError`]. Any number of processes may share the work,
//! each in any of the [`Roles`]. No HTTP, and no word of which store, log or database it is.

mod activity;
mod allowance;
mod asker;
mod bounds;
mod cache;
mod claims;
mod counters;
mod dead_letters;
mod doubts;
mod error;
mod events;
mod flights;
mod follow;
mod guard;
mod handle;
mod letters;
mod lines;
mod marks;
mod mix;
mod news;
mod options;
mod prefetch;
mod presence;
mod pressure;
mod reader;
mod retries;
mod service;
mod shared;
mod status;
mod time;
mod tokens;
mod turn;
mod view;
mod work;
mod worker;
mod writer;

pub use allowance::{Acquired, Allowances, AllowancesView, Token};
pub use asker::AskOutcome;
pub use counters::{CountersView, PriorityCounts, reason_name};
pub use dead_letters::{DeadLetterPage, DeadLetterQuery, DeadLetterView, DeadLetters, ReplayOutcome};
pub use error::RefreshError;
pub use follow::RecordFollower;
pub use handle::{Breakers, RefreshHandle};
pub use mix::FreshnessMix;
pub use options::{QuerySettings, RefreshOptions, Roles, SourceOptions, WatchSettings, WorkSettings};
pub use pressure::{LagView, Lags};
pub use service::RefreshService;
pub use tokens::TokenCounts;
pub use view::{Queued, RecordView};
