//! Baselines that score by an inner product, as a policy does: `h_Xᵀβ_a` with another h and β.

use std::sync::Arc;

use super::{Asked, Fitted, Fitter};
use crate::embedding::{Power, SvdOptions, mean_contexts, truncated_svd};
use crate::error::Result;
use crate::retrieval::{Exact, Queries, Retriever as _, Slates};

/// PureSVD: h is the mean of V over X, which ranks as `x V` does.
#[derive(Debug)]
pub(super) struct Svd(Exact);

impl Fitter {
    pub(super) fn svd(&self, latent_dim: usize) -> Result<Svd> {
        let most = self.training.len().min(self.num_actions()).saturating_sub(1);
        let options = SvdOptions { latent_dim: latent_dim.min(most), ..SvdOptions::default() };
        let stored = truncated_svd(&self.training, self.num_actions(), options, self.seed)?;
        Ok(Svd(Exact::new(Arc::new(stored.into_actions(Power::Zero)?))))
    }
}

impl Fitted for Svd {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        let latent = mean_contexts(asked.observed, asked.contexts, self.0.actions()); // [B, L]
        let excluded: Vec<&[u32]> =
            asked.contexts.iter().map(|context| asked.excluded(*context)).collect();
        self.0.search(Queries {
            latent: &latent,
            slate_size: asked.slate_size,
            excluded: Some(&excluded),
        })
    }
}
