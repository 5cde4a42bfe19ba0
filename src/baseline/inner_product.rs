//! Baselines that score by an inner product, as a policy does: `h_Xᵀβ_a` with an h and a β of theirs.

use std::sync::Arc;

use super::{Asked, Fitted, Fitter};
use crate::embedding::{
    ActionEmbeddings, AlsOptions, FoldIn, Power, SvdOptions, implicit_als, mean_contexts,
    truncated_svd,
};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::retrieval::{Exact, Queries, Retriever as _, Slates};

/// β and what makes h of X.
#[derive(Debug)]
pub(super) struct InnerProduct {
    exact: Exact,
    /// None for the mean of β over X.
    fold_in: Option<FoldIn>,
}

impl Fitter {
    /// β is V and h the mean of V over X, which ranks as `x V Vᵀ` does.
    pub(super) fn svd(&self, latent_dim: usize) -> Result<InnerProduct> {
        let options = SvdOptions { latent_dim, ..SvdOptions::default() };
        let stored = truncated_svd(&self.training, self.num_actions(), options, self.seed)?;
        let actions = Arc::new(stored.into_actions(Power::Zero)?);
        Ok(InnerProduct { exact: Exact::new(actions), fold_in: None })
    }

    pub(super) fn als(&self, options: AlsOptions) -> Result<InnerProduct> {
        let stored = implicit_als(&self.training, self.num_actions(), options, self.seed)?;
        let actions = Arc::new(stored.into_actions(Power::Zero)?);
        let fold_in = FoldIn::new(Arc::clone(&actions), options.fold_in())?;
        Ok(InnerProduct { exact: Exact::new(actions), fold_in: Some(fold_in) })
    }
}

impl InnerProduct {
    fn actions(&self) -> &ActionEmbeddings {
        self.exact.actions()
    }

    /// h of each context, `[B, L]`.
    fn latent(&self, asked: Asked<'_>) -> Matrix {
        match &self.fold_in {
            None => mean_contexts(asked.observed, asked.contexts, self.actions()),
            Some(fold_in) => fold_in.encode_contexts(asked.observed, asked.contexts),
        }
    }
}

impl Fitted for InnerProduct {
    fn slates(&self, asked: Asked<'_>) -> Result<Slates> {
        let excluded = asked.contexts.iter().map(|context| asked.excluded(*context));
        self.exact.search(Queries {
            latent: &self.latent(asked),
            slate_size: asked.slate_size,
            excluded: Some(&excluded.collect::<Vec<_>>()),
        })
    }
}
