//! A full disk: the store reports it and stops, and everything that it acknowledged is safe.
//!
//! A limit on the size of files (`ulimit -f`) fills the disk; its signal is ignored, so that writes fail instead.
//! The store allocates 64 MiB ahead for its journal, so the limit is above that, and a submission of 80 MB in one
//! chunk does not fit.

use std::path::Path;

use tidegate::{Job, JobError, Options, Submission, Tidegate};

use tidegate_testkit::child;

const KIND: &str = "SEND";
const SMALL: u64 = 500;
const LARGE: u64 = 400;
const LARGE_BYTES: usize = 200 * 1024;

fn open(folder: &Path) -> Tidegate {
    let handler = |_: Job| std::future::ready(Ok::<_, JobError>(()));
    let setup = Tidegate::open(Options::new(folder.join("data"))).unwrap();
    setup.handler(KIND, handler).unwrap().start().unwrap()
}

fn submission(first: u64, count: u64, bytes: usize) -> Submission {
    let mut submission = Submission::new("A").unwrap().batch("spring").unwrap();
    for job in first..first + count {
        let payload = vec![b'x'; bytes];
        submission = submission.job(format!("job-{job}"), KIND, payload).unwrap();
    }
    submission
}

/// The process with the full disk.
async fn fill(folder: &Path) {
    let tide = open(folder);
    let submitted = tide.submit(submission(0, SMALL, 10)).await.unwrap();
    println!("ACCEPTED {}", submitted.accepted);
    let error = tide
        .submit(submission(SMALL, LARGE, LARGE_BYTES))
        .await
        .unwrap_err();
    println!("REFUSED {error}");
    let error = tide.submit(submission(SMALL + LARGE, 1, 10)).await.unwrap_err();
    println!("AFTERWARDS {error}");
    tide.failed().await;
    println!("SHUTDOWN {}", tide.shutdown().await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_keeps_what_was_answered() {
    if let Some(folder) = child::folder() {
        return fill(&folder).await;
    }
    let folder = tempfile::tempdir().unwrap();
    // In blocks of 1,024 bytes: 66 MiB.
    let prelude = format!("trap '' XFSZ; ulimit -f {};", 66 * 1024);
    let mut running = child::spawn(
        "bulk::disk_full::a_full_disk_keeps_what_was_answered",
        folder.path(),
        &prelude,
    );
    assert_eq!(running.says("ACCEPTED").await, SMALL.to_string());
    for moment in ["REFUSED", "AFTERWARDS", "SHUTDOWN"] {
        let error = running.says(moment).await;
        assert!(
            error.contains("a write could not be made durable"),
            "{moment}: {error}"
        );
        assert!(
            error.contains("the store answers nothing more"),
            "{moment}: {error}"
        );
    }
    let ended = tokio::time::timeout(child::DEADLINE, running.process.wait()).await;
    assert!(ended.unwrap().unwrap().success());

    let tide = open(folder.path());
    for job in 0..SMALL {
        tide.job("A", format!("job-{job}")).await.unwrap();
    }
    // Not acknowledged: it may be stored or not, but only as a whole.
    let kept = tide.batch("A", "spring").await.unwrap().counts.total;
    assert!(kept == SMALL || kept == SMALL + LARGE, "{kept} jobs");
    // With space again, the store continues.
    let again = tide.submit(submission(SMALL, LARGE, LARGE_BYTES)).await.unwrap();
    assert_eq!(again.accepted + again.duplicates, LARGE);
    tide.shutdown().await.unwrap();
}
