//! A request in; what is known of who asks, and what the answer may not hold, out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::filter::{actions, union};
use super::{Bundle, Options, Request, Who};
use crate::encoder::Known;
use crate::error::{Error, Result};

/// What is known of somebody who asks.
pub(super) struct Asking<'a> {
    /// Actions of who asks, ascending; none where a context is given.
    pub known: Cow<'a, [u32]>,
    times: Option<Cow<'a, [i64]>>,
    features: Option<&'a [f32]>,
    /// M(X) `[D]`, where the request brings it.
    pub context: Option<&'a [f32]>,
    /// Actions that the slate may not hold, ascending.
    pub excluded: Cow<'a, [u32]>,
    /// Ids of the request that no item has.
    pub ignored: Vec<String>,
}

impl<'a> Asking<'a> {
    /// Who asks `bundle`, whose contexts have D = `context_dim`, in the request at place `row`.
    pub(super) fn new(
        bundle: &'a Bundle,
        context_dim: usize,
        request: &'a Request,
        row: usize,
        options: &'a Options,
    ) -> Result<Self> {
        let mut ignored = Vec::new();
        let nobody = Self {
            known: Cow::Borrowed(&[]),
            times: None,
            features: None,
            context: None,
            excluded: Cow::Borrowed(&[]),
            ignored: Vec::new(),
        };
        let asking = match &request.who {
            Who::Items(ids) => {
                let latest = latest(bundle, ids, &mut ignored);
                let (known, places): (Vec<u32>, Vec<i64>) = latest.into_iter().unzip();
                Self { known: known.into(), times: Some(places.into()), ..nobody }
            }
            Who::Context(context) => {
                check_context(context, context_dim, row)?;
                Self { context: Some(context), ..nobody }
            }
            Who::User { id, newer } => {
                let newer = latest(bundle, newer, &mut ignored);
                let Known { actions, times, features } = history(bundle, id)?;
                let (known, times) = with_newer(actions, times, &newer);
                Self { known, times, features, ..nobody }
            }
        };
        let seen = if options.exclude_seen { asking.known.clone() } else { Cow::Borrowed(&[][..]) };
        let mut excluded = union(seen, &options.filter.denied);
        let own = actions(bundle, &request.exclude, &mut ignored);
        if !own.is_empty() {
            excluded = Cow::Owned(union(excluded, &own).into_owned());
        }
        Ok(Self { excluded, ignored, ..asking })
    }

    /// What its context is made of.
    pub(super) fn known(&self) -> Known<'_> {
        Known { actions: &self.known, times: self.times.as_deref(), features: self.features }
    }
}

fn history<'a>(bundle: &'a Bundle, user_id: &str) -> Result<Known<'a>> {
    let users = bundle.users.as_ref().ok_or_else(|| {
        let problem = "this bundle holds no histories; export it with --histories, or give the \
                       user's items";
        Error::setting("user", problem)
    })?;
    Ok(users.known(users.ids.number(user_id)?))
}

fn check_context(context: &[f32], context_dim: usize, row: usize) -> Result<()> {
    if context.len() != context_dim {
        return Err(Error::Shape {
            what: format!("context {}", row + 1),
            expected: format!("[{context_dim}]"),
            found: format!("[{}]", context.len()),
        });
    }
    match context.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(column) => {
            let (what, value) = ("context".into(), context[column]);
            Err(Error::NotFinite { what, row, column, value })
        }
    }
}

/// The actions of `ids`, which are in order, and the last place of each; ids that are not there join
/// `ignored`.
fn latest(bundle: &Bundle, ids: &[String], ignored: &mut Vec<String>) -> BTreeMap<u32, i64> {
    let mut latest = BTreeMap::new();
    for (place, id) in (0..).zip(ids) {
        match bundle.items.ids.find(id) {
            Some(action) => drop(latest.insert(action, place)),
            None => ignored.push(id.clone()),
        }
    }
    latest
}

/// A history with `newer` actions, which came after it in the order of their places.
fn with_newer<'a>(
    actions: &'a [u32],
    times: Option<&'a [i64]>,
    newer: &BTreeMap<u32, i64>,
) -> (Cow<'a, [u32]>, Option<Cow<'a, [i64]>>) {
    if newer.is_empty() {
        return (Cow::Borrowed(actions), times.map(Cow::Borrowed));
    }
    let time = |at: usize| times.map_or(0, |times| times[at]);
    let last = (0..actions.len()).map(time).max().unwrap_or_default();
    let mut all: BTreeMap<u32, i64> =
        actions.iter().enumerate().map(|(at, &action)| (action, time(at))).collect();
    all.extend(newer.iter().map(|(&action, place)| (action, last.saturating_add(1 + place))));
    let (all, dates): (Vec<u32>, Vec<i64>) = all.into_iter().unzip();
    (Cow::Owned(all), times.map(|_| Cow::Owned(dates)))
}
