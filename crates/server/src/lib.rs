//! Tidegate as a service: HTTP API, push and pull workers, dashboard, metrics.
//!
//! [`Service::start`] opens the store, starts the engine and listens; everything a request needs is in
//! `state.rs`, every address in `routes/`. Decisions are not made here: the store makes them.

mod audit;
mod auth;
pub mod config;
mod convert;
mod convert_refresh;
mod events;
mod extract;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod metrics;
mod ndjson;
mod net;
mod observe;
mod openapi;
mod pages;
mod problem;
mod push;
mod queues;
/// Passes of waiting rooms, for programs that serve rooms without this service.
pub mod passes {
    pub use crate::room::draw::{Secret as DrawSecret, draw};
    pub use crate::room::pass::{Claims, PassKeysConfig, PassRefused, Signer};
    pub use crate::room::shop::{PresentedPass, ShopError, Visited};
}
pub mod refresh;
mod room;
mod routes;
mod sampler;
mod service;
mod stack;
mod stale;
mod state;
pub mod telemetry;

pub use auth::{FreshKey, fresh_key};
pub use service::{Service, ServiceError};

/// The API's description, OpenAPI 3.1 as JSON.
pub fn openapi_json() -> String {
    routes::api().2.to_pretty_json().unwrap_or_default()
}
