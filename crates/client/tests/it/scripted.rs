//! A scripted server: one answer per request, in order. It keeps the requests.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    /// Status line and headers, then a body.
    Answer(&'static str, String),
    /// Reads the request and closes the connection.
    HangUp,
    /// Reads the request and does not answer.
    Silence,
}

pub(crate) struct Scripted {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// Plays these turns in order, and repeats the last one.
    pub(crate) async fn start(turns: Vec<Turn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            let mut turns = turns.into_iter().peekable();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                seen.lock().unwrap().push(request);
                let turn = turns.peek().cloned().unwrap();
                if turns.len() > 1 {
                    turns.next();
                }
                match turn {
                    Turn::Answer(head, body) => {
                        let length = body.len();
                        let text = format!(
                            "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                        );
                        let _gone = stream.write_all(text.as_bytes()).await;
                    }
                    Turn::HangUp => {}
                    Turn::Silence => {
                        tokio::spawn(async move {
                            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
                            drop(stream);
                        });
                    }
                }
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A whole request: its head, and the body that the head announces.
async fn read(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        text.extend_from_slice(&buffer[..read]);
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return whole;
            }
        }
        if read == 0 {
            return whole;
        }
    }
}
