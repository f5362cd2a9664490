//! The life cycle of a status: rows only for records with a failure.

use bytes::Bytes;
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

use super::harness::*;
use crate::*;

pub async fn a_failure_is_counted(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    assert_eq!(h.write_one(failed(&record, 3, T0)).await, WriteOutcome::Updated);
    let expected = Status {
        state: StatusState::Retrying,
        absent: false,
        version: Version(3),
        fail_count: 1,
        last_error_code: "API_5XX".to_owned(),
        last_error_message: "the upstream answered 503".to_owned(),
        next_retry_at: Some(after(60)),
        event: None,
        created_at: T0,
        updated_at: T0,
    };
    assert_eq!(h.status(&record).await, expected);
    // A retry carries the version of its event.
    h.write_one(failed(&record, 3, after(5))).await;
    let status = h.status(&record).await;
    assert_eq!(
        (status.fail_count, status.created_at, status.updated_at),
        (2, T0, after(5))
    );
    let mut last = failure(&record, 4, after(9));
    last.state = StatusState::Failed;
    last.error_code = "API_4XX".to_owned();
    h.write_one(Write::Failed(last)).await;
    let status = h.status(&record).await;
    assert_eq!((status.fail_count, status.state), (3, StatusState::Failed));
    assert_eq!(
        (status.last_error_code.as_str(), status.version),
        ("API_4XX", Version(4))
    );
    assert!(h.row(&record).await.snapshot.is_none());
}

pub async fn a_repeated_failure_counts_once(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    for _ in 0..3 {
        h.write_one(failed(&record, 3, T0)).await;
    }
    assert_eq!(h.status(&record).await.fail_count, 1);
}

pub async fn a_success_ends_the_status(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    h.write_one(failed(&record, 2, after(1))).await;
    h.write_one(full(&record, 2, "two", after(2))).await;
    assert_eq!(h.row(&record).await.status, None);
    // The count starts at one again.
    h.write_one(failed(&record, 3, after(3))).await;
    assert_eq!(h.status(&record).await.fail_count, 1);
}

pub async fn an_unchanged_success_ends_the_status(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    h.write_one(failed(&record, 2, after(1))).await;
    h.write_one(full(&record, 3, "one", after(2))).await;
    assert_eq!(h.row(&record).await.status, None);
    h.write_one(failed(&record, 4, after(3))).await;
    h.write_one(full(&record, 5, "one", after(4))).await;
    assert_eq!(h.row(&record).await.status, None);
    assert_eq!(
        h.snapshots
            .status_counts(&record.source, 100)
            .await
            .expect("counts"),
        StatusCounts::default()
    );
}

pub async fn a_first_success_ends_the_status_of_a_record_without_snapshot(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(failed(&record, 1, T0)).await;
    h.write_one(full(&record, 2, "one", after(1))).await;
    let row = h.row(&record).await;
    assert!(row.snapshot.is_some());
    assert_eq!(row.status, None);
    assert_eq!(
        h.snapshots
            .status_counts(&record.source, 100)
            .await
            .expect("counts"),
        StatusCounts::default()
    );
}

pub async fn an_older_failure_changes_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(failed(&record, 5, T0)).await;
    let once = h.status(&record).await;
    let stale = WriteOutcome::Stale { stored: Version(5) };
    assert_eq!(h.write_one(failed(&record, 4, after(1))).await, stale);
    assert_eq!(h.status(&record).await, once);
}

pub async fn a_failure_older_than_the_snapshot_changes_nothing(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 5, "one", T0)).await;
    let stale = WriteOutcome::Stale { stored: Version(5) };
    assert_eq!(h.write_one(failed(&record, 4, after(1))).await, stale);
    assert_eq!(h.row(&record).await.status, None);
}

pub async fn an_older_success_leaves_a_newer_failure(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(failed(&record, 5, T0)).await;
    assert_eq!(
        h.write_one(full(&record, 4, "one", after(1))).await,
        WriteOutcome::Updated
    );
    let row = h.row(&record).await;
    assert_eq!(row.snapshot.expect("a snapshot").version, Version(4));
    assert_eq!(row.status.expect("a status").version, Version(5));
}

pub async fn a_failure_leaves_the_snapshot_alone(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    h.write_one(full(&record, 1, "one", T0)).await;
    let once = h.snapshot(&record).await;
    h.write_one(failed(&record, 2, after(1))).await;
    assert_eq!(h.snapshot(&record).await, once);
}

pub async fn a_parked_event_is_kept_and_counts_no_failure(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let mut parked = failure(&record, 2, T0);
    parked.event = Some(Bytes::from_static(b"\x00event\xff"));
    parked.error_code = "THROTTLED".to_owned();
    assert_eq!(
        h.write_one(Write::Parked(parked.clone())).await,
        WriteOutcome::Updated
    );
    let status = h.status(&record).await;
    assert_eq!(status.fail_count, 0);
    assert_eq!(status.event, parked.event);
    assert_eq!(status.next_retry_at, parked.next_retry_at);
    // A failure afterwards is the first one, and needs the event no more.
    h.write_one(failed(&record, 2, after(60))).await;
    let status = h.status(&record).await;
    assert_eq!((status.fail_count, status.event), (1, None));
}

pub async fn a_confirmed_absence_is_kept(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("nobody");
    let mut absent = failure(&record, 1, T0);
    absent.absent = true;
    absent.state = StatusState::Failed;
    absent.next_retry_at = None;
    h.write_one(Write::Failed(absent)).await;
    let status = h.status(&record).await;
    assert!(status.absent);
    assert_eq!(status.next_retry_at, None);
    h.write_one(failed(&record, 2, after(1))).await;
    assert!(!h.status(&record).await.absent);
}

pub async fn long_and_odd_errors_are_made_to_fit(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let record = record("a");
    let mut odd = failure(&record, 1, T0);
    odd.error_code = "ü".repeat(80);
    odd.error_message = format!("'\0\"\\🦀{}", "🦀".repeat(5_000));
    h.write_one(Write::Failed(odd)).await;
    let status = h.status(&record).await;
    assert_eq!(status.last_error_code, "ü".repeat(MAX_ERROR_CODE));
    assert!(status.last_error_message.starts_with("'\u{fffd}\"\\🦀"));
    assert_eq!(status.last_error_message.chars().count(), MAX_ERROR_MESSAGE);
}

/// Given up; a request before `next_retry_at` is pointless.
fn failed_for_good(key: &str, version: u64, next_retry_at: Timestamp) -> Write {
    let mut failure = failure(&record(key), version, T0);
    failure.state = StatusState::Failed;
    failure.next_retry_at = Some(next_retry_at);
    Write::Failed(failure)
}

pub async fn failures_of_made_up_keys_are_forgotten(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    h.write_one(full(&record("fetched"), 1, "one", T0)).await;
    h.active(&record("registered"), T0).await;
    let mut parked = failure(&record("parked"), 2, T0);
    parked.next_retry_at = Some(after(60));
    h.write(&[
        failed_for_good("made up", 2, after(60)),
        failed_for_good("registered", 2, after(60)),
        failed_for_good("fetched", 2, after(60)),
        failed_for_good("later", 2, after(100)),
        Write::Parked(parked),
    ])
    .await;
    let params = LapsedParams {
        from: Timestamp(0),
        before: after(100),
        max: 10,
    };
    let lapsed = h.snapshots.forget_lapsed(&params).await.expect("forgotten");
    assert_eq!((lapsed.forgotten, lapsed.next), (2, None));
    for (key, is_kept) in [
        ("made up", false),
        ("registered", false),
        ("fetched", true),
        ("later", true),
        ("parked", true),
    ] {
        let status = h.row(&record(key)).await.status;
        assert_eq!(status.is_some(), is_kept, "{key}: {status:?}");
    }
    assert!(h.row(&record("fetched")).await.snapshot.is_some());
    // The count of failures starts at one again.
    h.write_one(failed_for_good("made up", 3, after(200))).await;
    assert_eq!(h.status(&record("made up")).await.fail_count, 1);
}

pub async fn forgetting_goes_in_slices_and_passes_over_what_stays(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    // One timestamp has more rows than a slice, and so do the rows that stay.
    let fetched: Vec<_> = (0..5)
        .map(|n| full(&record(format!("fetched{n}")), 1, "one", T0))
        .collect();
    h.write(&fetched).await;
    let mut failures = Vec::new();
    for n in 0..5 {
        failures.push(failed_for_good(&format!("fetched{n}"), 2, after(1)));
        failures.push(failed_for_good(&format!("made up{n}"), 2, after(2)));
    }
    h.write(&failures).await;
    let mut params = LapsedParams {
        from: Timestamp(0),
        before: after(10),
        max: 2,
    };
    let (mut forgotten, mut slices) = (0, 0);
    loop {
        let lapsed = h.snapshots.forget_lapsed(&params).await.expect("forgotten");
        (forgotten, slices) = (forgotten + lapsed.forgotten, slices + 1);
        assert!(lapsed.forgotten <= 2);
        let Some(next) = lapsed.next else { break };
        assert!(next >= params.from && slices < 20, "it goes on and on");
        params.from = next;
    }
    assert_eq!(forgotten, 5);
    for n in 0..5 {
        assert!(h.row(&record(format!("fetched{n}"))).await.status.is_some());
        assert!(h.row(&record(format!("made up{n}"))).await.status.is_none());
    }
}
