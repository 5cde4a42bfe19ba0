//! The noise of a latent perturbation: independent components of one density with mean 0 and
//! variance 1 (section 3 for the Gaussian; appendix "LRP" for any other).

use std::fmt::{self, Debug};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::seed::Stream;

/// A density on the line with mean 0, variance 1 and a score that has a finite variance.
pub trait Noise: Send + Sync + Debug {
    /// log q(ε).
    fn log_density(&self, value: f64) -> f64;

    /// (log q)'(ε).
    fn score(&self, value: f64) -> f64;

    /// The value below which ε falls with this probability, which is in (0, 1).
    fn quantile(&self, probability: f64) -> f64;

    /// Whether −ε has the distribution of ε.
    fn is_symmetric(&self) -> bool {
        false
    }

    /// Whether L independent components have a density that depends on their length alone; only
    /// the Gaussian has.
    fn is_spherical(&self) -> bool {
        false
    }

    /// Fills `out` with independent draws.
    #[allow(clippy::cast_possible_truncation, reason = "queries are f32")]
    fn fill(&self, stream: &mut Stream, out: &mut [f32]) {
        out.fill_with(|| self.quantile(stream.open_uniform()) as f32);
    }
}

/// N(0, 1): LGP.
#[derive(Clone, Copy, Debug)]
pub struct Gaussian;

impl Noise for Gaussian {
    fn log_density(&self, value: f64) -> f64 {
        -0.5 * (value * value + std::f64::consts::TAU.ln())
    }

    fn score(&self, value: f64) -> f64 {
        -value
    }

    fn quantile(&self, _probability: f64) -> f64 {
        todo!()
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn is_spherical(&self) -> bool {
        true
    }

    fn fill(&self, stream: &mut Stream, out: &mut [f32]) {
        stream.fill_normals(out);
    }
}

/// The built-in noises, as a run's settings name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NoiseKind {
    /// [`Gaussian`].
    #[default]
    Gaussian,
}

impl NoiseKind {
    /// The noise.
    #[must_use]
    pub fn init(self) -> Arc<dyn Noise> {
        match self {
            Self::Gaussian => Arc::new(Gaussian),
        }
    }
}

impl fmt::Display for NoiseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gaussian => f.write_str("gaussian"),
        }
    }
}

impl FromStr for NoiseKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "gaussian" => Ok(Self::Gaussian),
            _ => Err(Error::setting("policy.noise", format!("no noise `{text}`"))),
        }
    }
}

impl TryFrom<String> for NoiseKind {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<NoiseKind> for String {
    fn from(noise: NoiseKind) -> Self {
        noise.to_string()
    }
}
