//! Rows → the newest segment, on disk when they are acknowledged. One thread writes: it gathers what
//! comes in for a few milliseconds, writes it at once, syncs once, and acknowledges each. Another
//! thread makes tables of finished segments.

use std::fs::TryLockError;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fs_err as fs;
use serde::Serialize;

use super::Record;
use super::folder::{Kind, finish, list};
use super::segment::{frame, header};
use crate::error::{Error, Result};
use crate::files::{create_folder, sync_folder};

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
    /// The bytes at which a segment is finished and becomes tables; about four times as many are in
    /// memory meanwhile.
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
    threads: Vec<JoinHandle<()>>,
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
    /// become tables first.
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
        let mut last = 0;
        for (kind, number, _) in list(folder)? {
            if kind == Kind::Segment {
                finish(folder, number)?;
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
        // A folder that cannot be written to is found now.
        store.segment = Some(store.begin()?);
        let for_tables = Arc::clone(&shared);
        let tables = thread::Builder::new()
            .name("log-tables".into())
            .spawn(move || make_tables(&for_tables, &segments))?;
        let rows =
            thread::Builder::new().name("log-rows".into()).spawn(move || write_rows(store))?;
        Ok(Self { inner: Arc::new(Inner { shared, threads: vec![rows, tables] }) })
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
}

impl Drop for Inner {
    fn drop(&mut self) {
        held(&self.shared.queue).closed = true;
        self.shared.arrived.notify_one();
        // A callback may have held the last clone: a thread cannot wait for itself.
        let current = thread::current().id();
        if self.threads.iter().all(|thread| thread.thread().id() != current) {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
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
        queue.jobs.clear();
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
fn make_tables(shared: &Shared, segments: &Receiver<u64>) {
    let mut waiting = Vec::new();
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

/// A file that rows are appended to. Tests put one that fails in its place.
trait Sink: Send {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

impl Sink for fs::File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

type Create = Box<dyn Fn(&Path) -> io::Result<Box<dyn Sink>> + Send>;

fn create(path: &Path) -> io::Result<Box<dyn Sink>> {
    // Appending: after it was cut, a file goes on at its new end.
    Ok(Box::new(fs::OpenOptions::new().append(true).create_new(true).open(path)?))
}

/// The newest segment, and how to begin others.
struct Store {
    shared: Arc<Shared>,
    create: Create,
    finished: Sender<u64>,
    segment: Option<Segment>,
    last: u64,
}

struct Segment {
    file: Box<dyn Sink>,
    number: u64,
    /// The end of the rows that are on disk.
    end: u64,
}

impl Store {
    /// Begins a segment whose name and header are on disk.
    fn begin(&mut self) -> Result<Segment> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.last = u64::try_from(now).unwrap_or_default().max(self.last + 1);
        let folder = &self.shared.folder;
        let path = Kind::Segment.path(folder, self.last);
        let mut file = (self.create)(&path)?;
        let header = header();
        let written = file.append(&header).and_then(|()| file.sync());
        if let Err(error) = written.map_err(Error::from).and_then(|()| sync_folder(folder)) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Segment { file, number: self.last, end: header.len() as u64 })
    }

    /// Puts `bytes` on disk, at the end of a segment with its end behind them, or fails and takes them
    /// away again where the disk lets it.
    fn put(&mut self, bytes: &[u8]) -> Result<Segment> {
        let mut segment = match self.segment.take() {
            Some(segment) => segment,
            None => self.begin()?,
        };
        if let Err(error) = segment.file.append(bytes) {
            // On a full disk, for one. Behind whole rows, the next ones have their place.
            if segment.file.truncate(segment.end).is_ok() {
                self.segment = Some(segment);
            } else {
                self.done(&segment);
            }
            return Err(error.into());
        }
        if let Err(error) = segment.file.sync() {
            // A failed sync may have dropped what it did not write, and the next one would succeed
            // without it. So nothing more goes into this file.
            let _ = segment.file.truncate(segment.end);
            self.done(&segment);
            return Err(error.into());
        }
        segment.end += bytes.len() as u64;
        Ok(segment)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut segment = self.put(bytes)?;
        if segment.end >= self.shared.options.segment_bytes {
            match self.begin() {
                Ok(next) => {
                    self.done(&segment);
                    segment = next;
                }
                // The rows are on disk: the segment grows until another can begin.
                Err(error) => self.shared.failed(&error),
            }
        }
        self.segment = Some(segment);
        Ok(())
    }

    /// Writes what is no row, and removes it.
    fn probe(&mut self) -> Result<()> {
        let mut segment = self.put(&PROBE_BYTES)?;
        segment.end -= PROBE_BYTES.len() as u64;
        if let Err(error) = segment.file.truncate(segment.end) {
            self.done(&segment);
            return Err(error.into());
        }
        self.segment = Some(segment);
        Ok(())
    }

    fn done(&self, segment: &Segment) {
        // Without the other thread, the next start makes its tables.
        let _ = self.finished.send(segment.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::super::Log;
    use super::super::samples::{exposure, feedback};
    use super::*;

    fn eager() -> Options {
        Options { gather: Duration::ZERO, ..Options::default() }
    }

    fn append(writer: &Writer, at: u32) -> Result<()> {
        writer.append(&[exposure(at).into()])?.wait()
    }

    /// The requests that are in the log, in the order of their numbers.
    fn requests(folder: &Path) -> Vec<String> {
        Log::read(&[folder]).unwrap().exposures.into_iter().map(|row| row.request).collect()
    }

    fn expected(rows: impl IntoIterator<Item = u32>) -> Vec<String> {
        rows.into_iter().map(|at| format!("request-{at}")).collect()
    }

    /// What a disk does wrong.
    #[derive(Default)]
    struct Fault {
        append: AtomicBool,
        sync: AtomicBool,
        truncate: AtomicBool,
        create: AtomicBool,
        begun: AtomicUsize,
    }

    fn full(fault: &AtomicBool) -> io::Result<()> {
        if fault.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
        }
        Ok(())
    }

    struct Faulty(fs::File, Arc<Fault>);

    impl Sink for Faulty {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            if let Err(error) = full(&self.1.append) {
                // A full disk takes a part.
                Sink::append(&mut self.0, &bytes[..bytes.len() / 2])?;
                return Err(error);
            }
            Sink::append(&mut self.0, bytes)
        }

        fn sync(&mut self) -> io::Result<()> {
            full(&self.1.sync).and_then(|()| Sink::sync(&mut self.0))
        }

        fn truncate(&mut self, length: u64) -> io::Result<()> {
            full(&self.1.truncate).and_then(|()| Sink::truncate(&mut self.0, length))
        }
    }

    /// A writer on a disk whose faults can be switched.
    fn faulty(folder: &Path) -> (Writer, Arc<Fault>) {
        let fault = Arc::new(Fault::default());
        let of_disk = Arc::clone(&fault);
        let create = move |path: &Path| -> io::Result<Box<dyn Sink>> {
            full(&of_disk.create)?;
            of_disk.begun.fetch_add(1, Ordering::SeqCst);
            let file = fs::OpenOptions::new().append(true).create_new(true).open(path)?;
            Ok(Box::new(Faulty(file, Arc::clone(&of_disk))))
        };
        (Writer::with(folder, eager(), Box::new(create)).unwrap(), fault)
    }

    #[test]
    fn a_disk_that_fails_costs_the_rows_of_its_group_and_the_log_goes_on() {
        type Which = fn(&Fault) -> &AtomicBool;
        let faults: [(&[Which], usize); 5] = [
            // A part was written and taken away: the segment goes on.
            (&[|fault| &fault.append], 1),
            // Nobody knows what is on disk, or the part stays: another segment.
            (&[|fault| &fault.sync], 2),
            (&[|fault| &fault.append, |fault| &fault.truncate], 2),
            (&[|fault| &fault.sync, |fault| &fault.create], 2),
            (&[|fault| &fault.append, |fault| &fault.truncate, |fault| &fault.create], 2),
        ];
        for (which, begun) in faults {
            let root = tempfile::tempdir().unwrap();
            let (writer, fault) = faulty(root.path());
            let switch = |on: bool| {
                for which in which {
                    which(&fault).store(on, Ordering::SeqCst);
                }
            };
            append(&writer, 1).unwrap();
            assert!(writer.healthy());
            switch(true);
            for at in [2, 3] {
                let error = append(&writer, at).unwrap_err().to_string();
                assert!(error.contains("the rows were not written: the disk is full"), "{error}");
                assert!(!writer.healthy());
            }
            let status = writer.status();
            assert_eq!((status.rows, status.failed_rows), (1, 2));
            assert_eq!(status.last_error.unwrap(), "the disk is full");
            switch(false);
            append(&writer, 4).unwrap();
            assert!(writer.healthy());
            // Failing again where it failed before costs no segment if nothing is lost.
            assert_eq!(fault.begun.load(Ordering::SeqCst).min(2), begun);
            append(&writer, 5).unwrap();
            assert_eq!(requests(root.path()), expected([1, 4, 5]));
            drop(writer);
            drop(Writer::open(root.path(), eager()).unwrap());
            assert_eq!(requests(root.path()), expected([1, 4, 5]));
        }
    }

    #[test]
    fn a_log_that_nobody_writes_to_becomes_healthy_by_itself_and_keeps_no_byte_of_trying() {
        let root = tempfile::tempdir().unwrap();
        let (writer, fault) = faulty(root.path());
        append(&writer, 1).unwrap();
        fault.append.store(true, Ordering::SeqCst);
        append(&writer, 2).unwrap_err();
        let errors = writer.status().errors;
        let wait = |until: &dyn Fn(&Status) -> bool| {
            let started = Instant::now();
            while !until(&writer.status()) {
                assert!(started.elapsed() < Duration::from_mins(1), "{:?}", writer.status());
                thread::sleep(Duration::from_millis(10));
            }
        };
        wait(&|status| status.errors > errors);
        fault.append.store(false, Ordering::SeqCst);
        wait(&|status| status.healthy);
        append(&writer, 3).unwrap();
        drop(writer);
        assert_eq!(requests(root.path()), expected([1, 3]));
        drop(Writer::open(root.path(), eager()).unwrap());
        assert!(list(root.path()).unwrap().iter().all(|(kind, ..)| *kind != Kind::Cut));
    }

    #[test]
    fn rows_beyond_the_queue_are_refused_at_once() {
        let root = tempfile::tempdir().unwrap();
        let options = Options { queue_bytes: 2000, ..eager() };
        let writer = Writer::open(root.path(), options).unwrap();
        // The thread that writes waits in a callback until it is let go.
        let (go, gate) = mpsc::channel::<()>();
        let (arrived, waits) = mpsc::channel();
        let block = move |result: Result<()>| {
            result.unwrap();
            arrived.send(()).unwrap();
            let _ = gate.recv();
        };
        writer.append_then(&[exposure(0).into()], block).unwrap();
        waits.recv().unwrap();
        let (mut taken, mut tickets) = (0, Vec::new());
        let error = loop {
            match writer.append(&[exposure(taken + 1).into()]) {
                Ok(ticket) => {
                    taken += 1;
                    tickets.push(ticket);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Busy { waiting, .. } if waiting <= 2000), "{error}");
        assert!(writer.status().waiting > 0 && !tickets.is_empty());
        go.send(()).unwrap();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        assert_eq!(writer.status().waiting, 0);
        // One that is larger than the queue is taken when nothing waits.
        let mut large = feedback(1);
        large.request = "x".repeat(5000);
        writer.append(&[large.into()]).unwrap().wait().unwrap();
        drop(writer);
        assert_eq!(requests(root.path()), expected(0..=taken));
    }

    #[test]
    fn rows_that_wait_are_written_and_synced_once_and_acknowledged_after() {
        struct Told(fs::File, Sender<&'static str>);
        impl Sink for Told {
            fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
                self.1.send("append").unwrap();
                Sink::append(&mut self.0, bytes)
            }
            fn sync(&mut self) -> io::Result<()> {
                Sink::sync(&mut self.0)?;
                self.1.send("sync").unwrap();
                Ok(())
            }
            fn truncate(&mut self, length: u64) -> io::Result<()> {
                Sink::truncate(&mut self.0, length)
            }
        }
        let root = tempfile::tempdir().unwrap();
        let (tell, told) = mpsc::channel();
        let to_sink = tell.clone();
        let create = move |path: &Path| -> io::Result<Box<dyn Sink>> {
            let file = fs::OpenOptions::new().append(true).create_new(true).open(path)?;
            Ok(Box::new(Told(file, to_sink.clone())))
        };
        let writer = Writer::with(root.path(), eager(), Box::new(create)).unwrap();
        // The thread that writes waits in the first callback, so that the others come together.
        let (go, gate) = mpsc::channel::<()>();
        let (arrived, waits) = mpsc::channel();
        let acknowledged = tell.clone();
        let block = move |result: Result<()>| {
            result.unwrap();
            acknowledged.send("acknowledged").unwrap();
            arrived.send(()).unwrap();
            let _ = gate.recv();
        };
        writer.append_then(&[exposure(0).into()], block).unwrap();
        waits.recv().unwrap();
        for at in 1..4 {
            let tell = tell.clone();
            let done = move |result: Result<()>| {
                result.unwrap();
                tell.send("acknowledged").unwrap();
            };
            writer.append_then(&[exposure(at).into()], done).unwrap();
        }
        go.send(()).unwrap();
        drop(writer);
        drop(tell);
        let header = ["append", "sync"];
        let first = ["append", "sync", "acknowledged"];
        let rest = ["append", "sync", "acknowledged", "acknowledged", "acknowledged"];
        let expected = [&header[..], &first, &rest].concat();
        assert_eq!(told.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_callback_that_panics_or_holds_the_writer_ends_nothing() {
        let root = tempfile::tempdir().unwrap();
        let writer = Writer::open(root.path(), eager()).unwrap();
        writer.append_then(&[exposure(1).into()], |_| panic!("of the test")).unwrap();
        append(&writer, 2).unwrap();
        let clone = writer.clone();
        let (sender, receiver) = mpsc::channel();
        let last = move |result: Result<()>| {
            drop(clone);
            sender.send(result).unwrap();
        };
        writer.append_then(&[exposure(3).into()], last).unwrap();
        drop(writer);
        receiver.recv().unwrap().unwrap();
        assert_eq!(requests(root.path()), expected([1, 2, 3]));
    }

    #[test]
    fn options_that_make_answers_wait_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let options = Options { gather: Duration::from_millis(11), ..Options::default() };
        let error = Writer::open(root.path(), options).unwrap_err().to_string();
        assert!(error.contains("expected at most 10ms, found 11ms"), "{error}");
    }
}
