//! The tables of a prepared folder → its interactions, as a log of them would be read.

use std::path::Path;

use polars::prelude::*;

use super::interactions::Interactions;
use crate::dataset::{ActionSets, Catalogue, Label, tables};
use crate::error::{Error, Result};

impl Interactions {
    /// Everything that the users in `folder` did: observed or hidden, of whichever split.
    ///
    /// # Errors
    /// An error naming the file that is missing or damaged.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self> {
        let sessions = tables::read_sessions(folder)?;
        let times = tables::read_times(folder, &sessions)?;
        let Catalogue { users, items, contexts } = Catalogue::read(folder)?;
        let wrap = |error| Error::library("ordering items", error);
        let ids = items.ids.column().as_materialized_series();
        let order = ids.arg_sort(SortOptions::default());
        let mut ranks = vec![0; items.ids.len()];
        for (rank, action) in (0_u32..).zip(order.iter().flatten()) {
            ranks[action as usize] = rank;
        }
        let label = |action: u32| Label {
            title: items.title(action).map(str::to_owned),
            group: items.group(action).map(str::to_owned),
        };
        let is_labelled = items.has_titles() || items.has_groups();
        let labels = is_labelled.then(|| order.iter().flatten().map(label).collect());

        let mut items_of = ActionSets::none();
        let mut of_pairs = Vec::new();
        let mut first = 0;
        for last in contexts {
            // A later context observes again what an earlier one hid.
            let mut rows: Vec<(u32, i64)> = Vec::new();
            for context in first..=last {
                for (part, times) in [
                    (&sessions.observed, times.as_ref().map(|times| &times.observed)),
                    (&sessions.hidden, times.as_ref().map(|times| &times.hidden)),
                ] {
                    let times = times.map(|times| part.values_of(context, times));
                    let time = |at: usize| times.map_or(0, |times| times[at]);
                    let actions = part.of(context).iter().enumerate();
                    rows.extend(actions.map(|(at, action)| (ranks[*action as usize], time(at))));
                }
            }
            first = last + 1;
            rows.sort_unstable();
            rows.dedup_by_key(|(item, _)| *item);
            items_of.push_set();
            for (item, time) in rows {
                items_of.push(item);
                of_pairs.push(time);
            }
        }
        Ok(Self {
            users: users.column().as_materialized_series().clone(),
            items: ids.take(&order).map_err(wrap)?,
            labels,
            items_of,
            times: times.map(|_| of_pairs),
            files: None,
        })
    }
}
