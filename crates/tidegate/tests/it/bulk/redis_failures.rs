//! A Redis that is unusable: at the start the error names it, later the engine waits for it. Then work continues by
//! itself, and nothing is lost.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::config::BulkConfig;
use tidegate::{Error, Job, JobError, Millis, Options, Redis, StoreError, Submission, Submitted, Tidegate};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

const GROUP: &str = "A";
const KIND: &str = "SEND";
const JOBS: u64 = 100;
/// A call is retried for ten seconds, and the last try may take some more. A busy machine may take much longer, but not
/// this long. A call without a bound would never end.
const BOUND: Duration = Duration::from_secs(150);
const DEADLINE: Duration = Duration::from_secs(150);

fn options(url: &str) -> Options<Redis> {
    let mut config = BulkConfig::default();
    // Slow enough that a failure hits running and waiting jobs.
    config.backpressure.global_rps = 100.0.into();
    config.backpressure.rate_limit_window_sec = 0.1;
    config.backpressure.default_backoff_ms = Millis(50);
    config.backpressure.max_backoff_ms = Millis(200);
    config.worker_pool.job_timeout_ms = Millis(1_000);
    config.worker_pool.lease_margin_ms = Millis(1_000);
    config.worker_pool.max_retry_count = 50;
    Options::redis(url).config(config)
}

async fn refused(url: &str) -> (Error, Duration) {
    let begun = Instant::now();
    let error = Tidegate::connect(options(url)).await.unwrap_err();
    println!("after {:.1} s: {error}", begun.elapsed().as_secs_f64());
    (error, begun.elapsed())
}

#[tokio::test]
async fn a_server_that_is_unavailable_at_the_start_is_named_in_bounded_time() {
    // Bound but not listening: no other process can take the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let (error, took) = refused(&format!("redis://127.0.0.1:{port}/")).await;
    assert!(
        error.to_string().contains(&format!("127.0.0.1:{port}")),
        "{error}"
    );
    assert!(error.is_retryable() && took < BOUND, "{took:?}");
}

#[tokio::test]
async fn a_wrong_password_is_reported_at_once_and_not_retried() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    server
        .command(&["CONFIG", "SET", "requirepass", "open sesame"])
        .unwrap();
    let address = format!("127.0.0.1:{}", server.port());
    for user in ["", ":simsim@"] {
        let (error, _) = refused(&format!("redis://{user}{address}/")).await;
        let text = error.to_string();
        assert!(
            matches!(error, Error::Store(StoreError::Unsuitable { .. })),
            "{error:?}"
        );
        assert!(text.contains(&address) && !text.contains("simsim"), "{text}");
        assert!(
            text.to_lowercase().contains("auth") || text.contains("password"),
            "{text}"
        );
        assert!(!error.is_retryable(), "{error}");
    }
    // Every try begins with INFO, which this server rejects without a password.
    let mut client = server.client().unwrap();
    assert!(client.command(&["AUTH", "open sesame"]).unwrap().is_ok());
    let stats = client.command(&["INFO", "commandstats"]).unwrap().text().unwrap();
    let tries = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_info:"))
        .and_then(|line| {
            line.split(',')
                .find_map(|part| part.strip_prefix("rejected_calls="))
        })
        .and_then(|count| count.parse::<u32>().ok());
    assert!(tries.is_none_or(|tries| tries <= 1), "{tries:?} tries");
    let right = format!("redis://:open%20sesame@{address}/");
    Tidegate::connect(options(&right)).await.unwrap();
}

/// Answers the first commands of a client as a server of this version would.
fn old_server(version: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut input = BufReader::new(stream.unwrap());
            let mut line = String::new();
            let mut next = |input: &mut BufReader<_>| {
                line.clear();
                input.read_line(&mut line).ok()?;
                line.trim_end().get(1..)?.parse::<usize>().ok()
            };
            while let Some(words) = next(&mut input) {
                let mut command = Vec::new();
                for _ in 0..words {
                    let mut word = vec![0; next(&mut input).unwrap() + 2];
                    input.read_exact(&mut word).unwrap();
                    command.push(String::from_utf8(word).unwrap().trim_end().to_owned());
                }
                let answer = match command[0].as_str() {
                    "INFO" => {
                        let text = format!("redis_version:{version}\r\nrun_id:1\r\n");
                        format!("${}\r\n{text}\r\n", text.len())
                    }
                    "CLIENT" | "SELECT" => "+OK\r\n".to_owned(),
                    other => format!("-ERR unknown command '{other}'\r\n"),
                };
                if input.get_mut().write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let port = old_server("6.2.14");
    let (error, _) = refused(&format!("redis://127.0.0.1:{port}/")).await;
    let text = error.to_string();
    assert!(
        text.contains("6.2.14") && text.contains("Redis 7 or later"),
        "{text}"
    );
    assert!(!error.is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_to_a_server_that_hangs_end_in_bounded_time_each() {
    let mut server = RedisServer::start(RedisOptions::default()).unwrap();
    let tide = Arc::new(
        Tidegate::connect(options(&server.url()))
            .await
            .unwrap()
            .start()
            .unwrap(),
    );
    server.pause().unwrap();
    let begun = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let tide = tide.clone();
        calls.spawn(async move { tide.stats().await });
    }
    while let Some(ended) = calls.join_next().await {
        let error = ended.unwrap().unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    }
    server.resume().unwrap();
    tide.stats().await.unwrap();
}

/// The jobs that ran, as the handlers saw them.
type Ran = Arc<Mutex<BTreeSet<String>>>;

async fn start(server: &RedisServer) -> (Tidegate, Ran) {
    let ran = Ran::default();
    let seen = ran.clone();
    let handler = move |job: Job| {
        seen.lock().unwrap().insert(format!("{}/{}", job.batch, job.id));
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, JobError>(())
        }
    };
    let setup = Tidegate::connect(options(&server.url())).await.unwrap();
    let tide = setup.claim_for(Millis(2_000)).handler(KIND, handler).unwrap();
    (tide.start().unwrap(), ran)
}

async fn submit(tide: &Tidegate, batch: &str) -> Result<Submitted, Error> {
    let mut submission = Submission::new(GROUP).unwrap().batch(batch).unwrap();
    for job in 0..JOBS {
        submission = submission.job(format!("{batch}-{job}"), KIND, "{}").unwrap();
    }
    tide.submit(submission.seal()).await
}

/// A failure that begins under load and ends: calls report it, work waits and continues, nothing is lost.
async fn waits_and_continues(
    mut server: RedisServer,
    begin: impl FnOnce(&mut RedisServer),
    says: &str,
    end: impl FnOnce(&mut RedisServer),
) {
    let (tide, ran) = start(&server).await;
    submit(&tide, "before").await.unwrap();
    let begun = Instant::now();
    while ran.lock().unwrap().len() < 20 {
        assert!(begun.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begin(&mut server);
    let begun = Instant::now();
    let error = submit(&tide, "during").await.unwrap_err();
    println!("after {:.1} s: {error}", begun.elapsed().as_secs_f64());
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(error.is_retryable(), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("127.0.0.1:{}", server.port())), "{text}");
    assert!(text.contains(says), "{text} should contain {says:?}");
    let failed = tokio::time::timeout(Duration::ZERO, tide.failed()).await;
    assert!(failed.is_err(), "the engine waits, it does not end");

    end(&mut server);
    let begun = Instant::now();
    let submitted = submit(&tide, "during").await.unwrap();
    assert_eq!(submitted.accepted + submitted.duplicates, JOBS);
    for batch in ["before", "during"] {
        let mut progress = tide.follow(GROUP, batch).unwrap();
        let finished = async { while progress.next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(DEADLINE, finished).await.unwrap();
        let counts = tide.batch(GROUP, batch).await.unwrap().counts;
        assert_eq!((counts.total, counts.success, counts.failed), (JOBS, JOBS, 0));
    }
    println!("done {:.1} s after it", begun.elapsed().as_secs_f64());
    let stats = tide.stats().await.unwrap();
    assert_eq!((stats.counts.unfinished(), stats.counts.completed), (0, 2 * JOBS));
    assert!(
        stats.most_started_per_window <= stats.limit_per_window,
        "{stats:?}"
    );
    assert_eq!(ran.lock().unwrap().len() as u64, 2 * JOBS);
    tide.shutdown().await.unwrap();
}

fn ok(server: &RedisServer, words: &[&str]) {
    let reply = server.command(words).unwrap();
    assert!(reply.is_ok(), "{words:?}: {reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_waited_for() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    waits_and_continues(
        server,
        |server| server.pause().unwrap(),
        "",
        |server| server.resume().unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_much_later_is_waited_for() {
    let server = RedisServer::start(RedisOptions::durable()).unwrap();
    waits_and_continues(
        server,
        |server| server.kill().unwrap(),
        "",
        |server| server.restart().unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_says_so_and_is_waited_for() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    waits_and_continues(
        server,
        // Less than it uses.
        |server| ok(server, &["CONFIG", "SET", "maxmemory", "100kb"]),
        "OOM",
        |server| ok(server, &["CONFIG", "SET", "maxmemory", "0"]),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_a_replica_says_so_and_is_waited_for() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    // There is no server at that port, so it keeps its data.
    waits_and_continues(
        server,
        |server| ok(server, &["REPLICAOF", "127.0.0.1", "1"]),
        "read only replica",
        |server| ok(server, &["REPLICAOF", "NO", "ONE"]),
    )
    .await;
}
