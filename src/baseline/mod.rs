//! The training users' interactions go in; the recommenders that a policy is compared with come out.
//! They are judged on the same contexts and by the same reward, and see only X of each context.
//!
//! A [`Baseline`] is an algorithm with its hyperparameters. A [`Fitter`] fits it; the result,
//! [`Fitted`], shows slates, which [`Evaluation::by`](crate::evaluation::Evaluation::by) judges:
//!
//! ```
//! use fast_slate::baseline::{Asked, Baseline, Fitter};
//! use fast_slate::dataset::Split;
//! use fast_slate::evaluation::Evaluation;
//! use fast_slate::task::Task;
//! use fast_slate::seed::Seed;
//!
//! fn ease(task: &Task) -> fast_slate::Result<f64> {
//!     let fitted = Fitter::new(&task.sessions, Seed(0)).fit(Baseline::Ease { ridge: 100.0 })?;
//!     let test = task.sessions.contexts(Split::Test);
//!     let slates = |block: &[u32]| fitted.slates(Asked::of(task, block));
//!     Ok(Evaluation::by(task, &test, slates)?.mean())
//! }
//! ```

mod asked;
mod ease;
mod inner_product;
mod inverse;
mod item_knn;
mod popularity;
mod uniform;

use std::fmt::{self, Display};

use serde::Serialize;

use self::asked::Training;
use self::ease::Ease;
use self::inner_product::InnerProduct;
use self::item_knn::ItemKnn;
use self::popularity::Popularity;
use self::uniform::Uniform;
use crate::dataset::Sessions;
use crate::embedding::AlsOptions;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::seed::Seed;

pub use asked::{Asked, Fitted};

/// A recommender and its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Baseline {
    /// The actions that most training users interacted with; everybody gets the same, less what is
    /// excluded.
    Popularity,
    /// Actions at random: the reward of knowing nothing.
    Uniform,
    /// PureSVD: scores `x V Vᵀ`, where x is the indicator of X and V `[P, L]` are the right singular
    /// vectors of the training matrix A (Cremonesi, Koren & Turrin, *Performance of recommender
    /// algorithms on top-N recommendation tasks*, 2010).
    Svd {
        /// L; below the number of actions and of training users ([`Fitter::limited`]).
        latent_dim: usize,
    },
    /// Implicit-feedback ALS; a user's vector is folded in from X (Hu, Koren & Volinsky,
    /// *Collaborative filtering for implicit feedback datasets*, 2008).
    Als(AlsOptions),
    /// The linear autoencoder without self-similarity, in closed form (Steck, *Embarrassingly
    /// shallow autoencoders for sparse data*, 2019). It inverts a dense matrix with a row for each
    /// action or for each training user, whichever are fewer: N³ multiplications and 12 N² bytes,
    /// which have to be available.
    Ease {
        /// λ, added to the diagonal of the Gram matrix; greater than 0.
        ridge: f32,
    },
    /// The sum of cosine similarities between an action and the observed ones, over the most similar
    /// actions of each observed one (Deshpande & Karypis, *Item-based top-N recommendation algorithms*, 2004).
    ItemKnn {
        /// Similar actions that count for an observed action.
        neighbours: usize,
        /// Added to the product of the norms, so that a few common users are no evidence; ≥ 0.
        shrinkage: f32,
    },
}

impl Baseline {
    /// Every baseline with the hyperparameters that are tried first.
    #[must_use]
    pub fn all() -> [Self; 6] {
        [
            Self::Popularity,
            Self::Uniform,
            Self::Svd { latent_dim: 100 },
            Self::Als(AlsOptions::default()),
            // The median of what was best on 26 logs; on a large one few others can be tried.
            Self::Ease { ridge: 100.0 },
            Self::ItemKnn { neighbours: 100, shrinkage: 10.0 },
        ]
    }

    /// The baseline of this [`name`](Self::name), with the hyperparameters that are tried first, or those
    /// that stand behind the name, as in `ease:ridge=100` and `als:latent_dim=64:confidence=30`. None
    /// for another name.
    ///
    /// # Errors
    /// [`Error::Setting`] for a hyperparameter that this baseline does not have, or that is no number.
    pub fn named(text: &str) -> Result<Option<Self>> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or(text);
        let Some(mut found) = Self::all().into_iter().find(|baseline| baseline.name() == name)
        else {
            return Ok(None);
        };
        for word in words {
            let given =
                word.split_once('=').and_then(|(key, value)| Some((key, value.parse().ok()?)));
            if !given.is_some_and(|(key, value)| found.set(key, value)) {
                let problem = format!(
                    "expected KEY=NUMBER of {}, in its range, found `{word}`",
                    found.keys()
                );
                return Err(Error::setting(name, problem));
            }
        }
        Ok(Some(found))
    }

    /// The names of the hyperparameters.
    const fn keys(self) -> &'static str {
        match self {
            Self::Popularity | Self::Uniform => "nothing",
            Self::Svd { .. } => "latent_dim (a whole number of at least 1)",
            Self::Als(_) => {
                "latent_dim, iterations (whole numbers of at least 1), regularization (more than 0) and \
                 confidence (at least 0)"
            }
            Self::Ease { .. } => "ridge (more than 0)",
            Self::ItemKnn { .. } => {
                "neighbours (a whole number of at least 1) and shrinkage (at least 0)"
            }
        }
    }

    /// Sets a hyperparameter; false if there is none of that name, or the value is out of its range.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float's cast saturates"
    )]
    fn set(&mut self, key: &str, value: f64) -> bool {
        let in_range = match key {
            "latent_dim" | "iterations" | "neighbours" => value >= 1.0 && value.fract() == 0.0,
            "ridge" | "regularization" => value > 0.0,
            _ => value >= 0.0,
        };
        if !in_range || !value.is_finite() {
            return false;
        }
        match (self, key) {
            (Self::Svd { latent_dim }, "latent_dim") => *latent_dim = value as usize,
            (Self::Als(options), "latent_dim") => options.latent_dim = value as usize,
            (Self::Als(options), "iterations") => options.iterations = value as usize,
            (Self::Als(options), "regularization") => options.regularization = value,
            (Self::Als(options), "confidence") => options.confidence = value,
            (Self::Ease { ridge }, "ridge") => *ridge = value as f32,
            (Self::ItemKnn { neighbours, .. }, "neighbours") => *neighbours = value as usize,
            (Self::ItemKnn { shrinkage, .. }, "shrinkage") => *shrinkage = value as f32,
            _ => return false,
        }
        true
    }

    /// Its name on the command line.
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

/// Writes the hyperparameters in words, if there are any.
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

/// Fits baselines on the training contexts of some sessions.
#[derive(Debug)]
pub struct Fitter {
    training: Training,
    /// The Gram matrix of EASE, which does not depend on λ.
    gram: Option<Matrix>,
}

impl Fitter {
    /// A fitter on `sessions`, with the seed of all random draws.
    #[must_use]
    pub fn new(sessions: &Sessions, seed: Seed) -> Self {
        Self { training: Training::new(sessions, seed), gram: None }
    }

    /// `baseline` with no more dimensions than the training matrix allows.
    #[must_use]
    pub fn limited(&self, baseline: Baseline) -> Baseline {
        let (contexts, actions) = (self.training.actions_of.len(), self.training.num_actions());
        match baseline {
            Baseline::Svd { latent_dim } => {
                let most = contexts.min(actions).saturating_sub(1);
                Baseline::Svd { latent_dim: latent_dim.min(most) }
            }
            Baseline::ItemKnn { neighbours, shrinkage } => {
                let most = actions.saturating_sub(1).max(1);
                Baseline::ItemKnn { neighbours: neighbours.min(most), shrinkage }
            }
            _ => baseline,
        }
    }

    /// Fits `baseline`.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] for hyperparameters outside their range, or for more actions and
    /// training users than memory can take; [`crate::Error::Library`] for a singular matrix.
    pub fn fit(&mut self, baseline: Baseline) -> Result<Box<dyn Fitted>> {
        let training = &self.training;
        Ok(match baseline {
            Baseline::Popularity => Box::new(Popularity::new(&training.contexts_of)),
            Baseline::Uniform => Box::new(Uniform::new(training.num_actions(), training.seed)),
            Baseline::Svd { latent_dim } => Box::new(InnerProduct::svd(training, latent_dim)?),
            Baseline::Als(options) => Box::new(InnerProduct::als(training, options)?),
            Baseline::Ease { ridge } => Box::new(Ease::new(training, &mut self.gram, ridge)?),
            Baseline::ItemKnn { neighbours, shrinkage } => {
                Box::new(ItemKnn::new(training, neighbours, shrinkage)?)
            }
        })
    }
}
