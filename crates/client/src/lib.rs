//! Typed client of Tidegate's HTTP API, and a worker loop on top of it.
//!
//! ```no_run
//! use tidegate_client::{Client, LeasedJob, Outcome, Destination, Worker, new_job};
//!
//! # async fn example() -> Result<(), tidegate_client::ClientError> {
//! let client = Client::builder("http://127.0.0.1:7171").key("tg_…").build()?;
//!
//! // Submit: accepting is idempotent by the job's id.
//! let jobs = [new_job("mail-1", "SEND_MAIL", &serde_json::json!({"to": "a@example.org"}))?];
//! let place = Destination::batch("customer-7", "newsletter").seal();
//! let done = client.enqueue_in(&place, &jobs).await?;
//! println!("{} accepted, {} known already", done.accepted, done.duplicates);
//!
//! // Work: leases in chunks, answers in chunks, long work keeps its lease.
//! let handler = |job: LeasedJob| async move {
//!     println!("{}/{}: {}", job.group, job.id, job.payload);
//!     Outcome::done()
//! };
//! let stop = std::future::pending();
//! let tally = Worker::new(client).concurrency(16).run(handler, stop).await?;
//! println!("{} done", tally.done);
//! # Ok(())
//! # }
//! ```
//!
//! Every request and answer is a type of `tidegate-api`, re-exported here. HTTP/1.1 over TCP or TLS by hyper and
//! rustls with the `ring` provider; the process's default provider is neither used nor set. Names in addresses
//! are sent exactly as given, whatever characters they have. That is why this is not built on a client that
//! rewrites addresses as browsers do: there a group named `..` could not be reached.

mod address;
mod backoff;
mod batches;
mod client;
mod congestion;
mod connect;
mod dead;
mod error;
mod feed;
mod follow;
mod groups;
mod jobs;
mod leases;
mod limits;
mod pages;
mod records;
mod refresh;
mod rooms;
mod sse;
mod stopwatch;
mod system;
mod visit;
mod worker;

pub use client::{Client, ClientBuilder};
pub use dead::DeadFilter;
pub use error::ClientError;
pub use follow::Events;
pub use jobs::{Destination, new_job};
pub use pages::Items;
pub use refresh::DeadLetterFilter;
/// Where a visitor of a room stands.
pub use tidegate_api::Ticket as RoomTicket;
pub use tidegate_api::*;
pub use visit::{RoomEvent, TicketCookie, Waiting};
pub use worker::{Outcome, Tally, Worker};
