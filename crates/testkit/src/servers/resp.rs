//! A tiny blocking client of the Redis protocol (RESP2). Every read and write has a time limit.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    /// `None` is nil, also the nil that stands for a missing array.
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

impl Reply {
    /// `+OK`.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Simple(text) if text == "OK")
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Bulk(None))
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// A simple or bulk string as text.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) => Some(text.clone()),
            Self::Bulk(Some(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The elements of an array; of anything else none.
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// The strings in an array, such as the answer of `KEYS`.
    pub fn texts(&self) -> Vec<String> {
        self.items().iter().filter_map(Reply::text).collect()
    }
}

/// One connection to a server on this machine.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(port: u16, timeout: Duration) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let stream = BufReader::new(stream);
        Ok(Self { stream })
    }

    /// Limits reads and writes from here on, to check that there is no answer. The system accepts connections even for
    /// a suspended server.
    pub fn limit(&self, timeout: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))?;
        self.stream.get_ref().set_write_timeout(Some(timeout))
    }

    /// Sends one command and reads its reply. After an error the connection is unusable.
    pub fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.reply()
    }

    /// Sends one command without waiting for its reply.
    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            write!(bytes, "${}\r\n{word}\r\n", word.len())?;
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// Reads one reply.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| invalid(&line))?;
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Int(number(rest)?)),
            "$" => self.bulk(number(rest)?),
            "*" => self.array(number(rest)?),
            _ => Err(invalid(&line)),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(text) => Ok(text.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn bulk(&mut self, length: i64) -> io::Result<Reply> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(Reply::Bulk(None));
        };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bulk(Some(bytes)))
    }

    fn array(&mut self, length: i64) -> io::Result<Reply> {
        if length < 0 {
            return Ok(Reply::Bulk(None));
        }
        let items: io::Result<Vec<Reply>> = (0..length).map(|_| self.reply()).collect();
        Ok(Reply::Array(items?))
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| invalid(text))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {text:?}"))
}
