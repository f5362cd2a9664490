//! Processes that share a room on a Redis of their own, to be killed and started again.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use crate::support::served::{Served, free_port};

pub(crate) struct Brokers {
    each: Vec<Broker>,
    settings: String,
    http: reqwest::Client,
    // Dropped last: the processes stand on it.
    _redis: RedisServer,
}

struct Broker {
    served: Option<Served>,
    port: u16,
    folder: TempDir,
}

impl Brokers {
    /// So many processes; the room lets nobody in until it has slots.
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
            each.push(Broker { served, port, folder });
        }
        Self {
            each,
            settings,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            _redis: redis,
        }
    }

    pub(crate) fn address(&self, number: usize) -> SocketAddr {
        let broker = &self.each[number % self.each.len()];
        (Ipv4Addr::LOCALHOST, broker.port).into()
    }

    pub(crate) fn signal(&self, number: usize, signal: rustix::process::Signal) {
        let broker = &self.each[number % self.each.len()];
        broker.served.as_ref().unwrap().signal(signal);
    }

    pub(crate) async fn kill(&mut self, number: usize) {
        let count = self.each.len();
        self.each[number % count].served.take().unwrap().kill().await;
    }

    pub(crate) async fn start_again(&mut self, number: usize) {
        let count = self.each.len();
        let broker = &mut self.each[number % count];
        broker.served = Some(Served::start(broker.folder.path(), broker.port, &self.settings).await);
    }

    /// Lets so many more in, by one of the processes.
    pub(crate) async fn free(&self, number: usize, slots: usize) {
        let url = format!("http://{}/v1/rooms/concert/capacity", self.address(number));
        let change = json!({ "inside": { "add": slots }, "why": "a test" });
        let answer = self.http.patch(url).json(&change).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
    }

    /// The room, as one of the processes tells it.
    pub(crate) async fn room(&self, number: usize) -> Value {
        let url = format!("http://{}/v1/rooms/concert", self.address(number));
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn stop(self) {
        for broker in self.each {
            broker.served.unwrap().stop().await;
        }
    }
}
