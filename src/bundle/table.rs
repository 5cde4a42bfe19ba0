//! Requests in, their slates as one table out.

use polars::prelude::*;

use super::request::Placed;
use super::{Options, Query, Recommender, Request};
use crate::error::{Error, Result};

/// A row for each item of each slate: who it is for, `rank`, `item_id`, `score`.
pub(super) fn slates(
    users: &Column,
    placed: &[Placed],
    recommender: &Recommender,
) -> PolarsResult<DataFrame> {
    #[allow(clippy::cast_possible_truncation, reason = "rows of a block, ranks of a slate")]
    let (owners, ranks): (Vec<IdxSize>, Vec<u32>) = placed
        .iter()
        .zip(0..)
        .flat_map(|(placed, row)| (1..=placed.actions.len() as u32).map(move |rank| (row, rank)))
        .unzip();
    let actions = placed.iter().flat_map(|placed| &placed.actions).copied().collect();
    let scores: Vec<f32> = placed.iter().flat_map(|placed| &placed.scores).copied().collect();
    let taken =
        |column: &Column, rows: Vec<IdxSize>| column.take(&IdxCa::from_vec("".into(), rows));
    DataFrame::new_infer_height(vec![
        taken(users, owners)?,
        Column::new("rank".into(), ranks),
        taken(recommender.bundle().items.ids.column(), actions)?,
        Column::new("score".into(), scores),
    ])
}

/// The slates of a batch as a table.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The column of those who ask, `rank` (`u32`, from 1), `item_id`, `score` (`f32`) and, where items
    /// have titles, `title`.
    pub slates: DataFrame,
    /// What was searched with, if the options ask for that: one for each request.
    pub queries: Vec<Query>,
    /// The ids in the requests that the catalogue does not have.
    pub ignored: Vec<String>,
}

impl Recommender {
    /// The slates for `requests`; `users` names who asks, a row for each.
    ///
    /// # Errors
    /// The errors of [`recommend`](Self::recommend); [`Error::Library`] for another number of names.
    pub fn table(
        &self,
        users: &Column,
        requests: &[Request],
        options: &Options,
    ) -> Result<Answers> {
        let mut placed = self.place(requests, options)?;
        let wrap = |error| Error::library("slates", error);
        let mut table = slates(users, &placed, self).map_err(wrap)?;
        let items = &self.bundle().items;
        if items.has_titles() {
            let shown = placed.iter().flat_map(|placed| &placed.actions);
            let titles: Vec<Option<&str>> = shown.map(|action| items.title(*action)).collect();
            table.with_column(Column::new("title".into(), titles)).map_err(wrap)?;
        }
        let queries = placed.iter_mut().filter_map(|placed| placed.query.take()).collect();
        let ignored = placed.into_iter().flat_map(|placed| placed.ignored).collect();
        Ok(Answers { slates: table, queries, ignored })
    }
}
