//! Submission of a job stream as NDJSON, with memory for one piece of it.

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use http::Method;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tidegate_api::{Enqueued, NewJob};

use super::jobs::Destination;
use crate::client::{Client, NDJSON};
use crate::connect::BoxError;
use crate::error::ClientError;

/// The size of one write, about: a write per job would cost more than the job.
const PIECE: usize = 64 * 1024;

/// The caller's data cannot be read. The client finds this error inside the error of the request that it ended.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SourceError(pub(crate) String);

pub(crate) async fn jobs(
    client: &Client,
    place: &Destination,
    jobs: impl Stream<Item = NewJob> + Send + 'static,
) -> Result<Enqueued, ClientError> {
    let pieces = stream::unfold(Box::pin(jobs), |mut jobs| async move {
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            let Some(job) = jobs.next().await else { break };
            if let Err(error) = write_line(&mut piece, &job) {
                let text = format!("job {:?} cannot be written as JSON: {error}", job.id);
                return Some((Err(text), jobs));
            }
        }
        (!piece.is_empty()).then(|| (Ok(Bytes::from(piece)), jobs))
    });
    lines(client, place, pieces).await
}

fn write_line(piece: &mut Vec<u8>, job: &NewJob) -> serde_json::Result<()> {
    let from = piece.len();
    serde_json::to_writer(&mut *piece, job)?;
    // The payload keeps its text. Line ends between its tokens are white space, and JSON allows none inside of
    // strings.
    for byte in &mut piece[from..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    piece.push(b'\n');
    Ok(())
}

pub(crate) async fn lines<E: std::fmt::Display>(
    client: &Client,
    place: &Destination,
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Result<Enqueued, ClientError> {
    let frames = pieces.map(|piece| match piece {
        Ok(piece) => Ok(Frame::data(piece)),
        Err(error) => Err(BoxError::from(SourceError(error.to_string()))),
    });
    let body = StreamBody::new(frames).boxed_unsync();
    let answer = client
        .send(
            Method::POST,
            &place.address(),
            Some(NDJSON),
            "application/json",
            body,
        )
        .await?;
    let status = answer.status();
    let body = answer.into_body().collect().await;
    let body = body.map_err(|error| ClientError::transport(client.url(), &error, true))?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| ClientError::answer(client.url(), status, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_with_line_ends_stays_one_line() {
        let text = "{\n  \"a\": \"b\\nc\",\r\n  \"d\": 1\n}";
        let payload = serde_json::value::RawValue::from_string(text.into()).unwrap();
        let job = NewJob {
            payload: Some(payload),
            ..crate::new_job("1", "T", &()).unwrap()
        };
        let mut piece = Vec::new();
        write_line(&mut piece, &job).unwrap();
        let line = String::from_utf8(piece).unwrap();
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        let read: NewJob = serde_json::from_str(&line).unwrap();
        let read: serde_json::Value = serde_json::from_str(read.payload.unwrap().get()).unwrap();
        assert_eq!(read, serde_json::json!({"a": "b\nc", "d": 1}));
    }
}
