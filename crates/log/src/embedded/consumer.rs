//! A member of a consumer group in this process.
//!
//! There is no session to keep alive: a member owns its partitions until it leaves, however slow it is. It reads
//! records from disk on demand.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::time::Timestamp;
use tidegate_durable::{ReplyAfter, Run};
use tokio::time::Instant;

use super::place::{Place, Span, Stored};
use super::state::Member;
use super::writer::{Commit, Writer};
use super::{MAX_READ_BYTES, Shared, lock, read_span};
use crate::{
    Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, Delivered, LogError, Position, Topic,
};

/// How far the consumer has handed out a partition since its assignment.
#[derive(Debug, Clone, Copy)]
struct Progress {
    term: u64,
    next: u64,
}

#[derive(Debug, Default)]
struct Reading {
    partitions: BTreeMap<u32, Progress>,
    /// Changes not reported yet.
    assigned: Vec<u32>,
    revoked: Vec<u32>,
    /// The partition that goes first; it rotates, so that none starves.
    turn: u32,
}

pub(super) struct EmbeddedConsumer {
    shared: Arc<Shared>,
    topic: Topic,
    group: String,
    owner: String,
    member: Member,
    paused: AtomicBool,
    reading: Mutex<Reading>,
    /// Serializes calls of `next`, so that records stay in order.
    calling: tokio::sync::Mutex<()>,
}

impl fmt::Debug for EmbeddedConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedConsumer")
            .field("topic", &self.topic)
            .field("group", &self.group)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl EmbeddedConsumer {
    pub(super) fn join(shared: Arc<Shared>, params: ConsumeParams) -> Self {
        let ConsumeParams {
            topic, group, owner, ..
        } = params;
        let member = shared.visible.state().join(topic, &group);
        shared.visible.signal(topic).notify_waiters();
        Self {
            shared,
            topic,
            group,
            owner,
            member,
            paused: AtomicBool::new(false),
            reading: Mutex::default(),
            calling: tokio::sync::Mutex::default(),
        }
    }

    /// Reconciles the reading state with the owned partitions, and returns what to read.
    fn plan(&self, max: usize) -> Vec<Span> {
        let owned = self
            .shared
            .visible
            .state()
            .owned(self.topic, &self.group, self.member);
        let reading = &mut *lock(&self.reading);
        reading.partitions.retain(|partition, progress| {
            let kept = owned
                .iter()
                .any(|owned| owned.partition == *partition && owned.term == progress.term);
            if !kept {
                reading.revoked.push(*partition);
            }
            kept
        });
        let mut spans = Vec::new();
        let mut left = max as u64;
        for owned in &owned {
            let progress = reading.partitions.entry(owned.partition).or_insert_with(|| {
                reading.assigned.push(owned.partition);
                Progress {
                    term: owned.term,
                    next: owned.next,
                }
            });
            // Retention may have overtaken the reader.
            progress.next = progress.next.max(owned.head.start);
        }
        if self.paused.load(Ordering::SeqCst) {
            return spans;
        }
        let first = owned.partition_point(|owned| owned.partition < reading.turn);
        for owned in owned[first..].iter().chain(&owned[..first]) {
            let next = reading.partitions[&owned.partition].next;
            let end = owned.head.end.min(next + left);
            if next < end {
                left -= end - next;
                spans.push(Span {
                    place: self.place(owned.partition),
                    offsets: next..end,
                    max_bytes: MAX_READ_BYTES,
                });
                reading.turn = owned.partition + 1;
            }
        }
        spans
    }

    fn place(&self, partition: u32) -> Place {
        Place {
            topic: self.topic,
            partition,
        }
    }

    /// Turns the records read into a batch, without those of partitions lost in the meantime.
    fn take(&self, found: Vec<(u32, Vec<Stored>)>) -> Batch {
        let reading = &mut *lock(&self.reading);
        let mut records = Vec::new();
        for (partition, stored) in found {
            let Some(progress) = reading.partitions.get_mut(&partition) else {
                continue;
            };
            if let Some(last) = stored.last() {
                progress.next = last.offset + 1;
            }
            records.extend(stored.into_iter().map(|stored| delivered(partition, stored)));
        }
        Batch {
            assigned: std::mem::take(&mut reading.assigned),
            revoked: std::mem::take(&mut reading.revoked),
            records,
        }
    }

    async fn read(&self, spans: Vec<Span>) -> Result<Vec<(u32, Vec<Stored>)>, LogError> {
        if spans.is_empty() {
            return Ok(Vec::new());
        }
        self.shared
            .on_disk(move |disk| {
                let (mut found, mut bytes) = (Vec::new(), 0);
                for span in spans {
                    let stored = read_span(disk, &span)?;
                    bytes += stored.iter().map(|stored| stored.value.len()).sum::<usize>();
                    found.push((span.place.partition, stored));
                    if bytes >= MAX_READ_BYTES {
                        break;
                    }
                }
                Ok(found)
            })
            .await
    }
}

pub(super) fn delivered(partition: u32, stored: Stored) -> Delivered {
    Delivered {
        position: Position {
            partition,
            offset: stored.offset,
        },
        key: stored.key,
        value: stored.value,
        appended_at: stored.appended_at,
    }
}

#[async_trait]
impl Consumer for EmbeddedConsumer {
    async fn next(&self, max: usize, wait: Duration) -> Result<Batch, LogError> {
        let _calling = self.calling.lock().await;
        let until = Instant::now() + wait;
        loop {
            // Subscribe first, then read: no signal in between gets lost.
            let signal = self.shared.visible.signal(self.topic).notified();
            tokio::pin!(signal);
            signal.as_mut().enable();
            self.shared.runner()?;
            let spans = self.plan(max);
            let batch = self.take(self.read(spans).await?);
            if !batch.is_empty() || tokio::time::timeout_at(until, signal).await.is_err() {
                return Ok(batch);
            }
        }
    }

    async fn commit(&self, offsets: &[CommittedOffset]) -> Result<Vec<CommitOutcome>, LogError> {
        // A commit beyond the delivered records would skip some.
        let delivered: Vec<bool> = {
            let reading = lock(&self.reading);
            let known = |offset: &CommittedOffset| reading.partitions.get(&offset.partition);
            offsets
                .iter()
                .map(|offset| known(offset).is_none_or(|progress| offset.next <= progress.next))
                .collect()
        };
        let commit = Commit {
            topic: self.topic,
            group: self.group.clone(),
            member: self.member,
            offsets: (offsets.iter().zip(&delivered))
                .filter_map(|(offset, delivered)| delivered.then_some(*offset))
                .collect(),
        };
        let work = |writer: &mut Writer, _: Timestamp| (writer.commit(commit), ReplyAfter::Sync);
        let mut stored = self.shared.runner()?.run(work).await?.into_iter();
        let outcome = |delivered: bool| {
            if delivered { stored.next() } else { None }.unwrap_or(CommitOutcome::NotDelivered)
        };
        Ok(delivered.into_iter().map(outcome).collect())
    }

    fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
        self.shared.visible.signal(self.topic).notify_waiters();
    }

    async fn close(self: Box<Self>) {}
}

impl Drop for EmbeddedConsumer {
    fn drop(&mut self) {
        self.shared
            .visible
            .state()
            .leave(self.topic, &self.group, self.member);
        self.shared.visible.signal(self.topic).notify_waiters();
    }
}
