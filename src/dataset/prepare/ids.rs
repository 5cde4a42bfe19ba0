//! Ids → numbers from 0, in the order in which they are first seen.

use polars::prelude::*;

use crate::error::{Error, Result};

/// Numbers from 0 for the ids of one column, in the order in which they are first seen. They are
/// kept as integers for as long as every one is written as an integer is, and as text from then on:
/// `007` is text, for as an integer it would lose its name and meet `7`.
pub(crate) enum Numbered {
    Integers(PlHashMap<i64, u32>),
    Text(PlHashMap<String, u32>),
}

impl Default for Numbered {
    fn default() -> Self {
        Self::Integers(PlHashMap::default())
    }
}

impl Numbered {
    /// The number of each id of `column`, of integers or text, in the rows to `keep`.
    ///
    /// # Errors
    /// [`Error::Library`] beyond 2³² different ids.
    pub(crate) fn number(&mut self, column: &Series, keep: &[bool]) -> Result<Vec<u32>> {
        let wrap = |error: PolarsError| Error::library("numbering ids", error);
        let numbers = if let Ok(ids) = column.i64() {
            let kept = ids.iter().zip(keep).filter(|(_, keep)| **keep);
            kept.map(|(id, _)| self.of_integer(id.unwrap_or_default())).collect()
        } else {
            let ids = column.str().map_err(wrap)?;
            // Logs come by user or by item more often than not.
            let mut last = ("", None);
            let kept = ids.iter().zip(keep).filter(|(_, keep)| **keep);
            kept.map(|(id, _)| {
                let id = id.unwrap_or_default();
                let number = last.1.filter(|_| last.0 == id).unwrap_or_else(|| self.of_text(id));
                last = (id, Some(number));
                number
            })
            .collect()
        };
        if u32::try_from(self.len()).is_err() {
            return Err(Error::library("numbering ids", "there are more than 2³² different ones"));
        }
        Ok(numbers)
    }

    #[allow(clippy::cast_possible_truncation, reason = "`number` checks")]
    fn of_integer(&mut self, id: i64) -> u32 {
        match self {
            Self::Integers(ids) => {
                let next = ids.len() as u32;
                *ids.entry(id).or_insert(next)
            }
            Self::Text(_) => self.of_text(&id.to_string()),
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "`number` checks")]
    fn of_text(&mut self, id: &str) -> u32 {
        if let Self::Integers(integers) = self {
            if let Some(id) = integer(id) {
                return self.of_integer(id);
            }
            let integers = std::mem::take(integers);
            *self = Self::Text(integers.into_iter().map(|(id, n)| (id.to_string(), n)).collect());
        }
        let Self::Text(ids) = self else { return self.of_text(id) };
        let next = ids.len() as u32;
        *ids.entry_ref(id).or_insert(next)
    }

    /// Number of different ids.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Integers(ids) => ids.len(),
            Self::Text(ids) => ids.len(),
        }
    }

    /// True if each id is an integer written as a float, such as `7.0`.
    pub(super) fn are_floats(&self) -> bool {
        let is_float = |id: &String| id.strip_suffix(".0").is_some_and(|id| integer(id).is_some());
        matches!(self, Self::Text(ids) if ids.keys().all(is_float))
    }

    /// The number of integers that are here as themselves and, written as floats, as other ids: `7` and
    /// `7.0`; and the least of these integers.
    pub(super) fn twice(&self) -> (usize, Option<i64>) {
        let Self::Text(ids) = self else { return (0, None) };
        let both = ids.keys().filter_map(|id| {
            let id = id.strip_suffix(".0").filter(|id| ids.contains_key(*id))?;
            integer(id)
        });
        both.fold((0, None), |(count, least), id| {
            (count + 1, Some(least.map_or(id, |least: i64| least.min(id))))
        })
    }

    /// The ids whose numbers are `used`, ascending, and the rank of each used number among them.
    pub(crate) fn ranked(self, used: &[bool]) -> (Series, Vec<u32>) {
        match self {
            Self::Integers(ids) => {
                let (ids, ranks) = rank(ids, used);
                (Series::new("".into(), ids), ranks)
            }
            Self::Text(ids) => {
                let (ids, ranks) = rank(ids, used);
                (Series::new("".into(), ids), ranks)
            }
        }
    }
}

fn rank<T: Ord>(ids: impl IntoIterator<Item = (T, u32)>, used: &[bool]) -> (Vec<T>, Vec<u32>) {
    let mut ids: Vec<_> = ids.into_iter().filter(|(_, number)| used[*number as usize]).collect();
    ids.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut ranks = vec![0; used.len()];
    for (rank, (_, number)) in (0..).zip(&ids) {
        ranks[*number as usize] = rank;
    }
    (ids.into_iter().map(|(id, _)| id).collect(), ranks)
}

/// The integer that is written as `text`, and in no other way.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [first, rest @ ..] => matches!(first, b'1'..=b'9') && rest.iter().all(u8::is_ascii_digit),
        [] => false,
    };
    if is_canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ids: &mut Numbered, text: &[&str]) -> Vec<u32> {
        ids.number(&Series::new("".into(), text), &vec![true; text.len()]).unwrap()
    }

    #[test]
    fn integers_stay_integers_until_one_id_is_none() {
        let mut ids = Numbered::default();
        assert_eq!(
            numbers(&mut ids, &["5000000000", "7", "7", "-3", "5000000000"]),
            [0, 1, 1, 2, 0]
        );
        assert_eq!(ids.number(&Series::new("".into(), [7_i64, 8]), &[true, true]).unwrap(), [1, 3]);
        assert!(matches!(ids, Numbered::Integers(_)));
        assert_eq!(numbers(&mut ids, &["007", "7", "8", "x"]), [4, 1, 3, 5]);
        assert_eq!(ids.number(&Series::new("".into(), [-3_i64]), &[true]).unwrap(), [2]);
        let (names, ranks) = ids.ranked(&[true, true, false, true, true, true]);
        let names: Vec<_> = names.str().unwrap().iter().flatten().collect();
        assert_eq!(names, ["007", "5000000000", "7", "8", "x"]);
        assert_eq!((ranks[0], ranks[1], ranks[4]), (1, 2, 0));
    }

    #[test]
    fn integers_that_are_written_as_floats_are_noticed() {
        for (texts, are) in [
            (&["7.0", "-1.0"][..], true),
            (&["7.0", "7"], false),
            (&["1.0", "v1.0"], false),
            (&["1.5"], false),
            (&["1"], false),
            (&[], false),
        ] {
            let mut ids = Numbered::default();
            numbers(&mut ids, texts);
            assert_eq!(ids.are_floats(), are, "{texts:?}");
        }
    }

    #[test]
    fn integers_that_are_written_in_two_ways_are_noticed() {
        for (texts, twice) in [
            (&["10", "x", "9.0", "10.0", "9", "8.0", "7"][..], (2, Some(9))),
            (&["-1", "-1.0"], (1, Some(-1))),
            (&["01", "01.0", "v1", "v1.0", "1", "1.00"], (0, None)),
            (&["1.0"], (0, None)),
            (&["1"], (0, None)),
        ] {
            let mut ids = Numbered::default();
            numbers(&mut ids, texts);
            assert_eq!(ids.twice(), twice, "{texts:?}");
        }
    }

    #[test]
    fn only_what_an_integer_is_printed_as_is_one() {
        for text in ["0", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(integer(text).map(|id| id.to_string()).as_deref(), Some(text));
        }
        for text in ["", "-", "-0", "00", "+1", "1 ", "1.0", "9223372036854775808", "١"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }
}
