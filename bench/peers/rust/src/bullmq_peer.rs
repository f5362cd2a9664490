//! BullMQ's own Rust port.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bullmq::options::RedisConnectionOptions;
use bullmq::types::RemoveOnFinish;
use bullmq::worker::{CancellationToken, WorkerEvent};
use bullmq::{BulkJob, Error, Job, JobOptions, Queue, QueueOptions, Worker, WorkerOptions};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::{Args, Fallible, PAYLOAD, due, number, percentiles, ranges, sleep_until, text};

const NAME: &str = "bench";

/// `{"d":"…"}` is as long as the payload of every other peer.
fn data(customer: char, i: usize) -> Value {
    json!({ "d": text(customer, i, PAYLOAD - 8) })
}

fn text_of(job: &Job) -> String {
    job.data()
        .get("d")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

async fn queue(args: &Args) -> Fallible<Queue> {
    let options = QueueOptions::new()
        .connection(RedisConnectionOptions::new().url(&args.url))
        .default_job_options(JobOptions::new().remove_on_complete(RemoveOnFinish::Bool(true)));
    Ok(Queue::with_options(NAME, options).await?)
}

async fn workers<F>(args: &Args, handler: F) -> Fallible<Vec<Worker>>
where
    F: Fn(&Job) + Clone + Send + Sync + 'static,
{
    let mut workers = Vec::new();
    for _ in 0..args.get("workers", 1) {
        let handler = handler.clone();
        let options = WorkerOptions::new()
            .connection(RedisConnectionOptions::new().url(&args.url))
            .concurrency(args.get("concurrency", 200))
            .remove_on_complete(RemoveOnFinish::Bool(true));
        let processor = move |job: Job, _: CancellationToken| {
            handler(&job);
            async { Ok::<_, Error>(Value::Null) }
        };
        workers.push(Worker::with_options(NAME, processor, options).await?);
    }
    Ok(workers)
}

/// Waits until the workers have reported `jobs` completions.
async fn completions(workers: Vec<Worker>, jobs: usize) -> Fallible<Vec<Worker>> {
    let done = Arc::new(AtomicUsize::new(0));
    let waits = workers.iter().map(|worker| {
        let done = Arc::clone(&done);
        async move {
            while done.load(Relaxed) < jobs {
                match tokio::time::timeout(Duration::from_millis(100), worker.next_event()).await {
                    Ok(Some(WorkerEvent::Completed { .. })) => {
                        done.fetch_add(1, Relaxed);
                    }
                    Ok(Some(WorkerEvent::Failed { error, .. })) => return Err(error),
                    Ok(None) => return Err("the worker stopped".to_owned()),
                    _ => {}
                }
            }
            Ok(())
        }
    });
    futures::future::try_join_all(waits).await?;
    Ok(workers)
}

async fn close(workers: Vec<Worker>) -> Fallible<()> {
    for worker in workers {
        worker.close(5_000).await?;
    }
    Ok(())
}

async fn add(queue: &Queue, customer: char, jobs: usize, args: &Args) -> Fallible<()> {
    stream::iter(ranges(jobs, args.get("chunk", 1_000)))
        .map(|range| async move {
            let bulk = range.map(|i| BulkJob::new("job", data(customer, i))).collect();
            queue.add_bulk(bulk).await.map(|_| ())
        })
        .buffered(args.get("inflight", 2))
        .try_collect::<()>()
        .await?;
    Ok(())
}

pub async fn run(mode: &str, args: &Args) -> Fallible<Value> {
    match mode {
        "enqueue" => {
            let queue = queue(args).await?;
            let start = Instant::now();
            add(&queue, 'A', args.jobs(), args).await?;
            Ok(json!({ "enqueueSec": start.elapsed().as_secs_f64() }))
        }
        "process" => {
            let start = Instant::now();
            let workers = workers(args, |_| {}).await?;
            let workers = completions(workers, args.jobs()).await?;
            let elapsed = start.elapsed().as_secs_f64();
            close(workers).await?;
            Ok(json!({ "processSec": elapsed }))
        }
        "latency" => {
            let (adds, per_sec) = (args.get("adds", 1_000), args.get("rate", 200));
            let queue = queue(args).await?;
            let (seen, mut starts) = tokio::sync::mpsc::unbounded_channel();
            let workers = workers(args, move |job| {
                let now = Instant::now();
                let _ = seen.send((number(&text_of(job)), now));
            })
            .await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let begin = Instant::now();
            let mut added = Vec::new();
            for i in 0..adds {
                let data = data('A', i);
                tokio::task::spawn_blocking(move || sleep_until(due(begin, i, per_sec))).await?;
                added.push(Instant::now());
                queue.add("job", data).await?;
            }
            let mut millis = Vec::new();
            while millis.len() < adds {
                let (i, at) = starts.recv().await.ok_or("the worker stopped")?;
                millis.push((at - added[i]).as_secs_f64() * 1e3);
            }
            close(workers).await?;
            Ok(percentiles(millis))
        }
        "fairness" => {
            let (a, b) = args.customers();
            let queue = queue(args).await?;
            add(&queue, 'A', a, args).await?;
            add(&queue, 'B', b, args).await?;
            let (done, last_b) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (count, last) = (Arc::clone(&done), Arc::clone(&last_b));
            let workers = workers(args, move |job| {
                let position = count.fetch_add(1, Relaxed) + 1;
                if text_of(job).starts_with('B') {
                    last.fetch_max(position, Relaxed);
                }
            })
            .await?;
            close(completions(workers, a + b).await?).await?;
            Ok(json!({ "bDoneAfter": last_b.load(Relaxed), "of": done.load(Relaxed) }))
        }
        other => Err(format!("no mode {other}").into()),
    }
}
