//! Noise turns a random stream into ε `[L]`, independent components of a density with mean 0 and
//! variance 1. Gaussian noise makes LGP (section 3), any other LRP (appendix "LRP"). The gradient needs
//! the score `(log q)'`: it must exist almost everywhere, and q must fall to zero wherever it ends, or
//! the estimate misses what crosses the edge.

mod families;

use std::fmt::{self, Debug};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::seed::Stream;

pub use families::{Gaussian, Gumbel, Laplace, Logistic, RaisedCosine, StudentT};

/// A continuous density q on the line with mean 0, variance 1 and a score of finite variance.
pub trait Noise: Send + Sync + Debug {
    /// log q(ε); −∞ outside the support.
    fn log_density(&self, value: f64) -> f64;

    /// (log q)'(ε).
    fn score(&self, value: f64) -> f64;

    /// The value below which ε falls with probability `probability`, in (0, 1).
    fn quantile(&self, probability: f64) -> f64;

    /// True for Gaussian noise alone: its parts in any orthogonal directions are independent.
    fn has_independent_parts(&self) -> bool {
        false
    }

    /// Replaces draws ε by their scores with respect to h, `−(log q)'(ε)` (without the 1/σ).
    #[allow(clippy::cast_possible_truncation, reason = "a score is as precise as its ε")]
    fn scores(&self, draws: &mut [f32]) {
        for draw in draws {
            let slope = self.score(f64::from(*draw)) as f32;
            *draw = -slope;
        }
    }

    /// Fills `out` with independent draws.
    #[allow(clippy::cast_possible_truncation, reason = "queries are f32")]
    fn fill(&self, stream: &mut Stream, out: &mut [f32]) {
        out.fill_with(|| self.quantile(stream.open_uniform()) as f32);
    }
}

/// The built-in noises by their names in the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NoiseKind {
    /// [`Gaussian`], "gaussian".
    #[default]
    Gaussian,
    /// [`Laplace`], "laplace".
    Laplace,
    /// [`Logistic`], "logistic".
    Logistic,
    /// [`StudentT`], "student-t(ν)".
    StudentT(StudentT),
    /// [`Gumbel`], "gumbel".
    Gumbel,
    /// [`RaisedCosine`], "raised-cosine".
    RaisedCosine,
}

impl NoiseKind {
    /// The noise.
    #[must_use]
    pub fn init(self) -> Arc<dyn Noise> {
        match self {
            Self::Gaussian => Arc::new(Gaussian),
            Self::Laplace => Arc::new(Laplace),
            Self::Logistic => Arc::new(Logistic),
            Self::StudentT(noise) => Arc::new(noise),
            Self::Gumbel => Arc::new(Gumbel),
            Self::RaisedCosine => Arc::new(RaisedCosine),
        }
    }
}

impl fmt::Display for NoiseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gaussian => f.write_str("gaussian"),
            Self::Laplace => f.write_str("laplace"),
            Self::Logistic => f.write_str("logistic"),
            Self::StudentT(noise) => write!(f, "student-t({})", noise.freedom()),
            Self::Gumbel => f.write_str("gumbel"),
            Self::RaisedCosine => f.write_str("raised-cosine"),
        }
    }
}

impl FromStr for NoiseKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let freedom = text.strip_prefix("student-t(").and_then(|rest| rest.strip_suffix(')'));
        let problem = match (text, freedom.map(str::parse)) {
            ("gaussian", _) => return Ok(Self::Gaussian),
            ("laplace", _) => return Ok(Self::Laplace),
            ("logistic", _) => return Ok(Self::Logistic),
            ("gumbel", _) => return Ok(Self::Gumbel),
            ("raised-cosine", _) => return Ok(Self::RaisedCosine),
            (_, Some(Ok(freedom))) => return StudentT::new(freedom).map(Self::StudentT),
            ("uniform", _) => {
                "\"uniform\" has no score: its density is flat wherever it is positive, so the \
                 gradient sits in the edges, which samples cannot see; \"raised-cosine\" is \
                 bounded too"
                    .into()
            }
            ("triangular", _) => {
                "\"triangular\" has a score of infinite variance: it grows as 1 / (distance to the \
                 edge); \"raised-cosine\" is bounded too"
                    .into()
            }
            _ => format!(
                "expected \"gaussian\", \"laplace\", \"logistic\", \"student-t(ν)\" with ν > 2, \
                 \"gumbel\" or \"raised-cosine\", found \"{text}\""
            ),
        };
        Err(Error::setting("method.noise", problem))
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

#[cfg(test)]
const NAMES: [&str; 7] = [
    "gaussian",
    "laplace",
    "logistic",
    "student-t(2.5)",
    "student-t(5)",
    "gumbel",
    "raised-cosine",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_print() {
        for text in NAMES {
            assert_eq!(text.parse::<NoiseKind>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_has_no_usable_score_is_refused_with_the_reason() {
        for (text, reason) in [
            ("uniform", "has no score"),
            ("triangular", "infinite variance"),
            ("student-t(2)", "ν > 2"),
            ("student-t(NaN)", "ν > 2"),
            ("student-t(inf)", "\"gaussian\""),
            ("student-t(five)", "\"laplace\""),
            ("student-t", "student-t(ν)"),
            ("normal", "\"gaussian\""),
        ] {
            let error = text.parse::<NoiseKind>().unwrap_err().to_string();
            assert!(error.starts_with("setting `method.noise`"), "{error}");
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
