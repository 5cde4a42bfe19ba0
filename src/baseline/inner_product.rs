//! Baselines that score by an inner product, as a policy does: `h_Xᵀβ_a` with an h and a β of theirs.

use std::sync::Arc;

use super::{Asked, Fitted, Fitter};
use crate::embedding::{AlsOptions, FoldIn, Power, SvdOptions, implicit_als, truncated_svd};
use crate::encoder::{ContextEncoder, Known, Mean, encode_all};
use crate::error::Result;
use crate::retrieval::{Exact, Queries, Retriever as _, Slates};

/// β and what makes h of X.
#[derive(Debug)]
pub(super) struct InnerProduct {
    exact: Exact,
    encoder: Box<dyn ContextEncoder>,
}

impl Fitter {
    /// β is V and h the mean of V over X, which ranks as `x V Vᵀ` does.
    pub(super) fn svd(&self, latent_dim: usize) -> Result<InnerProduct> {
        let options = SvdOptions { latent_dim, ..SvdOptions::default() };
        let stored = truncated_svd(&self.training, self.num_actions(), options, self.seed)?;
        let actions = Arc::new(stored.into_actions(Power::Zero)?);
        let encoder = Box::new(Mean::new(Arc::clone(&actions)));
        Ok(InnerProduct { exact: Exact::new(actions), encoder })
    }

    pub(super) fn als(&self, options: AlsOptions) -> Result<InnerProduct> {
        let stored = implicit_als(&self.training, self.num_actions(), options, self.seed)?;
        let actions = Arc::new(stored.into_actions(Power::Zero)?);
        let encoder = Box::new(FoldIn::new(Arc::clone(&actions), options.fold_in())?);
        Ok(InnerProduct { exact: Exact::new(actions), encoder })
    }
}

impl Fitted for InnerProduct {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        let known = |context| Known { actions: asked.observed.of(context), ..Known::default() };
        let latent = encode_all(self.encoder.as_ref(), asked.contexts, known); // [B, L]
        let excluded = asked.contexts.iter().map(|context| asked.excluded(*context));
        self.exact.search(Queries {
            latent: &latent,
            slate_size: asked.slate_size,
            excluded: Some(&excluded.collect::<Vec<_>>()),
        })
    }
}
