//! The bodies of requests and answers.

use std::num::NonZeroUsize;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::bundle::{Answer, Recommendation, Request, Who};

/// An id of an item or a user: text, or an integer that stands for its digits.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, example = "260")]
pub(super) struct Id(pub(super) String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected an id: text or an integer")]
        enum Either {
            Text(String),
            Integer(i64),
            Large(u64),
        }
        Ok(Self(match Either::deserialize(deserializer)? {
            Either::Text(text) => text,
            Either::Integer(integer) => integer.to_string(),
            Either::Large(integer) => integer.to_string(),
        }))
    }
}

/// A request for a slate, or for those of many.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlatesRequest {
    /// Ids of the items that somebody new has interacted with, the latest last.
    items: Option<Vec<Id>>,
    /// The id of a user whose history the bundle holds.
    user: Option<Id>,
    /// With `user`: ids of items that came after the history, the latest last.
    #[serde(default)]
    newer: Vec<Id>,
    /// A context M(X) of one's own, D numbers.
    context: Option<Vec<f32>>,
    /// Ids of items that stay off this slate.
    #[serde(default)]
    exclude: Vec<Id>,
    /// Those who ask, instead of `items`, `user` or `context`.
    pub(super) requests: Option<Vec<Asker>>,
    /// The length of the slates; without it, that of the training.
    pub(super) k: Option<usize>,
    /// Ids of the only items that may be shown.
    pub(super) allow: Option<Vec<Id>>,
    /// Ids of items that may not be shown.
    #[serde(default)]
    pub(super) deny: Vec<Id>,
    /// Whether what somebody has interacted with stays off the slate; true without it.
    pub(super) exclude_seen: Option<bool>,
    /// The most items of one group on a slate; without it, any number.
    #[schema(value_type = Option<usize>, minimum = 1)]
    pub(super) max_per_group: Option<NonZeroUsize>,
    /// Draw from the policy itself, or never; without it, the server's share decides.
    pub(super) explore: Option<bool>,
    /// Refuse to answer with fewer than k items.
    #[serde(default)]
    pub(super) strict: bool,
    /// Search exactly, although the bundle has an index.
    #[serde(default)]
    pub(super) exact: bool,
}

/// One of many who ask.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Asker {
    /// Ids of the items that somebody new has interacted with, the latest last.
    items: Option<Vec<Id>>,
    /// The id of a user whose history the bundle holds.
    user: Option<Id>,
    /// With `user`: ids of items that came after the history, the latest last.
    #[serde(default)]
    newer: Vec<Id>,
    /// A context M(X) of one's own, D numbers.
    context: Option<Vec<f32>>,
    /// Ids of items that stay off this slate.
    #[serde(default)]
    exclude: Vec<Id>,
}

/// The texts of ids.
pub(super) fn texts(ids: Vec<Id>) -> Vec<String> {
    ids.into_iter().map(|id| id.0).collect()
}

impl SlatesRequest {
    /// Those who ask.
    pub(super) fn take_askers(&mut self) -> Result<Vec<Request>, String> {
        let single = Asker {
            items: self.items.take(),
            user: self.user.take(),
            newer: std::mem::take(&mut self.newer),
            context: self.context.take(),
            exclude: std::mem::take(&mut self.exclude),
        };
        let Some(askers) = self.requests.take() else { return Ok(vec![single.request()?]) };
        if single != Asker::default() {
            return Err("give either `requests` or one of `items`, `user`, `context`".into());
        }
        let numbered = askers.into_iter().enumerate();
        numbered
            .map(|(at, asker)| {
                asker.request().map_err(|problem| format!("requests[{at}]: {problem}"))
            })
            .collect()
    }
}

impl Asker {
    fn request(self) -> Result<Request, String> {
        let Self { items, user, newer, context, exclude } = self;
        if user.is_none() && !newer.is_empty() {
            return Err("`newer` belongs to a `user`".into());
        }
        let who = match (items, user, context) {
            (Some(items), None, None) => Who::Items(texts(items)),
            (None, Some(user), None) => Who::User { id: user.0, newer: texts(newer) },
            (None, None, Some(context)) => Who::Context(context),
            _ => return Err("expected one of `items`, `user` and `context`".into()),
        };
        Ok(Request { who, exclude: texts(exclude) })
    }
}

/// A slate, or those of many.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Slates {
    /// The answer to a request without `requests`.
    One(OneSlate),
    /// The answer to `requests`, in their order.
    Many(ManySlates),
}

/// A slate and what made it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OneSlate {
    /// The digest of the bundle.
    pub(super) bundle: String,
    /// The time that the answer took on the server.
    pub(super) milliseconds: f64,
    /// The shards behind it, where the server asks shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shards: Option<ShardsAnswered>,
    /// The slate.
    #[serde(flatten)]
    pub(super) slate: Slate,
}

/// Slates and what made them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ManySlates {
    /// The digest of the bundle.
    pub(super) bundle: String,
    /// The time that the answers took on the server.
    pub(super) milliseconds: f64,
    /// The shards behind them, where the server asks shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shards: Option<ShardsAnswered>,
    /// The ids of `allow` and `deny` that the catalogue does not have, in their order.
    pub(super) ignored: Vec<String>,
    /// A slate for each request, in their order.
    pub(super) answers: Vec<Slate>,
}

/// How much of the catalogue was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ShardsAnswered {
    /// The shards that answered in time.
    pub(super) answered: u16,
    /// All shards.
    pub(super) of: u16,
}

/// A slate.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Slate {
    /// What feedback names.
    pub(super) request_id: String,
    /// k items, best first.
    #[serde(rename = "slate")]
    items: Vec<Shown>,
    /// The ids of this request that the catalogue does not have, in its order; with those of `allow` and `deny`
    /// where it is the only one.
    ignored: Vec<String>,
    /// True if nothing is known of who asks: the slate is that of a stranger.
    cold: bool,
    /// True if fewer than k items may be shown.
    short: bool,
    /// True if the slate was drawn from the policy, to learn from; otherwise it is its decision.
    explored: bool,
}

/// An item of a slate.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Shown {
    /// Its id.
    item_id: String,
    /// Its title, where it has one.
    title: Option<String>,
    /// Its group, where it has one.
    group: Option<String>,
    /// The inner product with the query.
    score: f32,
}

impl Slate {
    pub(super) fn new(request_id: String, answer: Answer, explored: bool) -> Self {
        let Answer { slate, ignored, cold, short, query: _ } = answer;
        let shown = |item: Recommendation| {
            let Recommendation { item_id, title, group, score } = item;
            Shown { item_id, title, group, score }
        };
        let items = slate.into_iter().map(shown).collect();
        Self { request_id, items, ignored, cold, short, explored }
    }
}

/// What happened to an item that was shown.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FeedbackRequest {
    /// The answer that showed the item.
    pub(super) request_id: String,
    /// The item's place on the slate, from 0.
    pub(super) position: u32,
    /// What the outcome is worth; finite.
    pub(super) value: f64,
    /// A name of one's own for this event: sent twice, it counts once.
    pub(super) event_id: String,
}

/// What to look for.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ItemsQuery {
    /// The beginnings of words of a title, or of an id; without it, the most popular items.
    pub(super) q: String,
    /// The most items to return, up to 100.
    pub(super) limit: Option<usize>,
}

/// Items, the most popular first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Items {
    /// The items.
    pub(super) items: Vec<Item>,
}

/// An item of the catalogue.
#[derive(Debug, Serialize, ToSchema)]
#[allow(clippy::struct_field_names, reason = "the names of the interface")]
pub(super) struct Item {
    /// Its id.
    pub(super) item_id: String,
    /// Its title, where it has one.
    pub(super) title: Option<String>,
    /// Its group, where it has one.
    pub(super) group: Option<String>,
}

/// The bundle that answers, and what may be asked of it.
#[derive(Debug, Serialize, ToSchema)]
#[allow(clippy::struct_excessive_bools, reason = "what may be asked for, each by itself")]
pub(super) struct About {
    /// Its digest.
    pub(super) digest: String,
    /// P.
    pub(super) num_actions: usize,
    /// D: the length of a context of one's own.
    pub(super) context_dim: usize,
    /// L.
    pub(super) latent_dim: usize,
    /// K, unless a request asks for another.
    pub(super) slate_size: usize,
    /// What it was trained for.
    pub(super) reward: String,
    /// True if items have titles.
    pub(super) titles: bool,
    /// True if items have groups, so that `max_per_group` may be asked for.
    pub(super) groups: bool,
    /// Users who are known by id.
    pub(super) users: usize,
    /// How it is searched.
    pub(super) retrieval: String,
    /// True if `explore` may be asked for.
    pub(super) explores: bool,
    /// True if feedback is stored.
    pub(super) logs: bool,
    /// The version of the server.
    pub(super) version: &'static str,
}
