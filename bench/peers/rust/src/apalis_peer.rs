//! apalis with its Redis storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage};
use futures::stream::{self, Stream};
use serde_json::{Value, json};

use crate::{Args, Fallible, PAYLOAD, due, number, percentiles, ranges, sleep_until};

const QUEUE: &str = "bench";

/// As JSON, with its two quotes, as long as the payload of every other peer.
fn text(customer: char, i: usize) -> String {
    crate::text(customer, i, PAYLOAD - 2)
}

async fn storage(args: &Args) -> Fallible<RedisStorage<String>> {
    let config = Config::default()
        .queue(QUEUE)
        .batch_size(args.get("batch", 1_000))
        // "can be turned off for tasks that last shorter than a worker heartbeat"
        .lock_tasks(false)
        .emit_events(false);
    Ok(RedisStorage::new(apalis_redis::connect(args.url.as_str()).await?).with_config(config))
}

async fn add(storage: &mut RedisStorage<String>, customer: char, jobs: usize, args: &Args) -> Fallible<()> {
    for range in ranges(jobs, args.get("chunk", 1_000)) {
        storage
            .push_bulk(range.map(|i| text(customer, i)).collect())
            .await?;
    }
    Ok(())
}

/// Wakes an idle worker again and again. `poll_with_interval` leaves a worker asleep until its next heartbeat
/// when a fetch takes longer than the interval; a stream that is always polled until it waits does not.
fn ticks(period: Duration) -> impl Stream<Item = ()> + Unpin + Send + Sync + 'static {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    stream::poll_fn(move |cx| {
        let mut ticked = false;
        while interval.poll_tick(cx).is_ready() {
            ticked = true;
        }
        if ticked {
            Poll::Ready(Some(()))
        } else {
            Poll::Pending
        }
    })
}

/// Runs a worker until the done set holds `jobs`, which is after the last acknowledgement.
async fn work<F>(args: &Args, jobs: usize, handler: F) -> Fallible<()>
where
    F: Fn(String) + Clone + Send + Sync + 'static,
{
    let storage = storage(args).await?;
    let done_set = storage.get_config().done_jobs_set();
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let worker = WorkerBuilder::new("worker")
        .backend(storage.poll_with_stream(ticks(Duration::from_millis(args.get("poll_ms", 1) as u64))))
        .build(move |payload: String| {
            handler(payload);
            count.fetch_add(1, Relaxed);
            async { Ok::<(), BoxDynError>(()) }
        });
    let mut running = tokio::spawn(worker.run());
    let mut redis = apalis_redis::connect(args.url.as_str()).await?;
    loop {
        tokio::select! {
            stopped = &mut running => {
                stopped??;
                return Err("the worker stopped".into());
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        if handled.load(Relaxed) >= jobs {
            let done: usize = redis::cmd("SCARD").arg(&done_set).query_async(&mut redis).await?;
            if done >= jobs {
                running.abort();
                return Ok(());
            }
        }
    }
}

pub async fn run(mode: &str, args: &Args) -> Fallible<Value> {
    match mode {
        "enqueue" => {
            let mut storage = storage(args).await?;
            let start = Instant::now();
            add(&mut storage, 'A', args.jobs(), args).await?;
            Ok(json!({ "enqueueSec": start.elapsed().as_secs_f64() }))
        }
        "process" => {
            let start = Instant::now();
            work(args, args.jobs(), |_| {}).await?;
            Ok(json!({ "processSec": start.elapsed().as_secs_f64() }))
        }
        "latency" => {
            let (adds, per_sec) = (args.get("adds", 1_000), args.get("rate", 200));
            let mut storage = storage(args).await?;
            let (seen, mut starts) = tokio::sync::mpsc::unbounded_channel();
            let adding = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let begin = Instant::now();
                let mut added = Vec::new();
                for i in 0..adds {
                    let payload = text('A', i);
                    tokio::task::spawn_blocking(move || sleep_until(due(begin, i, per_sec))).await?;
                    added.push(Instant::now());
                    storage.push(payload).await?;
                }
                Fallible::Ok(added)
            });
            work(args, adds, move |payload| {
                let now = Instant::now();
                let _ = seen.send((number(&payload), now));
            })
            .await?;
            let added = adding.await??;
            let mut millis = Vec::new();
            while let Ok((i, at)) = starts.try_recv() {
                millis.push((at - added[i]).as_secs_f64() * 1e3);
            }
            Ok(percentiles(millis))
        }
        "fairness" => {
            let (a, b) = args.customers();
            let mut storage = storage(args).await?;
            add(&mut storage, 'A', a, args).await?;
            add(&mut storage, 'B', b, args).await?;
            let (done, last_b) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (count, last) = (Arc::clone(&done), Arc::clone(&last_b));
            work(args, a + b, move |payload| {
                let position = count.fetch_add(1, Relaxed) + 1;
                if payload.starts_with('B') {
                    last.fetch_max(position, Relaxed);
                }
            })
            .await?;
            Ok(json!({ "bDoneAfter": last_b.load(Relaxed), "of": done.load(Relaxed) }))
        }
        other => Err(format!("no mode {other}").into()),
    }
}
