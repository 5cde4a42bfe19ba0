//! Which interactions count. The steps run once, in this order: ratings below the threshold go,
//! what a user did several times with an item counts once, users with too few items go, items with
//! too few users go. They are not repeated until nothing changes, so a user may end with fewer
//! items than asked for when items went after them; FOPO's item threshold of 1 never does that.

use std::path::Path;

use polars::prelude::*;
use serde::{Deserialize, Serialize};

use super::scan::collect;
use crate::error::{Error, Result};

/// Which interactions are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filters {
    /// Least rating that counts as an interaction; every interaction counts when not set.
    pub min_rating: Option<f64>,
    /// Least number of different items of a user.
    pub min_user_interactions: u32,
    /// Least number of different users of an item, among the users that are kept.
    pub min_item_interactions: u32,
}

impl Default for Filters {
    fn default() -> Self {
        Self { min_rating: None, min_user_interactions: 20, min_item_interactions: 1 }
    }
}

/// One filter, and how to speak of it.
struct Step {
    keep: Expr,
    what: String,
    knob: &'static str,
}

/// `user_id`, `item_id` and, with a threshold, `rating` → the distinct pairs that are kept.
///
/// # Errors
/// [`Error::NothingLeft`] naming the first filter that nothing passes, or what reading says.
pub(super) fn distinct_pairs(
    interactions: &LazyFrame,
    filters: &Filters,
    path: &Path,
) -> Result<DataFrame> {
    let kept = collect(plan(interactions, filters, 3)?, path)?;
    if kept.height() > 0 {
        return Ok(kept);
    }
    // Only a user who asked for too much waits for the counts.
    let mut before = count(interactions.clone(), path)?;
    if before == 0 {
        return Err(Error::file(path, "holds no rows"));
    }
    for (at, step) in steps(filters)?.into_iter().enumerate() {
        let after = count(plan(interactions, filters, at + 1)?, path)?;
        if after == 0 {
            return Err(Error::NothingLeft {
                path: path.to_owned(),
                filter: step.what,
                before: format!("{before} interactions"),
                knob: step.knob,
            });
        }
        before = after;
    }
    Err(Error::file(path, "changed while it was read"))
}

/// The first `num_steps` filters.
fn plan(interactions: &LazyFrame, filters: &Filters, num_steps: usize) -> Result<LazyFrame> {
    let mut frame = interactions.clone();
    for (at, step) in steps(filters)?.into_iter().enumerate().take(num_steps) {
        if at == 1 {
            frame = frame
                .select([col("user_id"), col("item_id")])
                .unique(None, UniqueKeepStrategy::Any);
        }
        frame = frame.filter(step.keep);
    }
    Ok(frame)
}

fn steps(filters: &Filters) -> Result<[Step; 3]> {
    let at_least = |id: &str, least: u32| {
        len()
            .over([col(id)])
            .map(|count| count.gt_eq(lit(least)))
            .map_err(|error| Error::library("planning the filters", error))
    };
    let rating = filters.min_rating;
    Ok([
        Step {
            keep: rating.map_or(lit(true), |least| col("rating").gt_eq(lit(least))),
            what: format!("a rating of at least {}", rating.unwrap_or(f64::NEG_INFINITY)),
            knob: "--min-rating",
        },
        Step {
            keep: at_least("user_id", filters.min_user_interactions)?,
            what: format!("at least {} items per user", filters.min_user_interactions),
            knob: "--min-user-interactions",
        },
        Step {
            keep: at_least("item_id", filters.min_item_interactions)?,
            what: format!("at least {} users per item", filters.min_item_interactions),
            knob: "--min-item-interactions",
        },
    ])
}

fn count(frame: LazyFrame, path: &Path) -> Result<usize> {
    let counted = collect(frame.select([len().alias("rows")]), path)?;
    let rows = counted.column("rows").and_then(|column| column.get(0)?.try_extract::<u64>());
    let rows = rows.map_err(|error| Error::library("counting rows", error))?;
    usize::try_from(rows).map_err(|error| Error::library("counting rows", error))
}
