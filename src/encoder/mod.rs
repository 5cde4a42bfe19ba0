//! A context encoder takes the known actions, times and features of a user and returns the vector M(X)
//! `[D]`, the input of a tower. A new user is encoded like the training users.
//!
//! A tower's identity start uses the first L numbers of a context as the query. So training begins with
//! the decision of the first of several encoders; the others are further inputs.

mod features;
mod fitted;
mod mean;

pub use features::Features;
pub(crate) use fitted::joined;
pub use fitted::{Encoding, Fitted};
pub use mean::{Mean, popularity_weights};

use std::fmt::Debug;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::embedding::FoldIn;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// The known data of a user.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// X, each action once, below P.
    pub actions: &'a [u32],
    /// Time of the last occurrence of each action, in seconds since any moment.
    pub times: Option<&'a [i64]>,
    /// The prepared features of a user `[F]`.
    pub features: Option<&'a [f32]>,
}

/// Computes M(X) from the known data of a user. It is called from many threads at once.
pub trait ContextEncoder: Send + Sync + Debug {
    /// D.
    fn dim(&self) -> usize;

    /// Writes M(X) into `context` `[D]`; zeros where nothing is known, so that the slate shows the
    /// most popular actions.
    fn encode(&self, known: Known<'_>, context: &mut [f32]);
}

/// M(X) is the user vector of ALS, if β comes from ALS.
impl ContextEncoder for FoldIn {
    fn dim(&self) -> usize {
        self.latent_dim()
    }

    fn encode(&self, known: Known<'_>, context: &mut [f32]) {
        self.encode(known.actions, context);
    }
}

/// Several encoders, one after the other: `D = Σ D_i`.
#[derive(Clone, Debug)]
pub struct Concatenation(pub Vec<Arc<dyn ContextEncoder>>);

impl ContextEncoder for Concatenation {
    fn dim(&self) -> usize {
        self.0.iter().map(|encoder| encoder.dim()).sum()
    }

    fn encode(&self, known: Known<'_>, mut context: &mut [f32]) {
        for encoder in &self.0 {
            if let Some(part) = context.split_off_mut(..encoder.dim()) {
                encoder.encode(known, part);
            }
        }
    }
}

/// `M(X)` of `contexts`, `[contexts, D]`; `known` returns the data of one context.
#[must_use]
pub fn encode_all<'a>(
    encoder: &dyn ContextEncoder,
    contexts: &[u32],
    known: impl Fn(u32) -> Known<'a> + Sync,
) -> Matrix {
    let mut rows = Matrix::zeros(contexts.len(), encoder.dim());
    rows.par_rows_mut().zip(contexts).for_each(|(row, &context)| {
        encoder.encode(known(context), row);
    });
    rows
}

/// The built-in encoders by their names in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// [`Mean::new`], the encoder of the paper.
    Mean,
    /// [`Mean::inverse_popularity`], and [`Mean::with_recency`] where there is one.
    WeightedMean,
    /// [`Mean::balanced`], with the weights of the weighted mean where that is an encoder too.
    BalancedMean,
    /// [`FoldIn`].
    FoldIn,
    /// [`Features::beside`] the others.
    Features,
}

/// A run's choice of encoders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextSettings {
    /// One or more, in this order.
    pub encoders: Vec<EncoderKind>,
    /// γ of the weighted mean.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub popularity_power: f32,
    /// ρ of the weighted mean: an action weighs by (1 + later actions of the user)^−ρ; 0 for the same
    /// at any time.
    #[serde(default, serialize_with = "crate::decimal::shortest")]
    pub recency: f32,
    /// α of the fold-in: an action of the user weighs 1 + α, any other 1.
    pub confidence: f64,
    /// λ of the fold-in, in units of βᵀβ.
    pub regularization: f64,
    /// The folds of the training users whose contexts and searches come from embeddings fitted
    /// without the fold; 0 for the embeddings of all, which know what training users hid. Without
    /// effect where β is learned.
    #[serde(default)]
    pub folds: u16,
    /// True if every pass over the training users observes and hides other items of theirs.
    #[serde(default)]
    pub redraw: bool,
}

impl ContextSettings {
    /// # Errors
    /// [`Error::Setting`] naming the key.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.encoders.is_empty() {
            let problem = "expected at least one encoder, as in [\"mean\"]";
            return Err(Error::setting("context.encoders", problem));
        }
        if self.encoders[0] == EncoderKind::Features {
            let problem = "expected an encoder of actions before \"features\": the first one is \
                           what an identity start takes for the query";
            return Err(Error::setting("context.encoders", problem));
        }
        if self.folds == 1 {
            let problem = "expected 0 or at least 2: one fold leaves nobody to fit on";
            return Err(Error::setting("context.folds", problem));
        }
        let ages = |kind| matches!(kind, &EncoderKind::WeightedMean | &EncoderKind::BalancedMean);
        if self.recency > 0.0 && !self.encoders.iter().any(ages) {
            let problem = "belongs to the weighted mean; add \"weighted-mean\" to context.encoders";
            return Err(Error::setting("context.recency", problem));
        }
        for (key, value, least, expected) in [
            ("recency", self.recency.into(), 0.0, "at least 0"),
            ("regularization", self.regularization, f64::MIN_POSITIVE, "more than 0"),
            ("confidence", self.confidence, 0.0, "at least 0"),
            ("popularity_power", self.popularity_power.into(), f64::MIN, "a number"),
        ] {
            if !(value >= least && value.is_finite()) {
                let problem = format!("expected {expected}, found {value}");
                return Err(Error::setting(format!("context.{key}"), problem));
            }
        }
        Ok(())
    }
}
