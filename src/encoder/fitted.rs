//! Takes the settings and fitted numbers of a run's encoders, as a bundle keeps them, and makes the
//! encoders again: no sessions are needed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Concatenation, ContextEncoder, Features, Mean};
use crate::embedding::{FoldIn, FoldInOptions, Vectors};
use crate::error::{Error, Result};

/// One encoder: its settings, and what was fitted on training users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fitted {
    /// [`Mean::new`].
    Mean,
    /// [`Mean::weighted`].
    WeightedMean {
        /// ρ: an action weighs by (1 + later actions of the user)^−ρ besides.
        recency: f32,
    },
    /// [`Mean::balanced`], of the weighted mean where there are weights.
    BalancedMean {
        /// ρ.
        recency: f32,
    },
    /// [`FoldIn`].
    FoldIn {
        /// λ, in units of βᵀβ.
        regularization: f64,
        /// α: an action of the user weighs 1 + α, any other 1.
        confidence: f64,
    },
    /// [`Features::new`].
    Features {
        /// F.
        width: usize,
        /// The factor of every feature.
        scale: f32,
    },
}

impl Fitted {
    /// The encoder over `vectors`; `weights` are those of the weighted mean, `[P]`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a fold-in that cannot be, [`Error::Shape`] without weights for each
    /// action.
    pub fn encoder(
        &self,
        vectors: &Vectors,
        weights: Option<&Arc<Vec<f32>>>,
    ) -> Result<Arc<dyn ContextEncoder>> {
        let mean = || Mean::new(Arc::clone(&vectors.inputs));
        let weighted = || {
            let rows = vectors.inputs.rows();
            let weights = weights.filter(|weights| weights.len() == rows);
            let weights = weights.ok_or_else(|| Error::Shape {
                what: "weights of the weighted mean".into(),
                expected: format!("[{rows}]"),
                found: "none, or others".into(),
            })?;
            Ok::<_, Error>(Mean::weighted(Arc::clone(&vectors.inputs), Arc::clone(weights)))
        };
        Ok(match *self {
            Self::Mean => Arc::new(mean()),
            Self::WeightedMean { recency } => Arc::new(weighted()?.with_recency(recency)),
            Self::BalancedMean { recency } => {
                let mean = if weights.is_some() { weighted()? } else { mean() };
                Arc::new(mean.with_recency(recency).balanced())
            }
            Self::FoldIn { regularization, confidence } => {
                let options = FoldInOptions { regularization, confidence };
                Arc::new(FoldIn::new(Arc::clone(&vectors.actions), options)?)
            }
            Self::Features { width, scale } => Arc::new(Features::new(width, scale)),
        })
    }
}

/// All encoders of a run, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoding {
    /// One or more.
    pub encoders: Vec<Fitted>,
    /// w of each action in the weighted mean `[P]`, if there is one.
    pub weights: Option<Arc<Vec<f32>>>,
}

impl Encoding {
    /// The encoder of the whole context, over `vectors`.
    ///
    /// # Errors
    /// The errors of [`Fitted::encoder`].
    pub fn encoder(&self, vectors: &Vectors) -> Result<Arc<dyn ContextEncoder>> {
        let made = |fitted: &Fitted| fitted.encoder(vectors, self.weights.as_ref());
        Ok(joined(self.encoders.iter().map(made).collect::<Result<_>>()?))
    }

    /// True if an encoder solves with the action vectors.
    #[must_use]
    pub fn folds_in(&self) -> bool {
        self.encoders.iter().any(|fitted| matches!(fitted, Fitted::FoldIn { .. }))
    }
}

/// One encoder as it is, several one after the other.
pub(crate) fn joined(mut encoders: Vec<Arc<dyn ContextEncoder>>) -> Arc<dyn ContextEncoder> {
    match encoders.len() {
        1 => encoders.swap_remove(0),
        _ => Arc::new(Concatenation(encoders)),
    }
}
