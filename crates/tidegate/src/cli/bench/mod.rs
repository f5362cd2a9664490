//! `tidegate bench`: figures of this machine, as one JSON object or as a table.

mod bulk;
mod child;
mod http;
mod refresh;
mod subject;
mod times;
mod usage;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Jobs through the whole bulk engine
    Bulk(bulk::BulkArgs),
    /// Jobs through the port of a service, by pull
    Http(http::HttpArgs),
    /// Records that are read and kept fresh, in front of an upstream that counts its calls
    Refresh(refresh::RefreshArgs),
}

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.what {
        What::Bulk(args) => bulk::run(args),
        What::Http(args) => http::run(args),
        What::Refresh(args) => refresh::run(args),
    }
}
