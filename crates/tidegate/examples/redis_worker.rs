//! A worker on a shared queue: `cargo run --example redis_worker -- redis://127.0.0.1:6379/`.
//!
//! Start it as often as you like, on as many machines: all of them together keep one rate limit and one fair
//! order. With a second argument it also submits so many jobs. Ctrl-C ends it in good order; one that is killed
//! loses nothing either, the others run its jobs again when their leases have run out.

use std::time::Duration;

use tidegate::config::BulkConfig;
use tidegate::{Job, JobError, Options, Submission, Tidegate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let jobs: u64 = arguments.next().map_or(Ok(0), |count| count.parse())?;

    // The same in every process.
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 20.0;

    let process = std::process::id();
    let send = move |job: Job| async move {
        println!(
            "process {process}: {} of {}, attempt {}",
            job.id, job.group, job.attempt
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, JobError>(())
    };
    let tide = Tidegate::connect(Options::redis(url).config(config))
        .await?
        .handler("SEND", send)?
        .on_complete(|done| async move { println!("{} of {}: {:?}", done.batch, done.group, done.counts) })
        .start()?;

    if jobs > 0 {
        let mut submission = Submission::new("customer-A")?.batch(format!("by-{process}"))?;
        for job in 0..jobs {
            submission = submission.job(format!("mail-{process}-{job}"), "SEND", "{}")?;
        }
        tide.submit(submission.seal()).await?;
    }

    // A server that is away for a while is waited for; one that is wrong for good ends this.
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        () = tide.failed() => {}
    }
    tide.shutdown().await?;
    Ok(())
}
