//! A worker on a shared queue: `cargo run --example redis_worker -- redis://127.0.0.1:6379/`.
//!
//! Start it in any number of processes, on any number of machines: together they keep one rate limit and one
//! fair order. With a number as the second argument it also submits that many jobs. Ctrl-C stops it in order. A
//! killed worker loses nothing either: the others run its jobs again when their leases expire.

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

    // Every process needs the same configuration.
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 20.0.into();

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

    // The worker waits for an unavailable server. `failed` resolves only if the store is unusable for good.
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        () = tide.failed() => {}
    }
    tide.shutdown().await?;
    Ok(())
}
