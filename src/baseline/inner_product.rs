//! The training matrix A goes in; baselines that score by an inner product come out: `h_Xᵀβ_a`, as a
//! policy does, with an h and a β of their own.

use std::sync::Arc;

use super::asked::{Asked, Fitted, Training};
use crate::embedding::{
    ActionEmbeddings, AlsOptions, FoldIn, StoredEmbeddings, SvdOptions, Vectors, implicit_als,
    truncated_svd,
};
use crate::encoder::{ContextEncoder, Known, Mean, encode_all};
use crate::error::Result;
use crate::retrieval::{Exact, Queries, Retriever as _, Slates};

/// Passes of the SVD, for as many digits as f32 has.
const PASSES: usize = 6;

/// β, and the encoder that makes h from X.
#[derive(Debug)]
pub(super) struct InnerProduct {
    exact: Exact,
    encoder: Box<dyn ContextEncoder>,
}

impl InnerProduct {
    /// PureSVD: β = V of A itself, not of a normalised A, and h is the mean of V over X. The mean
    /// ranks actions as the sum does, which is `x V`.
    pub(super) fn svd(training: &Training, latent_dim: usize) -> Result<Self> {
        let options = SvdOptions { latent_dim, passes: PASSES, normalization: 0.0 };
        let (a, actions) = (&training.actions_of, training.num_actions());
        let stored = truncated_svd(a, actions, options, training.seed)?.into_stored();
        Self::new(stored, |vectors| Ok(Box::new(Mean::new(vectors.inputs))))
    }

    pub(super) fn als(training: &Training, options: AlsOptions) -> Result<Self> {
        let (a, actions) = (&training.actions_of, training.num_actions());
        let stored = implicit_als(a, actions, options, training.seed)?;
        Self::new(stored, |vectors| Ok(Box::new(FoldIn::new(vectors.actions, options.fold_in())?)))
    }

    fn new(
        stored: StoredEmbeddings,
        encoder: impl FnOnce(Vectors) -> Result<Box<dyn ContextEncoder>>,
    ) -> Result<Self> {
        let vectors = Vectors::from(ActionEmbeddings::new(stored.v)?);
        let exact = Exact::new(Arc::clone(&vectors.actions));
        Ok(Self { encoder: encoder(vectors)?, exact })
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
