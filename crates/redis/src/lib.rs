//! What every store and log on Redis shares.
//!
//! - [`Servers`]: one server, or the masters of a Cluster. Finds the server of a key, and retries failed calls.
//! - [`Library`]: Lua files as one [function library](https://redis.io/docs/latest/develop/programmability/functions-intro/),
//!   loaded by every connection.
//! - [`Caller`]: names the calls of this process, so that a script recognises one that is sent again.
//! - [`Args`], [`Items`]: arguments and replies of a script.
//! - [`listener`]: signals between processes.
//! - [`keys`]: hash tags and slots.
//!
//! Invariant: this crate knows no transition; keys and scripts belong to the parts.

mod args;
mod call;
mod error;
pub mod keys;
mod library;
pub mod listener;
mod numbers;
mod pipeline;
mod reply;
mod request_id;
mod schema;
mod server;
mod servers;

pub use args::{Args, pack_time};
pub use call::Call;
pub use error::Error;
pub use library::{Access, Function, Library, Script};
pub use numbers::{MAX_NUMBER, time};
pub use pipeline::run_all;
pub use reply::Items;
pub use request_id::Caller;
pub use schema::check_schema;
pub use server::{Broken, Live, Server};
pub use servers::{Failure, PATIENCE, Request, Servers};
