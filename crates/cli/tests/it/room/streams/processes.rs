//! Processes that share a room on a Redis of their own, which a test kills and restarts.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use crate::support::served::{Served, free_port};

pub(crate) struct Processes {
    each: Vec<Process>,
    settings: String,
    http: reqwest::Client,
    // Dropped last: the processes need it.
    _redis: RedisServer,
}

struct Process {
    served: Option<Served>,
    port: u16,
    folder: TempDir,
}

impl Processes {
    /// Starts this many processes. The room lets nobody in until it has slots.
    pub(crate) async fn start(count: usize, room: &str) -> Self {
        let redis = RedisServer::start(RedisOptions::default()).unwrap();
        let folders: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let settings = format!(
            "[redis]\nurls = [{:?}]\n[rooms.concert]\ncapacity = {{ inside = 0, per_second = 1000 }}\n{room}\n\
             [room.keys]\nfolder = {:?}\n\
             [room.joins]\nper_address = 1000000\naddress_burst = 1000000\nper_person = 1000000\n",
            redis.url(),
            folders[0].path().join("keys").display().to_string()
        );
        let mut each = Vec::new();
        for folder in folders {
            let port = free_port();
            let served = Some(Served::start(folder.path(), port, &settings).await);
            each.push(Process { served, port, folder });
        }
        Self {
            each,
            settings,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            _redis: redis,
        }
    }

    pub(crate) fn address(&self, number: usize) -> SocketAddr {
        let process = &self.each[number % self.each.len()];
        (Ipv4Addr::LOCALHOST, process.port).into()
    }

    pub(crate) fn signal(&self, number: usize, signal: rustix::process::Signal) {
        let process = &self.each[number % self.each.len()];
        process.served.as_ref().unwrap().signal(signal);
    }

    pub(crate) async fn kill(&mut self, number: usize) {
        let count = self.each.len();
        self.each[number % count].served.take().unwrap().kill().await;
    }

    pub(crate) async fn restart(&mut self, number: usize) {
        let count = self.each.len();
        let process = &mut self.each[number % count];
        process.served = Some(Served::start(process.folder.path(), process.port, &self.settings).await);
    }

    /// Adds slots, through one of the processes.
    pub(crate) async fn free(&self, number: usize, slots: usize) {
        let url = format!("http://{}/v1/rooms/concert/capacity", self.address(number));
        let change = json!({ "inside": { "add": slots }, "why": "a test" });
        let answer = self.http.patch(url).json(&change).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
    }

    /// The room as one of the processes reports it.
    pub(crate) async fn room(&self, number: usize) -> Value {
        let url = format!("http://{}/v1/rooms/concert", self.address(number));
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn stop(self) {
        for process in self.each {
            process.served.unwrap().stop().await;
        }
    }
}
