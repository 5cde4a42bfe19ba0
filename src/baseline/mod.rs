//! The recommenders that a policy is compared with: fitted on the training users' interactions,
//! judged on the same contexts, by the same reward, and seeing of each only what was observed.
//!
//! A [`Baseline`] is an algorithm with its hyperparameters; [`Tuned`] fits it, after a search for
//! better ones on the validation reward if there is time for one. What comes out shows slates
//! ([`Fitted`]), which [`Evaluation::by`](crate::evaluation::Evaluation::by) judges as it does a
//! policy's:
//!
//! ```
//! use std::time::Duration;
//! use fast_slate::baseline::{Asked, Baseline, Tuned};
//! use fast_slate::dataset::Split;
//! use fast_slate::evaluation::Evaluation;
//! use fast_slate::task::Task;
//! use fast_slate::seed::Seed;
//!
//! fn ease(task: &Task) -> fast_slate::Result<f64> {
//!     let (baseline, budget) = (Baseline::Ease { ridge: 200.0 }, Duration::from_secs(60));
//!     let tuned = Tuned::new(task, baseline, budget, Seed(0))?;
//!     let test = task.sessions.contexts(Split::Test);
//!     let evaluation =
//!         Evaluation::by(task, &test, |block| tuned.fitted.slates(Asked::of(task, block)))?;
//!     Ok(evaluation.mean())
//! }
//! ```

mod ease;
mod inner_product;
mod inverse;
mod item_knn;
mod popularity;
mod tuning;
mod uniform;

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use crate::dataset::{ActionSets, Sessions};
use crate::embedding::{AlsOptions, SessionPart, training_matrix};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::task::Task;
use crate::retrieval::{Slates, best_of_scores};
use crate::seed::Seed;

pub use tuning::{Trial, Tuned};

/// A recommender and its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Baseline {
    /// What most training users interacted with: the same for everybody but for what is excluded.
    Popularity,
    /// Actions at random: what a slate earns that knows nothing.
    Uniform,
    /// PureSVD: scores `x V Vᵀ`, x being the indicator of X (Cremonesi, Koren & Turrin,
    /// *Performance of recommender algorithms on top-N recommendation tasks*, 2010).
    Svd {
        /// L; below the number of actions and of training users ([`Fitter::limited`]).
        latent_dim: usize,
    },
    /// Implicit-feedback ALS, whose user vectors are folded in (Hu, Koren & Volinsky,
    /// *Collaborative filtering for implicit feedback datasets*, 2008).
    Als(AlsOptions),
    /// The linear autoencoder without self-similarity, in closed form (Steck, *Embarrassingly
    /// shallow autoencoders for sparse data*, 2019). Inverts a dense matrix of as many rows as
    /// there are actions or training users, whichever are fewer, at most [`Baseline::LARGEST_EASE`].
    Ease {
        /// λ, added to the diagonal of the Gram matrix; greater than 0.
        ridge: f32,
    },
    /// The sum, over what was observed, of cosine similarities to the most similar actions of each
    /// (Deshpande & Karypis, *Item-based top-N recommendation algorithms*, 2004).
    ItemKnn {
        /// How many similar actions of an action count.
        neighbours: usize,
        /// Added to the norms' product, so that few common users are no evidence; not negative.
        shrinkage: f32,
    },
}

impl Baseline {
    /// Each with the hyperparameters that are tried first.
    #[must_use]
    pub fn all() -> [Self; 6] {
        [
            Self::Popularity,
            Self::Uniform,
            Self::Svd { latent_dim: 100 },
            Self::Als(AlsOptions::default()),
            Self::Ease { ridge: 200.0 },
            Self::ItemKnn { neighbours: 100, shrinkage: 10.0 },
        ]
    }

    /// The most rows of the matrix that EASE inverts: beyond, it would take minutes and more than
    /// 6 GB.
    pub const LARGEST_EASE: usize = 20_000;

    /// The one of this [`name`](Self::name), with the hyperparameters that are tried first.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|baseline| baseline.name() == name)
    }

    /// What it is called on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Popularity => "popularity",
            Self::Uniform => "uniform",
            Self::Svd { .. } => "svd",
            Self::Als(_) => "als",
            Self::Ease { .. } => "ease",
            Self::ItemKnn { .. } => "item-knn",
        }
    }
}

/// The hyperparameters in words; nothing where there are none.
impl Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Popularity | Self::Uniform => Ok(()),
            Self::Svd { latent_dim } => write!(f, "L = {latent_dim}"),
            Self::Als(AlsOptions { latent_dim, iterations, regularization, confidence }) => write!(
                f,
                "L = {latent_dim}, α = {confidence}, λ = {regularization}, {iterations} sweeps"
            ),
            Self::Ease { ridge } => write!(f, "λ = {ridge}"),
            Self::ItemKnn { neighbours, shrinkage } => {
                write!(f, "{neighbours} neighbours, shrinkage {shrinkage}")
            }
        }
    }
}

/// Contexts that are to be shown slates.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// X of every context; all that a recommender sees of it.
    pub observed: &'a ActionSets,
    /// Those that are asked for.
    pub contexts: &'a [u32],
    /// K.
    pub slate_size: usize,
    /// Whether what was observed stays off slates.
    pub exclude_observed: bool,
}

impl<'a> Asked<'a> {
    /// The same as `task` asks of a policy.
    #[must_use]
    pub fn of(task: &'a Task, contexts: &'a [u32]) -> Self {
        Self {
            observed: &task.sessions.observed,
            contexts,
            slate_size: task.slate_size(),
            exclude_observed: task.excluded().is_some(),
        }
    }

    /// What `context` must not be shown, ascending.
    fn excluded(&self, context: u32) -> &'a [u32] {
        if self.exclude_observed { self.observed.of(context) } else { &[] }
    }

    /// Fails unless every context has K of `num_actions` actions to choose from.
    fn check(&self, num_actions: usize) -> Result<()> {
        let most = self.contexts.iter().map(|context| self.excluded(*context).len()).max();
        let available = num_actions.saturating_sub(most.unwrap_or(0));
        if (1..=available).contains(&self.slate_size) {
            return Ok(());
        }
        let why = format!(" (of {num_actions}, less what one context has observed)");
        Err(Error::SlateTooLarge { slate_size: self.slate_size, available, why })
    }

    /// The slates of greatest score. `score_among` is handed a few contexts and writes the scores of all
    /// actions, `[P]`, for the one at a place among them.
    fn ranked<S: FnMut(usize, &mut [f32])>(
        &self,
        num_actions: usize,
        score_among: impl Fn(&'a [u32]) -> S + Sync,
    ) -> Result<Slates> {
        self.check(num_actions)?;
        let slate_size = self.slate_size;
        let mut actions = vec![0; self.contexts.len() * slate_size];
        let mut scores = vec![0.0; actions.len()];
        self.contexts
            .par_chunks(CHUNK)
            .zip(actions.par_chunks_mut(CHUNK * slate_size))
            .zip(scores.par_chunks_mut(CHUNK * slate_size))
            .for_each_init(
                || vec![0.0; num_actions],
                |all, ((contexts, actions), scores)| {
                    let mut score = score_among(contexts);
                    let slates = actions.chunks_mut(slate_size).zip(scores.chunks_mut(slate_size));
                    for (at, (actions, scores)) in slates.enumerate() {
                        score(at, all);
                        best_of_scores(all, self.excluded(contexts[at]), actions, scores);
                    }
                },
            );
        Ok(Slates::new(slate_size, actions, scores))
    }
}

/// Contexts that one thread scores before it takes others.
const CHUNK: usize = 64;

/// A fitted baseline.
pub trait Fitted: Send + Sync + Debug {
    /// The K best actions of each context, best first, with what they are ranked by; equal scores
    /// go to the lower action, which is the more popular one. The same on any number of threads.
    ///
    /// # Errors
    /// [`Error::SlateTooLarge`] when fewer than K actions are left for a context.
    fn slates(&self, asked: Asked<'_>) -> Result<Slates>;
}

/// Fits baselines on the training contexts of some sessions, X and Y of each.
#[derive(Debug)]
pub struct Fitter {
    /// The actions of each training context.
    training: ActionSets,
    /// The training contexts of each action.
    contexts_of: Arc<ActionSets>,
    seed: Seed,
    /// What EASE needs whatever its λ.
    gram: Option<Matrix>,
}

impl Fitter {
    /// A fitter on `sessions`; the seed is that of whatever is drawn.
    #[must_use]
    pub fn new(sessions: &Sessions, seed: Seed) -> Self {
        let training = training_matrix(sessions, SessionPart::All);
        let contexts_of = Arc::new(training.transposed(sessions.num_actions));
        Self { training, contexts_of, seed, gram: None }
    }

    /// `baseline` with no more dimensions than the training matrix allows.
    #[must_use]
    pub fn limited(&self, baseline: Baseline) -> Baseline {
        match baseline {
            Baseline::Svd { latent_dim } => {
                let most = self.training.len().min(self.num_actions()).saturating_sub(1);
                Baseline::Svd { latent_dim: latent_dim.min(most) }
            }
            other => other,
        }
    }

    /// Fits `baseline`.
    ///
    /// # Errors
    /// [`Error::Setting`] for hyperparameters outside their range, or where there are more actions
    /// and training users than the baseline can take; [`Error::Library`] where a matrix is singular.
    pub fn fit(&mut self, baseline: Baseline) -> Result<Box<dyn Fitted>> {
        Ok(match baseline {
            Baseline::Popularity => Box::new(popularity::Popularity::new(&self.contexts_of)),
            Baseline::Uniform => Box::new(uniform::Uniform::new(self.num_actions(), self.seed)),
            Baseline::Svd { latent_dim } => Box::new(self.svd(latent_dim)?),
            Baseline::Als(options) => Box::new(self.als(options)?),
            Baseline::Ease { ridge } => Box::new(self.ease(ridge)?),
            Baseline::ItemKnn { neighbours, shrinkage } => {
                Box::new(self.item_knn(neighbours, shrinkage)?)
            }
        })
    }

    /// P.
    fn num_actions(&self) -> usize {
        self.contexts_of.len()
    }
}

/// Adds 1 to the counts of the others for each member that they share with `set`: `others_of` says
/// who else has a member.
fn count_shared(set: &[u32], others_of: &ActionSets, mut add: impl FnMut(u32)) {
    for &member in set {
        others_of.of(member).iter().for_each(|&other| add(other));
    }
}
