//! What was shown and what happened: rows in, a folder out that keeps every acknowledged row, and
//! these rows again. Serving writes the folder; learning from served slates reads it. The schema
//! stands here once.
//!
//! An [`Exposure`] is one answer, with all that fixes it: the bundle, the search, the person, the
//! query, the filters, and the slate. A [`Feedback`] is one thing that happened to an item of a slate.
//! The two meet by the request's id, which [`Key`] issues and recognises.
//!
//! [`Impressions`] are the slates of another system, as far as something can be learned from them.
//!
//! # The folder
//! | file | content |
//! |---|---|
//! | `segment-N.rows` | the rows since time N, as they came; the newest is being written |
//! | `exposures-N.parquet`, `feedback-N.parquet` | the rows of a finished segment, a table each |
//! | `segment-N.cut` | the bytes behind the last whole row of a segment whose writer was killed |
//! | `log.lock` | locked by the process that writes here |
//! | `request-ids.key` | the secret that makes request ids, unless the server was given one |
//!
//! N is the millisecond in which the segment was begun. [`Writer`] puts rows into the newest segment
//! and acknowledges them once they are on disk. A finished segment becomes tables, and only when these
//! have their names is the segment removed. The names come from the segment's, so that doing it again
//! after a crash gives the same files: while a segment is there, its tables do not count.
//!
//! # The tables
//! The columns of both tables are those that [`Exposure`] and [`Feedback`] describe. Both carry the
//! [`FORMAT`] under the key [`FORMAT_KEY`] of the Parquet file's own metadata. A file of a newer format
//! is refused.
//!
//! What counts once: the first exposure of a request id, and the first feedback of an event id, by
//! time. Feedback may come before its exposure, or from another replica than it.

mod check;
mod codec;
mod columns;
mod folder;
mod ids;
mod impressions;
mod read;
mod segment;
mod table;
mod writer;

pub use check::Summary;
pub use ids::Key;
pub use impressions::{Held, Impression, Impressions};
pub use read::{Log, Repeated};
pub use table::FORMAT_KEY;
pub use writer::{Options, Status, Ticket, Writer};

use crate::bundle::Who;
use crate::error::{Error, Result};

/// The version of the schema, of segments and of tables alike.
pub const FORMAT: u32 = 1;

/// One answer and all that fixes it.
///
/// The column of a table has the name of the field, but for `who`, which has three: `user` (text,
/// null for somebody new), `items` (the ids of a new person, or the newer ones of a user) and
/// `context` (null unless one was given). The encoders and their vectors have no column: the bundle's
/// digest covers them.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposure {
    /// The request's id.
    pub request: String,
    /// Milliseconds since 1970, UTC.
    pub time: i64,
    /// The digest of the bundle that answered.
    pub bundle: String,
    /// The digest of the action vectors, before they were rounded for the bundle.
    pub vectors: String,
    /// What else fixes the search: `exact`, or the index's digest and width, and the rounding of the
    /// vectors.
    pub retrieval: String,
    /// Whose slate was asked for.
    pub who: Who,
    /// h_θ(x) `[L]`; nothing where a fallback answered.
    pub h: Vec<f32>,
    /// `h + σε` `[L]`, with which was searched. Its column is null where z = h.
    pub z: Vec<f32>,
    /// σ of the noise; 0 where z = h.
    pub sigma: f32,
    /// True if this answer explores.
    pub exploring: bool,
    /// The share of requests that explore, from 0 to 1; 1 where the request asked for it.
    pub share: f32,
    /// K, the number of items asked for.
    pub k: u32,
    /// The ids of items that the request kept off the slate.
    pub exclude: Vec<String>,
    /// True if nothing was shown that the person has seen.
    pub exclude_seen: bool,
    /// The digest of a named list of items.
    pub filter: Option<String>,
    /// The ids of the only items that could be shown; empty without such a list.
    pub allow: Vec<String>,
    /// The ids of items that could not be shown.
    pub deny: Vec<String>,
    /// Other filters, in words, such as `max_per_group=2`.
    pub filters: Vec<String>,
    /// The ids of the items that were shown, the first on top.
    pub slate: Vec<String>,
    /// The score of each.
    pub scores: Vec<f32>,
    /// The number of shards that answered in time.
    pub shards_answered: u16,
    /// The number of shards.
    pub shards: u16,
    /// True if the slate is a substitute for the policy's.
    pub fallback: bool,
}

/// One thing that happened to an item of a slate.
#[derive(Clone, Debug, PartialEq)]
pub struct Feedback {
    /// The request's id.
    pub request: String,
    /// The place of the item on the slate, from 0.
    pub position: u32,
    /// What it is worth, such as 1 for a click.
    pub value: f64,
    /// The event's id: the same id twice counts once.
    pub event: String,
    /// Milliseconds since 1970, UTC.
    pub time: i64,
}

/// A row of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// What was shown.
    Exposure(Box<Exposure>),
    /// What happened.
    Feedback(Feedback),
}

impl From<Exposure> for Record {
    fn from(exposure: Exposure) -> Self {
        Self::Exposure(Box::new(exposure))
    }
}

impl From<Feedback> for Record {
    fn from(feedback: Feedback) -> Self {
        Self::Feedback(feedback)
    }
}

impl Record {
    /// Refuses a row that nobody could learn from.
    ///
    /// # Errors
    /// [`Error::Record`]: an id that is empty, a number that is not finite, lists whose lengths do not
    /// fit, a position that is none.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Exposure(exposure) => exposure.check(),
            Self::Feedback(feedback) => feedback.check(),
        }
    }
}

/// [`Error::Record`] for the first rule that is broken.
fn require(id: &str, rules: &[(bool, &str)]) -> Result<()> {
    match rules.iter().find(|(kept, _)| !kept) {
        None => Ok(()),
        Some((_, rule)) => Err(Error::Record { id: id.into(), problem: (*rule).into() }),
    }
}

impl Exposure {
    fn check(&self) -> Result<()> {
        let finite = |numbers: &[f32]| numbers.iter().all(|number| number.is_finite());
        let context = match &self.who {
            Who::Context(context) => context.as_slice(),
            Who::Items(_) | Who::User { .. } => &[],
        };
        require(
            &self.request,
            &[
                (!self.request.is_empty(), "expected a request id, found none"),
                (self.k > 0, "expected `k` of at least 1"),
                (self.slate.len() <= self.k as usize, "has more items on the `slate` than `k`"),
                (self.slate.len() == self.scores.len(), "expected one of `scores` for each item"),
                (self.h.len() == self.z.len(), "expected `h` and `z` of one length"),
                (self.sigma.is_finite() && self.sigma >= 0.0, "expected `sigma` of at least 0"),
                (self.sigma > 0.0 || self.h == self.z, "expected `z` = `h` where `sigma` is 0"),
                ((0.0..=1.0).contains(&self.share), "expected `share` from 0 to 1"),
                (
                    [context, &self.h, &self.z, &self.scores].into_iter().all(finite),
                    "expected finite numbers",
                ),
            ],
        )
    }
}

impl Feedback {
    fn check(&self) -> Result<()> {
        require(
            &self.event,
            &[
                (!self.event.is_empty(), "expected an event id, found none"),
                (!self.request.is_empty(), "expected a request id, found none"),
                (
                    self.value.abs() <= f64::from(f32::MAX),
                    "expected a finite `value`, at most 3.4e38 either way",
                ),
            ],
        )
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::{Exposure, Feedback};
    use crate::bundle::Who;

    /// Rows of every kind of person; every third explores.
    pub(crate) fn exposure(at: u32) -> Exposure {
        let numbers = |seed: u32| -> Vec<f32> {
            (0..3).map(|place| ((at * 7 + seed + place) % 11) as f32 / 3.0 - 1.5).collect()
        };
        let id = |place: u32| format!("i{}", (at + place) % 13);
        let exploring = at.is_multiple_of(3);
        let h = numbers(1);
        Exposure {
            request: format!("request-{at}"),
            time: 1_700_000_000_000 + i64::from(at),
            bundle: format!("bundle-{}", at % 2),
            vectors: "vectors".into(),
            retrieval: "exact".into(),
            who: match at % 4 {
                0 => Who::Items(Vec::new()),
                1 => Who::Items(vec![id(1), id(2)]),
                2 => Who::User { id: format!("u{at}"), newer: vec![id(3)] },
                _ => Who::Context(numbers(5)),
            },
            z: if exploring { numbers(2) } else { h.clone() },
            h,
            sigma: if exploring { 0.25 } else { 0.0 },
            exploring,
            share: 0.5,
            k: 3,
            exclude: if at.is_multiple_of(5) { vec![id(4)] } else { Vec::new() },
            exclude_seen: at.is_multiple_of(2),
            filter: (at % 3 == 1).then(|| "list".into()),
            allow: Vec::new(),
            deny: if at % 3 == 2 { vec![id(6), id(7)] } else { Vec::new() },
            filters: if at.is_multiple_of(7) { vec!["max_per_group=2".into()] } else { Vec::new() },
            slate: (0..3).map(|place| id(8 + place)).collect(),
            scores: numbers(9),
            shards_answered: 2,
            shards: 2,
            fallback: false,
        }
    }

    pub(crate) fn feedback(at: u32) -> Feedback {
        Feedback {
            request: format!("request-{at}"),
            position: at % 3,
            value: f64::from(at) / 3.0,
            event: format!("event-{at}"),
            time: 1_700_000_100_000 + i64::from(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_nobody_could_learn_from_is_refused_with_its_id() {
        type Spoil = fn(&mut Exposure);
        let spoils: [(Spoil, &str); 9] = [
            (|row| row.request.clear(), "expected a request id"),
            (|row| row.k = 0, "`k` of at least 1"),
            (|row| row.k = 2, "more items"),
            (|row| row.scores.truncate(2), "`scores`"),
            (|row| row.z.truncate(2), "one length"),
            (|row| row.sigma = -1.0, "`sigma` of at least 0"),
            (|row| row.sigma = 0.0, "`z` = `h`"),
            (|row| row.share = 1.5, "`share` from 0 to 1"),
            (|row| row.scores[1] = f32::NAN, "finite"),
        ];
        for (spoil, says) in spoils {
            let mut row = samples::exposure(3);
            Record::from(row.clone()).check().unwrap();
            spoil(&mut row);
            let error = Record::from(row).check().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let wrong = Feedback { value: f64::INFINITY, ..samples::feedback(4) };
        let error = Record::from(wrong).check().unwrap_err().to_string();
        assert_eq!(
            error,
            "log row `event-4`: expected a finite `value`, at most 3.4e38 either way"
        );
    }
}
