//! Sources: how to fetch, project, hash and pack one record.
//!
//! A [`Fetcher`] makes one attempt to get a record. A [`Projection`] turns a response of hundreds of kilobytes into
//! the few that are stored, in a form whose hash changes only when the kept fields change. With the feature `http`,
//! `SourceSettings` say where a record comes from and which fields to keep, and `HttpFetcher` fetches it. Nothing
//! here waits for a budget, retries or stores.

mod activity;
mod bench;
mod fetch;
mod hash;
#[cfg(feature = "http")]
mod header;
#[cfg(feature = "http")]
mod http;
mod key;
mod pack;
mod project;
#[cfg(feature = "http")]
mod settings;
#[cfg(feature = "http")]
mod template;

pub use bench::{ProjectionFigures, bench_projection};
pub use fetch::{FetchOutcome, FetchParams, Fetcher, PermanentCode, Projected, TransientCode};
pub use hash::{Hash, hash};
#[cfg(feature = "http")]
pub use header::HeaderSetting;
#[cfg(feature = "http")]
pub use http::{HttpFetcher, punctual};
pub use key::{KeyError, KeyRule};
pub use pack::{pack, unpack};
pub use project::{Canonical, FieldError, ProjectError, Projection, Scratch};
#[cfg(feature = "http")]
pub use settings::{SettingsError, SourceSettings, TierTtl};
#[cfg(feature = "http")]
pub use template::{TemplateError, UrlTemplate};
