//! The demo's second scene: a provider that allows few calls, a flood of refreshes that nobody waits for, and users who
//! read.
//!
//! The simulated provider on loopback has limits of its own and counts calls at arrival; the report shows its counts.
//! Users read over HTTP. Each gets a stale record at once, and follows it until it is fresh. In the middle a crowd reads
//! one stale record at the same time.

mod bars;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tidegate_client::{Client, Freshness};
use tidegate_core::budget::BudgetConfig;
use tidegate_core::ids::{RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::freshness::Freshness as Known;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::RefreshHandle;
use tidegate_server::Service;
use tidegate_server::config::Config;
use tidegate_snapshots::{RecordRef, Write};
use tidegate_source::SourceSettings;
use tidegate_upstream::{Upstream, UpstreamSettings};

use self::bars::Bars;
pub(super) use self::report::{RefreshFigures, percentile};

const TARGET: &str = "game";
/// A source with prefetching, so with low priority.
const AHEAD: &str = "character";
/// A source that is refreshed when somebody reads it.
const READ: &str = "profile";
const ONE: &str = "hero";

/// What the provider allows in any second. At most 160 × (1 s + 50 ms) + 8 = 176 calls arrive.
const LIMIT: u64 = 200;
const RATE: u64 = 160;
const BURST: u64 = 8;
const LOW_CAP: u64 = 130;

const FLOOD: u64 = 1_000;
const USERS: u64 = 200;
/// A user comes every 20 ms, for four seconds.
const PACE: Duration = Duration::from_millis(20);
/// Fresh records that others read meanwhile.
const PAGES: u64 = 100;
const READERS: u64 = 4;
const READ_PAUSE: Duration = Duration::from_millis(5);
const CROWD: usize = 1_000;
/// Limit: the wait for a fresh record, and for the first call of the flood.
const PATIENCE: Duration = Duration::from_secs(20);

/// The provider: it answers within 20 to 80 ms, and refuses calls over its limit.
pub(super) fn upstream() -> anyhow::Result<Upstream> {
    let settings = UpstreamSettings {
        per_second: LIMIT as u32,
        payload_bytes: 24_000,
        latency_min_ms: 20,
        latency_max_ms: 80,
        ..UpstreamSettings::default()
    };
    Upstream::start(settings).context("the simulated provider does not start")
}

/// Two sources that share the provider's budget.
pub(super) fn configure(config: &mut Config, upstream: &Upstream) -> anyhow::Result<()> {
    let budget = BudgetConfig {
        hard_limit: LIMIT,
        rate: RATE,
        burst: BURST,
        low_cap: LOW_CAP,
        per_day: 0,
        ..BudgetConfig::default()
    };
    config.budgets.insert(TargetId::new(TARGET)?, budget);
    let url = format!("{}/character/{{key}}", upstream.url());
    for (name, prefetch) in [(AHEAD, true), (READ, false)] {
        let fields = ["character_name", "character_level", "revision"];
        let mut source = SourceSettings::new(name, &url, TARGET, &fields);
        source.prefetch = prefetch;
        config.sources.insert(SourceId::new(name)?, source);
    }
    let refresh = &mut config.refresh;
    // The flood starts at once: prefetching runs every second, faster than the budget allows.
    refresh.prefetch.tick_ms = Millis(1_000);
    refresh.prefetch.peak_rate = FLOOD;
    refresh.prefetch.other_rate = FLOOD;
    // For the dashboard.
    refresh.watch.lag_every_ms = Millis(500);
    refresh.watch.census_every_ms = Millis(1_000);
    // Nobody needs the rest of the flood.
    refresh.work.grace_ms = Millis(500);
    Ok(())
}

pub(super) async fn play(service: &Service, upstream: &Upstream) -> anyhow::Result<RefreshFigures> {
    let handle = service
        .refresh()
        .context("the refresh module is not configured")?;
    let done = Arc::new(AtomicU64::new(0));
    let bars = Bars::show(&done, &handle);
    upstream.reset();
    let now = handle.now();
    store(&handle, AHEAD, keys("npc", FLOOD), now - days(3)).await?;
    store(&handle, READ, keys("user", USERS), now - days(2)).await?;
    store(&handle, READ, keys("page", PAGES), now).await?;
    flood_begins(upstream).await?;

    let begun = Instant::now();
    let low_before = handle.counters().settled.low;
    let over = AtomicBool::new(false);
    let client = Client::new(service.url())?;
    let users = async {
        let users = join_all((0..USERS).map(|user| visit(&client, user, &done))).await;
        over.store(true, Ordering::Relaxed);
        users
    };
    let readers = join_all((0..READERS).map(|reader| browse(&client, reader, &over)));
    let (users, readers, crowd) = tokio::join!(users, readers, crowd(&handle));
    let seconds = begun.elapsed();
    let low = handle.counters().settled.low;
    let seen = upstream.report();
    bars.close(done.load(Ordering::Relaxed), low.min(FLOOD)).await;

    let mut reads = Vec::new();
    let mut waits = Vec::new();
    for visit in users {
        let visit = visit?;
        reads.push(visit.read);
        waits.extend(visit.fresh_after);
    }
    for took in readers {
        reads.extend(took?);
    }
    let refreshed = waits.len() as u64;
    Ok(RefreshFigures {
        seconds: rounded(seconds, 1_000.0),
        limit_per_second: LIMIT,
        rate_per_second: RATE,
        calls: seen.calls,
        max_calls_in_a_second: seen.max_in_second.into(),
        over_limit: seen.over_second,
        reads: reads.len() as u64,
        read_p50_ms: rounded(percentile(&mut reads, 50) * 1_000, 100.0),
        read_p95_ms: rounded(percentile(&mut reads, 95) * 1_000, 100.0),
        high_stale: USERS,
        high_refreshed: refreshed,
        high_p50_seconds: rounded(percentile(&mut waits, 50), 1_000.0),
        high_p95_seconds: rounded(percentile(&mut waits, 95), 1_000.0),
        low_stale: FLOOD,
        low_refreshed: (low - low_before).min(FLOOD),
        readers_of_one: crowd?,
        calls_for_one: calls_for(&seen.keys, ONE),
    })
}

fn days(days: u64) -> Millis {
    Millis(days * 86_400_000)
}

fn rounded(span: Duration, parts: f64) -> f64 {
    (span.as_secs_f64() * parts).round() / parts
}

fn calls_for(keys: &BTreeMap<String, u64>, key: &str) -> u64 {
    keys.get(key).copied().unwrap_or(0)
}

/// Puts records into the database as if they had been checked at `at`.
async fn store(handle: &RefreshHandle, source: &str, keys: Vec<String>, at: Timestamp) -> anyhow::Result<()> {
    let data = bytes::Bytes::from(tidegate_source::pack(br#"{"character_level":1}"#)?);
    let source = SourceId::new(source)?;
    let write = |key: String| -> anyhow::Result<Write> {
        Ok(Write::Full {
            record: RecordRef {
                source: source.clone(),
                key: RecordKey::new(key)?,
            },
            version: Version(1),
            data: data.clone(),
            hash: [0; 32],
            at,
        })
    };
    let writes: Vec<Write> = keys.into_iter().map(write).collect::<anyhow::Result<_>>()?;
    for some in writes.chunks(100) {
        handle.options().snapshots.write(some).await?;
    }
    Ok(())
}

fn key(kind: &str, number: u64) -> String {
    format!("{kind}-{number}")
}

fn keys(kind: &str, count: u64) -> Vec<String> {
    (0..count).map(|number| key(kind, number)).collect()
}

/// Waits until prefetching has begun.
async fn flood_begins(upstream: &Upstream) -> anyhow::Result<()> {
    let begun = Instant::now();
    while upstream.report().calls == 0 {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "prefetching does not begin");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

struct Visit {
    read: Duration,
    /// None if the record was not fresh in time.
    fresh_after: Option<Duration>,
}

/// A user reads a stale record, and follows it until it is fresh.
async fn visit(client: &Client, user: u64, done: &AtomicU64) -> anyhow::Result<Visit> {
    tokio::time::sleep(PACE * user as u32).await;
    let key = key("user", user);
    let begun = Instant::now();
    let mut record = client.record(READ, &key).await?;
    let read = begun.elapsed();
    let mut changes = client.follow_record(READ, &key, None);
    let follow = async {
        while record.freshness != Freshness::Fresh
            && let Some(next) = changes.next().await
        {
            record = next?;
        }
        anyhow::Ok(record.freshness == Freshness::Fresh)
    };
    let fresh = tokio::time::timeout(PATIENCE, follow)
        .await
        .unwrap_or(Ok(false))?;
    if fresh {
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Visit {
        read,
        fresh_after: fresh.then(|| begun.elapsed()),
    })
}

/// Other users read fresh records all the time.
async fn browse(client: &Client, reader: u64, over: &AtomicBool) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::new();
    let mut page = reader;
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.record(READ, &key("page", page % PAGES)).await?;
        took.push(begun.elapsed());
        page += READERS;
        tokio::time::sleep(READ_PAUSE).await;
    }
    Ok(took)
}

/// A crowd reads one stale record at once; returns how many found it stale. Not over HTTP: both ends of a thousand
/// connections are more open files than many machines allow a process.
async fn crowd(handle: &RefreshHandle) -> anyhow::Result<u64> {
    tokio::time::sleep(PACE * (USERS / 2) as u32).await;
    store(handle, READ, vec![ONE.to_owned()], handle.now() - days(2)).await?;
    let one = RecordId {
        source: SourceId::new(READ)?,
        key: RecordKey::new(ONE)?,
    };
    let reads = (0..CROWD).map(|_| {
        let (handle, one) = (handle.clone(), one.clone());
        tokio::spawn(async move { handle.read(&one, None).await })
    });
    let mut stale = 0;
    for view in join_all(reads).await {
        stale += u64::from(view??.freshness == Known::Stale);
    }
    let mut follower = handle.follow(one, None)?;
    let fresh = async {
        while let Some(view) = follower.next().await {
            if view?.freshness == Known::Fresh {
                break;
            }
        }
        anyhow::Ok(())
    };
    // If the record does not become fresh, the provider's counts show it.
    tokio::time::timeout(PATIENCE, fresh).await.unwrap_or(Ok(()))?;
    Ok(stale)
}
