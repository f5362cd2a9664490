//! The part of Kafka's protocol that a start and the creation of topics need: old versions of requests, which have
//! fixed layouts. Every read and write has a time limit.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const METADATA: [i16; 2] = [3, 4];
const CREATE_TOPICS: [i16; 2] = [19, 2];

/// An answer is a few hundred bytes per topic; a longer one comes from something else.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;

/// What a broker reports.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) cluster: String,
    /// Brokers that serve.
    pub(super) brokers: usize,
    pub(super) topics: Vec<Topic>,
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) partitions: usize,
    /// Every partition has a leader.
    pub(super) led: bool,
}

/// One connection to a broker on this machine.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
}

impl Connection {
    pub(super) fn open(port: u16, timeout: Duration) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream })
    }

    /// The broker, and all topics.
    pub(super) fn metadata(&mut self) -> io::Result<Metadata> {
        let mut body = Vec::new();
        // All topics, and no creation of missing ones.
        put_i32(&mut body, -1);
        body.push(0);
        let mut answer = self.request(METADATA, &body)?;
        answer.i32()?;
        let brokers = answer.many(|broker| {
            broker.i32()?;
            broker.text()?;
            broker.i32()?;
            broker.text()
        })?;
        let cluster = answer.text()?.unwrap_or_default();
        answer.i32()?;
        let topics = answer.many(topic)?;
        Ok(Metadata {
            cluster,
            brokers: brokers.len(),
            topics,
        })
    }

    /// Creates a topic with one replica. An error if it exists.
    pub(super) fn create_topic(&mut self, name: &str, partitions: i32, limit: Duration) -> io::Result<()> {
        let mut body = Vec::new();
        put_i32(&mut body, 1);
        put_text(&mut body, name)?;
        put_i32(&mut body, partitions);
        body.extend(1_i16.to_be_bytes());
        // The broker places the partitions; the topic has no settings of its own.
        put_i32(&mut body, 0);
        put_i32(&mut body, 0);
        put_i32(&mut body, i32::try_from(limit.as_millis()).unwrap_or(i32::MAX));
        body.push(0);
        let mut answer = self.request(CREATE_TOPICS, &body)?;
        answer.i32()?;
        let refused = answer.many(|topic| {
            topic.text()?;
            Ok((topic.i16()?, topic.text()?))
        })?;
        match refused.into_iter().find(|(code, _)| *code != 0) {
            None => Ok(()),
            Some((code, text)) => {
                let text = text.unwrap_or_default();
                Err(io::Error::other(format!("topic {name}: error {code}: {text}")))
            }
        }
    }

    fn request(&mut self, [key, version]: [i16; 2], body: &[u8]) -> io::Result<Answer> {
        const NUMBER: i32 = 1;
        let mut bytes = Vec::new();
        bytes.extend(key.to_be_bytes());
        bytes.extend(version.to_be_bytes());
        put_i32(&mut bytes, NUMBER);
        put_text(&mut bytes, "testkit")?;
        bytes.extend(body);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.stream.write_all(&length.to_be_bytes())?;
        self.stream.write_all(&bytes)?;

        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST_ANSWER {
            return Err(invalid());
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let mut answer = Answer { bytes, read: 0 };
        if answer.i32()? != NUMBER {
            return Err(invalid());
        }
        Ok(answer)
    }
}

fn topic(answer: &mut Answer) -> io::Result<Topic> {
    answer.i16()?;
    let name = answer.text()?.unwrap_or_default();
    answer.take::<1>()?;
    let leaders = answer.many(|partition| {
        partition.i16()?;
        partition.i32()?;
        let leader = partition.i32()?;
        partition.many(Answer::i32)?;
        partition.many(Answer::i32)?;
        Ok(leader)
    })?;
    Ok(Topic {
        name,
        partitions: leaders.len(),
        led: leaders.iter().all(|leader| *leader >= 0),
    })
}

/// The part of an answer that was not read yet.
#[derive(Debug)]
struct Answer {
    bytes: Vec<u8>,
    read: usize,
}

impl Answer {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.slice(N)?;
        bytes.try_into().map_err(|_| invalid())
    }

    fn slice(&mut self, length: usize) -> io::Result<&[u8]> {
        let rest = self.bytes.get(self.read..).unwrap_or_default();
        self.read += length;
        rest.get(..length).ok_or_else(invalid)
    }

    fn i16(&mut self) -> io::Result<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> io::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    /// `None` stands for null.
    fn text(&mut self) -> io::Result<Option<String>> {
        let Ok(length) = usize::try_from(self.i16()?) else {
            return Ok(None);
        };
        let bytes = self.slice(length)?;
        Ok(Some(String::from_utf8_lossy(bytes).into_owned()))
    }

    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let count = self.i32()?;
        (0..count).map(|_| one(self)).collect()
    }
}

fn put_i32(bytes: &mut Vec<u8>, number: i32) {
    bytes.extend(number.to_be_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let length = i16::try_from(text.len()).map_err(io::Error::other)?;
    bytes.extend(length.to_be_bytes());
    bytes.extend(text.as_bytes());
    Ok(())
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an answer of a Kafka broker")
}
