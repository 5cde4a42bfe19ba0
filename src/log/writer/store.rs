//! The newest segment on disk: rows go behind whole rows or not at all.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use fs_err as fs;

use super::{PROBE_BYTES, Shared};
use crate::error::{Error, Result};
use crate::files::sync_folder;
use crate::log::folder::Kind;
use crate::log::segment::header;

/// A file that rows are appended to. Tests put one that fails in its place.
pub(super) trait Sink: Send {
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

pub(super) type Create = Box<dyn Fn(&Path) -> io::Result<Box<dyn Sink>> + Send>;

pub(super) fn create(path: &Path) -> io::Result<Box<dyn Sink>> {
    // Appending: after it was cut, a file goes on at its new end.
    Ok(Box::new(fs::OpenOptions::new().append(true).create_new(true).open(path)?))
}

/// The newest segment, and how to begin others.
pub(super) struct Store {
    pub(super) shared: Arc<Shared>,
    pub(super) create: Create,
    pub(super) finished: Sender<u64>,
    pub(super) segment: Option<Segment>,
    pub(super) last: u64,
}

pub(super) struct Segment {
    file: Box<dyn Sink>,
    number: u64,
    /// The end of the rows that are on disk.
    end: u64,
}

impl Store {
    /// Begins a segment whose name and header are on disk.
    pub(super) fn begin(&mut self) -> Result<Segment> {
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

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
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
    pub(super) fn probe(&mut self) -> Result<()> {
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
