//! Two customers send mail through one gate: `cargo run --example bulk_mail`.
//!
//! The mail server sometimes throttles and sometimes fails. Tidegate backs off, retries, and keeps each
//! customer's share. At the end a reducer folds the results into a summary.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use tidegate::config::BulkConfig;
use tidegate::{BatchOptions, Job, JobDetails, JobError, Millis, Options, Reducer, Submission, Tidegate};

type Anything = Box<dyn std::error::Error>;

/// Folds the finished jobs of one batch into its summary.
#[derive(Default)]
struct Summary {
    sent: u64,
    bytes: usize,
    throttles: u32,
    bounced: Vec<String>,
}

impl Reducer for Summary {
    fn fold(&mut self, job: &JobDetails) -> Result<(), String> {
        self.throttles += job.view.throttles;
        match (&job.result, &job.error) {
            (Some(result), _) => {
                self.sent += 1;
                self.bytes += result.len();
            }
            (None, Some(error)) => self.bounced.push(format!("{} ({error})", job.id)),
            (None, None) => return Err(format!("{} has not ended", job.id)),
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<bytes::Bytes, String> {
        let Summary {
            sent,
            bytes,
            throttles,
            bounced,
        } = *self;
        let bounced = bounced.join(", ");
        Ok(
            format!("{sent} sent, {bytes} bytes of receipts, {throttles} throttles, bounced: {bounced}")
                .into(),
        )
    }
}

/// One customer's mails as a sealed batch: it completes when these jobs have ended.
fn campaign(customer: &str, mails: u64) -> Result<Submission, Anything> {
    // With `keep_results` the reducer sees every job, however many there are.
    let options = BatchOptions {
        keep_results: true,
        ..BatchOptions::default()
    };
    let mut submission = Submission::new(customer)?.batch("spring")?.options(options);
    for mail in 0..mails {
        submission = submission.job(format!("mail-{mail}"), "MAIL", format!("Dear reader {mail}, …"))?;
    }
    Ok(submission.seal())
}

#[tokio::main]
async fn main() -> Result<(), Anything> {
    // Everything is in this folder. A killed process continues from it, if the folder is a lasting one.
    let folder = tempfile::tempdir()?;
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 200.0.into();
    config.backpressure.default_backoff_ms = Millis(100);

    // A handler is a closure that gets a job and returns its result or an error.
    let refused = std::sync::Arc::new(Mutex::new(HashSet::new()));
    let send = move |job: Job| {
        let refused = refused.clone();
        async move {
            let mail: u64 = job.id.as_str().trim_start_matches("mail-").parse()?;
            // The server throttles the first time: this costs no attempt, and Tidegate lowers the rate for a while.
            if mail % 100 == 30 && refused.lock().is_ok_and(|mut all| all.insert((job.group, mail))) {
                return Err(JobError::throttled(Some(Millis(300))));
            }
            // A transient error: this costs an attempt, and the job runs again after a backoff.
            if mail % 20 == 7 && job.attempt == 1 {
                return Err(JobError::retry("connection reset"));
            }
            // A permanent error: a retry would not help.
            if mail % 200 == 13 {
                return Err(JobError::failed("no such mailbox"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(format!("receipt for mail {mail}"))
        }
    };
    let tide = Tidegate::open(Options::new(folder.path()).config(config))?
        .handler("MAIL", send)?
        .reducer(|_| Some(Box::<Summary>::default()))
        .start()?;

    // The small customer submits second and does not wait for the large one.
    tide.submit(campaign("large", 400)?).await?;
    tide.submit(campaign("small", 40)?).await?;

    for customer in ["small", "large"] {
        let mut progress = tide.follow(customer, "spring")?;
        while let Some(now) = progress.next().await {
            let counts = now?.counts;
            println!(
                "{customer}: {} of {} sent, {} bounced",
                counts.success, counts.total, counts.failed
            );
        }
        let batch = tide.batch(customer, "spring").await?;
        let summary = batch.summary.unwrap_or_default();
        println!(
            "{customer} {:?}: {}\n",
            batch.status,
            String::from_utf8_lossy(&summary)
        );
    }
    // Running jobs finish; the folder keeps the rest for the next start.
    tide.shutdown().await?;
    Ok(())
}
