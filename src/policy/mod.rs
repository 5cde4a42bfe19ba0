//! Distributions over slates, π_θ(A_K | x): LGP and LRP, which perturb the query and retrieve
//! ([`latent`]), and Plackett–Luce, which draws actions one after the other
//! ([`mod@plackett_luce`]). A policy draws S slates for each query and says how the probability of
//! each changes with the query; what is made of that and of the rewards is an estimator's.

pub mod coupling;
pub mod latent;
pub mod noise;
pub mod plackett_luce;
pub mod rejection;
pub mod sigma;

use std::fmt::Debug;
use std::sync::Arc;

use crate::dataset::Sessions;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::{Heads, Retriever, Slates};
use crate::seed::{Purpose, Seed, Stream};

pub use coupling::Coupling;
pub use latent::LatentPerturbation;
pub use noise::{Noise, NoiseKind};
pub use plackett_luce::{Distribution, GradientSum, PlackettLuce, ScoreGradient, SlateDraws};
pub use rejection::{RejectionSampler, Rejections};
pub use sigma::{Radial, Scale, Sigma};

/// The rows of a batch: contexts and their queries. The draws for a row depend on the seed, the step
/// and the row's place in the batch only.
#[derive(Clone, Copy, Debug)]
pub struct BatchRows<'a> {
    /// Training step, from 0.
    pub step: u64,
    /// The contexts, `[B]`.
    pub contexts: &'a [u32],
    /// Their queries, `[B, L]`.
    pub h: &'a Matrix,
    /// What a learned σ multiplies its rule with; 1 otherwise.
    pub sigma_factor: f32,
}

impl BatchRows<'_> {
    /// The random stream of one row.
    #[must_use]
    pub fn stream(&self, seed: Seed, purpose: Purpose, row: usize) -> Stream {
        seed.stream(purpose, self.step, row as u64)
    }
}

/// How many slates a policy draws for a query, of which length, from which actions.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// S.
    pub num_samples: usize,
    /// K.
    pub slate_size: usize,
    /// The sessions whose observed actions never enter a slate, if they shall not.
    pub excluded: Option<Arc<Sessions>>,
    /// Where every draw comes from.
    pub seed: Seed,
}

impl Sampling {
    /// Refuses what cannot be drawn.
    ///
    /// # Errors
    /// [`Error::Setting`] when S or K is 0.
    pub fn validate(&self) -> Result<()> {
        for (key, value) in [("method.samples", self.num_samples), ("slate_size", self.slate_size)]
        {
            if value == 0 {
                return Err(Error::setting(key, "expected at least 1, found 0"));
            }
        }
        Ok(())
    }

    /// The search for the `size` best of `num_actions` actions, without what is excluded.
    ///
    /// # Errors
    /// [`Error::Setting`] when the head does not hold a slate.
    pub(crate) fn heads(
        &self,
        retriever: Arc<dyn Retriever>,
        size: usize,
        num_actions: usize,
    ) -> Result<Heads> {
        Heads::new(retriever, size, self.slate_size, self.excluded.clone(), num_actions)
    }

    /// The actions that no slate of `context` shows, ascending.
    #[must_use]
    pub fn excluded_of(&self, context: u32) -> &[u32] {
        self.excluded.as_ref().map_or(&[], |sessions| sessions.observed.of(context))
    }
}

/// What a policy drew for a batch, S slates a row.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The slates, `[B · S, K]`.
    pub slates: Slates,
    /// The score function of each sample, `[B · S, L]`. [`SlatePolicy::to_gradient`] makes it,
    /// or a sum of a row's, one with respect to the query.
    pub scores: Matrix,
    /// The score function with respect to log σ, `[B · S]`; empty for a policy without σ.
    pub sigma_scores: Vec<f32>,
}

/// A distribution over slates with a score function: `E[∇_h log q] = 0` and
/// `∇_h E[r̂] = E[r̂ ∇_h log q]`, q being the density of what is drawn: the slate, or the perturbed
/// query that it follows from.
pub trait SlatePolicy: Send + Sync + Debug {
    /// S and K.
    fn sampling(&self) -> &Sampling;

    /// Draws S slates for each row.
    ///
    /// # Errors
    /// Those of retrieval; [`Error::NotFinite`] for a query that is not finite.
    fn sample(&self, rows: BatchRows<'_>) -> Result<Drawn>;

    /// Turns a weighted sum `[L]` of the scores that were drawn for one of `rows` into the sum of
    /// score functions with respect to its query: what is linear in a score is done here, once a
    /// row instead of once a sample. By default they are the same.
    fn to_gradient(&self, _rows: BatchRows<'_>, _row: usize, _sum: &mut [f32]) {}

    /// Takes back scores that were drawn: their memory may serve the next draw.
    fn reuse(&self, _scores: Matrix) {}

    /// Whether a sample's score has mean zero given the other samples of its query, so that their
    /// rewards may serve as its baseline.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason when it has not.
    fn check_leave_one_out(&self) -> Result<()> {
        Ok(())
    }
}
