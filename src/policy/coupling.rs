//! How the S samples of a query depend on each other. Each alone has the noise's distribution, so
//! every coupling keeps the plain estimate unbiased and changes its variance only; a baseline made
//! of the other samples asks for more ([`Coupling::check_leave_one_out`]).

use serde::{Deserialize, Serialize};

use super::Noise;
use crate::error::{Error, Result};
use crate::seed::Stream;

/// How the S samples of a query depend on each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coupling {
    /// Not at all, as in the paper.
    #[default]
    Independent,
    /// Sample s + S/2 uses −ε of sample s.
    Antithetic,
}

impl Coupling {
    /// Refuses a coupling that `noise` or S does not have.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason.
    pub fn validate(self, noise: &dyn Noise, num_samples: usize) -> Result<()> {
        let refuse = |problem: String| Err(Error::setting("policy.coupling", problem));
        match self {
            Self::Independent => Ok(()),
            Self::Antithetic if !noise.is_symmetric() => refuse(format!(
                "antithetic pairs need a symmetric noise: −ε of {noise:?} has another distribution"
            )),
            Self::Antithetic if !num_samples.is_multiple_of(2) => {
                refuse(format!("pairs need an even policy.samples, found {num_samples}"))
            }
            Self::Antithetic => Ok(()),
        }
    }

    /// Refuses a leave-one-out baseline whose samples know of each other.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason.
    pub fn check_leave_one_out(self, num_samples: usize) -> Result<()> {
        match self {
            Self::Antithetic if num_samples > 1 => Err(Error::setting(
                "policy.coupling",
                "a leave-one-out baseline sees the mirrored sample, so the gradient would be off \
                 by S/(S − 1); set estimator.baseline = \"none\" or policy.coupling = \
                 \"independent\"",
            )),
            _ => Ok(()),
        }
    }

    /// Fills `out` `[S, L]` with the noise of one query's samples.
    pub fn fill(self, noise: &dyn Noise, stream: &mut Stream, latent_dim: usize, out: &mut [f32]) {
        match self {
            Self::Independent => noise.fill(stream, out),
            Self::Antithetic => {
                let (first, mirrored) = out.split_at_mut(out.len() / 2 / latent_dim * latent_dim);
                noise.fill(stream, first);
                mirrored.iter_mut().zip(first).for_each(|(mirrored, drawn)| *mirrored = -*drawn);
            }
        }
    }
}
