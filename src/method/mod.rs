//! Method settings in, policy and gradient estimator out. A [`Method`] is one tagged setting,
//! `[method]` with a `kind`: each kind is a row of the list below and a struct with its own keys,
//! which checks them and constructs the estimator. A new method is a new file and a new row.

mod covariance;
mod fopo;
mod latent;
mod logged;
mod plackett_luce;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use covariance::CovarianceMethod;
pub use fopo::FopoMethod;
pub use latent::LatentMethod;
pub use logged::LoggedMethod;
pub use plackett_luce::{PlPgMethod, PlRankMethod};

use crate::dataset::Sessions;
use crate::embedding::ActionEmbeddings;
use crate::error::Result;
use crate::estimator::AnyEstimator;
use crate::logged::Logged;
use crate::policy::{Noise, NoiseKind, RejectionSampler, Sampling, Sigma};
use crate::retrieval::{Retriever, Search};
use crate::reward::{RewardKind, SlateReward};
use crate::seed::Seed;

/// The parts of a task that a method is constructed from.
#[derive(Clone, Debug)]
pub struct Parts {
    /// β, `[P, L]`.
    pub actions: Arc<ActionEmbeddings>,
    /// The search that [`Method::search`] names; exact where a method searches nothing.
    pub retriever: Arc<dyn Retriever>,
    /// r̂.
    pub reward: Arc<dyn SlateReward>,
    /// The sessions whose observed actions stay off slates, if they do.
    pub excluded: Option<Arc<Sessions>>,
    /// K.
    pub slate_size: usize,
    /// Seed of every draw.
    pub seed: Seed,
    /// A latent noise that replaces the one of the settings.
    pub noise: Option<Arc<dyn Noise>>,
    /// The log that is learned from, whose rows are the contexts.
    pub logged: Option<Arc<Logged>>,
}

impl Parts {
    /// S slates of K actions for each query.
    #[must_use]
    pub fn sampling(&self, num_samples: usize) -> Sampling {
        Sampling {
            num_samples,
            slate_size: self.slate_size,
            excluded: self.excluded.clone(),
            seed: self.seed,
        }
    }
}

/// The parameters that a method trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// θ.
    Tower,
    /// β (appendix "Effect of fixing β"); then `h = M(X)`.
    Actions,
}

/// The object of the searches of training.
#[derive(Clone, Copy, Debug)]
pub enum Searched<'a> {
    /// Nothing.
    Nothing,
    /// The top K of perturbed queries.
    Perturbed(&'a LatentMethod),
    /// The so many best actions of the unperturbed query.
    Head(usize),
}

/// The settings of a method: they check themselves and construct the estimator.
pub trait Recipe {
    /// S.
    fn num_samples(&self) -> usize;

    /// Refuses values out of range, and combinations that are impossible or biased. `sampling`
    /// has S and K; `reward` is the reward of the settings.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] with the key and the reason.
    fn check(&self, sampling: &Sampling, reward: RewardKind) -> Result<()>;

    /// The object of the searches of training.
    fn searched(&self) -> Searched<'_> {
        Searched::Nothing
    }

    /// The trained parameters.
    fn learned(&self) -> Learned {
        Learned::Tower
    }

    /// The rejection sampler, for a method that draws with one.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] if the head does not fit the catalogue.
    fn rejection(&self, _parts: &Parts) -> Result<Option<RejectionSampler>> {
        Ok(None)
    }

    /// The gradient estimator.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] if the settings do not fit each other or `parts`.
    fn estimator(&self, parts: &Parts) -> Result<AnyEstimator>;
}

/// Declares [`Method`] and [`MethodKind`]: a row has the variant and its settings, the name in
/// settings, the name in the paper, the values of the paper, and the search that training uses.
macro_rules! methods {
    ($($(#[$doc:meta])+ $kind:ident($settings:ty) = $key:literal, $name:literal,
        $default:expr, $search:expr;)+) => {
        /// A method of training, with its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum Method {
            $($(#[$doc])+ #[serde(rename = $key)] $kind($settings),)+
        }

        /// The name of a method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum MethodKind {
            $($(#[$doc])+ #[serde(rename = $key)] $kind,)+
        }

        impl MethodKind {
            /// Every method.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Its name in settings.
            #[must_use]
            pub fn key(self) -> &'static str {
                match self { $(Self::$kind => $key,)+ }
            }

            /// Its name in the paper.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// The method with the paper's values.
            #[must_use]
            pub fn method(self) -> Method {
                match self { $(Self::$kind => Method::$kind($default),)+ }
            }
        }

        impl Method {
            /// Its name.
            #[must_use]
            pub fn kind(&self) -> MethodKind {
                match self { $(Self::$kind(_) => MethodKind::$kind,)+ }
            }

            /// The search that training uses; none where it searches nothing.
            #[must_use]
            pub fn search(&self) -> Option<Search> {
                match self { $(Self::$kind(settings) => {
                    let search: fn(&$settings) -> Option<Search> = $search;
                    search(settings)
                })+ }
            }

            /// Its settings.
            #[must_use]
            pub fn recipe(&self) -> &dyn Recipe {
                match self { $(Self::$kind(settings) => settings,)+ }
            }
        }
    };
}

methods! {
    /// Latent Gaussian perturbation (section 3), with exact search.
    Lgp(LatentMethod) = "lgp", "LGP", LatentMethod::gaussian(), |_| Some(Search::Exact);
    /// Latent Gaussian perturbation with approximate search.
    LgpMips(LatentMethod) = "lgp-mips", "LGP-MIPS", LatentMethod::gaussian(),
        |_| Some(Search::Hnsw);
    /// Latent random perturbation with any noise (appendix "LRP"), with exact search.
    Lrp(LatentMethod) = "lrp", "LRP", LatentMethod::any_noise(), |_| Some(Search::Exact);
    /// Latent random perturbation with approximate search.
    LrpMips(LatentMethod) = "lrp-mips", "LRP-MIPS", LatentMethod::any_noise(),
        |_| Some(Search::Hnsw);
    /// Plackett–Luce with the score function (equation 6).
    PlPg(PlPgMethod) = "pl-pg", "PL-PG", PlPgMethod::default(), |_| None;
    /// Plackett–Luce with PL-Rank; linear rewards only.
    PlRank(PlRankMethod) = "pl-rank", "PL-Rank", PlRankMethod::default(), |_| None;
    /// The covariance gradient of Plackett–Luce (equation 8), corrected for K > 1.
    Covariance(CovarianceMethod<false>) = "covariance", "PL covariance",
        CovarianceMethod::default(), CovarianceMethod::search;
    /// The covariance gradient as the paper prints it; biased for K > 1.
    CovarianceAsPrinted(CovarianceMethod<true>) = "covariance-as-printed",
        "PL covariance as printed", CovarianceMethod::default(), CovarianceMethod::search;
    /// Self-normalised importance sampling of the softmax, for slates of one action.
    Fopo(FopoMethod) = "fopo", "FOPO", FopoMethod::default(), |fopo| Some(fopo.search);
    /// Latent importance weights on the rows of a log.
    Logged(LoggedMethod) = "logged", "logged", LoggedMethod::default(), |_| None;
}

impl Method {
    /// Refuses what cannot be trained with slates of `slate_size` under `reward`.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] with the key and the reason.
    pub fn check(&self, slate_size: usize, reward: RewardKind) -> Result<()> {
        let num_samples = self.num_samples();
        let sampling = Sampling { num_samples, slate_size, excluded: None, seed: Seed(0) };
        sampling.validate()?;
        self.recipe().check(&sampling, reward)
    }

    /// S.
    #[must_use]
    pub fn num_samples(&self) -> usize {
        self.recipe().num_samples()
    }

    /// The settings of latent noise, for a method that perturbs queries.
    #[must_use]
    pub fn latent(&self) -> Option<&LatentMethod> {
        match self.recipe().searched() {
            Searched::Perturbed(latent) => Some(latent),
            _ => None,
        }
    }

    /// The rule for σ of a policy `h + σε` with Gaussian ε, which is what can be explored with and
    /// learned from; none for a policy that draws otherwise.
    #[must_use]
    pub fn gaussian_sigma(&self) -> Option<Sigma> {
        if let Self::Logged(logged) = self {
            return Some(logged.sigma);
        }
        let gaussian =
            |latent: &&LatentMethod| latent.noise.is_none_or(|noise| noise == NoiseKind::Gaussian);
        self.latent().filter(gaussian).map(|latent| latent.sigma)
    }

    /// Makes every sample have a search of its own.
    #[must_use]
    pub fn without_candidates(mut self) -> Self {
        if let Self::Lgp(latent)
        | Self::LgpMips(latent)
        | Self::Lrp(latent)
        | Self::LrpMips(latent) = &mut self
        {
            latent.candidates = 0;
        }
        self
    }
}

impl fmt::Display for MethodKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

impl FromStr for MethodKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|kind| kind.key() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.key()).collect();
            format!("no method `{text}`; there are {}", names.join(", "))
        })
    }
}
