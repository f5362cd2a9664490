//! Refresh: decides which record is fetched when, and which result may be stored. No I/O, no clock.
//!
//! ```text
//!                 request LOW                    request HIGH (upgrade)
//!     idle ─────────────────────► LOW pending ───────────────────────► LOW + HIGH pending
//!      │ ▲ ▲                       │   ▲  │ begin          send_failed │    │ confirm_sent, begin
//!      │ │ │          send_failed, │   └──┼────────────────────────────┘    │ (LOW is superseded)
//!      │ │ └──────── expire ───────┘      ▼                                 ▼
//!      │ │                            being fetched ◄──────────────── HIGH pending
//!      │ │                                │   │          begin              ▲
//!      │ └──────── settle ────────────────┘   └── claim runs out: pending   │
//!      └──────────────────────── request HIGH ──────────────────────────────┘
//! ```
//!
//! - [`coalescer`]: the state of one record and its transitions: at most one event per priority is pending.
//! - [`event`], [`dead_letter`]: what travels through the log. [`Version`]: what orders it.
//! - [`freshness`], [`status`], [`eta`]: what a reader sees.
//! - [`prefetch`], [`pressure`], [`breaker`]: when background work runs, and when it yields.
//! - [`config`]: every setting with its unit and default.
//!
//! Invariant: an event is obsolete when its version is completed, or below a HIGH whose sending is confirmed;
//! never because a later version was merely issued.
//! Invariant: versions of a record grow, even after its state was forgotten.

pub mod breaker;
pub mod coalescer;
pub mod config;
pub mod dead_letter;
pub mod eta;
pub mod event;
pub mod freshness;
pub mod iso8601;
pub mod prefetch;
pub mod pressure;
pub mod status;
mod version;

#[cfg(test)]
mod simulation;

pub use version::Version;
