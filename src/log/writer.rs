//! Rows → the newest segment, on disk when they are acknowledged. One thread writes: it gathers what
//! comes in for a few milliseconds, writes it at once, syncs once, and acknowledges each. Another
//! thread makes tables of finished segments.

mod store;

use std::fs::TryLockError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fs_err as fs;
use serde::Serialize;

use self::store::{Create, Store, create};
use super::Record;
use super::folder::{Kind, finish, list};
use super::segment::{Rows, frame};
use crate::error::{Error, Result};
use crate::files::create_folder;

const LOCK: &str = "log.lock";

/// The most time that a group is gathered.
const GATHER: Duration = Duration::from_millis(10);

/// After a failed write, how often a write is tried that nobody asked for, so that a server that
/// accepts nothing until the log is healthy becomes healthy.
const PROBE: Duration = Duration::from_millis(500);

/// What such a write writes, and removes again. No row begins with it.
const PROBE_BYTES: [u8; 4096] = [0; 4096];

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The bytes at which a segment is finished and becomes tables.
    pub segment_bytes: u64,
    /// The most bytes of rows that wait for the disk; beyond them the log is busy.
    pub queue_bytes: usize,
    /// How long rows are gathered for one write and sync; at most 10 ms.
    pub gather: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, queue_bytes: 16 << 20, gather: Duration::from_millis(2) }
    }
}

/// How a writer is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// False from a write that failed to the next one that succeeds.
    pub healthy: bool,
    /// Rows that were acknowledged.
    pub rows: u64,
    /// Rows that were not, because writing failed.
    pub failed_rows: u64,
    /// Writes that succeeded, each with one sync.
    pub writes: u64,
    /// Operations that failed: writes, syncs, new segments, tables.
    pub errors: u64,
    /// What the last of them said.
    pub last_error: Option<String>,
    /// Bytes of rows that wait.
    pub waiting: usize,
}

/// Appends rows to the log in a folder, which no other process may write. Clones share it, and the
/// last one that is dropped waits until every row that was taken is on disk.
#[derive(Clone, Debug)]
pub struct Writer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The acknowledgement to come.
#[derive(Debug)]
pub struct Ticket {
    receiver: Receiver<Result<()>>,
    folder: PathBuf,
}

impl Ticket {
    /// Waits until the rows are on disk.
    ///
    /// # Errors
    /// [`Error::File`]: the rows were not written, and why.
    pub fn wait(self) -> Result<()> {
        let ended = |_| Err(Error::file(self.folder, "the log ended before the rows were written"));
        self.receiver.recv().unwrap_or_else(ended)
    }
}

impl Writer {
    /// Opens the log in `folder`, which is made if it is missing. Segments that another process left
    /// become tables first. A full disk leaves them as they are and the writer unhealthy, until the disk
    /// takes rows again.
    ///
    /// # Errors
    /// [`Error::File`] when another process writes this log, for a segment of a newer format, and for
    /// one that is damaged at its beginning; [`Error::Setting`] for options that cannot be; an I/O
    /// error naming the file.
    pub fn open(folder: &Path, options: Options) -> Result<Self> {
        Self::with(folder, options, Box::new(create))
    }

    fn with(folder: &Path, options: Options, create: Create) -> Result<Self> {
        if options.gather > GATHER {
            let problem = format!("expected at most {GATHER:?}, found {:?}", options.gather);
            return Err(Error::setting("gather", problem));
        }
        create_folder(folder)?;
        let lock = lock(folder)?;
        let (mut last, mut waiting) = (0, Vec::new());
        for (kind, number, path) in list(folder)? {
            if kind == Kind::Segment
                && let Err(error) = finish(folder, number)
            {
                // A segment that cannot be read ends the start; a disk that takes no table does not.
                Rows::open(&path)?.try_for_each(|row| row.map(drop))?;
                tracing::warn!("{error}; its rows stay in the segment");
                waiting.push(number);
            }
            last = last.max(number);
        }
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            options,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            status: Mutex::new(Status { healthy: true, ..Status::default() }),
            lock,
        });
        let (finished, segments) = mpsc::channel();
        let mut store =
            Store { shared: Arc::clone(&shared), create, finished, segment: None, last };
        match store.begin() {
            Ok(segment) => store.segment = Some(segment),
            // The thread that writes begins one when the disk has room.
            Err(error) => {
                tracing::warn!("{error}; the log takes no rows until it can be written");
                shared.failed(&error);
                held(&shared.status).healthy = false;
            }
        }
        let for_tables = Arc::clone(&shared);
        let tables = thread::Builder::new()
            .name("log-tables".into())
            .spawn(move || make_tables(&for_tables, &segments, waiting))?;
        let rows =
            thread::Builder::new().name("log-rows".into()).spawn(move || write_rows(store))?;
        Ok(Self { inner: Arc::new(Inner { shared, threads: Mutex::new(vec![rows, tables]) }) })
    }

    /// Takes rows, which are acknowledged together.
    ///
    /// # Errors
    /// [`Error::Busy`] at once when too much waits; [`Error::Record`] for a row that is refused. None
    /// of the rows is taken then.
    pub fn append(&self, records: &[Record]) -> Result<Ticket> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.append_then(records, move |result| drop(sender.try_send(result)))?;
        Ok(Ticket { receiver, folder: self.inner.shared.folder.clone() })
    }

    /// Takes rows, and passes the acknowledgement to `done`, on the thread that writes: `done` must
    /// not block.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append); `done` is not called then.
    pub fn append_then(
        &self,
        records: &[Record],
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        records.iter().try_for_each(|record| frame(record, &mut bytes))?;
        let shared = &self.inner.shared;
        let mut queue = held(&shared.queue);
        // Rows that are more than the queue holds are taken when nothing else waits.
        let full = queue.bytes > 0 && queue.bytes + bytes.len() > shared.options.queue_bytes;
        if full {
            return Err(Error::Busy { path: shared.folder.clone(), waiting: queue.bytes });
        }
        if queue.closed {
            return Err(Error::file(&shared.folder, "the log has ended"));
        }
        queue.bytes += bytes.len();
        queue.jobs.push(Job { bytes, rows: records.len() as u64, done: Box::new(done) });
        drop(queue);
        shared.arrived.notify_one();
        Ok(())
    }

    /// False from a write that failed to the next one that succeeds. The writer tries again by itself.
    #[must_use]
    pub fn healthy(&self) -> bool {
        held(&self.inner.shared.status).healthy
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let waiting = held(&self.inner.shared.queue).bytes;
        Status { waiting, ..held(&self.inner.shared.status).clone() }
    }

    /// Waits until every row that was taken is on disk. No clone takes another.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    fn close(&self) {
        held(&self.shared.queue).closed = true;
        self.shared.arrived.notify_one();
        // A callback may have held the last clone: a thread cannot wait for itself.
        let (current, mut threads) = (thread::current().id(), held(&self.threads));
        if threads.iter().all(|thread| thread.thread().id() != current) {
            for thread in threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Keeps other processes from writing here until the file is closed.
fn lock(folder: &Path) -> Result<fs::File> {
    let file = fs::OpenOptions::new().create(true).append(true).open(folder.join(LOCK))?;
    match file.file().try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let problem = "another process writes this log; give each server a folder of its own";
            Err(Error::file(folder, problem))
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// What a panic under a lock leaves is whole: each change is one step.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    options: Options,
    queue: Mutex<Queue>,
    arrived: Condvar,
    status: Mutex<Status>,
    /// Held until the last thread has ended.
    lock: fs::File,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being started may have the open file for a moment.
        let _ = self.lock.file().unlock();
    }
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    bytes: usize,
    closed: bool,
}

/// Rows that are acknowledged together.
struct Job {
    bytes: Vec<u8>,
    rows: u64,
    done: Box<dyn FnOnce(Result<()>) + Send>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({} rows)", self.rows)
    }
}

impl Shared {
    /// Waits for rows; nothing when a write is to be tried, none at the end.
    fn group(&self) -> Option<Vec<Job>> {
        let mut queue = held(&self.queue);
        while queue.jobs.is_empty() {
            if queue.closed {
                return None;
            }
            if held(&self.status).healthy {
                queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
            } else {
                let waited = self.arrived.wait_timeout(queue, PROBE);
                let (found, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                queue = found;
                if timeout.timed_out() && queue.jobs.is_empty() {
                    return Some(Vec::new());
                }
            }
        }
        let until = Instant::now() + self.options.gather;
        while !queue.closed && queue.bytes < self.options.queue_bytes / 2 {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            let waited = self.arrived.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.bytes = 0;
        Some(std::mem::take(&mut queue.jobs))
    }

    fn failed(&self, error: &dyn std::fmt::Display) {
        let mut status = held(&self.status);
        status.errors += 1;
        status.last_error = Some(error.to_string());
    }
}

/// Ends the log when the thread that writes ends, by a panic too: what waits is let go, so that nobody
/// waits for ever.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut queue = held(&self.0.queue);
        queue.closed = true;
        // A job's callback may hold the last writer, which locks the queue when it goes.
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        drop(jobs);
        held(&self.0.status).healthy = false;
    }
}

fn write_rows(mut store: Store) {
    let shared = Arc::clone(&store.shared);
    let _ending = Ending(Arc::clone(&shared));
    while let Some(jobs) = shared.group() {
        let result = if jobs.is_empty() {
            store.probe()
        } else {
            let parts: Vec<&[u8]> = jobs.iter().map(|job| job.bytes.as_slice()).collect();
            store.write(&parts.concat())
        };
        let rows: u64 = jobs.iter().map(|job| job.rows).sum();
        let mut status = held(&shared.status);
        status.healthy = result.is_ok();
        if result.is_ok() {
            status.rows += rows;
            status.writes += u64::from(!jobs.is_empty());
        } else {
            status.failed_rows += rows;
        }
        drop(status);
        if let Err(error) = &result {
            shared.failed(error);
        }
        for job in jobs {
            let outcome = result.as_ref().map_err(|error| {
                Error::file(&shared.folder, format!("the rows were not written: {error}"))
            });
            // A callback that panics must not end the log.
            let _ = catch_unwind(AssertUnwindSafe(|| (job.done)(outcome.copied())));
        }
    }
}

/// Makes tables of finished segments. One that failed is tried again with the next, or at the next
/// start.
fn make_tables(shared: &Shared, segments: &Receiver<u64>, mut waiting: Vec<u64>) {
    for segment in segments {
        waiting.push(segment);
        waiting.retain(|&number| match finish(&shared.folder, number) {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!("{error}; its rows stay in the segment");
                shared.failed(&error);
                true
            }
        });
    }
}

#[cfg(test)]
mod tests;
