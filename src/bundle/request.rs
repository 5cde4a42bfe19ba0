//! Who asks for a slate, what may be on it, and the answer.

use serde::Serialize;

use super::Filter;
use crate::retrieval::{Search, hits};
use crate::seed::Seed;

/// Whose slate is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Who {
    /// Somebody new, by the ids of the items that they have interacted with, the latest last, and without
    /// features. Without items, the slate is what the model shows to a stranger.
    Items(Vec<String>),
    /// A user whose history the bundle holds, and items that came later.
    User {
        /// The user's id.
        id: String,
        /// Ids of items that came after the history, the latest last.
        newer: Vec<String>,
    },
    /// A context M(X) `[D]` of the caller's own.
    Context(Vec<f32>),
}

/// A request for one slate.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Whose slate.
    pub who: Who,
    /// Ids of items that stay off this slate.
    pub exclude: Vec<String>,
}

impl From<Who> for Request {
    fn from(who: Who) -> Self {
        Self { who, exclude: Vec::new() }
    }
}

/// What holds for all requests of a batch.
#[derive(Clone, Debug)]
pub struct Options {
    /// K; none for that of the run.
    pub slate_size: Option<usize>,
    /// True if nobody is shown what they have interacted with.
    pub exclude_seen: bool,
    /// The search; none for the index, if the bundle has one, otherwise the exact one.
    pub search: Option<Search>,
    /// The items that slates may show.
    pub filter: Filter,
    /// The most items of one group on a slate, from 1; none for no limit. The slate is made from the
    /// best item down, without those whose group is full already. Items without a group are not limited.
    pub max_per_group: Option<usize>,
    /// Adds noise to the query of each request, drawn from this seed at the request's place: the
    /// slates are those of the policy itself. Without it they are those of its decision.
    pub explore: Option<Seed>,
    /// True if answers bring their queries.
    pub queries: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slate_size: None,
            exclude_seen: true,
            search: None,
            filter: Filter::default(),
            max_per_group: None,
            explore: None,
            queries: false,
        }
    }
}

/// An item of a slate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The item's id in the log.
    pub item_id: String,
    /// The item's title, if it has one.
    pub title: Option<String>,
    /// The item's group, if it has one.
    pub group: Option<String>,
    /// `hᵀβ_a`.
    pub score: f32,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// K items, best first.
    pub slate: Vec<Recommendation>,
    /// The ids in the request that the catalogue does not have, in its order.
    pub ignored: Vec<String>,
    /// True if no action of this user is known, so that the slate is that of a stranger.
    pub cold: bool,
    /// True if fewer than K items may be shown.
    pub short: bool,
    /// What was searched with, where it was asked for.
    #[serde(skip)]
    pub query: Option<Query>,
}

impl Answer {
    /// The recall of the answers `found` where those of an exact search are `wanted`: the share of their
    /// items, or of items that score no less, that they hold; 1 without items.
    #[must_use]
    pub fn recall(found: &[Self], wanted: &[Self]) -> f64 {
        let scored = |answer: &Self| -> Vec<(String, f32)> {
            answer.slate.iter().map(|item| (item.item_id.clone(), item.score)).collect()
        };
        let all: usize = wanted.iter().map(|answer| answer.slate.len()).sum();
        if all == 0 {
            return 1.0;
        }
        let pairs = found.iter().zip(wanted);
        let hits = pairs.map(|(found, wanted)| hits(&scored(found), &scored(wanted)));
        hits.sum::<usize>() as f64 / all as f64
    }
}

/// The query behind a slate: the slate is a function of z, of K, of what may be shown and of the most
/// items of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// h_θ(x) `[L]`.
    pub h: Vec<f32>,
    /// `h + σε` `[L]`, with which was searched.
    pub z: Vec<f32>,
    /// σ; 0 where the slate is the decision's, and z = h.
    pub sigma: f32,
}

/// An answer in numbers.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) actions: Vec<u32>,
    pub(super) scores: Vec<f32>,
    pub(super) ignored: Vec<String>,
    pub(super) cold: bool,
    pub(super) short: bool,
    pub(super) query: Option<Query>,
}
