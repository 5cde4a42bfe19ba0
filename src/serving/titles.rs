//! The beginnings of words in, the most popular items whose titles or ids have them out.

use memchr::memmem::Finder;

use crate::dataset::Items;

/// Titles and ids in lower case, one line for each item, in the order of the actions, which is that of
/// falling popularity: a search reads from the top and stops when it has enough.
#[derive(Debug)]
pub(super) struct Titles {
    text: String,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl Titles {
    pub(super) fn new(items: &Items) -> Self {
        let (mut text, mut starts) = (String::new(), Vec::with_capacity(items.ids.len()));
        for (action, id) in (0..).zip(items.ids.iter()) {
            starts.push(text.len());
            // An id is one word, whatever it is made of.
            text.extend(lower(id).filter(|c| *c != '\n'));
            if let Some(title) = items.title(action) {
                text.push('\t');
                text.extend(lower(title).filter(|c| *c != '\n'));
            }
            text.push('\n');
        }
        Self { text, starts }
    }

    /// The first `limit` items that have a word for each word of `query` that begins with it.
    pub(super) fn find(&self, query: &str, limit: usize) -> Vec<u32> {
        let query: String = lower(query).collect();
        let words: Vec<&str> = query.split_whitespace().collect();
        let mut found = Vec::new();
        let Some(longest) = words.iter().max_by_key(|word| word.len()) else {
            #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
            return (0..limit.min(self.starts.len()) as u32).collect();
        };
        let finder = Finder::new(longest);
        let mut from = 0;
        while found.len() < limit
            && let Some(at) = finder.find(&self.text.as_bytes()[from..])
        {
            let action = self.starts.partition_point(|start| *start <= from + at) - 1;
            let end = self.starts.get(action + 1).copied().unwrap_or(self.text.len());
            let line = &self.text[self.starts[action]..end];
            if words.iter().all(|word| has_word(line, word)) {
                #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
                found.push(action as u32);
            }
            from = end;
        }
        found
    }
}

/// The letters without their case. A Greek Σ has two small letters, one of them for the end of a word, and
/// the beginning of a word may be asked for.
fn lower(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().flat_map(char::to_lowercase).map(|letter| if letter == 'ς' { 'σ' } else { letter })
}

/// True if a word of `line` begins with `word`.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use polars::prelude::{Column, DataFrame};

    use super::*;

    #[test]
    fn items_are_found_by_the_beginnings_of_words_in_any_case() {
        let columns = vec![
            Column::new("item_id".into(), [7_i64, 8, 9]),
            Column::new("title".into(), ["Οδυσσέας", "The ΟΔΥΣΣΈΑΣ of Homer", "Star Wars"]),
        ];
        let table = DataFrame::new_infer_height(columns).unwrap();
        let titles = Titles::new(&Items::new(&table, Path::new("items.parquet")).unwrap());
        for query in ["ΟΔΥΣΣΈΑΣ", "οδυσσέας", "οδυσσέασ", "ΟΔΥΣ"] {
            assert_eq!(titles.find(query, 5), [0, 1], "{query}");
        }
        assert_eq!(titles.find("HOM odd", 5), [0; 0]);
        assert_eq!((titles.find("wars STAR", 5), titles.find("9", 5)), (vec![2], vec![2]));
    }
}
