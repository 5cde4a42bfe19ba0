//! The scores of one context, panel by panel: given, or computed from its query when they are asked for.

use std::sync::{Arc, OnceLock};

use crate::embedding::ActionEmbeddings;
use crate::matrix::dot;

/// f `[P]`, −∞ for excluded actions.
#[derive(Clone, Debug)]
pub(super) enum Scores {
    /// All of them, in panels of one action.
    Given(Vec<f64>),
    /// The inner products of a query and β.
    Computed {
        /// h `[L]`.
        query: Vec<f32>,
        /// β.
        actions: Arc<ActionEmbeddings>,
        /// Ascending.
        excluded: Vec<u32>,
        /// Actions in a panel; the last one may have fewer.
        width: usize,
        /// The panels that have been asked for.
        panels: Vec<OnceLock<Vec<f64>>>,
    },
}

impl Scores {
    /// The products of `query` `[L]` and β, in panels of `width` actions.
    pub(super) fn of(
        query: &[f32],
        actions: &Arc<ActionEmbeddings>,
        excluded: &[u32],
        width: usize,
    ) -> Self {
        Self::Computed {
            query: query.to_vec(),
            actions: Arc::clone(actions),
            excluded: excluded.to_vec(),
            width,
            panels: vec![OnceLock::new(); actions.num_actions().div_ceil(width)],
        }
    }

    /// P.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Given(scores) => scores.len(),
            Self::Computed { actions, .. } => actions.num_actions(),
        }
    }

    /// f of an action.
    pub(super) fn get(&self, action: u32) -> f64 {
        match self {
            Self::Given(scores) => scores[action as usize],
            Self::Computed { query, actions, excluded, width, panels } => {
                let at = action as usize;
                match panels[at / width].get() {
                    Some(panel) => panel[at % width],
                    None => computed(query, actions, excluded, action),
                }
            }
        }
    }

    /// The first action of a panel, and the scores of all its actions.
    #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
    pub(super) fn panel(&self, at: usize) -> (u32, &[f64]) {
        match self {
            Self::Given(scores) => (at as u32, &scores[at..=at]),
            Self::Computed { query, actions, excluded, width, panels } => {
                let (first, end) = (at * width, ((at + 1) * width).min(actions.num_actions()));
                let score = |action| computed(query, actions, excluded, action);
                let scores = || (first as u32..end as u32).map(score).collect();
                (first as u32, panels[at].get_or_init(scores))
            }
        }
    }

    /// f of every action.
    pub(super) fn iter(&self) -> impl Iterator<Item = f64> {
        let count = match self {
            Self::Given(scores) => scores.len(),
            Self::Computed { panels, .. } => panels.len(),
        };
        (0..count).flat_map(|at| self.panel(at).1).copied()
    }
}

fn computed(query: &[f32], actions: &ActionEmbeddings, excluded: &[u32], action: u32) -> f64 {
    if excluded.binary_search(&action).is_ok() {
        f64::NEG_INFINITY
    } else {
        f64::from(dot(query, actions.row(action)))
    }
}
