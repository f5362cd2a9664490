//! A whole store as a stream of lines, one JSON object each: a readable backup, and the way from one backend to
//! another.
//!
//! ```text
//!   {"header":{"tidegateExport":2}}
//!   {"limits":{…}}   rates that were set at run time, if there are any
//!   {"group":{…}}    every group
//!   {"batch":{…}}   every batch
//!   {"job":{"job":{…},"state":{…}}}   every job, in the order in which they came
//!   {"end":{"groups":2,"batches":3,"jobs":1000}}
//! ```
//!
//! The last line proves that the stream is complete. Leases are not part of it: a job that runs during the
//! export starts again after the import.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};
use tidegate_core::bulk::Fence;
use tidegate_core::bulk::record::{
    BatchRecord, GroupRecord, JobProgress, JobRecord, LimitsRecord, RunRecord,
};

use crate::StoreError;

/// Every later version reads this format.
pub const EXPORT_VERSION: u32 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Line {
    Header {
        tidegate_export: u32,
    },
    Limits(LimitsRecord),
    Group(GroupRecord),
    Batch(BatchRecord),
    Job {
        job: JobRecord,
        state: Option<JobProgress>,
        /// Its latest runs that did not complete it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        runs: Vec<RunRecord>,
    },
    End(Counts),
}

/// How many items a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub groups: u64,
    pub batches: u64,
    pub jobs: u64,
}

impl Counts {
    fn add(&mut self, line: &Line) {
        match line {
            Line::Group(_) => self.groups += 1,
            Line::Batch(_) => self.batches += 1,
            Line::Job { .. } => self.jobs += 1,
            Line::Header { .. } | Line::Limits(_) | Line::End(_) => {}
        }
    }
}

/// Fences are local to a store. All that means something elsewhere is whether a job was replayed after its batch was
/// cancelled: then its fence is not below that of the cancellation.
const CANCELLED: Fence = Fence(2);

/// A job's fence in the stream.
pub(crate) fn exported_fence(fence: Fence, cancel_fence: Fence) -> Fence {
    if cancel_fence > Fence(0) && fence >= cancel_fence {
        CANCELLED
    } else {
        Fence::default()
    }
}

/// The fence of a batch's cancellation in the stream.
pub(crate) fn exported_cancel_fence(cancelled: bool) -> Fence {
    if cancelled { CANCELLED } else { Fence::default() }
}

/// Writes a stream; [`ExportWriter::finish`] completes it.
#[derive(Debug)]
pub struct ExportWriter<W: Write> {
    out: W,
    counts: Counts,
}

impl<W: Write> ExportWriter<W> {
    pub fn new(out: W) -> std::io::Result<Self> {
        let mut writer = Self {
            out,
            counts: Counts::default(),
        };
        writer.write(&Line::Header {
            tidegate_export: EXPORT_VERSION,
        })?;
        Ok(writer)
    }

    pub fn write(&mut self, line: &Line) -> std::io::Result<()> {
        self.counts.add(line);
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }

    pub fn finish(mut self) -> std::io::Result<Counts> {
        let counts = self.counts;
        self.write(&Line::End(counts))?;
        self.out.flush()?;
        Ok(counts)
    }
}

/// The error of an export that could not be written.
pub(crate) fn unwritten(error: std::io::Error) -> StoreError {
    StoreError::Export {
        kind: error.kind(),
        reason: error.to_string(),
    }
}

/// Reads a stream line by line: groups, batches and jobs, in the order they were written.
#[derive(Debug)]
pub struct ExportReader<R> {
    lines: std::iter::Enumerate<std::io::Lines<R>>,
    counts: Counts,
}

impl<R: BufRead> ExportReader<R> {
    /// Returns an error unless the stream begins with our header.
    pub fn new(input: R) -> Result<Self, StoreError> {
        let mut reader = Self {
            lines: input.lines().enumerate(),
            counts: Counts::default(),
        };
        match reader.line()? {
            Some((
                _,
                Line::Header {
                    tidegate_export: EXPORT_VERSION,
                },
            )) => Ok(reader),
            Some((_, Line::Header { tidegate_export })) => Err(StoreError::Import(format!(
                "it has version {tidegate_export}, this program reads version {EXPORT_VERSION}"
            ))),
            _ => Err(StoreError::Import(
                "it does not begin with a Tidegate header".into(),
            )),
        }
    }

    fn line(&mut self) -> Result<Option<(usize, Line)>, StoreError> {
        let Some((index, text)) = self.lines.next() else {
            return Ok(None);
        };
        let at = |error: &dyn std::fmt::Display| StoreError::Import(format!("line {}: {error}", index + 1));
        let line = serde_json::from_str(&text.map_err(|error| at(&error))?).map_err(|error| at(&error))?;
        Ok(Some((index + 1, line)))
    }

    /// The next group, batch or job; none after a complete stream, an error after an incomplete one.
    pub fn next_line(&mut self) -> Result<Option<Line>, StoreError> {
        match self.line()? {
            Some((_, Line::End(expected))) if expected == self.counts => Ok(None),
            Some((_, Line::End(expected))) => Err(StoreError::Import(format!(
                "it should hold {expected:?} but holds {:?}",
                self.counts
            ))),
            Some((number, Line::Header { .. })) => {
                Err(StoreError::Import(format!("line {number}: a second header")))
            }
            Some((_, line)) => {
                self.counts.add(&line);
                Ok(Some(line))
            }
            None => Err(StoreError::Import(
                "it ends without its last line, so a part of it is missing".into(),
            )),
        }
    }

    /// The items read so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// Reads a stream and passes on groups, batches and jobs; returns an error unless it is complete.
pub fn read(
    input: impl BufRead,
    mut each: impl FnMut(Line) -> Result<(), StoreError>,
) -> Result<Counts, StoreError> {
    let mut reader = ExportReader::new(input)?;
    while let Some(line) = reader.next_line()? {
        each(line)?;
    }
    Ok(reader.counts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_line_may_leave_the_callback_out() {
        let stream = concat!(
            r#"{"header":{"tidegateExport":2}}"#,
            "\n",
            r#"{"batch":{"seq":2,"group":1,"id":"spring","#,
            r#""options":{"failureThresholdPercent":100,"keepResults":true},"status":"CREATED","sealed":false,"#,
            r#""paused":false,"cancelled":false,"implicit":false,"createdAt":5,"finishedAt":null,"#,
            r#""counts":{"total":0,"success":0,"failed":0},"errors":[],"summary":null,"confirmed":false}}"#,
            "\n",
            r#"{"end":{"groups":0,"batches":1,"jobs":0}}"#,
        );
        let mut callbacks = Vec::new();
        let counts = read(stream.as_bytes(), |line| {
            if let Line::Batch(batch) = line {
                assert!(batch.options.keep_results);
                callbacks.push(batch.options.callback);
            }
            Ok(())
        });
        assert_eq!(counts.expect("a whole stream").batches, 1);
        assert_eq!(callbacks, [None]);
    }
}
