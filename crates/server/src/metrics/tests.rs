//! What a scrape exposes, and its bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tidegate_api::{
    Calls, OldestWait, Queue, Stats, StoreBackend, StoreState, Target, TargetState, Time, Workers,
};
use tidegate_core::bulk::config::Hold;
use tidegate_core::bulk::congestion::CongestionLevel;
use tidegate_core::bulk::estimate::Range;
use tidegate_core::bulk::views::{CongestionState, Query, StateCounts, View};
use tidegate_core::bulk::{
    AdmitParams, EnqueueParams, ExpireLeasesParams, GroupLimits, JobOutcome, LeaseParams, NewJob, Priority,
    ReleaseDueParams, SettleParams, Settlement, ThrottleScope,
};
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{JobId, JobType, Owner, QueueId};
use tidegate_core::time::Millis;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, ModelBulkStore};

use super::process::Process;
use super::*;
use crate::bulk::observed_store::Observed;
use crate::refresh::metrics::tests as refreshing;
use crate::room::metrics::tests as rooms;

const START: Timestamp = Timestamp(1_000_000);

pub(crate) fn metrics(max_groups: u32) -> Metrics {
    let mut config = Config::default();
    config.metrics.max_groups = max_groups;
    Metrics::new(&config, START)
}

fn group(id: impl AsRef<str>) -> GroupId {
    GroupId::new(id).unwrap()
}

fn view(id: impl AsRef<str>, waiting: u64) -> GroupView {
    GroupView {
        id: group(id),
        base_priority: 0,
        limits: GroupLimits::default(),
        paused: false,
        held: false,
        active: waiting > 0,
        counts: StateCounts {
            waiting,
            ..Default::default()
        },
        batches: Vec::new(),
        waiting_since: None,
        estimate: Ok(Range::default()),
    }
}

fn state(id: &str, throttles: u64, backoff: u64) -> CongestionState {
    CongestionState {
        group: group(id),
        non_ready_count: 7,
        rate_limit_speed: 1,
        current_backoff_ms: Millis(backoff),
        congestion_level: CongestionLevel::Critical,
        total_throttle_count: throttles,
        last_throttle_at: Some(START),
        last_backoff_ms: Millis(backoff),
        avg_throttle_per_job: 1.25,
    }
}

/// One of everything.
pub(crate) fn full() -> Scrape {
    let stats = Stats {
        at: Time(START.0),
        counts: tidegate_api::StateCounts::default(),
        active_groups: 1,
        groups: 1,
        high_priority_groups: 1,
        normal_priority_groups: 2,
        low_priority_groups: 3,
        start_rate: 10.0,
        global_rps: 100.0,
        limit_per_window: 100,
        most_started_per_window: 100,
        started: 5,
        throttles: 6,
        saved_spins: 7,
        oldest_wait: Some(OldestWait {
            group: "a".into(),
            since: Time(START.0),
        }),
        queues: vec![Queue {
            id: "mail".into(),
            configured_rps: 100.0,
            rps: 70.0,
            started: 1,
            ready: 2,
            waiting: 7,
            delayed: 5,
            oldest_waiting_since: Some(Time(999_500)),
            groups_waiting: 3,
            running: 4,
            max_running: None,
            last_cut_at: None,
            held_until: None,
            workers: Workers::default(),
        }],
        store: StoreState {
            backend: StoreBackend::Embedded,
            available: true,
            unavailable_since: None,
        },
        version: "0".into(),
    };
    let target = Target {
        name: "mail".into(),
        queue: "mail".into(),
        types: Vec::new(),
        url: "http://127.0.0.1/".into(),
        state: TargetState::Disabled,
        reason: None,
        concurrency: 10,
        busy: 3,
        configured_rps: 100.0,
        rps: 70.0,
        calls: Calls {
            completed: 1,
            failed: 2,
            throttled: 3,
            retried: 4,
        },
        recent_calls: Calls::default(),
        last_success_at: None,
        last_failure: None,
    };
    Scrape {
        now: START + Millis(2_500),
        stats: Some(stats),
        groups: Arc::new(vec![view("a", 3)]),
        targets: vec![target],
        callbacks: vec![("billing".into(), 5, 6)],
        budgets: Some(refreshing::budgeted()),
        refresh: Some(refreshing::refreshing()),
        rooms: Some(rooms::seen()),
        event_streams: 4,
        process: Process::read(),
    }
}

/// Parses every sample: its name with labels, and its value.
pub(crate) fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    let all: Vec<(String, f64)> = read.collect();
    let (count, map) = (all.len(), BTreeMap::from_iter(all));
    assert_eq!(count, map.len(), "a series is there twice");
    map
}

/// Parses every metric's name and type. Counters have their suffix.
pub(crate) fn names(text: &str) -> BTreeSet<(String, String)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let read = types.map(|line| {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffix = if kind == "counter" { "_total" } else { "" };
        (format!("{name}{suffix}"), kind.to_owned())
    });
    read.collect()
}

/// Metrics with the series that exist only after an event.
pub(crate) fn exercised() -> Metrics {
    let metrics = metrics(10);
    metrics.called("enqueue", Duration::from_millis(1), false);
    let took = Duration::from_millis(3);
    metrics.request(&Method::POST, Some("/v1/groups/{group}/jobs"), 200, took);
    metrics.request(&Method::from_bytes(b"BREW").unwrap(), None, 405, took);
    let seen = metrics.congestion().put(state("a", 2, 1_500), START);
    metrics.groups.throttled(&seen, &CongestionConfig::default());
    metrics
}

#[test]
fn every_metric_is_documented_and_every_documented_one_is_exposed() {
    let exposed = names(&exercised().text(&full()));
    let document = include_str!("../../../../docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<(String, String)> = rows
        .map(|row| {
            let (name, rest) = row.split_once('`').unwrap();
            let kind = rest.split('|').nth(1).unwrap().trim();
            (name.to_owned(), kind.to_owned())
        })
        .collect();
    assert_eq!(exposed, documented);
}

#[test]
fn names_labels_and_units_are_as_documented() {
    let samples = samples(&exercised().text(&full()));
    for (name, value) in [
        ("tidegate_bulk_queued_groups{priority=\"low\"}", 3.0),
        ("tidegate_bulk_enqueued_jobs_total", 0.0),
        ("tidegate_bulk_leased_jobs_total", 0.0),
        ("tidegate_bulk_group_waiting_jobs{group=\"a\"}", 3.0),
        (
            "tidegate_store_call_duration_seconds_count{operation=\"enqueue\"}",
            1.0,
        ),
        (
            "tidegate_store_call_duration_seconds_sum{operation=\"enqueue\"}",
            0.001,
        ),
        (
            "tidegate_store_call_duration_seconds_bucket{le=\"0.0005\",operation=\"enqueue\"}",
            0.0,
        ),
        (
            "tidegate_store_call_duration_seconds_bucket{le=\"0.001\",operation=\"enqueue\"}",
            1.0,
        ),
        ("tidegate_store_call_errors_total{operation=\"enqueue\"}", 1.0),
        ("tidegate_bulk_rate_limit_allowed_total{group=\"a\"}", 0.0),
        (
            "tidegate_bulk_rate_limit_denied_total{group=\"a\",reason=\"global\"}",
            0.0,
        ),
        (
            "tidegate_bulk_rate_limit_denied_total{group=\"a\",reason=\"per_group\"}",
            0.0,
        ),
        ("tidegate_bulk_jobs{state=\"ready\"}", 0.0),
        ("tidegate_bulk_jobs{state=\"delayed\"}", 0.0),
        ("tidegate_bulk_dispatch_moved_jobs_total", 0.0),
        ("tidegate_bulk_dispatch_cycle_duration_seconds_count", 0.0),
        ("tidegate_bulk_dispatch_empty_cycles_total", 0.0),
        (
            "tidegate_bulk_backpressure_admitted_jobs_total{destination=\"ready\"}",
            0.0,
        ),
        (
            "tidegate_bulk_backpressure_admitted_jobs_total{destination=\"delayed\"}",
            0.0,
        ),
        ("tidegate_bulk_backpressure_rejections_total", 0.0),
        (
            "tidegate_bulk_congestion_level{group=\"a\",level=\"critical\"}",
            1.0,
        ),
        ("tidegate_bulk_congestion_backoff_seconds_count{group=\"a\"}", 2.0),
        ("tidegate_bulk_congestion_backoff_seconds_sum{group=\"a\"}", 3.0),
        (
            "tidegate_bulk_congestion_backoff_seconds_bucket{le=\"1.0\",group=\"a\"}",
            0.0,
        ),
        (
            "tidegate_bulk_congestion_backoff_seconds_bucket{le=\"2.0\",group=\"a\"}",
            2.0,
        ),
        ("tidegate_bulk_congestion_throttles_per_job{group=\"a\"}", 1.25),
        ("tidegate_bulk_congestion_delayed_jobs{group=\"a\"}", 7.0),
        ("tidegate_bulk_congestion_saved_spins_total", 7.0),
        (
            "tidegate_http_requests_total{method=\"other\",route=\"none\",status=\"405\"}",
            1.0,
        ),
        ("tidegate_bulk_target_enabled{target=\"mail\"}", 0.0),
        (
            "tidegate_bulk_target_calls_total{target=\"mail\",outcome=\"throttled\"}",
            3.0,
        ),
        (
            "tidegate_bulk_callback_calls_total{callback=\"billing\",outcome=\"delivered\"}",
            5.0,
        ),
        ("tidegate_bulk_oldest_wait_seconds", 2.5),
        ("tidegate_bulk_queue_jobs{queue=\"mail\",state=\"waiting\"}", 7.0),
        ("tidegate_bulk_queue_jobs{queue=\"mail\",state=\"running\"}", 4.0),
        ("tidegate_bulk_queue_jobs{queue=\"mail\",state=\"delayed\"}", 5.0),
        ("tidegate_bulk_queue_oldest_wait_seconds{queue=\"mail\"}", 3.0),
        ("tidegate_store_available", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:#?}");
    }
}

#[test]
fn a_scrape_before_the_first_reading_reports_the_store_unavailable() {
    let text = metrics(10).text(&Scrape::default());
    assert_eq!(samples(&text).get("tidegate_store_available"), Some(&0.0));
    assert!(!samples(&text).contains_key("tidegate_bulk_starts_per_second"));
    assert!(text.ends_with("# EOF\n"));
}

/// promtool parses a scrape without an error. Its only complaints are that OpenMetrics writes the help of a counter under its
/// name without `_total`, and the names of the original design documents.
#[test]
fn promtool_reads_it() {
    let mut metrics = exercised();
    metrics.original_names = true;
    let odd = group("quote \" backslash \\ line\nend");
    metrics.leased([&odd].into_iter(), Stop::Enough);
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed; scripts/test installs it");
    let text = metrics.text(&full());
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{complaints}");
    for line in complaints.lines() {
        let ours = line.starts_with("tidegate_") || line.starts_with("process_");
        assert!(!ours || line.contains("no help text"), "{line}");
    }
}

#[test]
fn ten_thousand_groups_stay_bounded_and_nothing_counted_is_lost() {
    const MOST: usize = 20;
    let metrics = metrics(MOST as u32);
    let all: Vec<GroupId> = (0..10_000).map(|n| group(format!("group-{n}"))).collect();
    let mut counted = 0;
    let mut before: BTreeMap<String, f64> = BTreeMap::new();
    let mut now = Instant::now();
    for round in 0..40 {
        // In each round other groups lease jobs, and another 30 are the busiest.
        let working = all.iter().skip(round * 250).take(500);
        for _ in 0..2 {
            metrics.leased(working.clone().collect::<Vec<_>>().into_iter(), Stop::Enough);
            counted += working.len();
        }
        let groups: Vec<GroupView> = all
            .iter()
            .enumerate()
            .map(|(n, id)| view(id.as_str(), if n / 30 == round { 1_000 } else { 1 }))
            .collect();
        let top = scrape::top(&groups, MOST);
        assert!(top.iter().all(|group| group.counts.waiting == 1_000));
        metrics.groups.refresh(top.iter().map(|group| &group.id), now);
        now += Duration::from_secs(400);
        let scrape = Scrape {
            groups: Arc::new(groups),
            ..Scrape::default()
        };
        let scraped = samples(&metrics.text(&scrape));
        let of = |name: &str| -> Vec<f64> {
            let some = scraped.iter().filter(|(key, _)| key.starts_with(name));
            some.map(|(_, value)| *value).collect()
        };
        let allowed = of("tidegate_bulk_rate_limit_allowed_total{");
        assert!(allowed.len() <= 2 * MOST + 1, "{} series", allowed.len());
        assert_eq!(allowed.iter().sum::<f64>(), counted as f64);
        let pending = of("tidegate_bulk_group_waiting_jobs{");
        assert_eq!(pending.len(), MOST + 1);
        assert_eq!(pending.iter().sum::<f64>(), (30 * 1_000 + 10_000 - 30) as f64);
        assert!(scraped.len() < 40 * MOST, "{} series in all", scraped.len());
        for (name, value) in &scraped {
            let earlier = before.get(name).copied().unwrap_or_default();
            assert!(!name.contains("_total") || *value >= earlier, "{name} went down");
        }
        before = scraped;
    }
    // Every one of the last busiest groups has a label.
    let top = all[39 * 30..40 * 30].iter();
    let labelled = top.filter(|id| {
        let name = format!("tidegate_bulk_rate_limit_allowed_total{{group=\"{id}\"}}");
        before.contains_key(&name)
    });
    assert_eq!(labelled.count(), MOST);
}

#[test]
fn a_group_keeps_its_label_for_a_while_and_then_loses_it_to_a_busier_one() {
    let metrics = metrics(1);
    let (a, b, c, d) = (group("a"), group("b"), group("c"), group("d"));
    let count = |id: &GroupId| metrics.leased([id].into_iter(), Stop::Enough);
    let named = || {
        let mut all = Vec::new();
        metrics
            .groups
            .read(|name, counts| all.push((name.to_owned(), counts.allowed.load(Ordering::Relaxed))));
        all.sort();
        all
    };
    let now = Instant::now() + Duration::from_secs(1);
    count(&a);
    count(&b);
    metrics.groups.refresh([&b].into_iter(), now);
    count(&b);
    assert_eq!(named(), [("a".into(), 1), ("b".into(), 1), ("other".into(), 1)]);
    // Both were among the busiest recently.
    metrics
        .groups
        .refresh([&c].into_iter(), now + Duration::from_secs(60));
    count(&c);
    assert_eq!(named(), [("a".into(), 1), ("b".into(), 1), ("other".into(), 2)]);
    metrics
        .groups
        .refresh([&b].into_iter(), now + Duration::from_secs(100));
    metrics
        .groups
        .refresh([&d].into_iter(), now + Duration::from_secs(350));
    count(&d);
    assert_eq!(named(), [("b".into(), 1), ("d".into(), 1), ("other".into(), 3)]);
}

#[test]
fn a_group_named_other_is_counted_as_other() {
    let metrics = metrics(5);
    let other = group("other");
    metrics.leased([&other, &other].into_iter(), Stop::Enough);
    metrics.groups.refresh([&other].into_iter(), Instant::now());
    let scrape = Scrape {
        groups: Arc::new(vec![view("other", 3), view("a", 2)]),
        ..Scrape::default()
    };
    let scraped = samples(&metrics.text(&scrape));
    assert_eq!(
        scraped["tidegate_bulk_rate_limit_allowed_total{group=\"other\"}"],
        2.0
    );
    assert_eq!(scraped["tidegate_bulk_group_waiting_jobs{group=\"other\"}"], 3.0);
}

#[test]
fn throttles_are_counted_once_each() {
    let mut congestion = Congestion::default();
    let mut seen = |throttles| congestion.put(state("a", throttles, 1_000), START).1;
    assert_eq!([seen(3), seen(3), seen(8)], [3, 0, 5]);
    // The group finished its batches, so its count restarted.
    assert_eq!(seen(2), 2);
    let mut old = state("b", 9, 1_000);
    old.last_throttle_at = Some(START - Millis(1));
    assert_eq!(congestion.put(old, START).1, 0, "before this process began");
}

#[test]
fn with_many_congested_groups_each_has_its_turn() {
    let mut congestion = Congestion::default();
    let mut groups: Vec<GroupView> = (0..130).map(|n| view(format!("group-{n}"), 1)).collect();
    for group in &mut groups {
        group.counts.delayed = 1;
    }
    let top: Vec<&GroupView> = groups.iter().collect();
    let mut read = BTreeSet::new();
    for _ in 0..3 {
        let wanted = congestion.wanted(&top);
        assert_eq!(wanted.len(), 50);
        read.extend(wanted);
    }
    assert_eq!(read.len(), 130);
    assert!(congestion.wanted(&[]).is_empty());
}

/// An observed store with 10 starts per second and `hold = "job"`.
fn observed() -> (Observed, Arc<Metrics>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let mut config = Config::default();
    config.backpressure.global_rps = 10.0.into();
    config.backpressure.hold = Hold::Job;
    let store = ModelBulkStore::new(config.bulk(), clock.clone() as Arc<dyn Clock>).unwrap();
    let metrics = Arc::new(Metrics::new(&config, START));
    (Observed::new(Arc::new(store), metrics.clone()), metrics, clock)
}

fn jobs(of: &str, count: usize) -> EnqueueParams {
    let job = |n| NewJob {
        id: JobId::new(format!("job-{n}")).unwrap(),
        kind: JobType::new("mail").unwrap(),
        priority: Priority::Normal,
        payload: Default::default(),
        run_at: None,
        expires_at: None,
        cost: 1,
    };
    EnqueueParams {
        group: group(of),
        batch: None,
        base_priority: None,
        jobs: (0..count).map(job).collect(),
    }
}

#[tokio::test]
async fn every_call_of_the_store_is_counted() {
    let (store, metrics, clock) = observed();
    let queue = QueueId::new("default").unwrap();
    store.call(jobs("a", 15)).await.unwrap().unwrap();
    // Duplicates are not accepted again.
    store.call(jobs("a", 15)).await.unwrap().unwrap();
    let admit = AdmitParams {
        queue: queue.clone(),
        max: 20,
        ready_cap: 20,
    };
    store.call(admit.clone()).await.unwrap();
    let lease = LeaseParams {
        queue,
        max: 10,
        owner: Owner::new("worker").unwrap(),
    };
    let leased = store.lease(lease).await.unwrap();
    assert_eq!(leased.jobs.len(), 10);
    let answer = |(n, job): (usize, &tidegate_store::bulk::LeasedJob)| Settlement {
        lease: job.leased.lease,
        outcome: match n {
            0 => JobOutcome::Failed { error: "no".into() },
            1 => JobOutcome::Throttled {
                retry_after: None,
                scope: ThrottleScope::Queue,
            },
            _ => JobOutcome::Completed {
                result: Default::default(),
            },
        },
        cost: None,
    };
    let answers: Vec<Settlement> = leased.jobs.iter().enumerate().take(9).map(answer).collect();
    store
        .call(SettleParams {
            answers: answers.clone(),
        })
        .await
        .unwrap();
    store.call(SettleParams { answers }).await.unwrap();
    clock.set(START + Millis(120_000));
    store.call(ReleaseDueParams { max: 100 }).await.unwrap();
    store.call(ReleaseDueParams { max: 100 }).await.unwrap();
    store.call(ExpireLeasesParams { max: 100 }).await.unwrap();
    let Ok(View::Groups(page)) = store.call(Query::Groups { after: None, max: 10 }).await.unwrap() else {
        panic!("a query for groups returns groups")
    };
    metrics.refresh(&store, &page.items).await;
    let scrape = Scrape {
        groups: Arc::new(page.items),
        ..Scrape::default()
    };
    let scraped = samples(&metrics.text(&scrape));
    for (name, value) in [
        ("tidegate_bulk_enqueued_jobs_total", 15.0),
        ("tidegate_bulk_leased_jobs_total", 10.0),
        ("tidegate_bulk_rate_limit_allowed_total{group=\"a\"}", 10.0),
        (
            "tidegate_bulk_rate_limit_denied_total{group=\"a\",reason=\"global\"}",
            5.0,
        ),
        (
            "tidegate_bulk_backpressure_admitted_jobs_total{destination=\"ready\"}",
            10.0,
        ),
        (
            "tidegate_bulk_backpressure_admitted_jobs_total{destination=\"delayed\"}",
            6.0,
        ),
        // Denied jobs stay in their flow: the dispatcher moved only the throttled one.
        ("tidegate_bulk_dispatch_moved_jobs_total", 1.0),
        ("tidegate_bulk_dispatch_empty_cycles_total", 1.0),
        ("tidegate_bulk_settled_jobs_total{outcome=\"completed\"}", 7.0),
        ("tidegate_bulk_settled_jobs_total{outcome=\"dead\"}", 1.0),
        ("tidegate_bulk_settled_jobs_total{outcome=\"delayed\"}", 1.0),
        ("tidegate_bulk_settled_jobs_total{outcome=\"stale\"}", 9.0),
        ("tidegate_bulk_expired_leases_total{outcome=\"delayed\"}", 1.0),
        ("tidegate_bulk_lease_stops_total{reason=\"enough\"}", 1.0),
        (
            "tidegate_store_call_duration_seconds_count{operation=\"enqueue\"}",
            2.0,
        ),
        (
            "tidegate_store_call_duration_seconds_count{operation=\"lease\"}",
            1.0,
        ),
        ("tidegate_bulk_congestion_backoff_seconds_count{group=\"a\"}", 6.0),
        // The throttled job has cut the rate to one start per second; five jobs wait for it.
        (
            "tidegate_bulk_congestion_level{group=\"a\",level=\"moderate\"}",
            1.0,
        ),
    ] {
        assert_eq!(scraped.get(name), Some(&value), "{name} in {scraped:#?}");
    }
}
