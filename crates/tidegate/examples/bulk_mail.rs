//! Two customers send mail through one gate: `cargo run --example bulk_mail`.
//!
//! The mail server now and then says "too much" and now and then fails; Tidegate waits, tries again, and
//! keeps each customer's share. At the end a reducer folds the results into a summary.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use tidegate::config::BulkConfig;
use tidegate::{BatchOptions, Job, JobDetails, JobError, Millis, Options, Reducer, Submission, Tidegate};

type Anything = Box<dyn std::error::Error>;

/// Sees every job of one batch after the last has ended, and makes the batch's summary of them.
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

/// One customer's mails as one batch, sealed: it is complete when these jobs have ended.
fn campaign(customer: &str, mails: u64) -> Result<Submission, Anything> {
    // With keep_results the reducer sees every job, however many there are.
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
    // Everything lives in this folder. With one that lasts, a process that was killed goes on from there.
    let folder = tempfile::tempdir()?;
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 200.0;
    config.backpressure.default_backoff_ms = Millis(100);

    // A handler is a closure that gets a job and returns its result, or says what went wrong.
    let refused = std::sync::Arc::new(Mutex::new(HashSet::new()));
    let send = move |job: Job| {
        let refused = refused.clone();
        async move {
            let mail: u64 = job.id.as_str().trim_start_matches("mail-").parse()?;
            // "Too much", the first time: costs no attempt, and the gate opens a little less for a while.
            if mail % 100 == 30 && refused.lock().is_ok_and(|mut all| all.insert((job.group, mail))) {
                return Err(JobError::throttled(Some(Millis(300))));
            }
            // A hiccup: costs an attempt, and the job comes again after a backoff.
            if mail % 20 == 7 && job.attempt == 1 {
                return Err(JobError::retry("connection reset"));
            }
            // No use in trying again.
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

    // The small customer comes second and need not wait for the large one.
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
    // Running jobs finish, the rest stays in the folder for the next start.
    tide.shutdown().await?;
    Ok(())
}
