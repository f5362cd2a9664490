//! A Redis Cluster of masters. Like a real one it serves nothing by default while a slot has no master
//! (`cluster-require-full-coverage yes`). The others notice a dead master after the node timeout.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use super::redis::{RedisOptions, RedisServer};
use super::resp::Reply;
use super::wait::wait_for;

const SLOTS: usize = 16_384;
/// A node that has just started takes no writes for two seconds, and gossip needs a few rounds.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);

/// Running masters that share the slots evenly, without replicas.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster that keeps no data on disk.
    pub fn start(masters: usize) -> io::Result<Self> {
        Self::start_with(masters, RedisOptions::default())
    }

    /// Starts a cluster whose nodes all have these options. Waits until every node serves and knows every
    /// slot.
    pub fn start_with(masters: usize, options: RedisOptions) -> io::Result<Self> {
        assert!((1..=SLOTS).contains(&masters), "{masters} masters");
        // Long, so that a node on a busy machine is not taken for dead; a test that needs less sets it.
        let ours = [
            ["--cluster-enabled", "yes"],
            ["--cluster-config-file", "nodes.conf"],
            ["--cluster-node-timeout", "15000"],
        ];
        let mut options = options;
        let args = ours.as_flattened().iter().map(|arg| (*arg).to_owned());
        options.args = args.chain(options.args).collect();
        let nodes: io::Result<Vec<RedisServer>> = (0..masters)
            .map(|_| RedisServer::start(options.clone()))
            .collect();
        let cluster = Self { nodes: nodes? };
        cluster.assign_slots()?;
        cluster.introduce()?;
        cluster.wait_settled()?;
        Ok(cluster)
    }

    /// The cluster of three that all tests of this process can use. It keeps nothing on disk.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisCluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::start(3).unwrap_or_else(|error| panic!("the shared Redis Cluster: {error}"))
        })
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// To pause and resume a node.
    pub fn node_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index]
    }

    /// Kills a node. The others notice after the node timeout.
    pub fn kill(&mut self, index: usize) -> io::Result<()> {
        self.nodes[index].kill()
    }

    /// Starts a node again, with its slots, and waits until the whole cluster serves. Its keys are there only
    /// if the cluster was started with an append-only file.
    pub fn restart(&mut self, index: usize) -> io::Result<()> {
        self.nodes[index].restart()?;
        self.wait_settled()
    }

    /// The node that serves a key.
    pub fn owner(&self, key: &str) -> io::Result<&RedisServer> {
        let first = &self.nodes[0];
        let slot = first.command(&["CLUSTER", "KEYSLOT", key])?.int();
        let slots = first.command(&["CLUSTER", "SLOTS"])?;
        let port = slots.items().iter().find_map(|range| match range.items() {
            [from, to, master, ..] if from.int() <= slot && slot <= to.int() => master.items().get(1)?.int(),
            _ => None,
        });
        self.nodes
            .iter()
            .find(|node| Some(i64::from(node.port())) == port)
            .ok_or_else(|| io::Error::other(format!("nobody serves {key}: {slots:?}")))
    }

    /// Waits until every node knows every other, serves, and knows an available master for every slot.
    pub fn wait_settled(&self) -> io::Result<()> {
        let wanted = [
            "cluster_state:ok\r\n".to_owned(),
            format!("cluster_slots_ok:{SLOTS}\r\n"),
            format!("cluster_known_nodes:{}\r\n", self.nodes.len()),
            format!("cluster_size:{}\r\n", self.nodes.len()),
        ];
        for node in &self.nodes {
            wait_for("a settled cluster", SETTLE_LIMIT, || {
                let info = node.command(&["CLUSTER", "INFO"])?.text().unwrap_or_default();
                Ok(wanted.iter().all(|line| info.contains(line)).then_some(()))
            })?;
        }
        Ok(())
    }

    fn assign_slots(&self) -> io::Result<()> {
        let count = self.nodes.len();
        for (index, node) in self.nodes.iter().enumerate() {
            let slots: Vec<String> = (SLOTS * index / count..SLOTS * (index + 1) / count)
                .map(|slot| slot.to_string())
                .collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            expect_ok(node.command(&words)?)?;
            // Different epochs from the start: nodes with equal ones would first have to sort that out.
            let epoch = (index + 1).to_string();
            expect_ok(node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?)?;
        }
        Ok(())
    }

    /// Introduces every node to every later one: quicker than gossip.
    fn introduce(&self) -> io::Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let port = other.port().to_string();
                expect_ok(node.command(&["CLUSTER", "MEET", "127.0.0.1", &port])?)?;
            }
        }
        Ok(())
    }
}

fn expect_ok(reply: Reply) -> io::Result<()> {
    if reply.is_ok() {
        return Ok(());
    }
    Err(io::Error::other(format!("redis-server answered {reply:?}")))
}
