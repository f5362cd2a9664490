//! A visitor's machine vanishes: its cable is cut, and no FIN or RST ever comes. The service closes the connection,
//! keeps the ticket for the grace period, and releases a slot at its deadline.
//!
//! The test runs itself again in network namespaces of its own (`unshare`), where the visitor's machine is another
//! namespace at the end of a cable (a pair of `veth` devices). It needs no rights where users may create namespaces.
//! Where neither users nor root may, it fails.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_testkit::child;

use super::visitor::Stream;
use crate::support::served::{Served, free_port, until};

const NAME: &str = "room::streams::vanished::a_machine_that_vanished_gives_everything_back_in_time";
/// Namespaces of its own, which end with their processes.
const APART: &str =
    r#"exec unshare --user --map-root-user --net --pid --fork --kill-child --mount-proc "$0" "$@";"#;
const HERE: [u8; 4] = [10, 7, 0, 1];
const THERE: [u8; 4] = [10, 7, 0, 2];
/// `THERE` as `/proc/net/tcp` has it.
const THERE_IN_HEX: &str = "0200070A:";

const UNACKNOWLEDGED: Duration = Duration::from_secs(2);
const PRESENCE: Duration = Duration::from_secs(3);
const PASS: Duration = Duration::from_secs(8);
/// Long enough to see, on a machine that does not stall for long, that the ticket is not lost before.
const GRACE: Duration = Duration::from_secs(20);

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status();
    let done = done.expect("ip is there: install iproute2");
    assert!(done.success(), "ip {words}: {done}");
}

/// Another machine: a shell in a network namespace of its own, at the end of a cable.
struct Machine {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Machine {
    fn plugged_in() -> Self {
        let mut shell = Command::new("unshare")
            .args(["--net", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let mut machine = Self {
            shell,
            input,
            output: BufReader::new(output),
        };
        // It has its own namespace as soon as it has run a command.
        machine.does(":");
        let [here, there] = [HERE, THERE].map(std::net::Ipv4Addr::from);
        let pid = machine.shell.id();
        ip("link set lo up");
        ip(&format!("link add near type veth peer name far netns {pid}"));
        ip(&format!("address add {here}/24 dev near"));
        ip("link set near up");
        machine.does(&format!(
            "ip address add {there}/24 dev far && ip link set far up"
        ));
        machine
    }

    fn does(&mut self, command: &str) {
        writeln!(self.input, "{{ {command}\n}} && echo done || echo failed").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n", "{command}");
    }

    /// Opens a stream whose events go to a file, and waits for one of them.
    async fn visits(&mut self, address: SocketAddr, file: &Path, event: &str) {
        let url = format!("http://{address}/events/concert/tickets/waiting");
        let shown = file.display();
        self.does(&format!(
            "curl --silent --no-buffer --noproxy {} --output '{shown}' {url} </dev/null &",
            address.ip()
        ));
        let event = format!("event: {event}\n");
        until(&event, || async {
            let events = std::fs::read_to_string(file).unwrap_or_default();
            events.contains(&event)
        })
        .await;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Connections of the service to the other machine.
fn connections() -> usize {
    let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    let theirs = all.lines().filter_map(remote);
    theirs.filter(|remote| remote.starts_with(THERE_IN_HEX)).count()
}

async fn room(served: &Served) -> Value {
    served.get("/v1/rooms/concert").await
}

/// Pauses or resumes the room.
async fn turn(served: &Served, command: &str) {
    let url = format!("{}/v1/rooms/concert/{command}", served.url);
    let answer = served
        .http
        .post(url)
        .json(&json!({ "why": "a test" }))
        .send()
        .await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_vanished_gives_everything_back_in_time() {
    if let Some(folder) = child::folder() {
        return vanishes(&folder).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut apart = child::spawn(NAME, folder.path(), APART);
    println!("{}", apart.says("GIVEN BACK").await);
    let ended = tokio::time::timeout(child::DEADLINE, apart.process.wait()).await;
    assert!(ended.unwrap().unwrap().success());
}

/// The process in the namespaces.
async fn vanishes(folder: &Path) {
    let mut machine = Machine::plugged_in();
    let address = SocketAddr::from((HERE, free_port()));
    let server = format!(
        "open = true\nbody_pause_ms = {0}\nunacknowledged_ms = {0}",
        UNACKNOWLEDGED.as_millis()
    );
    let settings = format!(
        "[rooms.concert]\ncapacity = {{ inside = 1, per_second = 100 }}\npresence_ms = {}\ngrace_ms = {}\npass_ms = {}\n",
        PRESENCE.as_millis(),
        GRACE.as_millis(),
        PASS.as_millis()
    );
    let served = Served::start_at(folder, address, &server, &settings, &[]).await;
    let started = Instant::now();
    machine.visits(address, &folder.join("first"), "granted").await;
    let granted = Instant::now();
    // Nobody else is let in before it is known who is connected, however long that takes.
    turn(&served, "pause").await;
    machine.visits(address, &folder.join("second"), "paused").await;
    let mut here = Stream::open(address, None).await.unwrap();
    assert_eq!(here.next().await.unwrap().0, "paused");
    // On a machine that stalls, the first visitor's pass may have expired by now, and its stream ended.
    assert!((1..=2).contains(&connections()));

    let cut = Instant::now();
    machine.does("ip link set far down");
    until("the connections are closed", || {
        std::future::ready(connections() == 0)
    })
    .await;
    let closed = cut.elapsed();
    assert!(closed > UNACKNOWLEDGED / 2, "the machine closed its connections");
    until("the streams have ended", || async {
        room(&served).await["streams"] == 1
    })
    .await;
    let last_seen = Instant::now();

    until("the slot comes back", || async {
        room(&served).await["counts"]["noShows"] == 1
    })
    .await;
    let back = granted.elapsed();
    assert!(started.elapsed() >= PASS, "the slot came back after {back:?}");
    // An absent visitor is skipped, and keeps the ticket.
    tokio::time::sleep_until((last_seen + PRESENCE).into()).await;
    let resumed = Instant::now();
    turn(&served, "resume").await;
    loop {
        let (name, data) = here.next().await.unwrap();
        if name == "granted" {
            break;
        }
        assert!(["resumed", "position"].contains(&&*name), "{name} {data}");
    }
    let now = room(&served).await;
    // Later, the next pass may have expired, and the ticket may rightly be lost.
    if resumed.elapsed() < PASS {
        assert_eq!(
            (&now["counts"]["noShows"], &now["granted"]),
            (&1.into(), &1.into()),
            "{now}"
        );
    }
    if cut.elapsed() < GRACE {
        assert_eq!(
            (&now["waiting"], &now["counts"]["lost"]),
            (&1.into(), &0.into()),
            "{now}"
        );
    }

    until("the ticket is lost", || async {
        room(&served).await["counts"]["lost"] == 1
    })
    .await;
    let lost = cut.elapsed();
    assert!(lost >= GRACE, "{lost:?}");
    assert_eq!(room(&served).await["waiting"], 0);
    println!(
        "GIVEN BACK connections {closed:.1?} after the cut ({UNACKNOWLEDGED:?} set), a slot {back:.1?} after it was given \
         ({PASS:?} set), a ticket {lost:.1?} after the cut ({GRACE:?} set)"
    );
    served.stop().await;
}
