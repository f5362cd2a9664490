//! `tidegate demo`.
use clap::Args;
#[derive(Debug, Args)]
pub(super) struct DemoArgs {}
pub(super) fn run(_args: &DemoArgs) -> anyhow::Result<()> {
    Ok(())
}
