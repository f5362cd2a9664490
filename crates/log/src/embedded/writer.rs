//! The machine of the log: assigns offsets, and turns appends, commits and drops into records.
//!
//! It is ahead of what consumers see ([`Visible`]): they see a change once it is durable.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_core::time::Timestamp;
use tidegate_durable::{Changes, Op, Persist, ReplyNeeds, SyncNeed, codec as plain};

use super::Visible;
use super::codec::{self, Committed};
use super::place::{Head, Place, Stored};
use super::recover::Loaded;
use super::state::Member;
use super::tables::{HEADS, OFFSETS, RECORDS};
use crate::capacity::Taken;
use crate::{CommitOutcome, CommittedOffset, LogSettings, Position, Record, Topic, partition_of};

/// A commit of a consumer.
pub(super) struct Commit {
    pub(super) topic: Topic,
    pub(super) group: String,
    pub(super) member: Member,
    pub(super) offsets: Vec<CommittedOffset>,
}

pub(super) struct Writer {
    settings: LogSettings,
    visible: Arc<Visible>,
    heads: BTreeMap<Place, Head>,
    /// The committed offsets, each with its number on disk.
    offsets: HashMap<(Place, String), (u64, u64)>,
    next_number: u64,
    /// Of the batch.
    ops: Vec<Op>,
    moved: BTreeSet<Place>,
    committed: Vec<(Place, String, u64)>,
    /// The capacity of the records, returned once they are written.
    taken: Vec<Taken>,
    changes: u64,
}

impl Writer {
    pub(super) fn new(settings: LogSettings, visible: Arc<Visible>, loaded: Loaded) -> Self {
        let numbers = loaded.offsets.values().map(|(number, _)| number + 1);
        Self {
            settings,
            visible,
            next_number: numbers.max().unwrap_or_default(),
            heads: loaded.heads,
            offsets: loaded.offsets,
            ops: Vec::new(),
            moved: BTreeSet::new(),
            committed: Vec::new(),
            taken: Vec::new(),
            changes: 0,
        }
    }

    fn push(&mut self, op: Op) {
        self.ops.push(op);
        self.changes += 1;
    }

    fn set_head(&mut self, place: Place, head: Head) {
        self.heads.insert(place, head);
        self.moved.insert(place);
    }

    pub(super) fn append(&mut self, records: Vec<Record>, taken: Taken, now: Timestamp) -> Vec<Position> {
        self.taken.push(taken);
        let mut positions = Vec::with_capacity(records.len());
        for Record { topic, key, value } in records {
            let partition = partition_of(&key, self.settings.partitions(topic));
            let place = Place { topic, partition };
            let mut head = self.heads.get(&place).copied().unwrap_or_default();
            let offset = head.end;
            head.last_at = head.last_at.max(now);
            head.end += 1;
            let stored = Stored {
                offset,
                appended_at: head.last_at,
                key,
                value,
            };
            self.push(Op::Put(
                RECORDS,
                codec::record_key(place, offset),
                codec::record(&stored),
            ));
            self.set_head(place, head);
            positions.push(Position { partition, offset });
        }
        positions
    }

    pub(super) fn commit(&mut self, commit: Commit) -> Vec<CommitOutcome> {
        let Commit {
            topic,
            group,
            member,
            offsets,
        } = commit;
        let one = |offset: CommittedOffset| {
            let outcome = self
                .visible
                .state()
                .admit(topic, &group, member, offset.partition);
            if outcome == CommitOutcome::Committed {
                let partition = offset.partition;
                self.commit_offset(Place { topic, partition }, &group, offset.next);
            }
            outcome
        };
        offsets.into_iter().map(one).collect()
    }

    /// A committed offset never decreases.
    fn commit_offset(&mut self, place: Place, group: &str, next: u64) {
        let known = self.offsets.get(&(place, group.to_owned())).copied();
        let number = match known {
            Some((_, known)) if known >= next => return,
            Some((number, _)) => number,
            None => {
                self.next_number += 1;
                self.next_number - 1
            }
        };
        self.offsets.insert((place, group.to_owned()), (number, next));
        let committed = Committed {
            place: codec::place_number(place),
            group: group.to_owned(),
            next,
        };
        self.push(Op::Put(OFFSETS, number, plain::encode(&committed)));
        self.committed.push((place, committed.group, next));
    }

    /// Drops the records of a partition before an offset.
    pub(super) fn drop_before(&mut self, place: Place, before: u64) {
        let mut head = self.heads.get(&place).copied().unwrap_or_default();
        let before = before.min(head.end);
        for offset in head.start..before {
            self.push(Op::Delete(RECORDS, codec::record_key(place, offset)));
        }
        if head.start < before {
            head.start = before;
            self.set_head(place, head);
        }
    }
}

impl Persist for Writer {
    type State = Self;

    fn state(&mut self) -> &mut Self {
        self
    }

    fn changes(&self) -> u64 {
        self.changes
    }

    fn take_changes(&mut self, _: ReplyNeeds) -> Changes {
        let mut ops = std::mem::take(&mut self.ops);
        let moved = std::mem::take(&mut self.moved).into_iter();
        let heads: Vec<(Place, Head)> = moved.map(|place| (place, self.heads[&place])).collect();
        for (place, head) in &heads {
            ops.push(Op::Put(HEADS, codec::place_number(*place), codec::head(*head)));
        }
        let committed = std::mem::take(&mut self.committed);
        let taken = std::mem::take(&mut self.taken);
        let visible = self.visible.clone();
        Changes {
            sync: match ops.is_empty() {
                true => SyncNeed::None,
                false => SyncNeed::AsConfigured,
            },
            ops,
            mark: None,
            publish: Some(Box::new(move || {
                drop(taken);
                visible.publish(&heads, committed);
            })),
        }
    }
}
