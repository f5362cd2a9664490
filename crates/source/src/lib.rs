//! Sources: how one record is fetched, projected, hashed and packed.
//!
//! [`SourceSettings`] says where a record comes from and what of it is kept, a [`Fetcher`] makes one attempt to
//! get it, and a [`Projection`] turns an answer of hundreds of kilobytes into the few that are stored, in a form
//! whose hash changes only when what is kept changes. Nothing here waits for a budget, retries or stores.

mod activity;
mod bench;
mod fetch;
mod hash;
mod http;
mod key;
mod pack;
mod project;
mod secret;
mod settings;
mod template;

pub use bench::{ProjectionFigures, bench_projection};
pub use fetch::{FetchOutcome, FetchParams, Fetcher, PermanentCode, Projected, TransientCode};
pub use hash::{Hash, hash};
pub use http::HttpFetcher;
pub use key::{KeyError, KeyRule};
pub use pack::{pack, unpack};
pub use project::{Canonical, FieldError, ProjectError, Projection, Scratch};
pub use secret::{HeaderSetting, Secret};
pub use settings::{SettingsError, SourceSettings, TierTtl};
pub use template::{TemplateError, UrlTemplate};
