//! Reads the lines of a file or of standard input on a thread of its own, a little ahead of the sender.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// Limit: one piece of a stream, cut at a line end.
const PIECE: usize = 256 * 1024;
/// Limit: one request with `--chunk`, well below what the service accepts.
const CHUNK: usize = 8 * 1024 * 1024;
/// Limit: pieces read ahead.
const AHEAD: usize = 4;
/// Limit: one line. The service accepts less; this keeps a file without line ends out of memory.
const MAX_LINE: u64 = 64 * 1024 * 1024;

/// Some whole lines.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    /// Lines that are not blank.
    pub(crate) jobs: u64,
}

pub(crate) struct Source {
    name: String,
    input: Box<dyn Read + Send>,
    bytes: Option<u64>,
    /// The type of lines without one, as JSON.
    kind: Option<String>,
}

impl Source {
    pub(crate) fn open(path: &Path, kind: Option<&str>) -> anyhow::Result<Self> {
        let kind = kind.map(serde_json::to_string).transpose()?;
        if path == Path::new("-") {
            return Ok(Self {
                name: "standard input".into(),
                input: Box::new(std::io::stdin()),
                bytes: None,
                kind,
            });
        }
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| name.clone())?;
        let meta = file.metadata().with_context(|| name.clone())?;
        anyhow::ensure!(
            !meta.is_dir(),
            "{name} is a folder; a file of JSON lines is needed"
        );
        Ok(Self {
            name,
            bytes: meta.is_file().then_some(meta.len()),
            input: Box::new(file),
            kind,
        })
    }

    /// The size of the input, if known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Reads everything, in pieces of at most `jobs` jobs. An error is the last item.
    pub(crate) fn read(self, jobs: u64) -> mpsc::Receiver<Result<Piece, String>> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        // A thread, not a task: a read from a terminal or pipe can block for ever, and must not keep the process alive.
        std::thread::spawn(move || {
            let name = self.name.clone();
            if let Err(error) = self.pump(jobs, &sender) {
                let _receiver_gone = sender.blocking_send(Err(format!("{name}: {error}")));
            }
        });
        receiver
    }

    fn pump(self, max_jobs: u64, sender: &mpsc::Sender<Result<Piece, String>>) -> std::io::Result<()> {
        let whole = if max_jobs == u64::MAX { PIECE } else { CHUNK };
        let mut input = BufReader::with_capacity(PIECE, self.input);
        let (mut piece, mut jobs, mut line, mut number) = (Vec::new(), 0, Vec::new(), 0_u64);
        loop {
            line.clear();
            let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut line)?;
            number += 1;
            if read as u64 == MAX_LINE && !line.ends_with(b"\n") {
                let text =
                    format!("line {number} has more than {MAX_LINE} bytes; is it a file of JSON lines?");
                return Err(std::io::Error::other(text));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                jobs += 1;
                piece.extend_from_slice(typed(&line, self.kind.as_deref()).as_deref().unwrap_or(&line));
            }
            let last = read == 0;
            if (last || piece.len() >= whole || jobs == max_jobs) && !piece.is_empty() {
                let bytes = Bytes::from(std::mem::take(&mut piece));
                let piece = Piece { bytes, jobs };
                if sender.blocking_send(Ok(piece)).is_err() {
                    return Ok(());
                }
                jobs = 0;
            }
            if last {
                return Ok(());
            }
        }
    }
}

/// Adds the type to an object without one. The service refuses a line that is not an object.
fn typed(line: &[u8], kind: Option<&str>) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(rename = "type", borrow, default)]
        kind: Option<&'a RawValue>,
    }
    let kind = kind?;
    let peek: Peek<'_> = serde_json::from_slice(line).ok()?;
    if peek.kind.is_some() {
        return None;
    }
    let open = line.iter().position(|&byte| byte == b'{')?;
    let rest = &line[open + 1..];
    let empty = rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
    let comma = if empty { "" } else { "," };
    let mut typed = format!("{{\"type\":{kind}{comma}").into_bytes();
    typed.extend_from_slice(rest);
    Some(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, kind: Option<&str>, jobs: u64) -> Vec<(String, u64)> {
        let source = Source {
            name: "test".into(),
            input: Box::new(std::io::Cursor::new(text.to_owned().into_bytes())),
            bytes: None,
            kind: kind.map(|kind| serde_json::to_string(kind).unwrap()),
        };
        let mut receiver = source.read(jobs);
        let mut seen = Vec::new();
        while let Some(piece) = receiver.blocking_recv() {
            let piece = piece.unwrap();
            seen.push((String::from_utf8(piece.bytes.to_vec()).unwrap(), piece.jobs));
        }
        seen
    }

    #[test]
    fn lines_are_cut_into_chunks_and_blank_ones_are_left_out() {
        assert_eq!(
            pieces("a\n\nb\n  \nc", None, 2),
            [("a\nb\n".into(), 2), ("c".into(), 1)]
        );
        assert_eq!(pieces("", None, 2), []);
        assert_eq!(pieces("\n\n", None, 2), []);
    }

    #[test]
    fn a_type_is_put_where_there_is_none() {
        let text = "{\"id\":\"1\"}\n {}\n{\"type\":\"B\"}\nnonsense\n[1]\n";
        let expected =
            "{\"type\":\"A\\\"\",\"id\":\"1\"}\n{\"type\":\"A\\\"\"}\n{\"type\":\"B\"}\nnonsense\n[1]\n";
        assert_eq!(pieces(text, Some("A\""), u64::MAX), [(expected.into(), 5)]);
    }

    #[test]
    fn long_inputs_come_in_pieces() {
        let line = format!("{}\n", "x".repeat(100_000));
        let seen = pieces(&line.repeat(10), None, u64::MAX);
        assert_eq!(seen.iter().map(|(_, jobs)| jobs).sum::<u64>(), 10);
        assert!(seen.len() >= 3 && seen.iter().all(|(text, _)| text.len() < 2 * PIECE));
    }
}
