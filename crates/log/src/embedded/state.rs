//! The in-memory state of the embedded log: where each partition begins and ends, committed offsets, and owners.
//!
//! Only durable changes get here: a consumer never sees a record that a power cut could take back.

use std::collections::BTreeMap;

use super::place::{Head, Place};
use super::recover::Loaded;
use crate::share::spread;
use crate::{CommitOutcome, LogSettings, Topic};

/// A member of a consumer group; the log reuses no number while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Member(u64);

/// A partition that a member owns, since the owner changed for the `term`th time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) partition: u32,
    pub(super) term: u64,
    /// The first offset that is retained and not done.
    pub(super) next: u64,
    pub(super) head: Head,
}

#[derive(Debug, Default)]
struct Group {
    offsets: BTreeMap<u32, u64>,
    members: Vec<Member>,
    owners: Vec<Option<Member>>,
    terms: Vec<u64>,
}

impl Group {
    fn of(partitions: u32) -> Self {
        Self {
            owners: vec![None; partitions as usize],
            terms: vec![0; partitions as usize],
            ..Self::default()
        }
    }

    fn rebalance(&mut self) {
        let shared = spread(&self.owners, &self.members);
        for (partition, owner) in shared.into_iter().enumerate() {
            if self.owners[partition] != owner {
                self.owners[partition] = owner;
                self.terms[partition] += 1;
            }
        }
    }
}

#[derive(Debug, Default)]
struct TopicState {
    heads: Vec<Head>,
    groups: BTreeMap<String, Group>,
}

#[derive(Debug)]
pub(super) struct State {
    topics: [TopicState; Topic::ALL.len()],
    members: u64,
}

impl State {
    pub(super) fn new(settings: &LogSettings, loaded: &Loaded) -> Self {
        let mut state = Self {
            topics: Topic::ALL.map(|topic| TopicState {
                heads: vec![Head::default(); settings.partitions(topic) as usize],
                groups: BTreeMap::new(),
            }),
            members: 0,
        };
        for (place, head) in &loaded.heads {
            state.set_head(*place, *head);
        }
        for ((place, group), (_, next)) in &loaded.offsets {
            state.commit(*place, group, *next);
        }
        state
    }

    fn topic(&self, topic: Topic) -> &TopicState {
        &self.topics[topic as usize]
    }

    fn group(&mut self, topic: Topic, group: &str) -> &mut Group {
        let topic = &mut self.topics[topic as usize];
        let partitions = topic.heads.len() as u32;
        topic
            .groups
            .entry(group.to_owned())
            .or_insert_with(|| Group::of(partitions))
    }

    pub(super) fn head(&self, place: Place) -> Option<Head> {
        self.topic(place.topic)
            .heads
            .get(place.partition as usize)
            .copied()
    }

    /// The place must be one of this log.
    pub(super) fn set_head(&mut self, place: Place, head: Head) {
        self.topics[place.topic as usize].heads[place.partition as usize] = head;
    }

    pub(super) fn commit(&mut self, place: Place, group: &str, next: u64) {
        self.group(place.topic, group)
            .offsets
            .insert(place.partition, next);
    }

    pub(super) fn committed(&self, place: Place, group: &str) -> Option<u64> {
        let group = self.topic(place.topic).groups.get(group)?;
        group.offsets.get(&place.partition).copied()
    }

    /// The first offset that some group is not done with; none if no group ever committed here.
    pub(super) fn done(&self, place: Place) -> Option<u64> {
        let groups = self.topic(place.topic).groups.values();
        let known = groups.filter(|group| !group.offsets.is_empty() || !group.members.is_empty());
        known
            .map(|group| group.offsets.get(&place.partition).copied().unwrap_or_default())
            .min()
    }

    pub(super) fn join(&mut self, topic: Topic, group: &str) -> Member {
        self.members += 1;
        let member = Member(self.members);
        let group = self.group(topic, group);
        group.members.push(member);
        group.rebalance();
        member
    }

    pub(super) fn leave(&mut self, topic: Topic, group: &str, member: Member) {
        let group = self.group(topic, group);
        group.members.retain(|other| *other != member);
        group.rebalance();
    }

    /// The partitions of a member, in order.
    pub(super) fn owned(&self, topic: Topic, group: &str, member: Member) -> Vec<Owned> {
        let known = self.topic(topic);
        let Some(group) = known.groups.get(group) else {
            return Vec::new();
        };
        let mine = (0..)
            .zip(&group.owners)
            .filter(|(_, owner)| **owner == Some(member));
        mine.map(|(partition, _)| {
            let head = known.heads[partition as usize];
            let committed = group.offsets.get(&partition).copied().unwrap_or_default();
            Owned {
                partition,
                term: group.terms[partition as usize],
                next: committed.max(head.start),
                head,
            }
        })
        .collect()
    }

    /// Whether a member may commit in a partition.
    pub(super) fn admit(&self, topic: Topic, group: &str, member: Member, partition: u32) -> CommitOutcome {
        let known = self.topic(topic).groups.get(group);
        let owner = known.and_then(|group| *group.owners.get(partition as usize)?);
        match owner == Some(member) {
            true => CommitOutcome::Committed,
            false => CommitOutcome::Lost,
        }
    }
}
