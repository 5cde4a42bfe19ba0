//! Rows ↔ the bytes of a segment: a header, then a frame for each row. A frame is the row's length, a
//! checksum of length and row, and the row. A frame that is short, or whose checksum fails, ends the
//! segment: that is what a killed writer leaves of rows that it never acknowledged.

use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::codec::{decode, encode};
use super::{FORMAT, Record};
use crate::error::{Error, Result};

const MAGIC: [u8; 8] = *b"slatelog";

/// Bytes of a checksum: BLAKE3, truncated. It finds damage; nobody is kept from forging a file.
const SUM: usize = 8;

/// Magic, format, and their checksum. The header of later formats begins the same.
const HEADER: usize = MAGIC.len() + 4 + SUM;

/// Length and checksum.
const PREFIX: usize = 4 + SUM;

/// The most bytes of a row.
pub(super) const ROW: usize = 16 << 20;

fn checksum([first, second]: [&[u8]; 2]) -> [u8; SUM] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(first).update(second);
    let mut sum = [0; SUM];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

/// The first bytes of a segment.
pub(super) fn header() -> Vec<u8> {
    let format = FORMAT.to_le_bytes();
    [&MAGIC[..], &format, &checksum([&MAGIC, &format])].concat()
}

/// Appends the frame of `record`.
///
/// # Errors
/// [`Error::Record`] for a row that is refused, or too long.
pub(super) fn frame(record: &Record, out: &mut Vec<u8>) -> Result<()> {
    record.check()?;
    let start = out.len();
    out.extend([0; PREFIX]);
    encode(record, out);
    let row = &out[start + PREFIX..];
    let length = row.len();
    if length > ROW {
        out.truncate(start);
        let id = match record {
            Record::Exposure(row) => &row.request,
            Record::Feedback(row) => &row.event,
        };
        let problem = format!("has {length} bytes, expected at most {ROW}");
        return Err(Error::Record { id: id.chars().take(80).collect(), problem });
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most `ROW`")]
    let length = (length as u32).to_le_bytes();
    let sum = checksum([&length, row]);
    out[start..start + 4].copy_from_slice(&length);
    out[start + 4..start + PREFIX].copy_from_slice(&sum);
    Ok(())
}

/// The whole rows of a segment, as they came, read one after the other. The row where it fails is the
/// last.
///
/// It fails with an I/O error, or with [`Error::File`] for a row that this version cannot read or that
/// no writer takes.
#[derive(Debug)]
pub(super) struct Rows<R> {
    path: PathBuf,
    source: R,
    /// The row that is being read.
    row: Vec<u8>,
    whole: u64,
    /// Bytes of a row that was read and is not whole.
    broken: u64,
    ended: bool,
}

impl Rows<BufReader<fs::File>> {
    /// Opens the segment at `path`.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub(super) fn open(path: &Path) -> Result<Self> {
        Self::new(path, BufReader::new(fs::File::open(path)?))
    }
}

impl<R: BufRead> Rows<R> {
    /// Reads the header of the segment at `path`.
    ///
    /// # Errors
    /// [`Error::File`] for a file that is no segment or that a newer version wrote; an I/O error.
    pub(super) fn new(path: &Path, mut source: R) -> Result<Self> {
        let mut header = Vec::with_capacity(HEADER);
        source.by_ref().take(HEADER as u64).read_to_end(&mut header)?;
        let mut rows = Self {
            path: path.to_owned(),
            source,
            row: Vec::new(),
            whole: 0,
            broken: 0,
            ended: true,
        };
        if header.len() < HEADER {
            // Rows are written only after the header is on disk.
            return Ok(rows);
        }
        let (start, sum) = header.split_at(HEADER - SUM);
        let (magic, format) = start.split_at(MAGIC.len());
        if checksum([magic, format]) != *sum || magic != MAGIC {
            if rows.source.fill_buf()?.is_empty() {
                return Ok(rows);
            }
            return Err(Error::file(
                path,
                "is no segment of a log, or its first bytes are damaged",
            ));
        }
        let format = format.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        if format != FORMAT {
            return Err(Error::file(path, newer(&format)));
        }
        rows.whole = HEADER as u64;
        rows.ended = false;
        Ok(rows)
    }

    /// The number of bytes up to the end of the last whole row that was read.
    pub(super) const fn whole(&self) -> u64 {
        self.whole
    }

    /// The number of bytes behind the last whole row, after all rows.
    pub(super) fn unread(&mut self) -> Result<u64> {
        Ok(self.broken + io::copy(&mut self.source, &mut io::sink())?)
    }

    /// The next row, if it is whole.
    fn read(&mut self) -> Result<Option<Record>> {
        let mut prefix = Vec::with_capacity(PREFIX);
        self.broken = self.source.by_ref().take(PREFIX as u64).read_to_end(&mut prefix)? as u64;
        let Some((length, sum)) = prefix.split_first_chunk::<4>() else { return Ok(None) };
        let bytes = u64::from(u32::from_le_bytes(*length));
        self.row.clear();
        self.broken += self.source.by_ref().take(bytes).read_to_end(&mut self.row)? as u64;
        if self.row.len() as u64 != bytes || checksum([length, &self.row]) != *sum {
            return Ok(None);
        }
        let undecodable = || Error::file(&self.path, "holds a row that this version cannot read");
        let record = decode(&self.row).ok_or_else(undecodable)?;
        // A table would be refused for it, and with the table the whole log.
        record.check().map_err(|error| Error::file(&self.path, error.to_string()))?;
        self.whole += PREFIX as u64 + bytes;
        self.broken = 0;
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = self.read().transpose();
        self.ended = !matches!(row, Some(Ok(_)));
        row
    }
}

/// Why a file of another format is refused.
pub(super) fn newer(format: &dyn std::fmt::Display) -> String {
    format!("is of format {format}, which a newer fast-slate wrote; this one reads {FORMAT}")
}

#[cfg(test)]
mod tests {
    use super::super::samples::{exposure, feedback};
    use super::*;

    fn segment(rows: u32) -> (Vec<u8>, usize) {
        let mut bytes = header();
        let mut last = 0;
        for at in 0..rows {
            last = bytes.len();
            frame(&exposure(at).into(), &mut bytes).unwrap();
        }
        (bytes, last)
    }

    /// The number of rows, and of bytes up to the end of the last.
    fn read(bytes: &[u8]) -> Result<(usize, u64)> {
        let mut rows = Rows::new(Path::new("x"), bytes)?;
        let records = rows.by_ref().collect::<Result<Vec<_>>>()?;
        Ok((records.len(), rows.whole()))
    }

    fn rows(bytes: &[u8]) -> usize {
        read(bytes).unwrap().0
    }

    #[test]
    fn a_row_that_is_cut_or_changed_anywhere_ends_the_segment() {
        let (bytes, last) = segment(3);
        assert_eq!(rows(&bytes), 3);
        for end in last..bytes.len() {
            assert_eq!(read(&bytes[..end]).unwrap(), (2, last as u64), "cut at {end}");
        }
        for at in last..bytes.len() {
            for bit in [1, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= bit;
                assert_eq!(rows(&changed), 2, "byte {at}");
            }
        }
        // Zeros, as a file that grew without its content has them.
        assert_eq!(rows(&[bytes.as_slice(), &[0; 100]].concat()), 3);
    }

    #[test]
    fn a_header_is_whole_or_there_are_no_rows() {
        let (bytes, _) = segment(1);
        for end in 0..=HEADER {
            assert_eq!(rows(&bytes[..end]), 0);
        }
        assert_eq!(rows(&[0; HEADER]), 0);
        for at in 0..HEADER {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            let error = read(&changed).unwrap_err().to_string();
            assert!(error.contains("x: is no segment of a log"), "{error}");
        }
        let format = 2_u32.to_le_bytes();
        let newer = [&MAGIC[..], &format, &checksum([&MAGIC, &format]), b"anything"].concat();
        let error = read(&newer).unwrap_err().to_string();
        assert_eq!(error, "x: is of format 2, which a newer fast-slate wrote; this one reads 1");
    }

    #[test]
    fn a_row_that_no_writer_takes_is_refused_although_its_checksum_is_right() {
        let mut wrong = feedback(2);
        wrong.value = f64::NAN;
        let mut row = Vec::new();
        encode(&wrong.into(), &mut row);
        let length = u32::try_from(row.len()).unwrap().to_le_bytes();
        let bytes = [&header()[..], &length, &checksum([&length, &row]), &row].concat();
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("x: log row"), "{error}");
        assert!(error.contains("expected a finite `value`"), "{error}");
    }

    #[test]
    fn a_row_that_is_too_long_is_refused_and_leaves_no_byte() {
        let (mut bytes, _) = segment(1);
        let before = bytes.clone();
        let mut long = feedback(1);
        long.request = "x".repeat(ROW);
        let error = frame(&long.into(), &mut bytes).unwrap_err().to_string();
        assert!(error.contains("log row `event-1`: has 167"), "{error}");
        assert_eq!(bytes, before);
    }
}
