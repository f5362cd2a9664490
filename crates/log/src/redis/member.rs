//! Membership: sends heartbeats, renews leases, releases surplus partitions and takes missing ones.
//!
//! There is no leader. Every member sees the same list of members and so computes the same shares. A member with too
//! many partitions releases some; one with too few takes free ones. Two members cannot own the same partition,
//! whatever they believe.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::consumer::Joined;
use super::scripts;
use super::server::call;
use crate::LogError;
use crate::share::quota;

/// Limit: the time between two heartbeats.
const MAX_BEAT: Duration = Duration::from_secs(1);

/// Sends heartbeats until the consumer is gone.
pub(super) async fn attend_for_ever(joined: Arc<Joined>) {
    let beat = (joined.session / 4).min(MAX_BEAT);
    loop {
        if let Err(error) = joined.beat(beat).await {
            tracing::debug!(%error, "a consumer cannot reach its group");
            joined.report(error);
        }
        tokio::time::sleep(beat).await;
    }
}

impl Joined {
    async fn beat(&self, patience: Duration) -> Result<(), LogError> {
        self.shared.open()?;
        let renewed = self.renew(patience).await;
        let members = self.attend(self.session, patience).await?;
        renewed?;
        let Some(place) = members.iter().position(|member| *member == self.member) else {
            return Ok(());
        };
        let all = self.shared.settings.partitions(self.topic);
        let share = quota(place, members.len(), all as usize);
        let held = self.assignment().fences();
        if held.len() > share {
            for (partition, _) in &held[share..] {
                self.release(*partition).await?;
            }
        }
        // Each member starts its search elsewhere, so that members that join together do not compete.
        let first = (all as usize * place / members.len()) as u32;
        for partition in (first..all).chain(0..first) {
            if self.assignment().partitions.len() >= share {
                break;
            }
            if !self.assignment().partitions.contains_key(&partition) {
                self.own(partition, patience).await?;
            }
        }
        Ok(())
    }

    /// Returns the live members. A span of zero leaves the group.
    async fn attend(&self, span: Duration, patience: Duration) -> Result<Vec<String>, LogError> {
        let members = self.shared.keys.members(self.topic, &self.group);
        let call = call(&scripts::ATTEND, [members])
            .arg(self.shared.server.caller.time())
            .arg(self.member.clone())
            .number(span.as_millis() as u64)
            .patience(patience);
        let answer = self.shared.server.run(&call).await?;
        redis::from_redis_value(answer).map_err(|error| LogError::Corrupt(error.to_string()))
    }

    async fn renew(&self, patience: Duration) -> Result<(), LogError> {
        let held = self.assignment().fences();
        let calls = held.into_iter().map(|(partition, fence)| async move {
            let keys = self.shared.keys.partition(self.topic, partition);
            let call = call(&scripts::RENEW, [keys.lease(&self.group)])
                .run_id()
                .arg(self.shared.server.caller.time())
                .arg(self.member.clone())
                .number(fence)
                .number(self.session.as_millis() as u64)
                .patience(patience);
            let until = Some(Instant::now() + self.session);
            let renewed = self.shared.server.number(&call).await?;
            let mut assignment = self.assignment();
            match assignment.partitions.get_mut(&partition) {
                Some(held) if held.fence == fence && renewed == 1 => held.until = until,
                _ => assignment.lose_under(partition, fence),
            }
            Ok(())
        });
        let renewed: Result<(), LogError> = join_all(calls).await.into_iter().collect();
        self.assignment().expire(Instant::now());
        self.changed.notify_waiters();
        renewed
    }

    async fn own(&self, partition: u32, patience: Duration) -> Result<(), LogError> {
        let keys = self.shared.keys.partition(self.topic, partition);
        let call = call(
            &scripts::OWN,
            [
                keys.lease(&self.group),
                keys.offsets(),
                keys.head(),
                keys.groups(),
            ],
        )
        .run_id()
        .arg(self.shared.server.caller.time())
        .arg(self.group.clone())
        .arg(self.member.clone())
        .number(self.session.as_millis() as u64)
        .patience(patience);
        let until = Some(Instant::now() + self.session);
        let answer = self.shared.server.numbers(&call).await?;
        if let [fence @ 1..=i64::MAX, next] = answer[..] {
            self.assignment()
                .gain(partition, fence as u64, next as u64, until);
            self.changed.notify_waiters();
        }
        Ok(())
    }

    /// Locally first, then on the server: this consumer hands out no record once another can own the partition.
    async fn release(&self, partition: u32) -> Result<(), LogError> {
        self.assignment().lose(partition);
        self.changed.notify_waiters();
        let keys = self.shared.keys.partition(self.topic, partition);
        let call = call(&scripts::RELEASE, [keys.lease(&self.group)]).arg(self.member.clone());
        self.shared.server.number(&call).await.map(drop)
    }

    /// Releases everything, including partitions whose lease may still be granted. What fails to reach the server
    /// expires on its own.
    pub(super) async fn leave(&self) {
        let all = 0..self.shared.settings.partitions(self.topic);
        let releases = all.map(|partition| self.release(partition));
        let released: Result<(), LogError> = join_all(releases).await.into_iter().collect();
        let left = self.attend(Duration::ZERO, super::server::PATIENCE).await;
        if let Err(error) = released.and(left.map(drop)) {
            tracing::debug!(%error, "a consumer could not say that it leaves");
        }
    }
}
