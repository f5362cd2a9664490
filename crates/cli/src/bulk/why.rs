//! `tidegate why`: explains what keeps a job, or a group's next job, from starting.

use clap::Args;

use crate::remote::Remote;
use crate::table::{details, range, word};

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    remote: Remote,
    group: String,
    /// The group's next job if absent
    job: Option<String>,
}

pub(crate) fn run(args: &WhyArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let why = match &args.job {
            Some(job) => client.why_job(&args.group, job).await?,
            None => client.why_group(&args.group).await?,
        };
        remote.print(&why, |why| {
            let lines = [
                ("state", word(why.state)),
                ("starts in", why.starts.as_ref().map(range).unwrap_or_default()),
            ];
            crate::table::visible(&why.text) + "\n" + &details(&lines)
        })
    })
}
