//! What estimates are made of, as the scripts report it: queues once per reply, and each group's own part.

use tidegate_core::bulk::Priority;
use tidegate_core::bulk::estimate::{Before, Due, FlowPace, GroupPace, PaceLimit, QueuePace, Standing};
use tidegate_core::limits::throughput::{SLOTS, Throughput};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_redis::Items;

use crate::StoreError;

type StoreResult<T> = Result<T, StoreError>;

/// The queues of a reply, by their number.
#[derive(Debug, Clone, Default)]
pub(super) struct Paces(Vec<(u64, QueuePace)>);

impl Paces {
    pub(super) fn read(items: Items, window: Millis) -> StoreResult<Self> {
        Ok(Self(items.each(|one| queue(one, window))?))
    }

    /// A group with the queues of its flows.
    pub(super) fn group(&self, mut items: Items, now: Timestamp) -> StoreResult<GroupPace> {
        let mut group = GroupPace {
            now,
            weight: items.unsigned()?,
            running: items.unsigned()?,
            paused: items.flag()?,
            limit: limit(&mut items)?,
            flows: Vec::new(),
            queues: self.0.iter().map(|(_, queue)| queue.clone()).collect(),
            sustained: Vec::new(),
        };
        for (queue, flow, sustained) in items.items()?.each(|one| self.flow(one))? {
            if let Some(rate) = sustained {
                group.sustained.push((queue, rate));
            }
            group.flows.push(flow);
        }
        Ok(group)
    }

    fn flow(&self, items: &mut Items) -> StoreResult<(usize, FlowPace, Option<f64>)> {
        let (queue, priority) = (self.queue(items.unsigned()?)?, priority(items.unsigned()?)?);
        let (unfinished, waiting) = (items.unsigned()?, items.unsigned()?);
        let due = Due {
            jobs: items.unsigned()?,
            seconds: items.unsigned()?,
            last: items.time()?,
        };
        let in_order = items.flag()?;
        let sustained = rate(&items.text()?)?;
        let limit = limit(items)?;
        let flow = FlowPace {
            queue,
            priority,
            unfinished,
            waiting,
            due,
            measured: throughput(items.items()?)?,
            in_order,
            limit,
        };
        Ok((queue, flow, sustained))
    }

    /// The index of the queue of this number.
    fn queue(&self, number: u64) -> StoreResult<usize> {
        let found = self.0.iter().position(|(of, _)| *of == number);
        found.ok_or_else(|| StoreError::Corrupt(format!("a script reported no queue {number}")))
    }

    /// The index of the flow in this queue, at this priority.
    pub(super) fn position(&self, group: &GroupPace, number: u64, of: u64) -> StoreResult<usize> {
        let (queue, of) = (self.queue(number)?, priority(of)?);
        let same = |flow: &FlowPace| flow.queue == queue && flow.priority == of;
        let found = group.flows.iter().position(same);
        found.ok_or_else(|| StoreError::Corrupt("a script reported a job without its flow".into()))
    }
}

fn priority(number: u64) -> StoreResult<Priority> {
    let found = (number as usize)
        .checked_sub(1)
        .and_then(|index| Priority::ALL.get(index));
    found
        .copied()
        .ok_or_else(|| StoreError::Corrupt(format!("a script reported the priority {number}")))
}

fn limit(items: &mut Items) -> StoreResult<PaceLimit> {
    Ok(PaceLimit {
        per_second: rate(&items.text()?)?,
        max_running: items.maybe()?.map(|most: u64| most as u32),
    })
}

/// A rate; none if the text is empty.
fn rate(text: &str) -> StoreResult<Option<f64>> {
    if text.is_empty() {
        return Ok(None);
    }
    let rate = text.parse();
    rate.map(Some)
        .map_err(|_| StoreError::Corrupt(format!("a script reported the rate {text:?}")))
}

fn queue(items: &mut Items, window: Millis) -> StoreResult<(u64, QueuePace)> {
    let number = items.unsigned()?;
    let (own, own_rate) = (rate(&items.text()?)?, items.flag()?);
    let sustained = rate(&items.text()?)?;
    let (running, round_trip) = (items.unsigned()?, Millis(items.unsigned()?));
    let (asked, held_until) = (items.time()?, items.maybe()?.map(Timestamp));
    let minimum = [0, items.small()?, items.small()?];
    let mut weights = items.items()?;
    let weight = [weights.unsigned()?, weights.unsigned()?, weights.unsigned()?];
    let mut orders = items.items()?;
    let standing = [
        standing(orders.items()?)?,
        standing(orders.items()?)?,
        standing(orders.items()?)?,
    ];
    let pace = QueuePace {
        measured: throughput(items.items()?)?,
        rate: own.unwrap_or_default(),
        own_rate,
        sustained,
        window,
        weight,
        standing,
        minimum,
        running,
        round_trip,
        asked,
        held_until,
    };
    Ok((number, pace))
}

fn standing(mut items: Items) -> StoreResult<Vec<Standing>> {
    let mut flows = Vec::with_capacity(items.len() / 2);
    while !items.is_empty() {
        flows.push(Standing {
            weight: items.unsigned()?,
            jobs: items.unsigned()?,
        });
    }
    Ok(flows)
}

fn throughput(mut items: Items) -> StoreResult<Throughput> {
    Ok(Throughput {
        since: items.unsigned()?,
        lost: items.unsigned()?,
        idle_at: items.unsigned()?,
        spell_at: items.unsigned()?,
        spell: items.unsigned()?,
        slot: items.unsigned()?,
        starts: {
            let mut starts = [0; SLOTS];
            for slot in &mut starts {
                *slot = items.unsigned()?;
            }
            starts
        },
        older: items.unsigned()?,
        older_ms: items.unsigned()?,
    })
}

/// The number of the batch's last job, and the batches up to it.
pub(super) fn before(mut items: Items) -> StoreResult<(u64, Vec<Before>)> {
    let last = items.unsigned()?;
    let mut batches = Vec::with_capacity(items.len() / 3);
    while !items.is_empty() {
        batches.push(Before {
            seq: items.unsigned()?,
            last: items.unsigned()?,
            unfinished: items.unsigned()?,
        });
    }
    Ok((last, batches))
}
