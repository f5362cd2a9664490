//! What happens when things go wrong: `kill -9` mid-write, a full disk, a
//! read-only folder, a second opener and a journal torn by power loss.

use crate::{
    store::{Op, Res, Table, Until, open},
    workload::{KEPT_JOBS, Metrics, Records, Rng},
};
use serde_json::json;
use std::{
    env,
    fs::{self, OpenOptions, Permissions},
    io::{BufRead, BufReader, Write, stdout},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const BATCH: u64 = 1000;
/// A writer that prints nothing for this long counts as stuck.
const SILENCE: Duration = Duration::from_secs(15);

fn spawn(args: &[&str], dir: &Path) -> Res<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(args).arg("--dir").arg(dir);
    Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// Twenty rounds of: open, check all that was acknowledged, write, be killed.
pub fn kill(engine: &str, dir: &Path) -> Res<Metrics> {
    const ROUNDS: u64 = 20;
    let mut rng = Rng(13);
    let (mut synced, mut leased) = (0u64, 0u64);
    let (mut open_ms, mut lost_jobs, mut lost_leases, mut stuck) = (Vec::new(), 0, 0, 0);
    for _ in 0..ROUNDS {
        let mut child = spawn(&["writer", engine, &synced.to_string(), &leased.to_string()], dir)?;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));

        // Long enough that some rounds die in the midst of flush or compaction.
        let mut deadline = None;
        loop {
            let now = Instant::now();
            let wait = deadline.map_or(SILENCE, |d: Instant| d.saturating_duration_since(now));
            let Ok(line) = output.recv_timeout(wait.min(SILENCE)) else {
                stuck += u64::from(deadline.is_none_or(|d| Instant::now() < d));
                break;
            };
            let (word, value) = line.split_once(' ').ok_or("a malformed line")?;
            let value: u64 = value.parse()?;
            match word {
                "open_ms" => open_ms.push(value),
                "lost_jobs" => lost_jobs += value,
                "lost_leases" => lost_leases += value,
                "synced" => synced = value,
                "leased" => leased = value,
                _ => return Err(format!("unknown word {word}").into()),
            }
            // The clock starts with the first write after the checks.
            if word == "synced" && deadline.is_none() {
                deadline = Some(now + Duration::from_millis(200 + rng.next() % 2300));
            }
        }
        child.kill()?;
        child.wait()?;
        // Acknowledgements that were still in the pipe count too.
        for line in output.iter() {
            match line.split_once(' ') {
                Some(("synced", value)) => synced = value.parse()?,
                Some(("leased", value)) => leased = value.parse()?,
                _ => {}
            }
        }
    }
    let mut metrics = Metrics::new();
    metrics.insert("rounds".into(), json!(open_ms.len()));
    metrics.insert("jobs_synced".into(), json!(synced));
    metrics.insert("lost_synced_jobs".into(), json!(lost_jobs));
    metrics.insert("rounds_losing_unsynced".into(), json!(lost_leases));
    metrics.insert("stuck_writers".into(), json!(stuck));
    metrics.insert("open_ms_max".into(), json!(open_ms.iter().max()));
    Ok(metrics)
}

/// The process that gets killed. `synced` is the first job sequence that was not
/// acknowledged, `leased` the last lease acknowledged without a sync.
pub fn writer(engine: &str, dir: &Path, synced: u64, leased: u64) -> Res<()> {
    let say = |word: &str, value: u64| -> Res<()> { Ok(writeln!(stdout(), "{word} {value}")?) };
    let started = Instant::now();
    let (store, records) = (open(engine, dir)?, Records::new());
    say("open_ms", started.elapsed().as_millis() as u64)?;

    // A batch may be on disk though the kill came before its acknowledgement,
    // and with it the removal of the batch that was the oldest kept till then.
    let oldest_kept = (synced + BATCH).saturating_sub(KEPT_JOBS).min(synced);
    let mut intact = 0;
    store.scan(Table::Jobs, &mut |seq, record| {
        intact += u64::from((oldest_kept..synced).contains(&seq) && record == records.of(seq));
        true
    })?;
    say("lost_jobs", synced - oldest_kept - intact)?;
    say(
        "lost_leases",
        u64::from(leased > 0 && store.read(Table::Leases, &[leased])? == 0),
    )?;

    for first in (synced..).step_by(BATCH as usize) {
        let mut ops = records.puts(first, BATCH);
        if let Some(old) = first.checked_sub(KEPT_JOBS) {
            ops.extend((old..old + BATCH).map(|seq| Op::Del(Table::Jobs, seq)));
        }
        store.commit(&ops, Until::Disk)?;
        say("synced", first + BATCH)?;
        let lease = first / BATCH + 1;
        store.commit(&[Op::Put(Table::Leases, lease, &[1; 64])], Until::Os)?;
        say("leased", lease)?;
        // Leaves room for the kill to hit between the unsynced commit and the next sync.
        thread::sleep(Duration::from_millis(lease % 4));
    }
    Ok(())
}

fn outcome(child: Child) -> Res<String> {
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(if text.is_empty() {
        String::from_utf8_lossy(&output.stderr).trim().to_owned()
    } else {
        text
    })
}

/// The errors for a second opener and for a read-only folder.
pub fn errors(engine: &str, dir: &Path) -> Res<Metrics> {
    let mut metrics = Metrics::new();
    let store = open(engine, dir)?;
    store.commit(&Records::new().puts(0, 10), Until::Disk)?;
    metrics.insert(
        "second_open".into(),
        json!(outcome(spawn(&["try-open", engine], dir)?)?),
    );
    drop(store);
    set_writable(dir, false)?;
    metrics.insert(
        "read_only".into(),
        json!(outcome(spawn(&["try-open", engine], dir)?)?),
    );
    set_writable(dir, true)?;
    if engine.starts_with("fjall") {
        metrics.insert("torn_journal".into(), json!(torn_journal(engine, dir)?));
    }
    Ok(metrics)
}

fn set_writable(path: &Path, writable: bool) -> Res<()> {
    let meta = fs::metadata(path)?;
    let mode = if meta.is_dir() { 0o555 } else { 0o444 } | if writable { 0o222 } else { 0 };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            set_writable(&entry?.path(), writable)?;
        }
    }
    Ok(())
}

/// Opens the store, writes one job, and prints the outcome.
pub fn try_open(engine: &str, dir: &Path) -> Res<()> {
    // Root may write anywhere, so permissions are only tested as somebody else.
    // SAFETY: plain system calls on this process's own user id.
    unsafe {
        if libc::geteuid() == 0 && fs::metadata(dir)?.permissions().mode() & 0o222 == 0 {
            libc::setuid(65534);
        }
    }
    let records = Records::new();
    let result = open(engine, dir).and_then(|store| store.commit(&records.puts(1, 1), Until::Disk));
    println!(
        "{}",
        result.map_or_else(|e| format!("error: {e}"), |()| "opened and wrote".into())
    );
    Ok(())
}

/// Power loss may leave a page of zeros inside the last, never synced batch of
/// the journal. A payload larger than a page hides it from all but a checksum.
fn torn_journal(engine: &str, dir: &Path) -> Res<String> {
    const PAYLOAD: usize = 64 * 1024;
    let store = open(engine, dir)?;
    let large = Records::new().puts(0, 8).iter().fold(Vec::new(), |mut all, op| {
        if let Op::Put(_, _, record) = op {
            all.extend(record.iter().cycle().take(PAYLOAD / 8));
        }
        all
    });
    store.commit(&[Op::Put(Table::Jobs, 100, &large)], Until::Os)?;
    drop(store);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(dir.join("0.jnl"))?;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    // The batch is the last thing in the file, so its middle is this far back.
    let end = bytes.iter().rposition(|b| *b != 0).ok_or("an empty journal")?;
    file.write_all_at(&[0; 4096], (end - PAYLOAD / 2) as u64)?;
    drop(file);
    outcome(spawn(&["try-open", engine], dir)?)
}

/// Fills a small file system that the caller has mounted at `dir`.
pub fn full(engine: &str, dir: &Path) -> Res<Metrics> {
    let child = spawn(&["filler", engine], dir)?;
    let pid = child.id() as i32;
    // The first error is printed at once, so a silent filler is a hung one.
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(30));
        // SAFETY: the child has not been waited for if this thread still runs.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    });
    let mut metrics = Metrics::new();
    metrics.insert("disk_full".into(), json!(outcome(child)?));
    Ok(metrics)
}

/// Writes until it fails, tries once more, then closes the store.
pub fn filler(engine: &str, dir: &Path) -> Res<()> {
    let (store, records) = (open(engine, dir)?, Records::new());
    for first in (0..).step_by(BATCH as usize) {
        let Err(error) = store.commit(&records.puts(first, BATCH), Until::Disk) else {
            continue;
        };
        println!("after {first} jobs: {error}");
        if let Err(error) = store.commit(&records.puts(first, 1), Until::Disk) {
            println!("next commit: {error}");
        }
        println!(
            "read still works: {}",
            store.read(Table::Jobs, &[0]).is_ok_and(|n| n > 0)
        );
        drop(store);
        println!("closed");
        break;
    }
    Ok(())
}
