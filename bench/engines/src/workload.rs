//! The queue's workload: what is written, and the timed runs over it.

use crate::store::{Fjall, Op, Res, Store, Table, Until, open};
use serde_json::{Map, Value, json};
use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const JOB_BYTES: usize = 300;
const STATE_BYTES: usize = 24;
const LEASE_BYTES_PER_JOB: usize = 16;
/// Finished jobs are kept this long, counted in jobs.
pub const KEPT_JOBS: u64 = 100_000;

pub type Metrics = Map<String, Value>;

/// xorshift64*: repeatable, and too cheap to show up in the timings.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Ready-made records, so that making them costs nothing inside a timed loop.
/// Neighbouring records differ, which keeps a block of them incompressible.
pub struct Records(Vec<Vec<u8>>);

impl Records {
    pub fn new() -> Self {
        let mut rng = Rng(7);
        let make = |_| {
            let mut record = vec![0; 8];
            record.extend_from_slice(b"{\"queue\":\"mail\",\"payload\":\"");
            while record.len() < JOB_BYTES - 2 {
                // Six random bits a byte, as in base64 text.
                record.push(b'0' + (rng.next() >> 58) as u8);
            }
            record.extend_from_slice(b"\"}");
            record
        };
        Self((0..8192).map(make).collect())
    }

    pub fn of(&self, seq: u64) -> &[u8] {
        &self.0[seq as usize % self.0.len()]
    }

    pub fn puts(&self, from: u64, count: u64) -> Vec<Op<'_>> {
        (from..from + count)
            .map(|seq| Op::Put(Table::Jobs, seq, self.of(seq)))
            .collect()
    }
}

/// Latencies in microseconds: `p50_us`, `p99_us` and `max_us`.
fn latencies(metrics: &mut Metrics, mut took: Vec<Duration>) {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_micros() as u64;
    metrics.insert("p50_us".into(), json!(at(0.50)));
    metrics.insert("p99_us".into(), json!(at(0.99)));
    metrics.insert("max_us".into(), json!(at(1.0)));
}

fn per_second(count: u64, since: Instant) -> u64 {
    (count as f64 / since.elapsed().as_secs_f64()) as u64
}

fn millis(since: Instant) -> u64 {
    since.elapsed().as_millis() as u64
}

/// CPU seconds (user + system) and peak resident bytes of this process so far.
fn usage() -> (f64, u64) {
    // SAFETY: `getrusage` fills the zeroed struct it is handed.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (
        seconds(usage.ru_utime) + seconds(usage.ru_stime),
        usage.ru_maxrss as u64 * 1024,
    )
}

/// Bytes the folder occupies: blocks, not lengths, as journals are sparse.
pub fn disk_bytes(dir: &Path) -> Res<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            meta.blocks() * 512
        };
    }
    Ok(bytes)
}

/// What the disk itself allows: append 300 KB and fdatasync, over and over.
pub fn floor(dir: &Path) -> Res<Metrics> {
    fs::create_dir_all(dir)?;
    let mut file = File::create(dir.join("floor"))?;
    let chunk = Records::new().0[..1000].concat();
    let (mut took, begin) = (Vec::new(), Instant::now());
    for _ in 0..1000 {
        let started = Instant::now();
        file.write_all(&chunk)?;
        file.sync_data()?;
        took.push(started.elapsed());
    }
    let mut metrics = Metrics::new();
    metrics.insert("mb_per_s".into(), json!(per_second(300, begin)));
    latencies(&mut metrics, took);
    Ok(metrics)
}

/// Durable enqueue with `batch` jobs in every commit.
pub fn enqueue(engine: &str, dir: &Path, batch: u64) -> Res<Metrics> {
    let commits = (300_000 / batch).min(2000);
    let (store, records) = (open(engine, dir)?, Records::new());
    let (mut took, begin) = (Vec::new(), Instant::now());
    for i in 0..commits {
        let ops = records.puts(i * batch, batch);
        let started = Instant::now();
        store.commit(&ops, Until::Disk)?;
        took.push(started.elapsed());
    }
    let mut metrics = Metrics::new();
    metrics.insert("jobs_per_s".into(), json!(per_second(commits * batch, begin)));
    latencies(&mut metrics, took);
    Ok(metrics)
}

/// The whole life of 500,000 jobs: put, lease, read, finish, forget.
pub fn lifecycle(engine: &str, dir: &Path) -> Res<Metrics> {
    const JOBS: u64 = 500_000;
    const BATCH: u64 = 1000;
    let (store, records) = (open(engine, dir)?, Records::new());
    let lease = vec![1; LEASE_BYTES_PER_JOB * BATCH as usize];
    let mut rng = Rng(11);
    let (cpu_before, _) = usage();
    let (mut took, mut reading, begin) = (Vec::new(), Duration::ZERO, Instant::now());
    for batch in 0..JOBS / BATCH {
        let started = Instant::now();
        let first = batch * BATCH;
        store.commit(&records.puts(first, BATCH), Until::Disk)?;
        store.commit(&[Op::Put(Table::Leases, batch, &lease)], Until::Os)?;

        let keys: Vec<u64> = (0..BATCH).map(|_| first + rng.next() % BATCH).collect();
        let read_started = Instant::now();
        let bytes = store.read(Table::Jobs, &keys)?;
        reading += read_started.elapsed();
        assert_eq!(bytes, keys.len() * JOB_BYTES, "a job just written was not found");

        let mut finish: Vec<Op> = (first..first + BATCH)
            .map(|seq| Op::Put(Table::State, seq, &records.of(seq)[..STATE_BYTES]))
            .collect();
        finish.push(Op::Del(Table::Leases, batch));
        store.commit(&finish, Until::Disk)?;

        if let Some(old) = first.checked_sub(KEPT_JOBS) {
            let forget: Vec<Op> = (old..old + BATCH)
                .flat_map(|seq| [Op::Del(Table::Jobs, seq), Op::Del(Table::State, seq)])
                .collect();
            store.commit(&forget, Until::Os)?;
        }
        took.push(started.elapsed());
    }
    let mut metrics = Metrics::new();
    metrics.insert("jobs_per_s".into(), json!(per_second(JOBS, begin)));
    latencies(&mut metrics, took);
    metrics.insert("read_ns_per_job".into(), json!(reading.as_nanos() as u64 / JOBS));
    let (cpu, peak) = usage();
    metrics.insert(
        "cpu_s_per_1m_jobs".into(),
        json!(((cpu - cpu_before) * 2.0 * 10.0).round() / 10.0),
    );
    metrics.insert("disk_mb".into(), json!(disk_bytes(dir)? / 1_000_000));
    metrics.insert("peak_rss_mb".into(), json!(peak / 1_000_000));

    // An LSM has to step over the tombstones of everything forgotten so far.
    let started = Instant::now();
    let mut head = None;
    store.scan(Table::Jobs, &mut |seq, _| {
        head = Some(seq);
        false
    })?;
    metrics.insert(
        "find_oldest_us".into(),
        json!(started.elapsed().as_micros() as u64),
    );
    assert_eq!(head, Some(JOBS - KEPT_JOBS), "the oldest kept job");
    Ok(metrics)
}

/// A backlog of a million waiting jobs: the cost of a restart.
pub fn backlog(engine: &str, dir: &Path) -> Res<Metrics> {
    const JOBS: u64 = 1_000_000;
    const BATCH: u64 = 5000;
    let records = Records::new();
    let mut metrics = Metrics::new();
    {
        let store = open(engine, dir)?;
        let begin = Instant::now();
        for batch in 0..JOBS / BATCH {
            store.commit(&records.puts(batch * BATCH, BATCH), Until::Disk)?;
        }
        metrics.insert("jobs_per_s".into(), json!(per_second(JOBS, begin)));
    }
    let started = Instant::now();
    let store = open(engine, dir)?;
    metrics.insert("open_ms".into(), json!(millis(started)));
    let (started, mut jobs, mut bytes) = (Instant::now(), 0, 0);
    store.scan(Table::Jobs, &mut |_, record| {
        jobs += 1;
        bytes += record.len();
        true
    })?;
    metrics.insert("scan_ms".into(), json!(millis(started)));
    assert_eq!((jobs, bytes), (JOBS, JOBS as usize * JOB_BYTES));
    metrics.insert("disk_bytes_per_job".into(), json!(disk_bytes(dir)? / JOBS));
    metrics.insert("peak_rss_mb".into(), json!(usage().1 / 1_000_000));
    Ok(metrics)
}

/// Can fjall commit batch n+1 while batch n is being synced? The owner commits
/// to the OS only, another thread syncs in a loop and acknowledges.
pub fn overlap(dir: &Path) -> Res<Metrics> {
    const COMMITS: u64 = 300;
    const BATCH: u64 = 1000;
    let records = Records::new();
    let store = Fjall::open(dir, true)?;
    let committed = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let syncer = thread::spawn({
        let (db, committed) = (store.db.clone(), committed.clone());
        move || -> Result<u64, fjall::Error> {
            let (mut acknowledged, mut syncs) = (0, 0);
            while acknowledged < COMMITS {
                let reached = committed.load(SeqCst);
                if reached == acknowledged {
                    thread::yield_now();
                    continue;
                }
                db.persist(fjall::PersistMode::SyncData)?;
                (acknowledged, syncs) = (reached, syncs + 1);
            }
            Ok(syncs)
        }
    });
    let mut took = Vec::new();
    for i in 0..COMMITS {
        let ops = records.puts(i * BATCH, BATCH);
        let started = Instant::now();
        store.commit(&ops, Until::Os)?;
        took.push(started.elapsed());
        committed.fetch_add(1, SeqCst);
    }
    let syncs = syncer.join().expect("the sync thread panicked")?;
    let mut metrics = Metrics::new();
    metrics.insert("jobs_per_s".into(), json!(per_second(COMMITS * BATCH, begin)));
    metrics.insert("syncs".into(), json!(syncs));
    latencies(&mut metrics, took);
    Ok(metrics)
}
