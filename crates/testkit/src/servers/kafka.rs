//! One Kafka broker that is its own controller (KRaft), from the jars that `scripts/fetch-kafka` fetches.
//!
//! It creates no topics on its own, so that a wrong name shows. Like any Kafka it leaves syncing to the system:
//! acknowledged records survive a kill, but not a power loss.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, io};

use super::jars::{Jars, JavaParams};
use super::kafka_wire::{Connection, Metadata};
use super::launch::finish;
use super::port::BUS;
use super::proxy::Proxy;
use super::server::{PROBE_LIMIT, Program, Server};
use super::wait::wait_for;
use crate::seeds::fresh_seed;

/// Limit: one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);
const FOLDER_OF_DATA: &str = "data";
const SETTINGS: &str = "server.properties";
const LOGGING: &str = "log4j.properties";

const JARS: Jars = Jars {
    name: "kafka",
    main: "kafka_2.13",
    list: include_str!("../../jars/kafka/jars.sha256"),
    script: "scripts/fetch-kafka",
};

/// How a broker is to run.
#[derive(Debug, Clone, Default)]
pub struct KafkaOptions {
    /// Clients connect through a [`Proxy`], which can fail them. A broker advertises the address to connect to, so
    /// clients would bypass a proxy that it does not know.
    pub behind_proxy: bool,
    /// Settings of the broker, such as `("message.max.bytes", "1000")`. They take precedence over ours.
    pub settings: Vec<(String, String)>,
}

/// A running broker.
pub type KafkaServer = Server<Kafka>;

impl KafkaServer {
    /// What clients call `bootstrap.servers`.
    pub fn brokers(&self) -> String {
        let port = self.proxy().map_or(self.port(), Proxy::port);
        format!("127.0.0.1:{port}")
    }

    /// The proxy in front of the broker, if there is one.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.program.proxy.as_ref()
    }

    /// Creates a topic and waits until every partition has a leader. An error if the topic exists.
    pub fn create_topic(&self, name: &str, partitions: u16) -> io::Result<()> {
        let mut connection = self.connection()?;
        connection.create_topic(name, i32::from(partitions), REQUEST_LIMIT)?;
        wait_for("a leader of every partition", REQUEST_LIMIT, || {
            let topics = connection.metadata()?.topics;
            let is_it = |topic: &&_| ready(topic, name, usize::from(partitions));
            Ok(topics.iter().find(is_it).map(drop))
        })
    }

    /// All topics, the internal ones too, with how many partitions they have.
    pub fn topics(&self) -> io::Result<BTreeMap<String, usize>> {
        let topics = self.connection()?.metadata()?.topics.into_iter();
        Ok(topics.map(|topic| (topic.name, topic.partitions)).collect())
    }

    /// The output of one of Kafka's own commands for this broker, such as `kafka-topics.sh --list`.
    pub fn command(&self, name: &str, args: &[&str]) -> io::Result<String> {
        let class = match name {
            "kafka-topics.sh" => "org.apache.kafka.tools.TopicCommand",
            "kafka-consumer-groups.sh" => "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            _ => return Err(io::Error::other(format!("{name} is not known here"))),
        };
        let mut command = java(self.folder(), class)?;
        command.args(["--bootstrap-server", &self.brokers()]).args(args);
        finish(name, command)
    }

    fn connection(&self) -> io::Result<Connection> {
        Connection::open(self.port(), REQUEST_LIMIT)
    }
}

/// What a [`KafkaServer`] runs.
#[derive(Debug)]
pub struct Kafka {
    cluster: String,
    proxy: Option<Proxy>,
}

impl Program for Kafka {
    type Options = KafkaOptions;

    const NAME: &'static str = "Kafka";

    fn prepare(options: &KafkaOptions, folder: &Path, port: u16) -> io::Result<Self> {
        // A cluster's id is 16 bytes in base64; so is this.
        let cluster = format!("{:021x}A", fresh_seed());
        let proxy = options.behind_proxy.then(|| Proxy::start(port)).transpose()?;
        let advertised = proxy.as_ref().map_or(port, Proxy::port);
        write_settings(options, folder, Ports { port, advertised })?;
        // A broker starts only with a folder that is formatted for a node of its cluster.
        let mut command = java(folder, "kafka.tools.StorageTool")?;
        command.args(["format", "-t", &cluster, "-c", SETTINGS]);
        finish("a folder for Kafka", command)?;
        Ok(Self { cluster, proxy })
    }

    fn command(&self, folder: &Path, _port: u16) -> io::Result<Command> {
        let mut command = java(folder, "kafka.Kafka")?;
        command.arg(SETTINGS);
        Ok(command)
    }

    fn serves(&self, _folder: &Path, port: u16, _process: u32) -> bool {
        // The cluster's id distinguishes this broker from others, and its controller lists it when it may serve.
        let probe = || -> io::Result<Metadata> { Connection::open(port, PROBE_LIMIT)?.metadata() };
        probe().is_ok_and(|metadata| {
            metadata.cluster == self.cluster
                && metadata.brokers == 1
                && metadata.topics.iter().all(|topic| topic.led)
        })
    }

    fn shared_cell() -> &'static OnceLock<Server<Self>> {
        static SHARED: OnceLock<KafkaServer> = OnceLock::new();
        &SHARED
    }
}

fn ready(topic: &super::kafka_wire::Topic, name: &str, partitions: usize) -> bool {
    topic.name == name && topic.partitions == partitions && topic.led
}

/// Where a broker listens, and where it sends clients.
struct Ports {
    port: u16,
    advertised: u16,
}

fn write_settings(options: &KafkaOptions, folder: &Path, ports: Ports) -> io::Result<()> {
    let Ports { port, advertised } = ports;
    let controller = port + BUS;
    let data = folder.join(FOLDER_OF_DATA);
    // A killed broker may join again only when its session has expired, after 9 s by default: sooner here, but not
    // so soon that a stall shuts it out. Consumers of tests join one by one, so that no rebalance waits, and their
    // sessions may expire sooner than the usual 6 s. The cleaner's buffer is nearly half of the heap by default.
    let mut text = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{advertised}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={}\n\
         auto.create.topics.enable=false\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=1\n\
         broker.session.timeout.ms=7000\n\
         broker.heartbeat.interval.ms=500\n\
         group.initial.rebalance.delay.ms=0\n\
         group.min.session.timeout.ms=1000\n\
         log.cleaner.dedupe.buffer.size=4194304\n\
         num.network.threads=2\n\
         num.io.threads=4\n",
        data.display()
    );
    for (name, value) in &options.settings {
        text.push_str(&format!("{name}={value}\n"));
    }
    fs::write(folder.join(SETTINGS), text)?;
    let logging = "log4j.rootLogger=WARN, out\n\
                   log4j.appender.out=org.apache.log4j.ConsoleAppender\n\
                   log4j.appender.out.layout=org.apache.log4j.PatternLayout\n\
                   log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %m (%c)%n\n";
    fs::write(folder.join(LOGGING), logging)
}

fn java(folder: &Path, class: &str) -> io::Result<Command> {
    JARS.java(&JavaParams {
        class,
        heap: "-Xmx320m",
        settings: &[format!(
            "-Dlog4j.configuration=file:{}",
            folder.join(LOGGING).display()
        )],
        folder,
    })
}
