//! Typed client of Tidegate's HTTP API, and a worker loop on top of it.
//!
//! ```no_run
//! use tidegate_client::{Client, Destination, LeasedJob, Outcome, Worker, new_job};
//!
//! # async fn example() -> Result<(), tidegate_client::ClientError> {
//! let client = Client::builder("http://127.0.0.1:7171").key("tg_…").build()?;
//!
//! // Submit: the service accepts each job id once.
//! let jobs = [new_job("mail-1", "SEND_MAIL", &serde_json::json!({"to": "a@example.org"}))?];
//! let newsletter = Destination::batch("customer-7", "newsletter").seal();
//! let enqueued = client.enqueue_in(&newsletter, &jobs).await?;
//! println!("{} accepted, {} duplicates", enqueued.accepted, enqueued.duplicates);
//!
//! // Work: the worker leases and settles in batches, and extends the leases of long runs.
//! let handler = |job: LeasedJob| async move {
//!     println!("{}/{}: {}", job.group, job.id, job.payload);
//!     Outcome::completed()
//! };
//! let stop = std::future::pending();
//! let tally = Worker::new(client).concurrency(16).run(handler, stop).await?;
//! println!("{} completed", tally.completed);
//! # Ok(())
//! # }
//! ```
//!
//! Requests and responses are the types of `tidegate-api`, re-exported here. The client speaks HTTP/1.1 over
//! TCP or TLS, with hyper and rustls. It uses the `ring` provider and neither reads nor sets the process's
//! default provider.
//!
//! The client percent-encodes names in addresses, so that any group name reaches its route. Clients that
//! normalize addresses as browsers do cannot address a group named `..`.

#![warn(missing_docs)]

mod address;
mod backoff;
mod bulk;
mod client;
mod connect;
mod error;
mod follow;
mod pages;
mod refresh;
mod room;
mod sse;
mod system;

pub use bulk::{DeadFilter, Destination, JobCommand, Outcome, Tally, Worker, new_job};
pub use client::{Client, ClientBuilder};
pub use error::ClientError;
pub use follow::Events;
pub use pages::Items;
pub use refresh::DeadLetterFilter;
pub use room::{Challenge, Draw, Joined, RoomEvent, TicketCookie, Waiting};
/// A visitor's entry in a waiting room.
pub use tidegate_api::Ticket as RoomTicket;
pub use tidegate_api::*;
