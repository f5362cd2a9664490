//! What one job costs in the state machine when few or many are waiting: enqueue, admit and lease.
//!
//!     scaling JOBS GROUPS      prints nanoseconds per job for each transition
//!
//! Under callgrind the functions named `measured_…` give the instructions; see `run`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::{AdmitParams, Bulk, EnqueueParams, LeaseParams, NewJob, Priority, default_queue};
use tidegate_core::ids::{GroupId, JobId, JobType, Owner};
use tidegate_core::time::Timestamp;

/// Jobs that are measured, and how many of them one call carries.
const MEASURED: u64 = 10_000;
const PER_CALL: u64 = 10;
const NOW: Timestamp = Timestamp(1_706_000_000_000);

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [jobs, groups] = numbers[..] else {
        eprintln!("usage: scaling JOBS GROUPS");
        std::process::exit(2);
    };
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 1e9.into();
    config.backpressure.ready_queue_max_size = 1_000_000;
    let mut bulk = Bulk::new(config, (1, 2)).expect("a valid configuration");
    for calls in calls(0, jobs, groups, 100) {
        bulk.call(calls, NOW).expect("accepted");
        bulk.take_changes();
    }
    let enqueues: Vec<_> = calls(jobs, MEASURED, groups, PER_CALL).collect();
    let admits: Vec<_> = (0..MEASURED / PER_CALL).map(|_| admit()).collect();
    let leases: Vec<_> = (0..MEASURED / PER_CALL).map(|_| lease()).collect();
    let enqueue = timed(|| measured_enqueue(&mut bulk, enqueues));
    let admit = timed(|| measured_admit(&mut bulk, admits));
    let lease = timed(|| measured_lease(&mut bulk, leases));
    let per_job = |took: Duration| took.as_nanos() as u64 / MEASURED;
    println!(
        "{{\"jobs\":{jobs},\"groups\":{groups},\"enqueueNs\":{},\"admitNs\":{},\"leaseNs\":{}}}",
        per_job(enqueue),
        per_job(admit),
        per_job(lease)
    );
    // Freeing the memory of a million jobs is no part of any transition.
    std::mem::forget(bulk);
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Calls of `per_call` jobs each, over the groups in turn.
fn calls(first: u64, jobs: u64, groups: u64, per_call: u64) -> impl Iterator<Item = EnqueueParams> {
    let kind = JobType::new("mail").expect("a short name");
    let payload = Bytes::from_static(&[b'x'; 200]);
    (0..jobs.div_ceil(per_call)).map(move |call| EnqueueParams {
        group: GroupId::new(format!("group-{}", call % groups)).expect("a short name"),
        batch: None,
        base_priority: None,
        jobs: (call * per_call..jobs.min((call + 1) * per_call))
            .map(|job| NewJob {
                id: JobId::new(format!("job-{}", first + job)).expect("a short name"),
                kind: kind.clone(),
                priority: Priority::Normal,
                payload: payload.clone(),
                run_at: None,
                expires_at: None,
            })
            .collect(),
    })
}

fn admit() -> AdmitParams {
    AdmitParams { queue: default_queue(), max: PER_CALL as u32, ready_cap: 1_000_000 }
}

fn lease() -> LeaseParams {
    let owner = Owner::new("worker").expect("a short name");
    LeaseParams { queue: default_queue(), max: PER_CALL as u32, owner }
}

#[inline(never)]
fn measured_enqueue(bulk: &mut Bulk, calls: Vec<EnqueueParams>) {
    for call in calls {
        black_box(bulk.call(call, NOW)).expect("accepted");
        black_box(bulk.take_changes());
    }
}

#[inline(never)]
fn measured_admit(bulk: &mut Bulk, calls: Vec<AdmitParams>) {
    for call in calls {
        let outcome = black_box(bulk.call(call, NOW));
        assert_eq!(outcome.admitted.len() as u64, PER_CALL);
    }
}

#[inline(never)]
fn measured_lease(bulk: &mut Bulk, calls: Vec<LeaseParams>) {
    for call in calls {
        let outcome = black_box(bulk.call(call, NOW));
        assert_eq!(outcome.jobs.len() as u64, PER_CALL);
        black_box(bulk.take_changes());
    }
}
