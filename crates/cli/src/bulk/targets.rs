//! `tidegate targets`: lists, enables and disables push targets.

use clap::{Args, Subcommand};
use tidegate_client::Target;

use crate::remote::{Remote, WhyArg, say};
use crate::table::{Table, number, word};

#[derive(Debug, Args)]
pub(crate) struct TargetsArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List targets with the outcomes of their calls
    List,
    /// Resume sending jobs to a target
    Enable(Named),
    /// Stop sending jobs to a target; its jobs wait
    Disable(Named),
}

#[derive(Debug, Args)]
struct Named {
    target: String,
    #[command(flatten)]
    why: WhyArg,
}

pub(crate) fn run(args: &TargetsArgs) -> anyhow::Result<()> {
    let remote = &args.remote;
    remote.run(|client| async move {
        let targets = match &args.what {
            What::List => client.targets().await?,
            What::Enable(on) => vec![client.enable_target(&on.target, on.why.why.as_deref()).await?],
            What::Disable(on) => vec![client.disable_target(&on.target, on.why.why.as_deref()).await?],
        };
        if remote.json {
            return targets
                .iter()
                .try_for_each(|target| remote.print(target, |_| String::new()));
        }
        say(&table(&targets))
    })
}

fn table(targets: &[Target]) -> String {
    let mut table = Table::new(&[
        "TARGET",
        "STATE",
        ">RATE",
        ">OF",
        ">BUSY",
        ">AT ONCE",
        ">DONE",
        ">FAILED",
        ">THROTTLED",
        ">RETRIED",
        ">FAILED LATELY",
        "URL",
        "REASON",
    ]);
    for target in targets {
        let calls = target.calls;
        let failure = target.last_failure.as_ref().map(|failure| failure.error.clone());
        table.row(vec![
            target.name.clone(),
            word(target.state),
            number(target.rps),
            number(target.configured_rps),
            target.busy.to_string(),
            target.concurrency.to_string(),
            calls.completed.to_string(),
            calls.failed.to_string(),
            calls.throttled.to_string(),
            calls.retried.to_string(),
            format!("{:.0} %", target.recent_calls.failed_share() * 100.0),
            target.url.clone(),
            target.reason.clone().or(failure).unwrap_or_default(),
        ]);
    }
    table.text()
}
