//! What a server asks a shard, and what the shard answers: bodies of little-endian numbers, one after the other.
//!
//! | question | | answer | |
//! |---|---|---|---|
//! | `slate/q1` | 8 bytes | `slate/a2` | 8 bytes |
//! | digest of the whole bundle | 64 hexadecimal digits | place of the part from 1, number of parts, N, K | `u32` each |
//! | K, exact (0 or 1), N, L | `u32` each | actions `[N, K]` | `u32`, the greatest where there are no more |
//! | z `[N, L]` | `f32` | scores `[N, K]` | `f32` |
//! | where each row's exclusions begin `[N + 1]` | `u32` | | |
//! | excluded actions, ascending in a row | `u32` | | |
//!
//! Actions have the numbers that the whole catalogue gives them.

use std::fmt;
use std::ops::Range;

use crate::bundle::Bundle;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::{Partial, Queries};

const QUESTION: &[u8; 8] = b"slate/q1";
const ANSWER: &[u8; 8] = b"slate/a2";
/// Bytes of a digest in hexadecimal.
const DIGEST: usize = 64;

/// The largest body of a question, 1 024 queries of 4 096 numbers and as many exclusions, and of an answer.
pub(super) const LARGEST: usize = 1 << 25;

/// More than the bytes of a question or an answer that are of no row.
const HEAD: usize = 256;

/// The route that takes questions.
pub(super) const PATH: &str = "/v1/search";

/// The type of both bodies.
pub(super) const KIND: &str = "application/octet-stream";

/// Queries, and in which bundle to search.
#[derive(Debug, PartialEq)]
pub(super) struct Question {
    pub(super) whole: String,
    pub(super) slate_size: usize,
    pub(super) exact: bool,
    pub(super) latent: Matrix,
    starts: Vec<usize>,
    excluded: Vec<u32>,
}

/// The body of a question.
#[allow(clippy::cast_possible_truncation, reason = "sizes of a request")]
pub(super) fn question(whole: &str, exact: bool, queries: Queries<'_>) -> Vec<u8> {
    let latent = queries.latent;
    let mut body = Vec::with_capacity(4 * latent.as_slice().len() + 1024);
    body.extend_from_slice(QUESTION);
    body.extend_from_slice(whole.as_bytes());
    let sizes = [queries.slate_size, usize::from(exact), latent.rows(), latent.cols()];
    body.extend(sizes.iter().flat_map(|size| (*size as u32).to_le_bytes()));
    body.extend(latent.as_slice().iter().flat_map(|value| value.to_le_bytes()));
    let mut start = 0_u32;
    body.extend(start.to_le_bytes());
    for row in 0..latent.rows() {
        start += queries.excluded_of(row).len() as u32;
        body.extend(start.to_le_bytes());
    }
    let excluded = (0..latent.rows()).flat_map(|row| queries.excluded_of(row));
    body.extend(excluded.flat_map(|action| action.to_le_bytes()));
    body
}

/// The rows of `queries` in parts of which question and answer are no larger than [`LARGEST`].
///
/// # Errors
/// [`Error::Setting`] for a row that is larger alone.
pub(super) fn parts(queries: Queries<'_>) -> Result<Vec<Range<usize>>> {
    let rows = queries.latent.rows();
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut asked, mut answered) = (HEAD, HEAD);
    for row in 0..rows {
        let asks = 4 * (queries.latent.cols() + 1 + queries.excluded_of(row).len());
        let answers = 8 * queries.slate_size;
        if asked + asks > LARGEST || answered + answers > LARGEST {
            parts.push(start..row);
            (start, asked, answered) = (row, HEAD, HEAD);
        }
        (asked, answered) = (asked + asks, answered + answers);
        if asked.max(answered) > LARGEST {
            let problem = format!(
                "leaves out {} items, or looks through {} of them, for one slate: more than shards are \
                 asked at once",
                queries.excluded_of(row).len(),
                queries.slate_size
            );
            return Err(Error::setting("filter", problem));
        }
    }
    parts.push(start..rows);
    Ok(parts)
}

/// The queries and the exclusions of `rows`.
#[allow(clippy::cast_possible_truncation, reason = "queries of a batch")]
pub(super) fn rows_of(queries: Queries<'_>, rows: Range<usize>) -> (Matrix, Vec<&[u32]>) {
    let numbers: Vec<u32> = rows.clone().map(|row| row as u32).collect();
    (queries.latent.select(&numbers), rows.map(|row| queries.excluded_of(row)).collect())
}

impl<'a> Bytes<'a> {
    fn words(&mut self, count: usize) -> Option<impl Iterator<Item = [u8; 4]> + 'a> {
        let (words, _) = self.take(count.checked_mul(4)?)?.as_chunks();
        Some(words.iter().copied())
    }

    fn sizes<const N: usize>(&mut self) -> Option<[usize; N]> {
        let mut sizes = [0; N];
        let found = self.words(N)?.map(|word| u32::from_le_bytes(word) as usize);
        sizes.iter_mut().zip(found).for_each(|(size, found)| *size = found);
        Some(sizes)
    }
}

impl Question {
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut reader = Bytes(body);
        let whole = reader.take(QUESTION.len() + DIGEST)?.strip_prefix(QUESTION)?;
        let whole = std::str::from_utf8(whole).ok()?.to_owned();
        let [slate_size, exact, rows, cols] = reader.sizes()?;
        let latent = reader.words(rows.checked_mul(cols)?)?.map(f32::from_le_bytes).collect();
        let latent = Matrix::new(latent, cols).ok()?;
        let starts = reader.words(rows + 1)?.map(|word| u32::from_le_bytes(word) as usize);
        let starts: Vec<usize> = starts.collect();
        let excluded = reader.words(*starts.last()?)?.map(u32::from_le_bytes).collect();
        let fits = reader.0.is_empty() && starts.is_sorted() && latent.rows() == rows && exact < 2;
        let question = Self { whole, slate_size, exact: exact == 1, latent, starts, excluded };
        let ascends = |list: &[u32]| list.is_sorted_by(|a, b| a < b);
        (fits && question.lists().all(ascends)).then_some(question)
    }

    pub(super) fn lists(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|pair| &self.excluded[pair[0]..pair[1]])
    }
}

/// A part of a catalogue: its place among all parts, from 1, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) index: usize,
    pub(super) of: usize,
}

impl Place {
    /// The place of a bundle; the bundle of the whole is the only part.
    pub(super) fn of(bundle: &Bundle) -> Self {
        let whole = Self { index: 1, of: 1 };
        bundle.part.as_ref().map_or(whole, |part| Self { index: part.index, of: part.of })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} of {}", self.index, self.of)
    }
}

/// The body of an answer.
#[allow(clippy::cast_possible_truncation, reason = "sizes of an answer")]
pub(super) fn answer(place: Place, found: &Partial, slate_size: usize) -> Vec<u8> {
    let rows = found.actions.len() / slate_size;
    let mut body = ANSWER.to_vec();
    let sizes = [place.index, place.of, rows, slate_size];
    body.extend(sizes.iter().flat_map(|size| (*size as u32).to_le_bytes()));
    body.extend(found.actions.iter().flat_map(|action| action.to_le_bytes()));
    body.extend(found.scores.iter().flat_map(|score| score.to_le_bytes()));
    body
}

/// Which part a shard holds, and what it found for `rows` queries; none for a body that says something
/// else.
pub(super) fn read_answer(body: &[u8], rows: usize, slate_size: usize) -> Option<(Place, Partial)> {
    let mut reader = Bytes(body);
    (reader.take(ANSWER.len())? == ANSWER).then_some(())?;
    let [index, of, sizes @ ..] = reader.sizes::<4>()?;
    (sizes == [rows, slate_size]).then_some(())?;
    let count = rows.checked_mul(slate_size)?;
    let actions = reader.words(count)?.map(u32::from_le_bytes).collect();
    let scores = reader.words(count)?.map(f32::from_le_bytes).collect();
    reader.0.is_empty().then_some((Place { index, of }, Partial { actions, scores }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_every_row_once_and_fit() {
        let latent = Matrix::zeros(5, 2);
        let long: Vec<u32> = (0..u32::try_from(LARGEST / 16).unwrap()).collect();
        let lists: [&[u32]; 5] = [&[], &long, &long, &long, &long];
        let queries = Queries { latent: &latent, slate_size: 3, excluded: Some(&lists) };
        let found = parts(queries).unwrap();
        assert_eq!(found, [0..4, 4..5]);
        for rows in found {
            let (latent, lists) = rows_of(queries, rows);
            let queries = Queries { latent: &latent, excluded: Some(&lists), ..queries };
            assert!(question(&"0".repeat(64), true, queries).len() <= LARGEST);
        }
        // Answers count too: 8 bytes for each of K.
        let deep = Queries { latent: &latent, slate_size: LARGEST / 20, excluded: None };
        assert_eq!(parts(deep).unwrap(), [0..2, 2..4, 4..5]);
        let deeper = Queries { latent: &latent, slate_size: LARGEST / 8, excluded: None };
        assert!(parts(deeper).unwrap_err().to_string().contains("more than shards"));
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let latent = Matrix::new(vec![1.5, -2.0, 0.25, 8.0, 0.0, -1.0], 3).unwrap();
        let (whole, lists) = ("ab".repeat(32), [&[3, 7][..], &[]]);
        let queries = Queries { latent: &latent, slate_size: 2, excluded: Some(&lists) };
        let body = question(&whole, true, queries);
        let read = Question::read(&body).unwrap();
        assert_eq!((read.whole.as_str(), read.slate_size, read.exact), (whole.as_str(), 2, true));
        assert_eq!((&read.latent, read.lists().collect::<Vec<_>>()), (&latent, lists.to_vec()));
        for length in 0..body.len() {
            assert!(Question::read(&body[..length]).is_none(), "{length}");
        }
        assert!(Question::read(&[body.clone(), vec![0]].concat()).is_none());
        // No word of it makes the reader take more than there is.
        for at in (0..body.len()).step_by(4) {
            let mut damaged = body.clone();
            damaged[at..at + 4].fill(0xff);
            let _ = Question::read(&damaged);
        }

        let found = Partial { actions: vec![4, 9, 1, Partial::NOBODY], scores: vec![0.5; 4] };
        let place = Place { index: 2, of: 3 };
        let body = answer(place, &found, 2);
        assert_eq!(read_answer(&body, 2, 2), Some((place, found)));
        for (rows, slate_size) in [(2, 1), (1, 4), (4, 1)] {
            assert_eq!(read_answer(&body, rows, slate_size), None);
        }
        assert_eq!(read_answer(&body[..body.len() - 1], 2, 2), None);
    }
}
