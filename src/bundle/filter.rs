//! Lists of items in, what slates may show out, as a search can use it.

use std::borrow::Cow;
use std::sync::Arc;

use super::Bundle;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::Exact;

/// An allow-list that holds less than one of so many actions is searched exactly, by itself: a graph
/// would walk through all the others.
const FEW: usize = 100;

/// The items that slates may show; all of them by default.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Actions that stay off all slates, ascending.
    pub(super) denied: Vec<u32>,
    /// The only actions that may be shown, where they are few.
    pub(super) few: Option<Few>,
    /// The ids in the lists that the catalogue does not have, in their order.
    pub ignored: Vec<String>,
}

/// A few actions by themselves, numbered anew in their order.
#[derive(Clone, Debug)]
pub(super) struct Few {
    pub(super) actions: Vec<u32>,
    pub(super) exact: Exact,
}

impl Filter {
    /// The filter that shows the items of `allow`, or all without it, but for those of `deny`.
    ///
    /// # Errors
    /// [`Error::Setting`] if the catalogue has no item of `allow` that `deny` leaves.
    pub fn new(bundle: &Bundle, allow: Option<&[String]>, deny: &[String]) -> Result<Self> {
        let mut ignored = Vec::new();
        let denied = actions(bundle, deny, &mut ignored);
        let Some(allow) = allow else { return Ok(Self { denied, few: None, ignored }) };
        let mut allowed = actions(bundle, allow, &mut ignored);
        allowed.retain(|action| denied.binary_search(action).is_err());
        if allowed.is_empty() {
            let problem = "the catalogue has no item of this list that may be shown";
            return Err(Error::setting("allow", problem));
        }
        let all = bundle.actions.num_actions();
        if allowed.len() * FEW < all {
            let few = Some(Few::new(allowed, bundle.actions.beta())?);
            return Ok(Self { denied: Vec::new(), few, ignored });
        }
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        let others = (0..all as u32).filter(|action| allowed.binary_search(action).is_err());
        Ok(Self { denied: others.collect(), few: None, ignored })
    }
}

impl Few {
    fn new(actions: Vec<u32>, beta: &Matrix) -> Result<Self> {
        let exact = Exact::new(Arc::new(ActionEmbeddings::new(beta.select(&actions))?));
        Ok(Self { actions, exact })
    }

    /// The numbers here of those of `excluded` that are here.
    pub(super) fn numbers(&self, excluded: &[u32]) -> Vec<u32> {
        let here = excluded.iter().filter_map(|action| self.actions.binary_search(action).ok());
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        here.map(|at| at as u32).collect()
    }
}

/// The actions of `ids`, ascending, each once; ids that are not there join `ignored`.
pub(super) fn actions(bundle: &Bundle, ids: &[String], ignored: &mut Vec<String>) -> Vec<u32> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        match bundle.items.ids.find(id) {
            Some(action) => found.push(action),
            None => ignored.push(id.clone()),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Both of two ascending lists, ascending, each action once.
pub(super) fn union<'a>(one: Cow<'a, [u32]>, other: &'a [u32]) -> Cow<'a, [u32]> {
    match (one.is_empty(), other.is_empty()) {
        (_, true) => one,
        (true, _) => Cow::Borrowed(other),
        _ => {
            let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
            let mut all = Vec::with_capacity(one.len() + other.len());
            while let Some(action) = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a < b => left.next(),
                (Some(a), Some(b)) if a == b => left.next().and(right.next()),
                (Some(_), None) => left.next(),
                _ => right.next(),
            } {
                all.push(*action);
            }
            Cow::Owned(all)
        }
    }
}
