//! A policy π_θ(A_K | x) takes the queries of a batch and returns S slates for each, with their score
//! functions, from which an estimator makes the gradient. LGP and LRP perturb the query and retrieve
//! ([`latent`]); Plackett–Luce draws one action after the other ([`mod@plackett_luce`]).

pub mod latent;
pub mod noise;
pub mod plackett_luce;
pub mod rejection;
pub mod sigma;
mod span;

use std::fmt::Debug;
use std::sync::Arc;

use crate::dataset::Sessions;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::{Heads, Retriever, Slates};
use crate::seed::{Purpose, Seed, Stream};

pub use latent::LatentPerturbation;
pub use noise::{Noise, NoiseKind};
pub use plackett_luce::{Distribution, GradientSum, PlackettLuce, ScoreGradient, SlateDraws};
pub use rejection::{RejectionSampler, Rejections};
pub use sigma::{Radial, Scale, Sigma};
pub use span::Span;

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
}

impl BatchRows<'_> {
    /// The random stream of one row.
    #[must_use]
    pub fn stream(&self, seed: Seed, purpose: Purpose, row: usize) -> Stream {
        seed.stream(purpose, self.step, row as u64)
    }
}

/// Number and length of the slates that a policy draws for a query, and the actions it leaves out.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// S.
    pub num_samples: usize,
    /// K.
    pub slate_size: usize,
    /// Sessions whose observed actions never enter a slate; none to exclude nothing.
    pub excluded: Option<Arc<Sessions>>,
    /// Seed of every draw.
    pub seed: Seed,
}

/// The most samples, or actions of a slate; more is a slip of the finger.
const MOST: usize = 1 << 20;

impl Sampling {
    /// Checks S and K.
    ///
    /// # Errors
    /// [`Error::Setting`] when S or K is 0 or more than a million.
    pub fn validate(&self) -> Result<()> {
        for (key, value) in [("method.samples", self.num_samples), ("slate_size", self.slate_size)]
        {
            if !(1..=MOST).contains(&value) {
                return Err(Error::setting(key, format!("expected 1 to {MOST}, found {value}")));
            }
        }
        Ok(())
    }

    /// Refuses a head that does not hold a slate.
    ///
    /// # Errors
    /// [`Error::Setting`] for fewer than K actions.
    pub fn check_head(&self, head: usize) -> Result<()> {
        if head >= self.slate_size {
            return Ok(());
        }
        let problem = format!("expected at least slate_size = {}, found {head}", self.slate_size);
        Err(Error::setting("method.head", problem))
    }

    /// The search for the `size` best of `num_actions` actions, without the excluded ones.
    ///
    /// # Errors
    /// [`Error::Setting`] when the head does not hold a slate.
    pub(crate) fn heads(
        &self,
        retriever: Arc<dyn Retriever>,
        size: usize,
        num_actions: usize,
    ) -> Result<Heads> {
        self.check_head(size)?;
        Ok(Heads::new(retriever, size, self.slate_size, self.excluded.clone(), num_actions))
    }

    /// The actions that no slate of `context` shows, ascending.
    #[must_use]
    pub fn excluded_of(&self, context: u32) -> &[u32] {
        self.excluded.as_ref().map_or(&[], |sessions| sessions.observed.of(context))
    }
}

/// The slates that a policy drew for a batch, S for each row.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The slates, `[B · S, K]`.
    pub slates: Slates,
    /// The score function of each sample, `[B · S, L]`, or `[B · S, M]` with `spans`, in the policy's own
    /// units: [`SlatePolicy::to_gradient`] converts a weighted sum of them.
    pub scores: Matrix,
    /// The span of the M actions among which the slates of each row were chosen, `[B]`, where noise was drawn
    /// in it.
    pub spans: Option<Vec<Span>>,
}

/// A distribution over slates with a score function, `E[∇_h log q] = 0` and
/// `∇_h E[r̂] = E[r̂ ∇_h log q]`. q is the probability of the slate, or the density of the perturbed
/// query that determines the slate.
pub trait SlatePolicy: Send + Sync + Debug {
    /// S and K.
    fn sampling(&self) -> &Sampling;

    /// Draws S slates for each row.
    ///
    /// # Errors
    /// Fails if retrieval fails; [`Error::NotFinite`] for a query that is not finite.
    fn sample(&self, rows: BatchRows<'_>) -> Result<Drawn>;

    /// Converts a weighted sum of the scores of one row, drawn in `span`, into the weighted sum `[L]` of
    /// `∇_h log q`, so that a linear step runs once for each row instead of once for each sample.
    /// The default changes nothing.
    fn to_gradient(
        &self,
        _rows: BatchRows<'_>,
        _row: usize,
        _span: Option<&Span>,
        sum: Vec<f32>,
    ) -> Vec<f32> {
        sum
    }

    /// Takes back scores, whose memory may serve the next draw.
    fn reuse(&self, _scores: Matrix) {}
}
