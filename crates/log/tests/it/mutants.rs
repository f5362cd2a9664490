//! The suite catches mutants: each log has one fault and fails the case for it.
//!
//! Each fault sits between a case and the embedded log, which passes the same case.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_log::conformance::{Backend, Place, case};
use tidegate_log::embedded::{EmbeddedLog, EmbeddedLogOptions};
use tidegate_log::{
    Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, Delivered, Lag, Log, LogError,
    LogSettings, Position, Record, Topic,
};
use tidegate_testkit::conformance::catches;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Keeps everything in memory: a new folder at every start.
    ForgetsAtRestart,
    /// Puts every consumer into its own group.
    GivesEachOwnerEverything,
    /// Commits what was handed out, not what is done.
    CommitsWhatWasHandedOut,
    /// Confirms every commit.
    HidesLostCommits,
    /// Hands out records while paused.
    IgnoresPauses,
    /// Answers "appended" to every fifth record and forgets it.
    LosesRecords,
    /// Appends each call in reverse order.
    ReversesCalls,
    /// Omits partitions without a committed offset.
    CountsOnlyCommittedPartitions,
    /// Keeps old records forever.
    NeverDropsAnything,
    /// Truncates values at what looks like the end of a text.
    StopsAtZeroBytes,
}

#[derive(Debug)]
struct Wrong {
    inner: EmbeddedLog,
    fault: Fault,
    consumers: AtomicU64,
    records: AtomicU64,
}

impl Wrong {
    fn group(&self, group: String) -> String {
        match self.fault {
            Fault::GivesEachOwnerEverything => {
                format!("{group}-{}", self.consumers.fetch_add(1, Ordering::Relaxed))
            }
            _ => group,
        }
    }

    fn damage(&self, mut records: Vec<Record>) -> Vec<Record> {
        match self.fault {
            Fault::ReversesCalls => records.reverse(),
            Fault::StopsAtZeroBytes => {
                for record in &mut records {
                    let end = record.value.iter().position(|byte| *byte == 0);
                    record.value.truncate(end.unwrap_or(record.value.len()));
                }
            }
            Fault::LosesRecords => {
                records.retain(|_| !(self.records.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(5));
            }
            _ => {}
        }
        records
    }
}

#[async_trait]
impl Log for Wrong {
    fn settings(&self) -> &LogSettings {
        self.inner.settings()
    }

    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>> {
        let count = records.len();
        let mut answers = self.inner.append(self.damage(records)).await;
        let last = answers.last().cloned();
        answers.resize_with(count, || {
            last.clone().unwrap_or(Ok(Position {
                partition: 0,
                offset: 0,
            }))
        });
        answers
    }

    async fn consume(&self, mut params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError> {
        params.group = self.group(params.group);
        Ok(Box::new(WrongConsumer {
            inner: self.inner.consume(params).await?,
            fault: self.fault,
            handed_out: std::sync::Mutex::default(),
        }))
    }

    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError> {
        let mut lag = self.inner.lag(topic, group).await?;
        if self.fault == Fault::CountsOnlyCommittedPartitions {
            for partition in lag.partitions.iter_mut().filter(|lag| lag.committed.is_none()) {
                partition.start = partition.end;
            }
        }
        Ok(lag)
    }

    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError> {
        self.inner.read(topic, from, max).await
    }

    async fn check(&self) -> Result<(), LogError> {
        self.inner.check().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[derive(Debug)]
struct WrongConsumer {
    inner: Box<dyn Consumer>,
    fault: Fault,
    handed_out: std::sync::Mutex<Vec<Position>>,
}

#[async_trait]
impl Consumer for WrongConsumer {
    async fn next(&self, max: usize, wait: Duration) -> Result<Batch, LogError> {
        let batch = self.inner.next(max, wait).await?;
        let positions = batch.records.iter().map(|record| record.position);
        self.handed_out.lock().expect("no panic inside").extend(positions);
        Ok(batch)
    }

    async fn commit(&self, offsets: &[CommittedOffset]) -> Result<Vec<CommitOutcome>, LogError> {
        let mut offsets = offsets.to_vec();
        if self.fault == Fault::CommitsWhatWasHandedOut {
            for offset in &mut offsets {
                let handed_out = self.handed_out.lock().expect("no panic inside");
                let last = handed_out
                    .iter()
                    .rfind(|position| position.partition == offset.partition);
                offset.next = last.map_or(offset.next, |last| last.offset + 1);
            }
        }
        let outcomes = self.inner.commit(&offsets).await?;
        Ok(match self.fault {
            Fault::HidesLostCommits => vec![CommitOutcome::Committed; offsets.len()],
            _ => outcomes,
        })
    }

    fn set_paused(&self, paused: bool) {
        if self.fault != Fault::IgnoresPauses {
            self.inner.set_paused(paused);
        }
    }

    async fn close(self: Box<Self>) {
        self.inner.close().await;
    }
}

struct WrongFolders(Fault);
struct WrongFolder {
    folder: TempDir,
    fault: Fault,
    starts: AtomicU64,
}

#[async_trait]
impl Backend for WrongFolders {
    async fn place(&self) -> Box<dyn Place> {
        Box::new(WrongFolder {
            folder: TempDir::new().expect("a temporary folder"),
            fault: self.0,
            starts: AtomicU64::new(0),
        })
    }
}

#[async_trait]
impl Place for WrongFolder {
    /// Most faults show in something that never comes. Old records must have had time to expire. A conforming log has as
    /// much time as its machine needs.
    fn patience(&self) -> Duration {
        Duration::from_secs(match self.fault {
            Fault::None => 120,
            Fault::NeverDropsAnything => 20,
            _ => 8,
        })
    }

    async fn open(&self, mut settings: LogSettings) -> Result<Arc<dyn Log>, LogError> {
        let start = match self.fault {
            Fault::ForgetsAtRestart => self.starts.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        if self.fault == Fault::NeverDropsAnything {
            settings.high.retention = settings.low.retention;
        }
        let options = EmbeddedLogOptions {
            settings,
            ..EmbeddedLogOptions::new(self.folder.path().join(format!("log-{start}")))
        };
        Ok(Arc::new(Wrong {
            inner: EmbeddedLog::open(options)?,
            fault: self.fault,
            consumers: AtomicU64::new(0),
            records: AtomicU64::new(0),
        }))
    }
}

/// The named case passes without the fault and fails with it.
async fn caught(fault: Fault, name: &str) {
    catches(
        case(name),
        Arc::new(WrongFolders(Fault::None)),
        Arc::new(WrongFolders(fault)),
    )
    .await;
}

macro_rules! caught {
    ($($test:ident: $fault:ident, $case:literal;)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            caught(Fault::$fault, $case).await;
        })+
    };
}

caught! {
    forgets_at_restart: ForgetsAtRestart, "durability::everything_is_there_after_a_restart";
    begins_again_at_restart: ForgetsAtRestart, "durability::a_restart_goes_on_with_the_next_offset";
    gives_each_owner_everything: GivesEachOwnerEverything, "sharing::two_consumers_share_all_partitions_without_overlap";
    commits_what_was_handed_out: CommitsWhatWasHandedOut, "groups::only_the_committed_offset_counts_not_what_was_handed_out";
    hides_lost_commits: HidesLostCommits, "sharing::a_commit_to_a_lost_partition_is_refused";
    ignores_pauses: IgnoresPauses, "consume::a_paused_consumer_gets_nothing_and_keeps_its_partitions";
    loses_records: LosesRecords, "consume::every_record_is_delivered_once_without_faults";
    reverses_calls: ReversesCalls, "append::concurrent_appends_lose_nothing_and_keep_each_order";
    counts_only_committed_partitions: CountsOnlyCommittedPartitions, "lag::a_group_that_never_committed_is_behind_by_everything";
    never_drops_what_is_old: NeverDropsAnything, "durability::old_records_are_dropped";
    stops_at_zero_bytes: StopsAtZeroBytes, "append::any_bytes_pass_through_untouched";
}
