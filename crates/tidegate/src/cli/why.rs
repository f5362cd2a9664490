//! `tidegate why`: what keeps a job, or a group's next job, from starting.

use clap::Args;

use super::remote::Remote;
use super::table::{details, maybe, word};

#[derive(Debug, Args)]
pub(super) struct WhyArgs {
    #[command(flatten)]
    remote: Remote,
    group: String,
    /// The group's next job if absent
    job: Option<String>,
}

pub(super) fn run(args: &WhyArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let why = match &args.job {
            Some(job) => client.why_job(&args.group, job).await?,
            None => client.why_group(&args.group).await?,
        };
        remote.print(&why, |why| {
            let lines = [
                ("state", word(why.state)),
                ("starts at about", maybe(why.starts_at)),
            ];
            super::table::visible(&why.text) + "\n" + &details(&lines)
        })
    })
}
