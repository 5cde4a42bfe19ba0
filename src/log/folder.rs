//! The files of a log's folder, and how a finished segment becomes tables.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::segment::parse;
use super::{Exposure, Feedback, Record, table};
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
    let bytes = fs::read(&path)?;
    let contents = parse(&path, &bytes)?;
    let cut = &bytes[contents.whole..];
    // Nothing that was acknowledged is here, unless the disk damaged it: nothing is thrown away.
    if contents.whole > 0 && !cut.is_empty() {
        let aside = Kind::Cut.path(folder, number);
        write_atomic(&aside, |file| Ok(file.write_all(cut)?))?;
        let (count, path, aside) = (cut.len(), path.display(), aside.display());
        tracing::warn!("{path}: the last {count} bytes are no whole row; they are in {aside}");
    }
    drop(bytes);
    let (mut exposures, mut feedback) = (Vec::<Exposure>::new(), Vec::<Feedback>::new());
    let mut events = HashSet::new();
    for record in contents.records {
        match record {
            Record::Exposure(row) => exposures.push(*row),
            Record::Feedback(row) if events.insert(row.event.clone()) => feedback.push(row),
            Record::Feedback(_) => {}
        }
    }
    if !exposures.is_empty() {
        table::write(&Kind::Exposures.path(folder, number), &exposures)?;
    }
    if !feedback.is_empty() {
        table::write(&Kind::Feedback.path(folder, number), &feedback)?;
    }
    // Only now: the tables have their names on disk.
    fs::remove_file(&path)?;
    sync_folder(folder)
}
