//! The client against a real service: every route, the streams, and a worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tempfile::TempDir;
use tidegate_client::{
    BatchStatus, Client, DeadFilter, DeadSelection, Destination, JobOutcome, JobState, JoinRoom, Lease,
    LeasedJob, LimitBy, Nullable, OpenBatch, Outcome, PatchCapacity, PatchGroup, PatchLimits, Rate,
    RedeemPass, RoomEvent, RoomTicket, Settlement, StreamEnd, TicketEnd, TicketState, Waiting, Worker,
    new_job,
};
use tidegate_core::ids::RoomId;
use tidegate_core::time::Millis;
use tidegate_server::Service;
use tidegate_server::config::{Config, RoomSettings, TlsConfig};

const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    pub(crate) service: Service,
    pub(crate) client: Client,
    _folder: TempDir,
}

pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.listen = ([127, 0, 0, 1], 0).into();
    config.store.data = folder.path().join("data");
    config.backpressure.global_rps = 1e6.into();
    config.backpressure.rate_limit_window_sec = 0.05;
    change(&mut config);
    let service = Service::start(config).await.unwrap();
    let client = Client::new(format!("http://{}", service.address())).unwrap();
    Running {
        service,
        client,
        _folder: folder,
    }
}

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what)
        .await
        .expect("it takes too long")
}

/// Leases this many jobs and settles them with this outcome.
async fn settle(client: &Client, max: u32, outcome: JobOutcome) {
    let request = Lease {
        max: Some(max),
        wait_ms: Some(10_000),
        ..Lease::default()
    };
    let leased = client.lease(&request).await.unwrap().jobs;
    assert_eq!(leased.len(), max as usize);
    let answer = |job: LeasedJob| Settlement {
        lease: job.lease,
        outcome,
        result: None,
        error: Some("no such mailbox".into()),
        retry_after_ms: None,
        scope: None,
        overloaded: false,
        cost: None,
    };
    let answers: Vec<Settlement> = leased.into_iter().map(answer).collect();
    client.settle(&answers).await.unwrap();
}

#[tokio::test]
async fn names_of_any_characters_reach_their_routes() {
    let running = start(|_| {}).await;
    let client = &running.client;
    for name in [
        ".", "..", "a/b", "a?b", "50%", "%2F", "é ü", "a#b", "\u{1b}\n", "/", "pause", "+",
    ] {
        let jobs = [new_job(name, "T", &name).unwrap()];
        let done = client
            .enqueue_in(&Destination::batch(name, name), &jobs)
            .await
            .unwrap();
        assert_eq!((done.accepted, done.batch.as_deref()), (1, Some(name)));
        assert_eq!(client.group(name).await.unwrap().id, name);
        assert_eq!(client.batch(name, name).await.unwrap().id, name);
        let job = client.job(name, name).await.unwrap();
        assert_eq!(job.id, name);
        assert_eq!(job.payload.get(), serde_json::to_string(name).unwrap());
        assert!(client.pause_group(name, None).await.unwrap().paused);
        assert!(
            !client
                .resume_group(name, Some("it is fine"))
                .await
                .unwrap()
                .paused
        );
    }
    assert_eq!(client.all_groups().count().await, 12);
    running.service.shutdown().await.unwrap();
}

#[tokio::test]
async fn groups_and_batches_can_be_seen_and_changed() {
    let running = start(|_| {}).await;
    let client = &running.client;
    let options = OpenBatch {
        failure_threshold_percent: Some(50),
        keep_results: true,
        ..OpenBatch::default()
    };
    assert_eq!(
        client.open_batch("A", "spring", &options).await.unwrap().status,
        BatchStatus::Created
    );
    let jobs: Vec<_> = (0..3)
        .map(|id| new_job(format!("{id}"), "T", &id).unwrap())
        .collect();
    let destination = Destination::batch("A", "spring").seal();
    assert_eq!(client.enqueue_in(&destination, &jobs).await.unwrap().accepted, 3);
    assert_eq!(
        client
            .enqueue_in(&destination, &jobs[..0])
            .await
            .unwrap()
            .accepted,
        0
    );
    let patch = PatchGroup {
        weight: Some(2.0),
        ..PatchGroup::default()
    };
    assert_eq!(client.patch_group("A", &patch).await.unwrap().weight, 2.0);
    assert_eq!(client.group_limits("A").await.unwrap().active_group_count, 1);
    assert_eq!(client.group_congestion("A").await.unwrap().group, "A");
    assert_eq!(client.congestion(None, None).await.unwrap().active_group_count, 1);
    assert_eq!(client.all_congestion().count().await, 1);
    assert!(client.congestion_history("A", Some(5)).await.unwrap().len() <= 5);
    assert!(client.pause_batch("A", "spring", None).await.unwrap().paused);
    assert!(!client.resume_batch("A", "spring", None).await.unwrap().paused);
    assert_eq!(client.seal_batch("A", "spring").await.unwrap().total_jobs, 3);
    assert_eq!(
        client.cancel_batch("A", "spring", None).await.unwrap().cancelled,
        3
    );
    let ended = in_time(client.follow_batch("A", "spring").try_collect::<Vec<_>>())
        .await
        .unwrap();
    assert_eq!(ended.last().unwrap().status, BatchStatus::Cancelled);
    let results: Vec<_> = client.all_results("A", "spring").try_collect().await.unwrap();
    assert!(
        results.iter().all(|job| job.state == JobState::Dead),
        "{results:?}"
    );
    assert_eq!(client.cancel_group("A", None).await.unwrap().cancelled, 0);
    assert_eq!(client.reset_group_stats("A", None).await.unwrap().id, "A");
    client
        .enqueue_in(&Destination::group("B"), &jobs[..1])
        .await
        .unwrap();
    settle(client, 1, JobOutcome::Failed).await;
    let retried = client.replay_job("B", "0", Some("again")).await.unwrap();
    assert_eq!(retried.state, JobState::Waiting);

    client.healthy().await.unwrap();
    client.ready().await.unwrap();
    assert!(client.openapi().await.unwrap().contains("/v1/jobs"));
    assert_eq!(client.me().await.unwrap().name, "anybody");
    assert!(client.targets().await.unwrap().is_empty());
    assert!(client.stats().await.unwrap().store.available);
    client.history().await.unwrap();
    client.audit(Some(10)).await.unwrap();
    let seconds: Vec<_> = in_time(client.follow_stats().take(2).try_collect())
        .await
        .unwrap();
    assert!(seconds[0].at < seconds[1].at);
    let error = client.enable_target("nobody", None).await.unwrap_err();
    assert_eq!(error.code(), Some("unknown_target"));
    running.service.shutdown().await.unwrap();
}

#[tokio::test]
async fn dead_jobs_limits_and_reasons_can_be_seen_and_changed() {
    let running = start(|_| {}).await;
    let client = &running.client;
    let jobs: Vec<_> = (0..4)
        .map(|id| new_job(format!("{id}"), "T", &id).unwrap())
        .collect();
    client.enqueue_in(&Destination::group("A"), &jobs).await.unwrap();
    settle(client, 2, JobOutcome::Failed).await;
    let filter = DeadFilter {
        group: Some("A".into()),
        reason: Some(tidegate_client::DeathReason::Failed),
        ..DeadFilter::default()
    };
    let dead: Vec<_> = client.all_dead(&filter).try_collect().await.unwrap();
    assert_eq!(dead.len(), 2);
    let which = DeadSelection {
        jobs: Some(vec![tidegate_client::JobName {
            group: "A".into(),
            id: dead[0].id.clone(),
        }]),
        ..DeadSelection::default()
    };
    assert_eq!(client.replay_dead(&which).await.unwrap().handled, 1);
    let which = DeadSelection {
        all: true,
        ..DeadSelection::default()
    };
    assert_eq!(client.purge_dead(&which).await.unwrap().handled, 1);
    assert!(!client.why_group("A").await.unwrap().reasons.is_empty());
    assert_eq!(
        client.why_job("A", "3").await.unwrap().state,
        Some(JobState::Waiting)
    );

    let patch = PatchLimits {
        rate: Nullable::Value(Rate("20/s".to_owned())),
        why: Some("a test".into()),
        ..PatchLimits::default()
    };
    let limits = client.patch_limits(&patch).await.unwrap();
    assert_eq!(limits.rate.0, "20/s");
    assert_eq!(limits.changes.last().unwrap().why, "a test");
    let patch = PatchLimits {
        rate: Nullable::Null,
        ..PatchLimits::default()
    };
    client.patch_limits(&patch).await.unwrap();
    assert_eq!(client.limits().await.unwrap().rate.0, "1000000/s");
    running.service.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stream_of_jobs_is_accepted_whole() {
    let running = start(|_| {}).await;
    let jobs = stream::iter(0..20_000).map(|id| new_job(format!("{id}"), "T", &"x".repeat(100)).unwrap());
    let done = running
        .client
        .enqueue_ndjson(&Destination::group("A"), jobs)
        .await
        .unwrap();
    assert_eq!((done.accepted, done.refused), (20_000, 0));
    let text = "{\"id\":\"0\",\"type\":\"T\"}\nnonsense\n\n{\"id\":\"new\",\"type\":\"T\"}";
    let done = running
        .client
        .enqueue_text(&Destination::group("A"), text.into())
        .await
        .unwrap();
    assert_eq!((done.accepted, done.duplicates, done.refused), (1, 1, 1));
    assert_eq!(done.errors[0].index, 1);
    running.service.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_worker_settles_everything_and_stops_in_order() {
    let running = start(|_| {}).await;
    let client = running.client.clone();
    let jobs: Vec<_> = (0..2_000)
        .map(|id| new_job(format!("{id}"), "T", &id).unwrap())
        .collect();
    client
        .enqueue_in(&Destination::batch("A", "all").seal(), &jobs)
        .await
        .unwrap();
    let throttled = Arc::new(AtomicU64::new(0));
    let seen = throttled.clone();
    let handler = move |job: LeasedJob| {
        let seen = seen.clone();
        async move {
            let number: u64 = job.payload.get().parse().unwrap();
            match number {
                0 => Outcome::failed("no such mailbox"),
                1 if job.attempt == 1 => panic!("a mistake"),
                2 if seen.fetch_add(1, Ordering::Relaxed) == 0 => Outcome::throttled(Some(Duration::ZERO)),
                number => Outcome::completed_with(&(number * 2)),
            }
        }
    };
    let stop = {
        let client = client.clone();
        async move {
            let updates = client
                .follow_batch("A", "all")
                .try_collect::<Vec<_>>()
                .await
                .unwrap();
            assert_eq!(updates.last().unwrap().status, BatchStatus::Completed);
        }
    };
    let worker = Worker::new(client.clone()).name("w").concurrency(64).batch(500);
    let worker = worker.wait(Duration::from_millis(500));
    let tally = in_time(worker.run(handler, stop)).await.unwrap();
    assert_eq!(
        (tally.completed, tally.dead, tally.delayed),
        (1_999, 1, 2),
        "{tally:?}"
    );
    assert_eq!((tally.stale, tally.unanswered), (0, 0), "{tally:?}");
    assert!(throttled.load(Ordering::Relaxed) >= 1);
    running.service.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_long_run_keeps_its_lease_and_a_stop_releases_unfinished_jobs() {
    // The worker extends a lease after half of the timeout: the other half is longer than a stall.
    let running = start(|config| {
        config.worker_pool.job_timeout_ms = Millis(15_000);
        config.worker_pool.lease_margin_ms = Millis(5_000);
    })
    .await;
    let client = running.client.clone();
    let jobs = [
        new_job("long", "T", &25_000).unwrap(),
        new_job("endless", "T", &600_000).unwrap(),
    ];
    client.enqueue_in(&Destination::group("A"), &jobs).await.unwrap();
    let handler = |job: LeasedJob| async move {
        let ms: u64 = job.payload.get().parse().unwrap();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Outcome::completed()
    };
    let stop = {
        let client = client.clone();
        async move {
            while client.job("A", "long").await.unwrap().state != JobState::Completed {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let worker = Worker::new(client.clone()).grace(Duration::from_millis(100));
    let worker = worker.wait(Duration::from_millis(300));
    let run = tokio::time::timeout(3 * DEADLINE, worker.run(handler, stop));
    let tally = run.await.expect("it takes too long").unwrap();
    assert_eq!(
        (tally.completed, tally.released, tally.stale),
        (1, 1, 0),
        "{tally:?}"
    );
    let endless = client.job("A", "endless").await.unwrap();
    assert_eq!((endless.state, endless.attempts), (JobState::Waiting, 0));
    running.service.shutdown().await.unwrap();
}

/// A self-signed certificate for 127.0.0.1, and its key.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("openssl is needed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (cert, key)
}

#[tokio::test]
async fn tls_needs_a_service_that_the_root_certificate_vouches_for() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let pem = std::fs::read(&cert).unwrap();
    let running = start(|config| config.server.tls = Some(TlsConfig { cert, key })).await;
    let url = running.service.url();
    assert!(url.starts_with("https://"), "{url}");
    let trusting = Client::builder(&url).root_certificate(pem).build().unwrap();
    trusting.healthy().await.unwrap();
    let jobs = [new_job("1", "T", &1).unwrap()];
    let done = trusting
        .enqueue_in(&Destination::group("A"), &jobs)
        .await
        .unwrap();
    assert_eq!(done.accepted, 1);

    let other = tempfile::tempdir().unwrap();
    let pem = std::fs::read(certificate(other.path()).0).unwrap();
    let stranger = Client::builder(&url).root_certificate(pem).build().unwrap();
    let error = stranger.healthy().await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    running.service.shutdown().await.unwrap();
}

/// Joins the room "concert" as a new visitor.
async fn joins(client: &Client) -> (Waiting, RoomTicket) {
    let mut waiting = client
        .wait_in_room("concert", &JoinRoom::default(), None)
        .await
        .unwrap();
    let ticket = ticket(&mut waiting).await;
    (waiting, ticket)
}

async fn event(waiting: &mut Waiting) -> RoomEvent {
    in_time(waiting.next())
        .await
        .expect("the stream goes on")
        .unwrap()
}

async fn ticket(waiting: &mut Waiting) -> RoomTicket {
    match event(waiting).await {
        RoomEvent::Ticket(ticket) => ticket,
        other => panic!("{other:?} is no ticket"),
    }
}

/// The last event, before which nothing but tickets may come.
async fn last(waiting: &mut Waiting) -> RoomEvent {
    let mut last = event(waiting).await;
    while let RoomEvent::Ticket(_) = last {
        last = event(waiting).await;
    }
    assert!(in_time(waiting.next()).await.is_none(), "{last:?} was the last");
    last
}

#[tokio::test]
async fn a_visitor_keeps_the_ticket_by_its_cookie_until_it_is_let_in() {
    let running = start(|config| {
        let mut room = RoomSettings::default();
        room.capacity.inside = 0;
        config.rooms.insert(RoomId::new("concert").unwrap(), room);
    })
    .await;
    let client = &running.client;
    let (mut ada, first) = joins(client).await;
    assert_eq!((first.state, first.position), (TicketState::Waiting, Some(1)));
    let (mut bob, second) = joins(client).await;
    assert_eq!(second.position, Some(2));
    let cookie = bob.cookie().unwrap().clone();

    // Another stream of the same visitor takes over, at the same position.
    let join = JoinRoom::default();
    let mut again = client
        .wait_in_room("concert", &join, Some(&cookie))
        .await
        .unwrap();
    assert_eq!(again.cookie(), Some(&cookie));
    assert_eq!(ticket(&mut again).await.position, Some(2));
    assert_eq!(last(&mut bob).await, RoomEvent::Superseded);

    // Disconnected and reconnected.
    drop(again);
    let mut bob = client
        .wait_in_room("concert", &join, Some(&cookie))
        .await
        .unwrap();
    assert_eq!(ticket(&mut bob).await.position, Some(2));
    assert_eq!(
        client.ticket_in_room("concert", &cookie).await.unwrap().position,
        Some(2)
    );

    // A visitor who leaves gets a final event, and those behind move up.
    let left = client.leave_room("concert", ada.cookie().unwrap()).await.unwrap();
    assert_eq!(
        (left.state, left.end),
        (TicketState::Ended, Some(TicketEnd::Left))
    );
    let RoomEvent::Closed(closed) = last(&mut ada).await else {
        panic!("the stream was not closed")
    };
    assert_eq!(
        (closed.reason, closed.end),
        (StreamEnd::Ended, Some(TicketEnd::Left))
    );
    while ticket(&mut bob).await.position != Some(1) {}

    let one = PatchCapacity {
        inside: Some(LimitBy::Set(Some(1))),
        ..PatchCapacity::default()
    };
    client.resize_room("concert", &one).await.unwrap();
    let granted = loop {
        match event(&mut bob).await {
            RoomEvent::Ticket(_) => {}
            RoomEvent::Granted(ticket) => break ticket,
            other => panic!("{other:?} instead of a pass"),
        }
    };
    let pass = RedeemPass {
        pass: granted.pass.unwrap().token,
        session: None,
        duration_ms: None,
    };
    assert_eq!(
        client.redeem_pass("concert", &pass).await.unwrap().state,
        TicketState::Inside
    );
    let done = client.complete_visit("concert", &pass).await.unwrap();
    assert_eq!(done.end, Some(TicketEnd::Completed));

    let error = client.wait_in_room("theatre", &join, None).await.unwrap_err();
    assert_eq!(error.status(), Some(404), "{error}");
    running.service.shutdown().await.unwrap();
}
