//! Tidegate as a service: HTTP API, push and pull workers, dashboard, metrics.
//!
//! [`Service::start`] opens the store, starts the engine and listens. `state.rs` holds everything that a request needs, and
//! `routes/` lists every path. This crate makes no scheduling decisions: the store makes them.

mod audit;
mod auth;
mod bulk;
pub mod config;
mod dead_items;
mod events;
mod extract;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod metrics;
mod ndjson;
mod net;
mod openapi;
mod pages;
mod problem;
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
pub use service::{Service, ServiceError, redis_options};

/// Returns the OpenAPI 3.1 document of the API as JSON.
pub fn openapi_json() -> String {
    routes::api().2.to_pretty_json().unwrap_or_default()
}
