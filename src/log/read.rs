//! Folders and files of logs → their rows, while a server writes them or after. Reading changes
//! nothing: a segment is read up to its last whole row.

use std::collections::HashSet;
use std::hash::Hash;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Serialize;

use super::codec::encode;
use super::folder::{Kind, list};
use super::segment::Rows;
use super::table::{self, Row};
use super::{Exposure, Feedback, Record};
use crate::dataset::parquet::column_names;
use crate::error::{Error, Result};
use crate::files::StagedFolder;

/// The rows of a log, or of the logs of several replicas, in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// What was shown, by time and then by request id, each request once.
    pub exposures: Vec<Exposure>,
    /// What happened, by time and then by event id, each event of a request once. The request of some may be
    /// missing.
    pub feedback: Vec<Feedback>,
    /// The rows that were left out.
    pub repeated: Repeated,
}

/// Rows whose id is that of another row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repeated {
    /// Exposures of a request that has one.
    pub exposures: u64,
    /// Feedback of an event of the same request that counts already. Segments that became tables left theirs out.
    pub feedback: u64,
}

impl Log {
    /// Reads folders of logs, and single files of them.
    ///
    /// # Errors
    /// [`Error::File`] for a folder without a log, a file of another shape, or one of a newer format;
    /// an error naming the file, and the row or column that is not what it should be.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        let mut log = Self::default();
        visit(paths, |part| match part {
            Part::Exposures(rows) => log.exposures.extend(rows),
            Part::Feedback(rows) => log.feedback.extend(rows),
        })?;
        let exposures = &mut log.exposures;
        exposures.sort_by(|a, b| (a.time, &a.request).cmp(&(b.time, &b.request)));
        log.repeated.exposures = once(exposures, |row| row.request.clone());
        let feedback = &mut log.feedback;
        // To the last column, so that the order of the paths does not matter.
        feedback.sort_by(|a, b| {
            let by_id = (a.time, &a.event, &a.request, a.position);
            by_id.cmp(&(b.time, &b.event, &b.request, b.position)).then(a.value.total_cmp(&b.value))
        });
        log.repeated.feedback = once(feedback, |row| (row.request.clone(), row.event.clone()));
        Ok(log)
    }

    /// Digest of all rows.
    #[must_use]
    pub fn digest(&self) -> String {
        let (mut hasher, mut bytes) = (blake3::Hasher::new(), Vec::new());
        let exposures = self.exposures.iter().cloned().map(Record::from);
        let feedback = self.feedback.iter().cloned().map(Record::from);
        for record in exposures.chain(feedback) {
            bytes.clear();
            encode(&record, &mut bytes);
            hasher.update(&bytes);
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Writes the folder `out`, with a table of each kind of rows.
    ///
    /// # Errors
    /// [`Error::File`] if there is something at `out`; an I/O error naming the file. Nothing is left
    /// under that name then.
    pub fn write(&self, out: &Path) -> Result<()> {
        if out.exists() {
            return Err(Error::file(out, "there is something here already; give another --out"));
        }
        let staged = StagedFolder::new(out)?;
        let exposures = self.exposures.iter().cloned().map(Ok);
        table::write(&Kind::Exposures.path(staged.path(), 0), exposures)?;
        let feedback = self.feedback.iter().cloned().map(Ok);
        table::write(&Kind::Feedback.path(staged.path(), 0), feedback)?;
        staged.commit()
    }
}

/// Keeps the first row of each id; returns how many went.
fn once<R, I: Hash + Eq>(rows: &mut Vec<R>, id: impl Fn(&R) -> I) -> u64 {
    let mut seen = HashSet::new();
    let first: Vec<bool> = rows.iter().map(|row| seen.insert(id(row))).collect();
    let before = rows.len();
    let mut first = first.into_iter();
    rows.retain(|_| first.next().unwrap_or(true));
    (before - rows.len()) as u64
}

/// Some rows, in the order in which they are stored.
pub(super) enum Part {
    Exposures(Vec<Exposure>),
    Feedback(Vec<Feedback>),
}

/// The files that were read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files {
    pub(super) tables: u64,
    pub(super) segments: u64,
    /// Bytes that were cut off segments when these became tables.
    pub(super) cut_bytes: u64,
    /// Bytes of segments behind their last whole row.
    pub(super) unread_bytes: u64,
}

/// Passes all rows to `each`, a part of a file after the other.
pub(super) fn visit<P: AsRef<Path>>(paths: &[P], mut each: impl FnMut(Part)) -> Result<Files> {
    let mut files = Files::default();
    for path in paths {
        for source in sources(path.as_ref(), &mut files)? {
            match source {
                Source::Segment(path, file) => {
                    files.segments += 1;
                    let (mut exposures, mut feedback) = (Vec::new(), Vec::new());
                    let mut rows = Rows::new(&path, BufReader::new(file))?;
                    for record in rows.by_ref() {
                        match record? {
                            Record::Exposure(row) => exposures.push(*row),
                            Record::Feedback(row) => feedback.push(row),
                        }
                    }
                    let unread = rows.unread()?;
                    if unread > 0 {
                        tracing::warn!(
                            "{}: {unread} bytes behind row {} were not read: they are damaged, or just \
                             being written",
                            path.display(),
                            exposures.len() + feedback.len()
                        );
                    }
                    files.unread_bytes += unread;
                    each(Part::Exposures(exposures));
                    each(Part::Feedback(feedback));
                }
                Source::Exposures(path) => {
                    files.tables += 1;
                    for rows in table::read(&path)? {
                        each(Part::Exposures(rows?));
                    }
                }
                Source::Feedback(path) => {
                    files.tables += 1;
                    for rows in table::read(&path)? {
                        each(Part::Feedback(rows?));
                    }
                }
            }
        }
    }
    Ok(files)
}

enum Source {
    Segment(PathBuf, fs::File),
    Exposures(PathBuf),
    Feedback(PathBuf),
}

/// The files of `path`, whose rows together are each row once, although a server may turn a segment
/// into tables meanwhile.
fn sources(path: &Path, files: &mut Files) -> Result<Vec<Source>> {
    if !path.is_dir() {
        return Ok(vec![file(path)?]);
    }
    // The segments first, and open: one that goes from now on is read all the same, and the tables of
    // one that went before have their names when these are listed.
    let mut open = Vec::new();
    let mut found = Vec::new();
    for (kind, number, path) in list(path)? {
        if kind == Kind::Segment {
            match fs::File::open(&path) {
                Ok(file) => {
                    open.push(number);
                    found.push(Source::Segment(path, file));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let listed = list(path)?;
    let segments = listed.iter().filter(|(kind, ..)| *kind == Kind::Segment);
    open.extend(segments.map(|(_, number, _)| *number));
    for (kind, number, path) in listed {
        let counts = !open.contains(&number);
        match kind {
            Kind::Exposures if counts => found.push(Source::Exposures(path)),
            Kind::Feedback if counts => found.push(Source::Feedback(path)),
            Kind::Cut => files.cut_bytes += fs::metadata(&path)?.len(),
            _ => {}
        }
    }
    if found.is_empty() {
        return Err(Error::file(path, "holds no log: neither a segment nor a table of one"));
    }
    Ok(found)
}

/// What is said of logs that no `slate serve` wrote.
const OTHERS: &str = "Expected is the log of `slate serve`. Of another system, `slate train --estimate` takes \
                      tables of slates (`user`, `slate`, `outcomes`, and perhaps `propensities`), and \
                      `slate log value` a file whose rows are positions; `slate log check` takes both, \
                      such files one at a time";

/// A single file; what a table holds is told by its columns.
fn file(path: &Path) -> Result<Source> {
    fs::metadata(path)?;
    if let Some((Kind::Segment, _)) = Kind::of(path) {
        return Ok(Source::Segment(path.to_owned(), fs::File::open(path)?));
    }
    if path.extension().is_some_and(|extension| extension == "csv" || extension == "tsv") {
        return Err(Error::file(path, format!("is no log that this version reads. {OTHERS}")));
    }
    let columns = column_names(path)?;
    let missing = |expected: &[&str]| -> Vec<String> {
        let missing = expected.iter().filter(|name| !columns.iter().any(|other| other == *name));
        missing.map(|name| format!("`{name}`")).collect()
    };
    let (exposures, feedback) = (missing(Exposure::COLUMNS), missing(Feedback::COLUMNS));
    if exposures.is_empty() {
        return Ok(Source::Exposures(path.to_owned()));
    }
    if feedback.is_empty() {
        return Ok(Source::Feedback(path.to_owned()));
    }
    let problem = format!(
        "is no table of a log that this version reads. For exposures it lacks {}; for feedback it \
         lacks {}. {OTHERS}",
        exposures.join(", "),
        feedback.join(", ")
    );
    Err(Error::file(path, problem))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{exposure, feedback};
    use super::*;

    #[test]
    fn rows_are_in_order_and_each_id_counts_once_by_time() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let first = Log {
            exposures: [3, 1].map(exposure).to_vec(),
            feedback: vec![Feedback { time: 9, value: 1.0, ..feedback(1) }, feedback(3)],
            ..Log::default()
        };
        let second = Log {
            exposures: [2, 1].map(exposure).to_vec(),
            feedback: vec![Feedback { time: 7, value: 2.0, ..feedback(1) }, feedback(9)],
            ..Log::default()
        };
        first.write(&at("a")).unwrap();
        second.write(&at("b")).unwrap();
        let read = Log::read(&[at("a"), at("b")]).unwrap();
        assert_eq!(read.exposures, [1, 2, 3].map(exposure));
        let early = Feedback { time: 7, value: 2.0, ..feedback(1) };
        assert_eq!(read.feedback, [early, feedback(3), feedback(9)]);
        assert_eq!(read.repeated, Repeated { exposures: 1, feedback: 1 });
        assert_eq!(Log::read(&[at("b"), at("a")]).unwrap(), read);

        let error = first.write(&at("a")).unwrap_err().to_string();
        assert!(error.contains("a: there is something here already"), "{error}");
        fs::create_dir(at("none")).unwrap();
        let error = Log::read(&[at("none")]).unwrap_err().to_string();
        assert!(error.contains("none: holds no log"), "{error}");
    }
}
