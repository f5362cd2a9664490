//! The log in the data folder of this process.
//!
//! ```text
//!   append ─┬─> runner: one write, one sync ─> visible ─> replies
//!   commit ─┘                                     │
//!   next, read, lag <─── records read from disk <─┘
//! ```
//!
//! Consumers in this process share the partitions; no other process can open the folder. Memory holds only where
//! partitions begin and end, so no operation searches or scans tombstones.

mod codec;
mod consumer;
mod place;
mod recover;
mod state;
mod sweeper;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::time::Timestamp;
use tidegate_durable::{Disk, DiskError, DurableError, Reader, ReplyAfter, Runner, RunnerOptions, folder};
use tokio::sync::Notify;

use self::consumer::{EmbeddedConsumer, delivered};
use self::place::{Head, Place, Span, Stored};
use self::state::State;
use self::tables::RECORDS;
use self::writer::Writer;
use crate::capacity::Capacity;
use crate::settings::check_some_name;
use crate::{
    ConsumeParams, Consumer, Delivered, Lag, Log, LogError, LogSettings, PartitionLag, Position, Record,
    Topic,
};

/// Its sub-folder of the data folder.
const FOLDER: &str = "log";
/// Limit: requests that wait for the runner. The settings bound the records.
const MAX_REQUESTS: usize = 4_096;
/// Limit: bytes in one read, except for a single larger record.
const MAX_READ_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Clone)]
pub struct EmbeddedLogOptions {
    /// The data folder, shared with the other parts, which have their own sub-folders.
    pub folder: PathBuf,
    pub settings: LogSettings,
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedLogOptions {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            settings: LogSettings::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// What consumers see: durable changes only.
#[derive(Debug)]
struct Visible {
    state: Mutex<State>,
    /// Signal changes of a topic: records, owners, pauses.
    signals: [Notify; Topic::ALL.len()],
}

impl Visible {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn signal(&self, topic: Topic) -> &Notify {
        &self.signals[topic as usize]
    }

    /// Shows changes to consumers.
    fn publish(&self, heads: &[(Place, Head)], committed: Vec<(Place, String, u64)>) {
        {
            let mut state = self.state();
            for (place, head) in heads {
                state.set_head(*place, *head);
            }
            for (place, group, next) in committed {
                state.commit(place, &group, next);
            }
        }
        for (place, _) in heads {
            self.signal(place.topic).notify_waiters();
        }
    }
}

/// State that the log and its consumers share.
#[derive(Debug)]
struct Shared {
    settings: LogSettings,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    visible: Arc<Visible>,
    /// None once the log is closed.
    runner: Mutex<Option<Arc<Runner<Writer>>>>,
    capacity: Capacity,
}

impl Shared {
    /// The runner, if the log is open and healthy.
    fn runner(&self) -> Result<Arc<Runner<Writer>>, LogError> {
        let runner = lock(&self.runner).clone().ok_or(LogError::Closed)?;
        runner.healthy()?;
        Ok(runner)
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        Topic::ALL.into_iter().flat_map(|topic| {
            (0..self.settings.partitions(topic)).map(move |partition| Place { topic, partition })
        })
    }

    fn place(&self, topic: Topic, partition: u32) -> Result<Place, LogError> {
        if partition < self.settings.partitions(topic) {
            return Ok(Place { topic, partition });
        }
        Err(LogError::Config(format!(
            "{topic} has {} partitions, so there is no partition {partition}",
            self.settings.partitions(topic)
        )))
    }

    /// Reads on a blocking thread: a read may have to wait for the disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Disk) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, LogError> {
        self.runner()?;
        let disk = self.disk.clone();
        match tokio::task::spawn_blocking(move || read(&*disk)).await {
            Ok(found) => Ok(found.map_err(DurableError::from)?),
            Err(error) => Err(LogError::Corrupt(format!("a read failed: {error}"))),
        }
    }
}

/// The records of a span, in order.
fn read_span(disk: &(impl Reader + ?Sized), span: &Span) -> Result<Vec<Stored>, DiskError> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let keys = codec::record_keys(span.place, span.offsets.clone());
    disk.scan(RECORDS, keys, &mut |key, record| {
        bytes += record.len();
        found.push(codec::read_record(codec::offset_of(key), record.to_vec()));
        Ok(match bytes >= span.max_bytes {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        })
    })?;
    Ok(found)
}

/// The lock covers a few copies at most; a panic there leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The log in a folder. Dropping it ends it like [`close`](Log::close), but nobody waits for that.
#[derive(Debug)]
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    /// Ends the sweeper when it is dropped.
    _sweeper: SyncSender<()>,
}

impl EmbeddedLog {
    /// Opens the log in a data folder, and creates both if they are missing.
    pub fn open(options: EmbeddedLogOptions) -> Result<Self, LogError> {
        let EmbeddedLogOptions {
            folder,
            settings,
            clock,
        } = options;
        settings.validate()?;
        let disk = folder::open(&folder, FOLDER, &tables::ALL)?;
        Self::on(Arc::new(disk), settings, clock)
    }

    /// Opens on a durable layer whose power a test can cut.
    pub fn open_for_test(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        settings.validate()?;
        Self::on(disk, settings, clock)
    }

    fn on(disk: Arc<dyn Disk>, settings: LogSettings, clock: Arc<dyn Clock>) -> Result<Self, LogError> {
        let loaded = recover::recover(&*disk, &settings)?;
        let visible = Arc::new(Visible {
            state: Mutex::new(State::new(&settings, &loaded)),
            signals: Default::default(),
        });
        let writer = Writer::new(settings.clone(), visible.clone(), loaded);
        let options = RunnerOptions {
            inbox: MAX_REQUESTS,
            ..RunnerOptions::new("tidegate-log")
        };
        let runner = Runner::start(writer, disk.clone(), clock.clone(), options)?;
        let shared = Arc::new(Shared {
            capacity: Capacity::new(settings.max_queued),
            settings,
            clock,
            disk,
            visible,
            runner: Mutex::new(Some(Arc::new(runner))),
        });
        let (sweeper, stop) = sync_channel(0);
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("tidegate-log-sweep".into())
            .spawn(move || sweeper::run(&weak, &stop))
            .map_err(|error| LogError::Config(format!("no thread for the log: {error}")))?;
        Ok(Self {
            shared,
            _sweeper: sweeper,
        })
    }

    async fn append_all(&self, records: Vec<Record>) -> Result<Vec<Position>, LogError> {
        let shared = &self.shared;
        // The machine returns the capacity once the records are written, even if nobody waits for them any more.
        let taken = shared.capacity.take(records.len())?;
        let append =
            |writer: &mut Writer, now: Timestamp| (writer.append(records, taken, now), ReplyAfter::Sync);
        let pending = shared.runner()?.try_run(append)?.ok_or(LogError::Full)?;
        let limit = shared.settings.send_timeout;
        match tokio::time::timeout(Duration::from(limit), pending.reply()).await {
            Ok(positions) => Ok(positions?),
            Err(_) => Err(LogError::Timeout(limit.0)),
        }
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    fn settings(&self) -> &LogSettings {
        &self.shared.settings
    }

    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>> {
        let mut answers: Vec<Result<(), LogError>> = records.iter().map(Record::check).collect();
        let fine: Vec<Record> = (records.into_iter().zip(&answers))
            .filter_map(|(record, answer)| answer.is_ok().then_some(record))
            .collect();
        let appended = if fine.is_empty() {
            Ok(Vec::new())
        } else {
            self.append_all(fine).await
        };
        let mut positions = appended.as_ref().map(|positions| positions.iter()).ok();
        let position = |answer: Result<(), LogError>| {
            answer?;
            match &mut positions {
                Some(positions) => positions.next().copied().ok_or(LogError::Closed),
                None => Err(appended.clone().err().unwrap_or(LogError::Closed)),
            }
        };
        answers.drain(..).map(position).collect()
    }

    async fn consume(&self, params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError> {
        check_some_name("the group", &params.group)?;
        self.shared.runner()?;
        Ok(Box::new(EmbeddedConsumer::join(self.shared.clone(), params)))
    }

    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError> {
        check_some_name("the group", group)?;
        let mut partitions: Vec<PartitionLag> = {
            let state = self.shared.visible.state();
            (0..self.shared.settings.partitions(topic))
                .map(|partition| {
                    let place = Place { topic, partition };
                    let head = state.head(place).unwrap_or_default();
                    PartitionLag {
                        partition,
                        start: head.start,
                        end: head.end,
                        committed: state.committed(place, group),
                        oldest: None,
                    }
                })
                .collect()
        };
        let fill = move |disk: &dyn Disk| {
            for lag in partitions.iter_mut().filter(|lag| lag.records() > 0) {
                let partition = lag.partition;
                let key = codec::record_key(Place { topic, partition }, lag.next());
                let record = disk.get(RECORDS, key)?;
                lag.oldest = record.map(|record| codec::appended_at(&record)).transpose()?;
            }
            Ok(Lag { partitions })
        };
        self.shared.on_disk(fill).await
    }

    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError> {
        let place = self.shared.place(topic, from.partition)?;
        let head = self.shared.visible.state().head(place).unwrap_or_default();
        let begin = from.offset.max(head.start);
        let span = Span {
            place,
            offsets: begin..head.end.min(begin.saturating_add(max as u64)).max(begin),
            max_bytes: MAX_READ_BYTES,
        };
        let found = self.shared.on_disk(move |disk| read_span(disk, &span)).await?;
        let partition = from.partition;
        Ok(found
            .into_iter()
            .map(|stored| delivered(partition, stored))
            .collect())
    }

    async fn check(&self) -> Result<(), LogError> {
        // `open` compared the layout, and nobody else can have changed it since.
        self.shared.runner().map(drop)
    }

    async fn close(&self) {
        let Some(runner) = lock(&self.shared.runner).take() else {
            return;
        };
        if let Err(error) = runner.close().await {
            tracing::warn!(%error, "the log did not close cleanly");
        }
        for topic in Topic::ALL {
            self.shared.visible.signal(topic).notify_waiters();
        }
    }
}

impl Drop for EmbeddedLog {
    fn drop(&mut self) {
        // The runner ends when its inbox is empty and nobody can add to it.
        lock(&self.shared.runner).take();
    }
}
