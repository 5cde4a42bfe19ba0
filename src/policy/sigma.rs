//! Takes a query and returns σ, the scale of its noise; removes from a gradient the part that a σ
//! proportional to ‖h‖ makes vanish.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::matrix::{dot, norm};

/// The rule for σ. Only the ratio of noise to signal, `σ√L / ‖h‖`, matters to an argsort.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sigma {
    /// `1/L`, the paper's main text.
    InverseDim,
    /// `1/B`, B the mean norm of β: the paper's study of the variance.
    InverseNorm,
    /// `c‖h‖/√L` per context: the noise has c times the length of the signal.
    Relative(f32),
}

impl fmt::Display for Sigma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InverseDim => f.write_str("inverse-dim"),
            Self::InverseNorm => f.write_str("inverse-norm"),
            Self::Relative(c) => write!(f, "relative({c})"),
        }
    }
}

impl FromStr for Sigma {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let ratio = text.strip_prefix("relative(").and_then(|rest| rest.strip_suffix(')'));
        match (text, ratio.map(str::parse::<f32>)) {
            ("inverse-dim", _) => Ok(Self::InverseDim),
            ("inverse-norm", _) => Ok(Self::InverseNorm),
            (_, Some(Ok(c))) if c.is_finite() && c > 0.0 => Ok(Self::Relative(c)),
            _ => Err(Error::setting(
                "method.sigma",
                format!(
                    "expected \"inverse-dim\", \"inverse-norm\" or \"relative(c)\" with a positive \
                     c, found \"{text}\""
                ),
            )),
        }
    }
}

impl TryFrom<String> for Sigma {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Sigma> for String {
    fn from(sigma: Sigma) -> Self {
        sigma.to_string()
    }
}

/// Treatment of the part of the gradient along h under a relative σ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Radial {
    /// Keeps it: the gradient of `R(h, σ)` with σ held fixed.
    Keep,
    /// Removes it, `g − ĥ(ĥ·g)`: the exact gradient of `R(h, c‖h‖/√L)`, which does not depend on
    /// the length of h.
    Project,
}

/// A relative σ treats ‖h‖ as at least this share of β's mean norm, so that `1/σ` stays finite for
/// h = 0.
const NORM_FLOOR: f32 = 1e-3;

/// The rule for σ with the numbers it needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    sigma: Sigma,
    radial: Radial,
    latent_dim: usize,
    mean_norm: f32,
}

impl Scale {
    /// `latent_dim` is L, `mean_norm` is B, the mean norm of β's rows.
    ///
    /// # Errors
    /// [`Error::Setting`] for a projection under a σ that does not depend on h: there it would bias
    /// the gradient.
    pub fn new(sigma: Sigma, radial: Radial, latent_dim: usize, mean_norm: f32) -> Result<Self> {
        if radial == Radial::Project && !matches!(sigma, Sigma::Relative(_)) {
            return Err(Error::setting(
                "method.radial",
                format!(
                    "\"project\" is the gradient under sigma = \"relative(c)\" only; with \
                     \"{sigma}\" it would be biased: use \"keep\""
                ),
            ));
        }
        Ok(Self { sigma, radial, latent_dim, mean_norm })
    }

    /// σ for the query `h` `[L]`; positive.
    #[must_use]
    pub fn sigma(&self, h: &[f32]) -> f32 {
        let l = self.latent_dim as f32;
        match self.sigma {
            Sigma::InverseDim => 1.0 / l,
            Sigma::InverseNorm => 1.0 / self.mean_norm.max(f32::MIN_POSITIVE),
            Sigma::Relative(c) => c * norm(h).max(self.floor()) / l.sqrt(),
        }
    }

    /// Takes the gradient `g` `[L]` at fixed σ and removes its part along `h` if asked to.
    pub fn project(&self, h: &[f32], g: &mut [f32]) {
        let squared = dot(h, h);
        // At the floor σ does not depend on h, so the gradient at fixed σ is the whole gradient.
        if self.radial == Radial::Project && squared.sqrt() > self.floor() {
            let along = dot(h, g) / squared;
            for (g, h) in g.iter_mut().zip(h) {
                *g -= along * h;
            }
        }
    }

    /// True where a relative σ has stopped shrinking with h, so that the policy depends on h's length.
    #[must_use]
    pub fn is_floored(&self, h: &[f32]) -> bool {
        matches!(self.sigma, Sigma::Relative(_)) && norm(h) <= self.floor()
    }

    fn floor(&self) -> f32 {
        (NORM_FLOOR * self.mean_norm).max(f32::MIN_POSITIVE.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigma_rules_read_as_they_print() {
        for text in ["inverse-dim", "inverse-norm", "relative(0.3)"] {
            assert_eq!(text.parse::<Sigma>().unwrap().to_string(), text);
        }
        for text in ["relative(0)", "relative(-1)", "relative(x)", "one"] {
            assert!(text.parse::<Sigma>().unwrap_err().to_string().contains("relative(c)"));
        }
    }

    #[test]
    fn relative_noise_has_the_asked_length_and_never_vanishes() {
        let policy = Scale::new(Sigma::Relative(0.5), Radial::Keep, 4, 2.0).unwrap();
        assert!((policy.sigma(&[3.0, 0.0, 4.0, 0.0]) - 0.5 * 5.0 / 2.0).abs() < 1e-6);
        assert!(policy.sigma(&[0.0; 4]) > 0.0);
    }

    #[test]
    fn a_projection_without_a_relative_sigma_is_refused() {
        let error = Scale::new(Sigma::InverseDim, Radial::Project, 4, 1.0);
        assert!(error.unwrap_err().to_string().contains("use \"keep\""));
    }
}
