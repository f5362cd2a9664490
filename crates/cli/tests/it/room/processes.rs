//! Three processes share a room on Redis, thousands of people wait in it, and processes are killed: nobody loses a
//! ticket, nobody has two, nobody is let in twice, and every slot is released.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use served::{Served, free_port, until};
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::served;

const PEOPLE: u64 = 5_000;
const INSIDE: u64 = 60;
/// Longer than any machine needs for all of it.
const ALL: Duration = Duration::from_secs(900);

/// What all visitors observed.
#[derive(Default)]
struct Found {
    /// Distinct passes: a visitor may receive the same pass again, but not another one.
    passes: Mutex<HashSet<String>>,
    bought: AtomicU64,
    /// Nobody enters when this many have bought: on a slow machine, too, people still wait when a process is killed.
    may_buy: AtomicU64,
    reconnects: AtomicU64,
    wrong: Mutex<Vec<String>>,
    over: AtomicBool,
}

impl Found {
    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }
}

struct Visitor {
    number: u64,
    ports: [u16; 3],
    cookie: Option<String>,
    /// The last position that was received.
    position: u64,
    process: usize,
    found: Arc<Found>,
    http: reqwest::Client,
}

/// Waits for a time that depends on `number`, so that visitors do not act in step.
async fn a_moment(number: u64) {
    tokio::time::sleep(Duration::from_millis(50 + number * 37 % 400)).await;
}

impl Visitor {
    /// From the first connection to the end of the visit.
    async fn visit(mut self) {
        let pass = loop {
            match self.wait().await {
                Ok(pass) => break pass,
                Err(_) => {
                    self.found.reconnects.fetch_add(1, Ordering::Relaxed);
                    self.process += 1;
                    a_moment(self.number).await;
                }
            }
        };
        self.found.passes.lock().unwrap().insert(pass.clone());
        while self.found.bought.load(Ordering::Relaxed) >= self.found.may_buy.load(Ordering::Relaxed) {
            a_moment(self.number).await;
        }
        let body = json!({ "pass": pass, "session": format!("visit-{}", self.number) });
        self.call("redeem", &body, "INSIDE").await;
        a_moment(self.number % 5).await;
        self.call("complete", &body, "ENDED").await;
        self.found.bought.fetch_add(1, Ordering::Relaxed);
    }

    /// Follows the stream of one process until it delivers a pass, or breaks.
    async fn wait(&mut self) -> std::io::Result<String> {
        let port = self.ports[self.process % 3];
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let cookie = self.cookie.as_ref();
        let cookie = cookie.map_or_else(String::new, |cookie| format!("cookie: {cookie}\r\n"));
        let request =
            format!("GET /events/concert/tickets/waiting HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{cookie}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let (mut text, mut piece) = (String::new(), [0; 2_048]);
        loop {
            let count = stream.read(&mut piece).await?;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            text += &String::from_utf8_lossy(&piece[..count]);
            if self.cookie.is_none() && text.contains("\r\n\r\n") {
                let line = text.lines().find_map(|line| line.strip_prefix("set-cookie: "));
                self.cookie = line.map(|line| line.split(';').next().unwrap().to_owned());
            }
            while let Some(end) = text.find("\n\n") {
                let event: String = text.drain(..end + 2).collect();
                if let Some(pass) = self.receive(&event) {
                    return Ok(pass);
                }
            }
        }
    }

    /// The pass, if the event has one. Positions never grow, and no ticket is lost.
    fn receive(&mut self, event: &str) -> Option<String> {
        let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
        let data: Value = serde_json::from_str(data).unwrap();
        if event.contains("event: closed") || event.contains("event: superseded") {
            self.found
                .wrong(format!("visitor {} received {event}", self.number));
        }
        if let Some(position) = data["position"].as_u64() {
            if position > self.position {
                let before = self.position;
                self.found.wrong(format!(
                    "visitor {} was at {before}, then at {position}",
                    self.number
                ));
            }
            self.position = position;
        }
        data["pass"]["token"].as_str().map(str::to_owned)
    }

    /// Calls any process until one answers.
    async fn call(&self, what: &str, body: &Value, state: &str) {
        for attempt in self.process.. {
            let port = self.ports[attempt % 3];
            let url = format!("http://127.0.0.1:{port}/v1/rooms/concert/{what}");
            match self.http.post(url).json(body).send().await {
                Ok(answer) if answer.status() == 200 => {
                    // Retries after a truncated answer: the same session gets the same one.
                    let Ok(visit) = answer.json::<Value>().await else {
                        continue;
                    };
                    if visit["state"] != state {
                        self.found
                            .wrong(format!("{what} of visitor {}: {visit}", self.number));
                    }
                    return;
                }
                Ok(answer) if answer.status().is_client_error() => {
                    let problem = answer.text().await.unwrap_or_default();
                    return self
                        .found
                        .wrong(format!("{what} of visitor {}: {problem}", self.number));
                }
                _ => a_moment(self.number).await,
            }
        }
    }
}

/// Tickets and passes last for an hour: a slow machine costs nobody theirs.
fn settings(redis: &str, keys: &std::path::Path) -> String {
    format!(
        "[redis]\nurls = [{redis:?}]\n[rooms.concert]\npresence_ms = 6000\ngrace_ms = 3600000\npass_ms = 3600000\n\
         capacity = {{ seats = {PEOPLE}, inside = {INSIDE}, per_second = 1000 }}\n\
         [room.keys]\nfolder = {:?}\n\
         [room.joins]\nper_address = 1000000\naddress_burst = 1000000\nper_person = 1000000\n",
        keys.display().to_string()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_are_killed_and_nobody_loses_a_ticket() {
    let redis = RedisServer::start(RedisOptions::default()).unwrap();
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let keys = folders[0].path().join("keys");
    let ports = [(); 3].map(|()| free_port());
    let settings = settings(&redis.url(), &keys);
    let mut processes = Vec::new();
    for (folder, port) in folders.iter().zip(ports) {
        processes.push(Some(Served::start(folder.path(), port, &settings).await));
    }
    let found = Arc::new(Found {
        may_buy: AtomicU64::new(PEOPLE / 5),
        ..Found::default()
    });
    let http = processes[0].as_ref().unwrap().http.clone();
    let mut visits = Vec::new();
    for number in 0..PEOPLE {
        let visitor = Visitor {
            number,
            ports,
            cookie: None,
            position: u64::MAX,
            process: number as usize,
            found: found.clone(),
            http: http.clone(),
        };
        visits.push(tokio::spawn(visitor.visit()));
    }
    let watched = tokio::spawn(watch(found.clone(), http.clone(), ports));
    let bought = |count: u64| {
        let found = found.clone();
        move || {
            let bought = found.bought.load(Ordering::Relaxed);
            std::future::ready(bought >= count)
        }
    };
    // Each process is killed in the middle, and restarted a moment later.
    for (index, port) in ports.into_iter().enumerate() {
        until("people come in", bought(PEOPLE * (index as u64 + 1) / 5)).await;
        processes[index].take().unwrap().kill().await;
        let next = match index {
            2 => u64::MAX,
            _ => PEOPLE * (index as u64 + 2) / 5,
        };
        found.may_buy.store(next, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        processes[index] = Some(Served::start(folders[index].path(), port, &settings).await);
    }
    let all = async {
        for visit in visits {
            visit.await.unwrap();
        }
    };
    tokio::time::timeout(ALL, all).await.expect("everybody gets in");
    found.over.store(true, Ordering::Relaxed);
    watched.await.unwrap();
    assert_eq!(*found.wrong.lock().unwrap(), Vec::<String>::new());
    assert_eq!(found.passes.lock().unwrap().len() as u64, PEOPLE, "a pass each");
    let reconnects = found.reconnects.load(Ordering::Relaxed);
    assert!(reconnects > PEOPLE / 10, "only {reconnects} connections broke");
    let room = processes[0].as_ref().unwrap().get("/v1/rooms/concert").await;
    println!("{reconnects} reconnects; {}", room["counts"]);
    let counts = &room["counts"];
    for (name, expected) in [
        ("joined", PEOPLE),
        ("admitted", PEOPLE),
        ("redeemed", PEOPLE),
        ("completed", PEOPLE),
        ("lost", 0),
        ("noShows", 0),
        ("expired", 0),
    ] {
        assert_eq!(counts[name], expected, "{name} of {counts}");
    }
    assert_eq!(
        (&room["granted"], &room["inside"], &room["waiting"]),
        (&json!(0), &json!(0), &json!(0))
    );
    for process in processes.into_iter().flatten() {
        process.stop().await;
    }
}

/// No process ever reports more people inside than allowed.
async fn watch(found: Arc<Found>, http: reqwest::Client, ports: [u16; 3]) {
    for turn in 0.. {
        if found.over.load(Ordering::Relaxed) {
            return;
        }
        let url = format!("http://127.0.0.1:{}/v1/rooms/concert", ports[turn % 3]);
        if let Ok(answer) = http.get(url).send().await
            && let Ok(room) = answer.json::<Value>().await
            && let (Some(granted), Some(inside)) = (room["granted"].as_u64(), room["inside"].as_u64())
            && granted + inside > INSIDE
        {
            found.wrong(format!("{granted} were let in and {inside} inside, of {INSIDE}"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
