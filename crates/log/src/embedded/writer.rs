//! The one thread that writes.
//!
//! It takes all waiting requests, writes them as one atomic batch, syncs once, makes the batch visible, and only then
//! replies. So the busier the log, the fewer syncs per record. Between batches it drops expired records, one
//! partition at a time, so that an append waits only briefly.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tidegate_core::time::Timestamp;
use tokio::sync::oneshot;

use super::Shared;
use super::disk::{DiskError, Head, Op, Place, Stored};
use super::state::Member;
use crate::capacity::Taken;
use crate::{CommitOutcome, LogError, Mark, Position, Record, Topic, partition_of};

/// Limit: requests in one batch.
const MAX_BATCH: usize = 512;
/// Limit: records of one partition dropped in one write.
const MAX_DROPPED: u64 = 1_024;

pub(super) type Reply<T> = oneshot::Sender<Result<T, LogError>>;

pub(super) enum Request {
    Append(Vec<Record>, Taken, Reply<Vec<Position>>),
    Commit(Commit, Reply<Vec<CommitOutcome>>),
    /// Ends the thread once everything before is done.
    Close(oneshot::Sender<()>),
}

pub(super) struct Commit {
    pub(super) topic: Topic,
    pub(super) group: String,
    pub(super) member: Member,
    pub(super) marks: Vec<Mark>,
}

/// The reply to send once the batch is durable.
enum Answer {
    Appended(Reply<Vec<Position>>, Vec<Position>),
    Committed(Reply<Vec<CommitOutcome>>, Vec<CommitOutcome>),
}

impl Answer {
    fn send(self) {
        // The caller may be gone; its request is done all the same.
        match self {
            Answer::Appended(reply, positions) => drop(reply.send(Ok(positions))),
            Answer::Committed(reply, outcomes) => drop(reply.send(Ok(outcomes))),
        }
    }

    fn refuse(self, error: LogError) {
        match self {
            Answer::Appended(reply, _) => drop(reply.send(Err(error))),
            Answer::Committed(reply, _) => drop(reply.send(Err(error))),
        }
    }
}

/// The changes of one batch, not durable yet.
#[derive(Default)]
struct CommitBatch {
    ops: Vec<Op>,
    heads: BTreeMap<Place, Head>,
    marks: Vec<(Place, String, u64)>,
    answers: Vec<Answer>,
    /// The capacity of the records, returned once they are written.
    taken: Vec<Taken>,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    /// When the next sweep for expired records runs, and in which partition.
    sweep_at: Instant,
    sweep_place: usize,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let sweep_at = Instant::now() + Duration::from(shared.settings.sweep_every);
        Self {
            shared,
            sweep_at,
            sweep_place: 0,
        }
    }

    pub(super) fn run(mut self, requests: Receiver<Request>) {
        loop {
            let wait = self.sweep_at.saturating_duration_since(Instant::now());
            let first = match requests.recv_timeout(wait) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let rest = requests.try_iter().take(MAX_BATCH);
            let mut closing = None;
            let mut writes = CommitBatch::default();
            for request in first.into_iter().chain(rest) {
                if let Request::Close(reply) = request {
                    closing = Some(reply);
                    break;
                }
                self.enter(&mut writes, request);
            }
            self.finish(writes);
            if let Some(reply) = closing {
                // The folder lock ends with the last consumer, this thread, and the log itself.
                drop(self);
                drop(requests);
                let _ = reply.send(());
                return;
            }
            if self.sweep_at <= Instant::now() {
                self.sweep_one();
            }
        }
    }

    fn enter(&self, writes: &mut CommitBatch, request: Request) {
        match request {
            Request::Append(records, taken, reply) => {
                writes.taken.push(taken);
                self.append(writes, records, reply);
            }
            Request::Commit(commit, reply) => self.commit(writes, commit, reply),
            Request::Close(_) => unreachable!("the loop keeps it"),
        }
    }

    fn head(&self, writes: &CommitBatch, place: Place) -> Head {
        let known = || self.shared.state().head(place).unwrap_or_default();
        writes.heads.get(&place).copied().unwrap_or_else(known)
    }

    fn append(&self, writes: &mut CommitBatch, records: Vec<Record>, reply: Reply<Vec<Position>>) {
        let now = self.shared.clock.now();
        let mut positions = Vec::with_capacity(records.len());
        for Record { topic, key, value } in records {
            let partition = partition_of(&key, self.shared.settings.partitions(topic));
            let place = Place { topic, partition };
            let mut head = self.head(writes, place);
            head.last_at = head.last_at.max(now);
            let stored = Stored {
                offset: head.end,
                appended_at: head.last_at,
                key,
                value,
            };
            positions.push(Position {
                partition,
                offset: head.end,
            });
            head.end += 1;
            writes.heads.insert(place, head);
            writes.ops.push(Op::Record(place, stored));
        }
        writes.answers.push(Answer::Appended(reply, positions));
    }

    fn commit(&self, writes: &mut CommitBatch, commit: Commit, reply: Reply<Vec<CommitOutcome>>) {
        let Commit {
            topic,
            group,
            member,
            marks,
        } = commit;
        let mut outcomes = Vec::with_capacity(marks.len());
        for mark in marks {
            let (outcome, store) = self.shared.state().admit(topic, &group, member, mark);
            outcomes.push(outcome);
            if store {
                let place = Place {
                    topic,
                    partition: mark.partition,
                };
                writes.ops.push(Op::Mark(place, group.clone(), mark.next));
                writes.marks.push((place, group.clone(), mark.next));
            }
        }
        writes.answers.push(Answer::Committed(reply, outcomes));
    }

    fn drop_before(&self, writes: &mut CommitBatch, place: Place, before: u64) {
        let mut head = self.head(writes, place);
        let before = before.min(head.end);
        if head.start < before {
            writes.ops.push(Op::Drop(place, head.start..before));
            head.start = before;
            writes.heads.insert(place, head);
        }
    }

    /// Makes a batch durable, then visible, then replies.
    fn finish(&self, writes: CommitBatch) {
        let CommitBatch {
            mut ops,
            heads,
            marks,
            answers,
            taken,
        } = writes;
        if ops.is_empty() && answers.is_empty() {
            return;
        }
        ops.extend(heads.iter().map(|(place, head)| Op::Head(*place, *head)));
        let written = if ops.is_empty() {
            self.shared.healthy()
        } else {
            self.write(ops)
        };
        drop(taken);
        if let Err(error) = written {
            for answer in answers {
                answer.refuse(error.clone());
            }
            return;
        }
        let topics: Vec<Topic> = heads.keys().map(|place| place.topic).collect();
        {
            let mut state = self.shared.state();
            for (place, head) in heads {
                state.set_head(place, head);
            }
            for (place, group, next) in marks {
                state.set_mark(place, &group, next);
            }
        }
        for topic in topics {
            self.shared.signal(topic).notify_waiters();
        }
        for answer in answers {
            answer.send();
        }
    }

    /// After a failed write nobody knows what is on disk, so the log refuses everything from then on.
    fn write(&self, ops: Vec<Op>) -> Result<(), LogError> {
        self.shared.healthy()?;
        let disk = &self.shared.disk;
        disk.write(ops)
            .and_then(|()| disk.sync())
            .map_err(|error: DiskError| {
                let error = LogError::Poisoned(error.to_string());
                if self.shared.poison.set(error.clone()).is_ok() {
                    tracing::error!(%error, "the log stops answering");
                }
                error
            })
    }

    /// Drops expired records of one partition, bounded so that other requests wait only briefly.
    fn sweep_one(&mut self) {
        let places: Vec<Place> = self.shared.places().collect();
        let place = places[self.sweep_place % places.len()];
        match self.expired(place) {
            Ok(before) => {
                let mut writes = CommitBatch::default();
                self.drop_before(&mut writes, place, before);
                let dropped = before - self.shared.state().head(place).unwrap_or_default().start;
                self.finish(writes);
                if dropped == MAX_DROPPED {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "old records cannot be looked for"),
        }
        self.sweep_place = (self.sweep_place + 1) % places.len();
        if self.sweep_place == 0 {
            self.sweep_at = Instant::now() + Duration::from(self.shared.settings.sweep_every);
        }
    }

    /// The first offset to retain, within the bound: expired records go, records that every group is done with go
    /// sooner.
    fn expired(&self, place: Place) -> Result<u64, DiskError> {
        let settings = self.shared.settings.topic(place.topic);
        let now = self.shared.clock.now();
        let (head, done) = {
            let state = self.shared.state();
            (
                state.head(place).unwrap_or_default(),
                state.done(place).unwrap_or_default(),
            )
        };
        let bound = head.end.min(head.start + MAX_DROPPED);
        let old = self.older_than(place, head.start..bound, now - settings.retention)?;
        let finished = head.start..bound.min(done).max(head.start);
        let done = self.older_than(place, finished, now - settings.done_retention())?;
        Ok(old.max(done))
    }

    /// The first of these offsets that is not older. Times never decrease within a partition, so a binary search
    /// finds it.
    fn older_than(&self, place: Place, offsets: Range<u64>, horizon: Timestamp) -> Result<u64, DiskError> {
        let (mut low, mut high) = (offsets.start, offsets.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let old = self
                .shared
                .disk
                .appended_at(place, middle)?
                .is_none_or(|at| at < horizon);
            if old {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// The lock covers a few copies at most; a panic there leaves nothing half done.
pub(super) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
