//! The files of a log's folder, and how a finished segment becomes tables.

use std::collections::HashSet;
use std::io::{self, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::Record;
use super::segment::Rows;
use super::table::{self, Row};
use crate::error::Result;
use crate::files::{sync_folder, write_atomic};

/// What a file of a log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    Exposures,
    Feedback,
    Cut,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Segment, Self::Exposures, Self::Feedback, Self::Cut];

    /// The beginning and the end of the name.
    const fn around(self) -> (&'static str, &'static str) {
        match self {
            Self::Segment => ("segment-", ".rows"),
            Self::Exposures => ("exposures-", ".parquet"),
            Self::Feedback => ("feedback-", ".parquet"),
            Self::Cut => ("segment-", ".cut"),
        }
    }

    /// Where the file of this kind and number is.
    pub(super) fn path(self, folder: &Path, number: u64) -> PathBuf {
        let (start, end) = self.around();
        folder.join(format!("{start}{number:013}{end}"))
    }

    /// The kind and number of a file.
    pub(super) fn of(path: &Path) -> Option<(Self, u64)> {
        let name = path.file_name()?.to_str()?;
        Self::ALL.into_iter().find_map(|kind| {
            let (start, end) = kind.around();
            let digits = name.strip_prefix(start)?.strip_suffix(end)?;
            let number = digits.parse().ok()?;
            // One spelling for each number, so that a name can be made of it again.
            (format!("{number:013}") == digits).then_some((kind, number))
        })
    }
}

/// The files of a log, by number.
///
/// # Errors
/// An I/O error naming the folder.
pub(super) fn list(folder: &Path) -> Result<Vec<(Kind, u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        found.extend(Kind::of(&path).map(|(kind, number)| (kind, number, path)));
    }
    found.sort_by_key(|(_, number, _)| *number);
    Ok(found)
}

/// The tables of a segment in place of the segment. Killed anywhere, it can be done again.
///
/// # Errors
/// [`Error::File`](crate::Error::File) for a file that is no segment; an I/O error naming the file.
/// The segment stays then.
pub(super) fn finish(folder: &Path, number: u64) -> Result<()> {
    let path = Kind::Segment.path(folder, number);
    // Read once for each table, since a segment is larger than what its rows need one by one.
    let mut rows = Rows::open(&path)?;
    let exposures = rows.by_ref().filter_map(|row| match row {
        Ok(Record::Exposure(row)) => Some(Ok(*row)),
        Ok(Record::Feedback(_)) => None,
        Err(error) => Some(Err(error)),
    });
    write_some(&Kind::Exposures.path(folder, number), exposures)?;
    let mut events = HashSet::new();
    let feedback = Rows::open(&path)?.filter_map(|row| match row {
        Ok(Record::Feedback(row)) => {
            let id = (row.request.clone(), row.event.clone());
            events.insert(id).then_some(Ok(row))
        }
        Ok(Record::Exposure(_)) => None,
        Err(error) => Some(Err(error)),
    });
    write_some(&Kind::Feedback.path(folder, number), feedback)?;
    // Nothing that was acknowledged is behind the last whole row, unless the disk damaged it: nothing
    // is thrown away.
    let (whole, mut file) = (rows.whole(), fs::File::open(&path)?);
    let count = file.metadata()?.len() - whole;
    if whole > 0 && count > 0 {
        let aside = Kind::Cut.path(folder, number);
        file.seek(SeekFrom::Start(whole))?;
        write_atomic(&aside, |out| Ok(io::copy(&mut file, out).map(drop)?))?;
        let (path, aside) = (path.display(), aside.display());
        tracing::warn!("{path}: the last {count} bytes are no whole row; they are in {aside}");
    }
    // Only now: the tables have their names on disk.
    fs::remove_file(&path)?;
    sync_folder(folder)
}

/// Writes the table of `rows` unless there are none.
fn write_some<R: Row>(path: &Path, rows: impl Iterator<Item = Result<R>>) -> Result<()> {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    table::write(path, rows)
}
