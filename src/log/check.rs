//! The rows of a log → what they are, what is missing, and what can be learned from them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Serialize;

use super::read::{Part, visit};
use super::{Exposure, Repeated};
use crate::error::Result;

/// What a log holds. Rows that repeat an id are counted as such and nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Parquet files.
    pub tables: u64,
    /// Segments, which a server writes or left.
    pub segments: u64,
    /// Bytes that were cut off segments because they were no whole row.
    pub cut_bytes: u64,
    /// Bytes of segments behind their last whole row: damaged, or just being written.
    pub unread_bytes: u64,
    /// Answers.
    pub exposures: u64,
    /// Things that happened.
    pub feedback: u64,
    /// Rows that do not count.
    pub repeated: Repeated,
    /// Milliseconds since 1970, UTC, of the first and the last answer.
    pub times: Option<[i64; 2]>,
    /// Answers of each bundle, by its digest.
    pub bundles: BTreeMap<String, u64>,
    /// Answers of each search.
    pub retrievals: BTreeMap<String, u64>,
    /// Answers that explore.
    pub exploring: u64,
    /// Answers with z and σ > 0.
    pub latent: u64,
    /// Answers by a fallback, or without some of the shards.
    pub degraded: u64,
    /// Answers of fewer items than were asked for.
    pub short: u64,
    /// Answers without feedback.
    pub without_feedback: u64,
    /// Feedback whose request is not in this log.
    pub unknown_request: u64,
    /// Feedback on a position beyond its slate.
    pub beyond_slate: u64,
    /// What is missing, a sentence each.
    pub missing: Vec<String>,
    /// What can be learned, a sentence each.
    pub learnable: Vec<String>,
}

/// What is kept of an answer.
struct Shown {
    items: usize,
    feedback: bool,
}

/// 128 bits of an id: a long log fits into memory.
fn key(id: &str) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..16]);
    key
}

impl Summary {
    /// Reads folders of logs, and single files of them, part by part. Only ids stay in memory.
    ///
    /// # Errors
    /// The errors of [`Log::read`](super::Log::read).
    pub fn of<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        let mut summary = Self::default();
        let (mut shown, mut events) = (HashMap::new(), HashMap::new());
        let files = visit(paths, |part| match part {
            Part::Exposures(rows) => {
                for row in rows {
                    let entry = Shown { items: row.slate.len(), feedback: false };
                    if shown.insert(key(&row.request), entry).is_some() {
                        summary.repeated.exposures += 1;
                    } else {
                        summary.add(&row);
                    }
                }
            }
            Part::Feedback(rows) => {
                for row in rows {
                    let request = key(&row.request);
                    match events.entry((request, key(&row.event))) {
                        Entry::Occupied(_) => summary.repeated.feedback += 1,
                        Entry::Vacant(new) => {
                            new.insert(row.position);
                        }
                    }
                }
            }
        })?;
        (summary.tables, summary.segments) = (files.tables, files.segments);
        (summary.cut_bytes, summary.feedback) = (files.cut_bytes, events.len() as u64);
        summary.unread_bytes = files.unread_bytes;
        // Feedback may come before its exposure, so this is done at the end.
        for ((request, _), position) in events {
            match shown.get_mut(&request) {
                None => summary.unknown_request += 1,
                Some(shown) => {
                    shown.feedback = true;
                    summary.beyond_slate += u64::from(position as usize >= shown.items);
                }
            }
        }
        summary.without_feedback = shown.values().filter(|shown| !shown.feedback).count() as u64;
        summary.conclude();
        Ok(summary)
    }

    fn add(&mut self, row: &Exposure) {
        self.exposures += 1;
        let [first, last] = self.times.get_or_insert([row.time; 2]);
        (*first, *last) = ((*first).min(row.time), (*last).max(row.time));
        for (counts, name) in
            [(&mut self.bundles, &row.bundle), (&mut self.retrievals, &row.retrieval)]
        {
            *counts.entry(name.clone()).or_default() += 1;
        }
        self.exploring += u64::from(row.exploring);
        self.latent += u64::from(row.sigma > 0.0);
        self.degraded += u64::from(row.fallback || row.shards_answered < row.shards);
        self.short += u64::from(row.slate.len() < row.k as usize);
    }

    fn conclude(&mut self) {
        let decided = self.exposures - self.latent;
        let nothing = self.exposures == 0;
        let missing = [
            (nothing, "answers: nothing was shown".to_owned()),
            (
                self.feedback == 0 && !nothing,
                "feedback: nobody knows what the slates were worth".to_owned(),
            ),
            (
                self.latent == 0 && !nothing,
                "answers that explore: serve with a share of exploring answers".to_owned(),
            ),
            (
                self.unknown_request > 0,
                format!(
                    "the request of {} rows of feedback; another replica's log may have it",
                    self.unknown_request
                ),
            ),
            (
                self.cut_bytes > 0,
                format!("{} bytes that were no whole row when their writer ended", self.cut_bytes),
            ),
            (
                self.unread_bytes > 0,
                format!(
                    "{} bytes behind the last whole row of a segment: damaged, or just being written",
                    self.unread_bytes
                ),
            ),
        ];
        let learnable = [
            (
                self.latent > 0 && self.feedback > 0,
                format!("{} answers with z and σ: exact latent importance weights", self.latent),
            ),
            (
                decided > 0 && self.feedback > 0,
                format!("{decided} answers without noise: only the value of what was shown"),
            ),
        ];
        let said = |rules: &[(bool, String)]| {
            rules.iter().filter(|(holds, _)| *holds).map(|(_, text)| text.clone()).collect()
        };
        (self.missing, self.learnable) = (said(&missing), said(&learnable));
    }
}
