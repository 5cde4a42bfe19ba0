//! Takes queries and their contexts, and returns the head of each query: its M best actions, from
//! which the rejection sampler and FOPO draw.

use std::sync::Arc;

use super::exclusion::{excluded_lists, most_excluded};
use super::{Queries, Retriever, Slates};
use crate::dataset::Sessions;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Finds the M best actions of each query.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    retriever: Arc<dyn Retriever>,
    size: usize,
    excluded: Option<Arc<Sessions>>,
}

impl Heads {
    /// Heads of `size` actions without the observed ones of `excluded`. Where exclusion leaves some
    /// context fewer, all heads are as short as that context's, so that a head does not depend on
    /// the other rows of its batch.
    pub(crate) fn new(
        retriever: Arc<dyn Retriever>,
        size: usize,
        slate_size: usize,
        excluded: Option<Arc<Sessions>>,
        num_actions: usize,
    ) -> Self {
        let most = most_excluded(excluded.as_deref());
        // Retrieval refuses a context with fewer than K actions left once that context comes up.
        let size = size.min(num_actions.saturating_sub(most)).max(slate_size);
        Self { retriever, size, excluded }
    }

    /// The heads of the queries `h` `[B, L]` of `contexts` `[B]`, best first, `[B, M]`.
    ///
    /// # Errors
    /// Fails if retrieval fails; [`Error::NotFinite`] for a score that f32 cannot hold.
    pub(crate) fn search(&self, contexts: &[u32], h: &Matrix) -> Result<Slates> {
        let excluded = excluded_lists(self.excluded.as_deref(), contexts, 1);
        let heads = self.retriever.search(Queries {
            latent: h,
            slate_size: self.size,
            excluded: excluded.as_deref(),
        })?;
        for row in 0..heads.len() {
            let scores = heads.scores(row);
            if let Some(column) = scores.iter().position(|score| !score.is_finite()) {
                let value = scores[column];
                return Err(Error::NotFinite { what: "scores".into(), row, column, value });
            }
        }
        Ok(heads)
    }
}
