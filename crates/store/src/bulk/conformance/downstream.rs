//! What the downstream says: rates of any size, cuts of a queue or of one group in it, Retry-After, and returned starts.

use tidegate_core::bulk::config::{BulkConfig, JobTypeConfig, QueueConfig};
use tidegate_core::bulk::views::{Query, QueueView, View};
use tidegate_core::bulk::{ConfigureLimitsParams, JobOutcome, LimitSetting, Set, Stop, ThrottleScope};
use tidegate_core::time::{Millis, Timestamp};

use super::harness::*;

fn adaptive(config: &mut BulkConfig) {
    config.congestion.adaptive = true;
}

/// Two types of jobs, each with a queue of its own.
fn two_queues(config: &mut BulkConfig) {
    adaptive(config);
    let mail = JobTypeConfig {
        queue: Some(queue("mail")),
        ..Default::default()
    };
    config.job_types.insert(kind("mail"), mail);
}

fn throttled_group(after: Option<u64>) -> JobOutcome {
    JobOutcome::Throttled {
        retry_after: after.map(Millis),
        scope: ThrottleScope::Group,
    }
}

fn overloaded() -> JobOutcome {
    JobOutcome::Retry {
        error: "no response within 10000 ms".to_owned(),
        after: None,
        overloaded: true,
    }
}

async fn view(q: &Harness, name: &str) -> QueueView {
    let View::Queues(queues) = q.view(Query::Queues).await else {
        panic!("queues are answered with queues")
    };
    let found = queues.into_iter().find(|view| view.id == queue(name));
    found.unwrap_or_else(|| panic!("there is no queue {name}"))
}

/// A downstream that accepts so many calls per aligned second, answered at once. Returns calls and successes.
async fn call_for(q: &Harness, seconds: u64, capacity: u64, outcome: impl Fn() -> JobOutcome) -> (u64, u64) {
    let (mut calls, mut successes, mut second, mut used) = (0, 0, 0, 0);
    let end = q.now() + Millis::from_secs(seconds);
    while q.now() < end {
        if q.now().0 / 1_000 != second {
            (second, used) = (q.now().0 / 1_000, 0);
        }
        for job in q.take(100).await {
            calls += 1;
            if used < capacity {
                (used, successes) = (used + 1, successes + 1);
                q.settle(&job, done()).await;
            } else {
                q.settle(&job, outcome()).await;
            }
        }
        q.release_due().await;
        q.advance(50);
    }
    (calls, successes)
}

/// Starts in `windows` windows, one call in each.
async fn starts(q: &Harness, name: &str, windows: u64, window: u64) -> u64 {
    let mut started = 0;
    for _ in 0..windows {
        let jobs = q.lease_in(name, 1_000).await.jobs;
        started += jobs.len() as u64;
        q.settle_all(&jobs, done()).await;
        q.advance(window);
    }
    started
}

pub async fn rates_below_one_per_window_are_exact(backend: &dyn Backend) {
    for (rps, window, windows, expected) in [
        (0.5, 1_000, 20, 10),
        (2.0, 100, 50, 10),
        (10.0, 20, 100, 20),
        (1.9, 1_000, 20, 38),
        (0.1, 20, 1_500, 3),
    ] {
        let q = Harness::with(backend, |config| {
            config.backpressure.rate_limit_window_sec = window as f64 / 1_000.0;
            let own = QueueConfig {
                rate: Some(f64::into(rps)),
                ..Default::default()
            };
            config.queues.insert(queue("default"), own);
        })
        .await;
        q.enqueue_n("A", 60).await;
        let started = starts(&q, "default", windows, window).await;
        assert_eq!(started, expected, "{rps}/s in windows of {window} ms");
    }
}

pub async fn the_whole_system_may_be_slow_too(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 0.25).await;
    q.enqueue_n("A", 10).await;
    let (mut started, mut waits) = (0, Vec::new());
    let end = q.now() + Millis::from_secs(16);
    while q.now() < end {
        let outcome = q.lease(10).await;
        started += outcome.jobs.len();
        let Stop::Limited { until } = outcome.stop else {
            panic!("{:?}", outcome.stop)
        };
        waits.push(until.since(q.now()).0);
        q.advance(until.since(q.now()).0);
    }
    assert_eq!(started, 4);
    assert!(waits.iter().all(|&wait| wait > 0), "{waits:?}");
    assert!(
        waits.len() <= if q.shards == 1 { 6 } else { 16 },
        "nobody polls in windows that allow nothing: {waits:?}"
    );
}

pub async fn the_rate_follows_what_is_delivered(backend: &dyn Backend) {
    let q = Harness::with(backend, adaptive).await;
    q.enqueue_n("A", 5_000).await;
    call_for(&q, 20, 20, throttled).await;
    let (calls, successes) = call_for(&q, 40, 20, throttled).await;
    assert!(successes >= 760, "{successes} of 800");
    assert!(calls * 100 <= successes * 115, "{calls} calls for {successes}");
    let view = view(&q, "default").await;
    assert!(view.rps < 25.0 && view.last_cut_at.is_some(), "{view:?}");
}

pub async fn it_can_be_switched_off_at_run_time(backend: &dyn Backend) {
    let q = Harness::with(backend, adaptive).await;
    let switch = |on| ConfigureLimitsParams {
        adaptive: on,
        by: "Ada".to_owned(),
        ..ConfigureLimitsParams::default()
    };
    q.enqueue_n("A", 3_000).await;
    q.enqueue_n("B", 3_000).await;
    for job in q.take(40).await {
        let outcome = match job.leased.group.as_str() {
            "A" => throttled_group(Some(600_000)),
            _ => throttled(),
        };
        q.settle(&job, outcome).await;
    }
    q.advance(5_000);
    let slow = groups(&q.take(500).await);
    assert!(!slow.contains('A'), "it is held: {slow}");
    // With shards, that of B has no delivery to measure the rate by.
    assert!(slow.len() < 100 || q.shards > 1, "B is slow: {slow}");
    assert_eq!(q.call(switch(Set::To(false))).await, Ok(()));
    let limits = match q.view(Query::Limits).await {
        View::Limits(limits) => limits,
        other => panic!("limits were answered with {other:?}"),
    };
    let change = limits.changes.last().expect("it was changed");
    assert_eq!(
        (
            limits.adaptive,
            change.setting,
            change.from.as_deref(),
            change.to.as_deref()
        ),
        (false, LimitSetting::Adaptive, Some("on"), Some("off"))
    );
    q.advance(1_000);
    let jobs = q.take(500).await;
    assert_eq!(jobs.len(), 500, "the configured rate holds");
    assert!(groups(&jobs).contains('A'), "a hold of its group is over");
    q.settle_all(&jobs, throttled()).await;
    q.advance(1_000);
    assert_eq!(q.take(500).await.len(), 500, "throttles lower nothing");
    assert_eq!(q.call(switch(Set::Reset)).await, Ok(()));
    for job in q.take(100).await {
        q.settle(&job, throttled()).await;
    }
    q.advance(1_000);
    assert!(
        q.take(500).await.len() < 500,
        "the configured control is on again"
    );
}

pub async fn another_queue_keeps_its_rate(backend: &dyn Backend) {
    let q = Harness::with(backend, two_queues).await;
    q.enqueue_n("A", 300).await;
    q.enqueue("A", of_kind("mail", jobs("mail", 200))).await;
    call_for(&q, 3, 5, throttled).await;
    assert!(view(&q, "default").await.rps < 10.0);
    assert_eq!(view(&q, "mail").await.rps, 10_000.0);
    assert_eq!(q.lease_in("mail", 200).await.jobs.len(), 200);
}

pub async fn a_group_over_its_own_quota_slows_itself_alone(backend: &dyn Backend) {
    let q = Harness::with(backend, adaptive).await;
    q.enqueue_n("A", 600).await;
    q.enqueue_n("B", 600).await;
    let (mut of_a, mut of_b, mut second, mut used) = (0, 0, 0, 0);
    let end = q.now() + Millis::from_secs(20);
    let mut throttles = 0;
    while q.now() < end {
        if q.now().0 / 1_000 != second {
            (second, used) = (q.now().0 / 1_000, 0);
        }
        for job in q.take(4).await {
            let a = job.leased.group == group("A");
            if a && used >= 5 {
                throttles += 1;
                q.settle(&job, throttled_group(None)).await;
                continue;
            }
            used += u64::from(a);
            *(if a { &mut of_a } else { &mut of_b }) += 1;
            q.settle(&job, done()).await;
        }
        q.release_due().await;
        q.advance(100);
    }
    assert_eq!(of_b, 600, "B is as fast as ever, A: {of_a}");
    assert!(of_a >= 50, "A gets its quota: {of_a}");
    assert!(throttles <= 30, "{throttles} for {of_a}");
    assert_eq!(view(&q, "default").await.rps, 10_000.0);
}

pub async fn retry_after_holds_everybody_then_one_call_probes(backend: &dyn Backend) {
    let q = Harness::with(backend, adaptive).await;
    q.enqueue_n("A", 50).await;
    // Each shard finds out on its own.
    if q.shards == 1 {
        q.enqueue_n("B", 50).await;
    }
    let first = q.take_all(4).await;
    q.advance(10);
    q.settle_all(&first[..3], done()).await;
    q.settle(&first[3], throttled_for(5_000)).await;
    let outcome = q.lease(10).await;
    assert!(outcome.jobs.is_empty());
    let until = q.now() + Millis(5_000);
    assert_eq!(outcome.stop, Stop::Limited { until });
    assert_eq!(view(&q, "default").await.held_until, Some(until));
    q.advance(4_999);
    assert!(q.take(10).await.is_empty());
    q.advance(1);
    let probe = q.take(10).await;
    assert_eq!(probe.len(), 1, "one call probes");
    q.advance(100);
    assert!(q.take(10).await.is_empty(), "the others wait for its answer");
    q.settle(&probe[0], done()).await;
    q.advance(1_000);
    assert!(!q.take(10).await.is_empty());
}

pub async fn retry_after_of_a_group_holds_the_group(backend: &dyn Backend) {
    let q = Harness::with(backend, adaptive).await;
    q.enqueue_n("A", 10).await;
    q.enqueue_n("B", 10).await;
    let jobs = q.take_all(2).await;
    assert_eq!(groups(&jobs), "AB");
    q.settle(&jobs[0], throttled_group(Some(3_000))).await;
    q.settle(&jobs[1], done()).await;
    let rest = q.lease(20).await;
    assert_eq!(groups(&rest.jobs), "BBBBBBBBB");
    let until = q.now() + Millis(3_000);
    assert_eq!(rest.stop, Stop::Held { until });
    assert_eq!(q.release_due().await.next_due, Some(until));
    q.settle_all(&rest.jobs, done()).await;
    q.advance(3_000);
    q.release_due().await;
    let probe = q.take(20).await;
    assert_eq!(groups(&probe), "A");
    // A probe that was never made is made again.
    q.settle(&probe[0], JobOutcome::Released).await;
    assert_eq!(q.take(20).await.len(), 1);
}

pub async fn a_lost_probe_is_followed_by_another(backend: &dyn Backend) {
    let q = Harness::with(backend, adaptive).await;
    q.enqueue_n("A", 10).await;
    let job = q.take_one().await;
    q.settle(&job, throttled_for(1_000)).await;
    q.advance(1_000);
    assert_eq!(q.take(10).await.len(), 1);
    q.advance(60_000);
    assert!(q.take(10).await.is_empty(), "its lease has not been seen to end");
    q.expire_leases().await;
    assert_eq!(q.take(10).await.len(), 1);
}

pub async fn timeouts_lower_the_rate(backend: &dyn Backend) {
    let q = Harness::with(backend, |config| {
        adaptive(config);
        config.worker_pool.max_retry_count = 1_000;
    })
    .await;
    q.enqueue_n("A", 500).await;
    let mut calls = Vec::new();
    for _ in 0..30 {
        let mut second = 0;
        for _ in 0..10 {
            let jobs = q.take(20).await;
            second += jobs.len();
            q.settle_all(&jobs, overloaded()).await;
            q.release_due().await;
            q.advance(100);
        }
        calls.push(second);
    }
    let late: usize = calls[10..].iter().sum();
    assert!(
        late <= 10,
        "a downstream that never answers is only probed: {calls:?}"
    );
}

pub async fn answers_to_calls_before_the_cut_do_not_cut_again(backend: &dyn Backend) {
    let q = Harness::with(backend, adaptive).await;
    q.enqueue_n("A", 400).await;
    let first = q.take_all(100).await;
    q.advance(2_000);
    q.settle_all(&first[..50], done()).await;
    q.settle(&first[50], throttled()).await;
    let cut = view(&q, "default").await;
    assert!(cut.rps < 60.0, "{cut:?}");
    q.advance(1_501);
    q.settle_all(&first[51..], throttled()).await;
    let after = view(&q, "default").await;
    assert_eq!(after.last_cut_at, cut.last_cut_at);
    assert!(after.rps >= cut.rps, "{cut:?} {after:?}");
}

pub async fn a_released_job_returns_its_start(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 3.0).await;
    if q.shards > 1 {
        // A grant that was used is not given back.
        return;
    }
    q.enqueue_n("A", 10).await;
    let jobs = q.take_all(3).await;
    assert!(q.take(1).await.is_empty());
    q.settle_all(&jobs[..2], JobOutcome::Released).await;
    assert_eq!(q.take(10).await.len(), 2, "their starts are free again");
    // Not in a later window.
    let last = q.take(10).await;
    assert!(last.is_empty());
    q.next_window();
    let next = q.take_all(3).await;
    q.settle(&jobs[2], JobOutcome::Released).await;
    assert!(q.take(1).await.is_empty());
    q.settle_all(&next, done()).await;
}

pub async fn nothing_is_lowered_when_control_is_off(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 100).await;
    let jobs = q.take_all(50).await;
    q.settle_all(&jobs[..25], throttled_for(60_000)).await;
    q.settle_all(&jobs[25..], throttled_group(None)).await;
    assert_eq!(q.take(100).await.len(), 50);
    assert_eq!(view(&q, "default").await.held_until, None::<Timestamp>);
}
