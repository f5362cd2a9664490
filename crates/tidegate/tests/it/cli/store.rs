//! The `tidegate` command from the outside: what it prints, and how it fails.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tidegate::{BatchOptions, Job, JobError, Options, Submission, Tidegate};

use crate::support::command;

use command::{fails, tidegate};

/// What it writes to standard output.
async fn succeeds(args: &[&str], input: &str) -> String {
    command::succeeds(args, input).await.0
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn fields(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

fn words(words: &str) -> BTreeSet<&str> {
    words.split_whitespace().collect()
}

/// A data folder with done, dead and waiting jobs, small payloads and a large one, results and a summary.
async fn data(folder: &Path) {
    let handler = |job: Job| {
        let answer = match job.id.as_str() {
            "dead" => Err(JobError::failed("no such mailbox")),
            id => Ok(format!("sent {id}")),
        };
        std::future::ready(answer)
    };
    let setup = Tidegate::open(Options::new(folder)).unwrap();
    let tide = setup.handler("SEND", handler).unwrap().start().unwrap();
    let options = BatchOptions {
        keep_results: true,
        ..BatchOptions::default()
    };
    let spring = Submission::new("A")
        .unwrap()
        .batch("spring")
        .unwrap()
        .options(options);
    let spring = spring
        .job("done", "SEND", "{}")
        .unwrap()
        .job("dead", "SEND", "\u{0}é")
        .unwrap();
    let spring = spring.job("large", "SEND", "x".repeat(100_000)).unwrap();
    tide.submit(spring.seal()).await.unwrap();
    let mut progress = tide.follow("A", "spring").unwrap();
    while let Some(now) = progress.next().await {
        now.unwrap();
    }
    let mut later = Submission::new("B").unwrap().base_priority(-1_000_000);
    for job in 0..50 {
        let tomorrow = tidegate::Timestamp(4_000_000_000_000);
        later = later
            .job(format!("job-{job}"), "SEND", "{}")
            .unwrap()
            .run_at(tomorrow);
    }
    tide.submit(later).await.unwrap();
    tide.shutdown().await.unwrap();
}

#[tokio::test]
async fn simulations_have_their_fields() {
    for (simulation, expected) in [
        (
            "congestion",
            "policy seconds ideal_seconds throttles_per_job max_started_per_window limit",
        ),
        ("fairness", "policy customer jobs seconds ideal_seconds"),
    ] {
        let out = succeeds(&["simulate", simulation, "--json"], "").await;
        assert!(out.lines().count() > 1, "{out}");
        for line in out.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            assert_eq!(fields(&row), words(expected), "{simulation}");
        }
    }
}

#[tokio::test]
async fn the_benchmark_has_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let dir = text(folder.path());
    let out = succeeds(&["bench", "bulk", "--jobs", "2000", "--json", "--dir", dir], "").await;
    let figures: Value = serde_json::from_str(&out).unwrap();
    let expected = "enqueue_per_sec process_per_sec lifecycle_per_sec start_p50_ms start_p99_ms floor_p50_ms b_done_after \
                    memory_bytes_per_job disk_bytes_per_job reopen_seconds jobs groups payload store durability";
    assert_eq!(fields(&figures), words(expected));
    assert_eq!(figures["jobs"], 2_000);
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "the benchmark cleans up"
    );
}

#[tokio::test]
async fn the_demo_loses_nothing_and_keeps_the_limit() {
    let out = succeeds(&["demo", "--jobs", "2000", "--rate", "2000", "--json"], "").await;
    let figures: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(figures["lost"], 0);
    assert_eq!(figures["accepted"], 2_150);
    assert_eq!(figures["throttles_per_job"], 0.0);
    let number = |name: &str| figures[name].as_u64().unwrap();
    assert_eq!(number("limit_per_window"), 40);
    assert!(number("max_started_per_window") <= 40, "{out}");
    let customers = figures["customers"].as_array().unwrap();
    let names: Vec<&str> = customers
        .iter()
        .map(|row| row["customer"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["A", "B", "C"]);
    for row in customers {
        assert_eq!(fields(row), words("customer jobs seconds ideal_seconds"));
    }
    let refresh = &figures["refresh"];
    let expected = "seconds limit_per_second rate_per_second calls max_calls_in_a_second over_limit reads read_p50_ms \
                    read_p95_ms high_asked high_refreshed high_p50_seconds high_p95_seconds low_stale low_refreshed \
                    readers_of_one calls_for_one";
    assert_eq!(fields(refresh), words(expected));
    let number = |name: &str| refresh[name].as_u64().unwrap();
    // The demo's provider counts calls as they arrive, and its users do not wait for ever. Where a machine stalls, calls of
    // several seconds arrive in one, are refused and made again, and users go away: what is kept in spite of that is for
    // tests that can stop the clock.
    let over = number("over_limit");
    assert_eq!(
        over > 0,
        number("max_calls_in_a_second") > number("limit_per_second"),
        "{refresh}"
    );
    assert!(
        (1..=number("high_asked")).contains(&number("high_refreshed")),
        "{refresh}"
    );
    assert!((1..=1 + over).contains(&number("calls_for_one")), "{refresh}");
    assert!(
        number("readers_of_one") > 0 && number("low_refreshed") > 0,
        "{refresh}"
    );
    a_crowd_is_let_in_as_promised(&figures["room"]);
}

fn a_crowd_is_let_in_as_promised(room: &Value) {
    let expected = "seconds early late seats bought inside_limit max_inside per_second_limit max_admitted_in_a_second \
                    out_of_order lost passes_refused came_back kept_place second_tabs took_over etas_shown \
                    eta_median_error_seconds eta_held_percent eta_held_in_seconds_percent told_p50_ms told_p95_ms";
    assert_eq!(fields(room), words(expected));
    let number = |name: &str| room[name].as_u64().unwrap();
    for (most, limit) in [
        ("max_inside", "inside_limit"),
        ("max_admitted_in_a_second", "per_second_limit"),
        ("bought", "seats"),
    ] {
        assert!(number(most) <= number(limit), "{most}: {room}");
        assert!(number(most) > 0, "{most}: {room}");
    }
    // Visitors note what they hear, when they hear it, and have ten seconds for a pass and a minute for all. One who hears late
    // that it is its turn, or leaves in the moment in which it is let in, may seem to be passed over: how many that are says
    // something about the machine.
    assert_eq!(number("lost"), 0, "{room}");
    assert_eq!(number("kept_place"), number("came_back"), "{room}");
    assert_eq!(number("took_over"), number("second_tabs"), "{room}");
    assert!(number("came_back") > 0 && number("second_tabs") > 0, "{room}");
    let (mut came, mut admitted) = (0, 0);
    for crowd in ["early", "late"] {
        let of = |name: &str| room[crowd][name].as_u64().unwrap();
        assert_eq!(
            of("came"),
            of("admitted") + of("left") + of("sold_out"),
            "{crowd}: {room}"
        );
        came += of("came");
        admitted += of("admitted");
    }
    assert_eq!(came, 300, "{room}");
    assert!(
        number("bought") + number("passes_refused") <= admitted && number("out_of_order") <= admitted,
        "{room}"
    );
    assert!(number("etas_shown") > 0, "{room}");
}

#[tokio::test]
async fn the_demo_is_plain_text_without_a_terminal() {
    let output = tidegate(&["demo", "--jobs", "100", "--rate", "1000"], "").await;
    assert!(output.status.success());
    for stream in [output.stdout, output.stderr] {
        let stream = String::from_utf8(stream).unwrap();
        assert!(!stream.contains('\x1b') && !stream.contains('\r'), "{stream:?}");
    }
}

#[tokio::test]
async fn a_folder_survives_export_and_import() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    data(&from).await;
    let first = succeeds(&["export", text(&from)], "").await;
    assert_eq!(first.lines().count(), 1 + 2 + 2 + 53 + 1);
    succeeds(&["import", text(&to)], &first).await;
    let second = succeeds(&["export", text(&to)], "").await;
    assert_eq!(first, second);

    let file = folder.path().join("backup.jsonl");
    succeeds(&["export", text(&to), "--output", text(&file)], "").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), second);

    let tide = Tidegate::open(Options::new(&to)).unwrap().start().unwrap();
    let large = tide.job("A", "large").await.unwrap();
    assert_eq!(large.payload.len(), 100_000);
    assert_eq!(large.result.unwrap(), "sent large");
    assert_eq!(
        tide.job("A", "dead").await.unwrap().error.unwrap(),
        "no such mailbox"
    );
    assert_eq!(tide.group("B").await.unwrap().counts.delayed, 50);
    tide.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_exported_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fails(&["export", text(&path("missing"))], "", "there is no data folder").await;
    assert!(!path("missing").exists(), "an export makes no folder");

    std::fs::create_dir(path("empty")).unwrap();
    fails(&["export", text(&path("empty"))], "", "is empty").await;
    assert_eq!(
        path("empty").read_dir().unwrap().count(),
        0,
        "an export makes no store"
    );

    std::fs::create_dir(path("other")).unwrap();
    std::fs::write(path("other").join("thesis.txt"), "years of work").unwrap();
    fails(&["export", text(&path("other"))], "", "it is not Tidegate's").await;

    std::fs::write(path("file"), "").unwrap();
    fails(&["export", text(&path("file"))], "", "there is no data folder").await;

    std::fs::create_dir(path("future")).unwrap();
    std::fs::write(path("future").join("FORMAT"), "tidegate 99\n").unwrap();
    fails(&["export", text(&path("future"))], "", "has format 99").await;
}

#[tokio::test]
async fn a_folder_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let tide = Tidegate::open(Options::new(&data)).unwrap().start().unwrap();
    let backup = folder.path().join("backup.jsonl");
    std::fs::write(&backup, "an earlier backup").unwrap();
    let args = ["export", text(&data), "--output", text(&backup)];
    fails(&args, "", "is used by another process").await;
    let kept = std::fs::read_to_string(&backup).unwrap();
    assert_eq!(
        kept, "an earlier backup",
        "an export that fails overwrites nothing"
    );
    tide.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_imported_says_why_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    data(&path("from")).await;
    let whole = succeeds(&["export", text(&path("from"))], "").await;
    let without_end: String = whole
        .split_inclusive('\n')
        .take(whole.lines().count() - 1)
        .collect();
    let without_a_job: String = {
        let mut lines: Vec<&str> = whole.split_inclusive('\n').collect();
        lines.remove(10);
        lines.concat()
    };
    for (stream, reason) in [
        (without_end.as_str(), "a part of it is missing"),
        (&whole[..whole.len() / 2], "cannot be read: line"),
        (&without_a_job, "but holds"),
        ("", "does not begin with a Tidegate header"),
        ("hello\n", "cannot be read: line 1"),
        ("{\"header\":{\"tidegateExport\":99}}\n", "version 99"),
    ] {
        fails(&["import", text(&path("to"))], stream, reason).await;
        let mut left: Vec<_> = folder
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["from"], "after {reason:?}");
    }
    fails(&["import", text(&path("from"))], &whole, "it is not empty").await;
    std::fs::write(path("file"), "").unwrap();
    fails(&["import", text(&path("file"))], &whole, "is not a folder").await;
    assert!(!path("file.importing").exists());
    fails(
        &["import", text(&path("to")), "--input", text(&path("missing"))],
        "",
        "missing: No such file",
    )
    .await;
}
