//! A method is a policy and an estimator; which go together, and why others do not.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{EvaluationSearch, Settings};
use crate::error::{Error, Result};
use crate::estimator::ControlVariate;
use crate::policy::{Coupling, NoiseKind, SlateDraws};
use crate::retrieval::RetrievalKind;

/// The families of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Latent Gaussian perturbation (section 3).
    Lgp,
    /// Latent random perturbation: any noise (appendix "LRP").
    Lrp,
    /// Plackett–Luce (section 2).
    PlackettLuce,
}

/// The estimates of a policy's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EstimatorKind {
    /// REINFORCE, for any policy and reward; with Plackett–Luce it is PL-PG.
    ScoreFunction,
    /// PL-Rank, for Plackett–Luce and linear rewards.
    PlRank,
    /// The covariance gradient of Plackett–Luce, corrected for K > 1.
    Covariance,
    /// The covariance gradient as the paper prints it; biased for K > 1.
    CovarianceAsPrinted,
    /// Self-normalised importance sampling of the softmax, for slates of one action.
    Fopo,
    /// The reward-weighted likelihood of what was interacted with, for latent noise, whose σ is its
    /// unit of temperature.
    Likelihood,
}

/// The methods that the paper compares, by the names in its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// LGP with exact search.
    Lgp,
    /// LGP with approximate search.
    LgpMips,
    /// Plackett–Luce with the score function.
    PlPg,
    /// Plackett–Luce with PL-Rank.
    PlRank,
    /// Plackett–Luce with the covariance gradient.
    Covariance,
    /// Softmax with FOPO's importance sampling.
    Fopo,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 6] =
        [Self::Lgp, Self::LgpMips, Self::PlPg, Self::PlRank, Self::Covariance, Self::Fopo];

    /// Its name in the paper.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lgp => "LGP",
            Self::LgpMips => "LGP-MIPS",
            Self::PlPg => "PL-PG",
            Self::PlRank => "PL-Rank",
            Self::Covariance => "PL covariance",
            Self::Fopo => "FOPO",
        }
    }

    /// `settings` with this method's policy, estimator and retrieval; all else stays.
    ///
    /// # Errors
    /// [`Error::Setting`] where another setting does not go with the method.
    pub fn settings(self, mut settings: Settings) -> Result<Settings> {
        let (policy, estimator) = match self {
            Self::Lgp | Self::LgpMips => (PolicyKind::Lgp, EstimatorKind::ScoreFunction),
            Self::PlPg => (PolicyKind::PlackettLuce, EstimatorKind::ScoreFunction),
            Self::PlRank => (PolicyKind::PlackettLuce, EstimatorKind::PlRank),
            Self::Covariance => (PolicyKind::PlackettLuce, EstimatorKind::Covariance),
            Self::Fopo => (PolicyKind::PlackettLuce, EstimatorKind::Fopo),
        };
        settings.policy.kind = policy;
        settings.estimator.kind = estimator;
        match self {
            Self::Lgp => settings.retrieval.kind = RetrievalKind::Exact,
            Self::LgpMips | Self::Fopo => settings.retrieval.kind = RetrievalKind::Hnsw,
            Self::PlPg | Self::PlRank | Self::Covariance => {}
        }
        validate(&settings)?;
        Ok(settings)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lgp => "lgp",
            Self::LgpMips => "lgp-mips",
            Self::PlPg => "pl-pg",
            Self::PlRank => "pl-rank",
            Self::Covariance => "covariance",
            Self::Fopo => "fopo",
        })
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|method| method.to_string() == text).ok_or_else(|| {
            let names = Self::ALL.map(|method| method.to_string()).join(", ");
            format!("no method `{text}`; there are {names}")
        })
    }
}

/// Refuses what is impossible or would be biased, with the reason.
pub(super) fn validate(settings: &Settings) -> Result<()> {
    let (policy, estimator) = (&settings.policy, &settings.estimator);
    for (key, value) in [
        ("policy.samples", policy.samples),
        ("policy.slate_size", policy.slate_size),
        ("estimator.head", estimator.head),
    ] {
        if value == 0 {
            return Err(Error::setting(key, "expected at least 1, found 0"));
        }
    }
    if !(policy.sigma_floor > 0.0 && policy.sigma_floor < 1.0) {
        let problem = format!("expected more than 0 and less than 1, found {}", policy.sigma_floor);
        return Err(Error::setting("policy.sigma_floor", problem));
    }
    if !(estimator.uniform_share > 0.0 && estimator.uniform_share <= 1.0) {
        let problem =
            format!("expected more than 0 and at most 1, found {}", estimator.uniform_share);
        return Err(Error::setting("estimator.uniform_share", problem));
    }
    if !(estimator.temperature > 0.0 && estimator.temperature.is_finite()) {
        let problem = format!("expected a number above 0, found {}", estimator.temperature);
        return Err(Error::setting("estimator.temperature", problem));
    }
    let coverage = settings.retrieval.coverage;
    if !(0.0..=1.0).contains(&coverage) {
        let problem = format!("expected a share from 0 to 1, found {coverage}");
        return Err(Error::setting("retrieval.coverage", problem));
    }
    match policy.kind {
        PolicyKind::PlackettLuce => validate_plackett_luce(settings),
        PolicyKind::Lgp | PolicyKind::Lrp => validate_latent(settings),
    }
}

fn validate_latent(settings: &Settings) -> Result<()> {
    let (policy, estimator) = (&settings.policy, &settings.estimator);
    if policy.kind == PolicyKind::Lgp && policy.noise != NoiseKind::Gaussian {
        let problem =
            format!("LGP's noise is Gaussian; for \"{}\" set policy.kind = \"lrp\"", policy.noise);
        return Err(Error::setting("policy.noise", problem));
    }
    if !matches!(estimator.kind, EstimatorKind::ScoreFunction | EstimatorKind::Likelihood) {
        return Err(Error::setting(
            "estimator.kind",
            "only \"score-function\" and \"likelihood\" go with latent noise; the others are \
             gradients of policy.kind = \"plackett-luce\"",
        ));
    }
    if settings.embedding.learn {
        return Err(Error::setting(
            "embedding.learn",
            "latent noise is added to h, so its score function has no gradient for β, which is \
             inside the argsort; set policy.kind = \"plackett-luce\"",
        ));
    }
    if estimator.kind == EstimatorKind::Likelihood {
        return validate_likelihood(settings);
    }
    policy.coupling.validate(policy.noise.init().as_ref(), policy.samples)?;
    if estimator.baseline == ControlVariate::LeaveOneOut {
        policy.coupling.check_leave_one_out(policy.samples)?;
    }
    Ok(())
}

fn validate_likelihood(settings: &Settings) -> Result<()> {
    let policy = &settings.policy;
    let refuse = |key: &str, problem: &str| Err(Error::setting(key, problem));
    if policy.learn_sigma {
        let problem = "the likelihood has no gradient for σ, which is its unit of temperature; set \
                       estimator.temperature instead";
        return refuse("policy.learn_sigma", problem);
    }
    if policy.coupling != Coupling::Independent {
        let problem = "couplings are of the noise of samples, and the likelihood perturbs no \
                       query; use \"independent\"";
        return refuse("policy.coupling", problem);
    }
    Ok(())
}

fn validate_plackett_luce(settings: &Settings) -> Result<()> {
    let (policy, estimator) = (&settings.policy, &settings.estimator);
    let refuse = |key: &str, problem: &str| Err(Error::setting(key, problem));
    if policy.learn_sigma {
        return refuse("policy.learn_sigma", "Plackett–Luce has no σ; set policy.kind = \"lgp\"");
    }
    if policy.coupling != Coupling::Independent {
        let problem = "couplings are of latent noise; with Plackett–Luce use \"independent\"";
        return refuse("policy.coupling", problem);
    }
    let covariance =
        matches!(estimator.kind, EstimatorKind::Covariance | EstimatorKind::CovarianceAsPrinted);
    if policy.draws == SlateDraws::Rejection && !covariance {
        return refuse(
            "policy.draws",
            "rejection spares the pass over all actions, which this estimator needs anyway for \
             its normalising constant; set estimator.kind = \"covariance\"",
        );
    }
    if estimator.kind == EstimatorKind::Likelihood {
        let problem = "the likelihood's temperature is in units of σ, which Plackett–Luce has not; \
                       set policy.kind = \"lgp\"";
        return refuse("estimator.kind", problem);
    }
    if estimator.kind == EstimatorKind::CovarianceAsPrinted && policy.samples < 2 {
        let problem = "a covariance over the samples needs at least 2 of them, found 1";
        return refuse("policy.samples", problem);
    }
    if estimator.kind == EstimatorKind::Fopo && policy.slate_size > 1 {
        let problem = "FOPO is for slates of one action; for longer ones use \"covariance\"";
        return refuse("estimator.kind", problem);
    }
    if estimator.kind == EstimatorKind::PlRank && !settings.reward.kind.is_linear() {
        return refuse(
            "reward.kind",
            "is not linear: PL-Rank credits each place with its own weight times the relevance of \
             what stands there, which a reward of the slate as a whole does not have; use \
             estimator.kind = \"score-function\" or \"covariance\"",
        );
    }
    if settings.embedding.learn {
        if !matches!(estimator.kind, EstimatorKind::ScoreFunction | EstimatorKind::PlRank) {
            let problem = "learning β is for estimator.kind = \"score-function\" and \"pl-rank\"";
            return refuse("embedding.learn", problem);
        }
        if settings.evaluation.search == EvaluationSearch::Index {
            let problem = "an index over β goes stale while β is learned; use \"exact\"";
            return refuse("evaluation.search", problem);
        }
    }
    Ok(())
}
