//! Contexts in, the actions that stay off their slates out; and whether K actions are left.

use crate::dataset::Sessions;
use crate::error::{Error, Result};

/// The observed actions of each context, `times` over: a list for each query that is made at
/// `contexts`. None if nothing is excluded.
pub(crate) fn excluded_lists<'a>(
    excluded: Option<&'a Sessions>,
    contexts: &[u32],
    times: usize,
) -> Option<Vec<&'a [u32]>> {
    let observed = &excluded?.observed;
    let of = |context: &u32| std::iter::repeat_n(observed.of(*context), times);
    Some(contexts.iter().flat_map(of).collect())
}

/// The most actions that any context excludes.
pub(crate) fn most_excluded(excluded: Option<&Sessions>) -> usize {
    let observed = excluded.map(|sessions| &sessions.observed);
    let lengths = observed
        .into_iter()
        .flat_map(|observed| observed.contexts().map(|context| observed.of(context).len()));
    lengths.max().unwrap_or(0)
}

/// Fails unless K of `num_actions` actions are left without `excluded` of them.
///
/// # Errors
/// [`Error::SlateTooLarge`], also for K = 0.
pub(crate) fn check_slate_size(
    slate_size: usize,
    num_actions: usize,
    excluded: usize,
) -> Result<()> {
    let available = num_actions.saturating_sub(excluded);
    if (1..=available).contains(&slate_size) {
        return Ok(());
    }
    let why = match excluded {
        0 => String::new(),
        _ => format!(" ({excluded} of {num_actions} are excluded)"),
    };
    Err(Error::SlateTooLarge { slate_size, available, why })
}
