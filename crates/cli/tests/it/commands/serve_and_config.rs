//! `serve`, `config`, `key`, `openapi` and `completions` from the outside.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(120);

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(args)
        .current_dir(folder)
        .env_remove("TIDEGATE_LOG")
        .env_remove("REDIS_HOST")
        .env_remove("REDIS_PORT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output = tokio::time::timeout(PATIENCE, command(folder, args).output());
    captured(output.await.expect("the command does not end").unwrap())
}

fn captured(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test]
async fn settings_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let check = |args: &'static [&'static str]| {
        let args: Vec<&str> = ["config", "check"].iter().chain(args).copied().collect();
        let folder = folder.path().to_owned();
        async move { run(&folder, &args).await }
    };
    assert_eq!(check(&[]).await, (0, "ok\n".into(), String::new()));
    std::fs::write(
        folder.path().join("tidegate.toml"),
        "\n[backpressure]\nglobal_rqs = 5",
    )
    .unwrap();
    let (code, out, error) = check(&[]).await;
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(
        error,
        "tidegate: tidegate.toml, line 3: unknown field `global_rqs` in [backpressure]; did you mean `global_rps`?\n"
    );
    std::fs::write(folder.path().join("good.toml"), "[log]\nformat = \"json\"").unwrap();
    assert_eq!(check(&["--config", "good.toml"]).await.0, 0);
    for (args, expected) in [
        (&["--config", "none.toml"][..], "none.toml: No such file"),
        (
            &["--config", "good.toml", "--set", "x"],
            "--set needs a setting and its value, like",
        ),
        (
            &["--config", "good.toml", "--set", "log.filtre=info"],
            "--set log.filtre: unknown field `filtre` in [log]; did you mean `filter`?",
        ),
        (
            &["--config", "good.toml", "--set", "log.filter=a=b=c"],
            "log.filter = \"a=b=c\": ",
        ),
        (
            &["--config", "good.toml", "--listen", "0.0.0.0:1"],
            "server.listen = \"0.0.0.0:1\" is reachable from other machines",
        ),
        (
            &["--config", "good.toml", "--redis", "http://:hunter2@x"],
            "redis.urls contains \"http://:***@x\"",
        ),
        (&["--listen", "here"], "invalid value 'here' for '--listen"),
    ] {
        let (code, out, error) = check(args).await;
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
    for (args, ok, expected) in [
        (vec!["--config", "good.toml"], true, ""),
        (
            vec!["--config", "good.toml", "--redis", "nowhere"],
            false,
            "redis.urls",
        ),
    ] {
        let args = [&["config", "check", "--json"], args.as_slice()].concat();
        let (code, out, _) = run(folder.path(), &args).await;
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code == 0, &report["ok"]), (ok, &Value::from(ok)), "{out}");
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == ok, "{out}");
    }
    let mut variable = command(folder.path(), &["config", "check", "--config", "good.toml"]);
    variable.env("TIDEGATE__STORE__KIND", "disk");
    let (code, _, error) = captured(variable.output().await.unwrap());
    assert_eq!(code, 2);
    assert!(
        error.contains("TIDEGATE__STORE__KIND: store.kind: unknown variant `disk`"),
        "{error}"
    );
}

#[tokio::test]
async fn settings_are_shown_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[redis]\npassword = \"hunter2\"\n[targets.mail]\nurl = \"http://a/\"\ntypes = [\"A\"]\n\
                headers = { authorization = \"hunter2\" }";
    std::fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let args = [
        "--redis",
        "redis://me:hunter2@host:1/0",
        "--data",
        "true",
        "--set",
        "backpressure.global_rps=7",
    ];
    let show: Vec<&str> = ["config", "show"].into_iter().chain(args).collect();
    let (code, out, error) = run(folder.path(), &show).await;
    assert_eq!((code, error.as_str()), (0, ""));
    for line in [
        "password = \"***\"  # tidegate.toml",
        "authorization = \"***\"  # tidegate.toml",
        "urls = [\"redis://me:***@host:1/0\"]  # --redis",
        "kind = \"redis\"  # --redis",
        "data = \"true\"  # --data",
        "global_rps = \"7/s\"  # --set backpressure.global_rps",
        "ready_queue_max_size = 10000",
    ] {
        assert!(
            out.lines().any(|shown| shown == line),
            "{line} is missing in\n{out}"
        );
    }
    let json: Vec<&str> = show.iter().copied().chain(["--json"]).collect();
    let (_, json, _) = run(folder.path(), &json).await;
    let shown: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(shown["config"]["redis"]["password"], "***");
    assert_eq!(shown["from"]["store.kind"], "--redis");
    assert!(!out.contains("hunter2") && !json.contains("hunter2"));
}

#[tokio::test]
async fn a_key_is_made_for_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "key",
        "--name",
        "ops \"1\"",
        "--role",
        "submit",
        "--role",
        "read",
        "--group",
        "shop-*",
    ];
    let (code, out, _) = run(folder.path(), &args).await;
    assert_eq!(code, 0);
    let key = out
        .lines()
        .find_map(|line| line.trim().strip_prefix("tg_"))
        .unwrap();
    assert_eq!(key.len(), 43);
    let section = &out[out.find("[[keys]]").unwrap()..];
    assert!(
        section.contains("roles = [\"read\", \"submit\"]") && section.contains("groups = [\"shop-*\"]"),
        "{out}"
    );
    assert!(!section.contains(key));
    std::fs::write(folder.path().join("tidegate.toml"), section).unwrap();
    assert_eq!(
        run(folder.path(), &["config", "check", "--listen", "0.0.0.0:1"])
            .await
            .0,
        0
    );

    let (_, json, _) = run(
        folder.path(),
        &["key", "--name", "a", "--role", "admin", "--json"],
    )
    .await;
    let made: Value = serde_json::from_str(&json).unwrap();
    assert!(made["key"].as_str().unwrap().starts_with("tg_"));
    assert!(made["config"]["hash"].as_str().unwrap().starts_with("sha256:"));
    for wrong in [
        &["key", "--name", "a"][..],
        &["key", "--name", "", "--role", "admin"],
        &["key", "--name", "a", "--role", "king"],
        &["key", "--name", "a", "--role", "admin", "--group", "*a"],
    ] {
        let (code, out, error) = run(folder.path(), wrong).await;
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
    }
}

#[tokio::test]
async fn the_api_is_described_and_shells_complete() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, _) = run(folder.path(), &["openapi"]).await;
    let description: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, description["openapi"].as_str()), (0, Some("3.1.0")));
    assert!(description["paths"]["/v1/jobs"].is_object());
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = run(folder.path(), &["completions", shell]).await;
        assert!(code == 0 && out.contains("completions"), "{shell}");
    }
    assert_eq!(run(folder.path(), &["completions", "dos"]).await.0, 2);
    let (_, help, _) = run(folder.path(), &["--help"]).await;
    assert!(help.contains("Exit codes:\n  0    success"), "{help}");
}

/// A service that has printed its banner.
async fn served(folder: &Path, args: &[&str]) -> (Child, String) {
    let args: Vec<&str> = ["serve", "--listen", "127.0.0.1:0"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let mut child = command(folder, &args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut banner = String::new();
    while !banner.contains("keys ") {
        let line = tokio::time::timeout(PATIENCE, lines.next_line())
            .await
            .unwrap()
            .unwrap();
        let Some(line) = line else {
            let mut error = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut error)
                .await
                .unwrap();
            panic!("the service ended: {error}");
        };
        banner += &(line + "\n");
    }
    (child, banner)
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn the_service_prints_its_address_and_stops_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tidegate.toml"), "[log]\nformat = \"json\"").unwrap();
    for stop in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let (child, banner) = served(folder.path(), &["--data", "kept"]).await;
        let lines: Vec<&str> = banner.lines().collect();
        assert!(
            lines[0].starts_with("Tidegate listens on http://127.0.0.1:"),
            "{banner}"
        );
        assert_eq!(
            lines[1..],
            [
                "  store    embedded, in kept",
                "  targets  0",
                "  keys     none: whoever reaches the port may do everything"
            ]
        );
        signal(&child, stop);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
            .await
            .unwrap();
        let (code, _, log) = captured(output.unwrap());
        assert_eq!(code, 0, "{log}");
        for line in log.lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert!(
            log.contains("read the settings") && log.contains("tidegate.toml"),
            "{log}"
        );
    }
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (child, banner) = served(
        folder.path(),
        &["--set", "server.shutdown_grace_period_ms=600000"],
    )
    .await;
    // A request that does not end keeps the first signal waiting.
    let address = banner
        .lines()
        .next()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = "POST /v1/groups/A/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n\
                Content-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes())
        .await
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    signal(&child, rustix::process::Signal::TERM);
    // Connections are refused as soon as the first signal has arrived.
    let ended = async {
        let address = stream.peer_addr().unwrap();
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    signal(&child, rustix::process::Signal::INT);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
        .await
        .unwrap();
    assert_eq!(captured(output.unwrap()).0, 130);
}

#[tokio::test]
async fn what_cannot_be_served_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let held = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = held.local_addr().unwrap().to_string();
    let (code, _, error) = run(folder.path(), &["serve", "--listen", &address]).await;
    assert_eq!(code, 1);
    assert!(
        error.contains(&format!("tidegate: cannot listen on {address}: ")),
        "{error}"
    );
    let tls = "server.tls={cert='a.pem',key='b.pem'}";
    let (code, _, error) = run(folder.path(), &["serve", "--listen", "127.0.0.1:0", "--set", tls]).await;
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("server.tls.cert a.pem: "), "{error}");
    assert!(
        !folder.path().join("tidegate-data").exists(),
        "nothing is touched"
    );
}
