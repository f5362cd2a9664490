//! Measures embedded key-value engines under a durable job queue's workload:
//! one owner thread, group commit, monotonic keys, short-lived records.
//!
//! Every measurement runs in a process of its own, so that CPU time and peak
//! memory belong to it alone. One JSON object per engine and measurement goes
//! to standard output as it is made, and an aligned table of them all at the end.
//!
//! ```text
//! engines [--dir FOLDER] [--only WORD]     all measurements, or those whose name has WORD
//! engines full ENGINE --dir SMALL_FS       fill up a small file system mounted there
//! ```

mod faults;
mod store;
mod workload;

use serde_json::json;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use store::{ENGINES, Res};
use workload::Metrics;

const MEASURES: [&str; 8] = [
    "enqueue-1",
    "enqueue-64",
    "enqueue-1000",
    "enqueue-5000",
    "lifecycle",
    "backlog",
    "kill",
    "errors",
];

fn measure(engine: &str, name: &str, dir: &Path) -> Res<Metrics> {
    match name {
        "floor" => workload::floor(dir),
        "overlap" => workload::overlap(dir),
        "lifecycle" => workload::lifecycle(engine, dir),
        "backlog" => workload::backlog(engine, dir),
        "kill" => faults::kill(engine, dir),
        "errors" => faults::errors(engine, dir),
        _ => {
            let batch = name.strip_prefix("enqueue-").ok_or("no such measurement")?;
            workload::enqueue(engine, dir, batch.parse()?)
        }
    }
}

fn main() -> Res<()> {
    let mut args: Vec<String> = env::args().skip(1).collect();
    let dir = take_option(&mut args, "--dir").map(PathBuf::from);
    let only = take_option(&mut args, "--only").unwrap_or_default();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let needed = || dir.as_deref().ok_or("--dir is needed");
    match words[..] {
        [] => run_all(dir.as_deref().unwrap_or(Path::new("target")), &only),
        ["measure", engine, name] => {
            println!("{}", serde_json::to_string(&measure(engine, name, needed()?)?)?);
            Ok(())
        }
        ["writer", engine, synced, leased] => {
            faults::writer(engine, needed()?, synced.parse()?, leased.parse()?)
        }
        ["try-open", engine] => faults::try_open(engine, needed()?),
        ["full", engine] => {
            println!("{}", serde_json::to_string(&faults::full(engine, needed()?)?)?);
            Ok(())
        }
        ["filler", engine] => faults::filler(engine, needed()?),
        _ => Err("usage: engines [--dir FOLDER] [--only WORD]".into()),
    }
}

fn take_option(args: &mut Vec<String>, name: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    args.remove(at);
    (at < args.len()).then(|| args.remove(at))
}

fn run_all(base: &Path, only: &str) -> Res<()> {
    fs::create_dir_all(base)?;
    let mut plan = vec![("disk", "floor")];
    for name in MEASURES {
        plan.extend(ENGINES.map(|engine| (engine, name)));
    }
    plan.push(("fjall", "overlap"));
    plan.retain(|(_, name)| name.contains(only));

    let mut rows: BTreeMap<(usize, usize, String), BTreeMap<&str, String>> = BTreeMap::new();
    let mut order = Vec::new();
    for (engine, name) in plan {
        // Removed at the end of the turn, so runs do not share disk space.
        let temp = tempfile::Builder::new().prefix("engines-").tempdir_in(base)?;
        let output = Command::new(env::current_exe()?)
            .args(["measure", engine, name, "--dir"])
            .arg(temp.path().join("store"))
            .stderr(Stdio::inherit())
            .output()?;
        let metrics: Metrics = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| Metrics::from_iter([("failed".to_owned(), json!(true))]));
        println!(
            "{}",
            json!({"engine": engine, "measure": name, "metrics": metrics})
        );
        if name == "errors" {
            continue; // Sentences, not numbers: they do not fit a table.
        }
        if !order.contains(&name) {
            order.push(name);
        }
        let place = order.iter().position(|n| *n == name).expect("just added");
        for (at, (metric, value)) in metrics.iter().enumerate() {
            let row = rows.entry((place, at, metric.clone())).or_default();
            row.insert(engine, value.to_string());
        }
    }

    println!("\n{:14}{:24}{:>12}{}", "measure", "metric", "disk", header());
    for ((place, _, metric), cells) in rows {
        print!("{:14}{metric:24}", order[place]);
        for engine in ["disk"].into_iter().chain(ENGINES) {
            print!(
                "{:>width$}",
                cells.get(engine).map_or("", |v| v),
                width = width(engine)
            );
        }
        println!();
    }
    Ok(())
}

fn width(engine: &str) -> usize {
    engine.len().max(10) + 2
}

fn header() -> String {
    ENGINES
        .map(|engine| format!("{engine:>width$}", width = width(engine)))
        .concat()
}
