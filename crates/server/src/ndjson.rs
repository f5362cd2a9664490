//! Reads a body line by line as it arrives. It needs memory for one line and one chunk, however long the body is.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;

use crate::extract::{broken, slow};
use crate::problem::{ApiError, ApiResult, TOO_LARGE};

pub(crate) struct Lines {
    body: BodyDataStream,
    buffer: BytesMut,
    /// The buffer holds no line end before this position.
    searched: usize,
    ended: bool,
    left: u64,
    max_bytes: u64,
    max_line: u64,
    pause: Duration,
}

impl Lines {
    pub(crate) fn new(body: Body, max_bytes: u64, max_line: u64, pause: Duration) -> Self {
        Self {
            body: body.into_data_stream(),
            buffer: BytesMut::new(),
            searched: 0,
            ended: false,
            left: max_bytes,
            max_bytes,
            max_line,
            pause,
        }
    }

    /// Returns the next line that is not blank, without its line end.
    pub(crate) async fn next(&mut self) -> ApiResult<Option<Bytes>> {
        loop {
            while let Some(line) = self.split() {
                if !line.iter().all(u8::is_ascii_whitespace) {
                    return Ok(Some(line));
                }
            }
            if self.ended {
                return Ok(None);
            }
            if self.buffer.len() as u64 > self.max_line {
                return Err(ApiError::new(
                    TOO_LARGE,
                    format!("a line has more than {} bytes; send smaller jobs", self.max_line),
                ));
            }
            let piece = tokio::time::timeout(self.pause, self.body.next()).await;
            match piece.map_err(|_| slow(self.pause))? {
                None => self.ended = true,
                Some(Err(error)) => return Err(broken(&error)),
                Some(Ok(piece)) => {
                    self.left = self.left.checked_sub(piece.len() as u64).ok_or_else(|| {
                        ApiError::new(
                            TOO_LARGE,
                            format!(
                                "the stream has more than {} bytes; send it in several requests",
                                self.max_bytes
                            ),
                        )
                    })?;
                    self.buffer.extend_from_slice(&piece);
                }
            }
        }
    }

    fn split(&mut self) -> Option<Bytes> {
        let end = self.buffer[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n');
        match end {
            Some(at) => {
                let line = self.buffer.split_to(self.searched + at).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                Some(line)
            }
            None if self.ended && !self.buffer.is_empty() => {
                self.searched = 0;
                Some(self.buffer.split().freeze())
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(pieces: &[&'static str], max_line: u64) -> ApiResult<Vec<String>> {
        let pieces: Vec<Result<Bytes, std::io::Error>> = pieces
            .iter()
            .map(|piece| Ok(Bytes::from_static(piece.as_bytes())))
            .collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let mut lines = Lines::new(body, 1_000, max_line, Duration::from_secs(1));
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await? {
            seen.push(String::from_utf8_lossy(&line).into_owned());
        }
        Ok(seen)
    }

    #[tokio::test]
    async fn lines_are_found_wherever_the_chunks_end() {
        assert_eq!(
            lines(&["a\nb", "b\n", "\n", "  \n", "c"], 100).await.unwrap(),
            ["a", "bb", "c"]
        );
        assert_eq!(lines(&["a\r\nb\r\n"], 100).await.unwrap(), ["a\r", "b\r"]);
        assert!(lines(&[], 100).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused() {
        let refused = lines(&["aaaaaaaaaaaaaaaa", "aaaa"], 10).await.unwrap_err();
        assert_eq!(refused.detail, "a line has more than 10 bytes; send smaller jobs");
    }
}
