//! Users who are known by id: what they did, when, and their features.

use std::path::Path;

use polars::prelude::*;

use crate::dataset::tables::{numbers, wrong_type};
use crate::dataset::{ActionSets, Ids};
use crate::encoder::Known;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Users and all that is known of them.
#[derive(Clone, Debug)]
pub struct Users {
    /// Row i is user i.
    pub ids: Ids,
    /// The actions of each.
    histories: ActionSets,
    /// When each of them was, in seconds.
    times: Option<Vec<i64>>,
    /// `[U, F]`.
    pub(super) features: Option<Matrix>,
}

impl Users {
    /// The users `ids`; `history` returns the actions of a user, ascending, with their times where
    /// there are any, and `features` has a row for each.
    pub(crate) fn new(
        ids: Ids,
        features: Option<Matrix>,
        history: impl Fn(u32) -> (Vec<u32>, Option<Vec<i64>>),
    ) -> Self {
        let (mut histories, mut times) = (ActionSets::none(), None);
        #[allow(clippy::cast_possible_truncation, reason = "users are numbered by u32")]
        for user in 0..ids.len() as u32 {
            histories.push_set();
            let (actions, when) = history(user);
            for action in actions {
                histories.push(action);
            }
            if let Some(when) = when {
                times.get_or_insert_with(Vec::new).extend(when);
            }
        }
        Self { ids, histories, times, features }
    }

    /// What is known of a user.
    #[must_use]
    pub fn known(&self, user: u32) -> Known<'_> {
        let times = self.times.as_ref().map(|times| self.histories.values_of(user, times));
        let features = self.features.as_ref().map(|features| features.row(user as usize));
        Known { actions: self.histories.of(user), times, features }
    }

    /// `histories.parquet`.
    pub(super) fn table(&self) -> Result<DataFrame> {
        let users = self.histories.contexts();
        let of = |user| std::iter::repeat_n(user, self.histories.of(user).len());
        let owners: Vec<u32> = users.clone().flat_map(of).collect();
        let actions: Vec<u32> = users.flat_map(|user| self.histories.of(user)).copied().collect();
        let mut columns =
            vec![Column::new("user".into(), owners), Column::new("action".into(), actions)];
        columns.extend(self.times.as_ref().map(|times| Column::new("time".into(), times)));
        DataFrame::new_infer_height(columns).map_err(|error| Error::library("histories", error))
    }

    /// The users `ids` with the histories in `table`, which was read from `path`.
    ///
    /// # Errors
    /// [`Error::File`] for a table that [`table`](Self::table) does not make.
    pub(super) fn read(
        ids: Ids,
        features: Option<Matrix>,
        table: &DataFrame,
        num_actions: usize,
        path: &Path,
    ) -> Result<Self> {
        let (owners, actions) = (numbers(table, "user", path)?, numbers(table, "action", path)?);
        let mut rows = owners.iter().zip(&actions);
        let in_order = rows.clone().is_sorted_by(|above, below| above < below)
            && rows.all(|(user, action)| {
                (*user as usize) < ids.len() && (*action as usize) < num_actions
            });
        if !in_order {
            let problem = "expected users and actions of this bundle in ascending order";
            return Err(Error::file(path, problem));
        }
        let times = match table.column("time") {
            Err(_) => None,
            Ok(column) => {
                let series = column.as_materialized_series();
                let times = series.i64().ok().filter(|times| times.null_count() == 0);
                let times = times.ok_or_else(|| wrong_type(path, series, "i64"))?;
                Some(times.into_no_null_iter().collect())
            }
        };
        let pairs = owners.iter().copied().zip(actions.iter().copied());
        let histories = ActionSets::from_pairs(ids.len(), pairs);
        Ok(Self { ids, histories, times, features })
    }
}
