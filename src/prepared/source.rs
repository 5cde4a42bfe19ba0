//! The sources of embeddings in, embeddings fitted on some of the training users out.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{CHOICE, Manifest};
use crate::dataset::{Folds, Sessions, Times};
use crate::embedding::{
    AlsOptions, Beside, BlendOptions, Form, Import, NeighbourOptions, SessionPart, Slim,
    StoredEmbeddings, SvdOptions, blend, implicit_als, interactions_of, truncated_svd,
    with_neighbours,
};
use crate::encoder::EncoderKind;
use crate::error::{Error, Result};
use crate::files::{read_toml, write_toml};
use crate::reward::RewardKind;
use crate::seed::Seed;

/// The source of the action vectors V.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmbeddingSource {
    /// The best of several, by the reward of the decision at θ = I on training users that it was not
    /// fitted on.
    Auto(Judge),
    /// The truncated SVD of the training interactions.
    Svd {
        /// The interactions to fit.
        interactions: SessionPart,
        /// Settings of the decomposition.
        options: SvdOptions,
    },
    /// Alternating least squares on the training interactions.
    Als {
        /// The interactions to fit.
        interactions: SessionPart,
        /// Settings of ALS.
        options: AlsOptions,
    },
    /// The SVD and alternating least squares together.
    Blend {
        /// The interactions to fit.
        interactions: SessionPart,
        /// Settings of both.
        options: BlendOptions,
    },
    /// One of these and the most similar items of each.
    Neighbours {
        /// The interactions to fit.
        interactions: SessionPart,
        /// Settings of both.
        options: NeighbourOptions,
    },
    /// A file.
    Import(Import),
    /// What was chosen for earlier interactions, fitted to these.
    Again {
        /// The source and the settings.
        choice: Box<Choice>,
        /// What they were chosen by, if they were.
        judge: Option<Judge>,
    },
}

/// What decides between embeddings: a run's reward, slate size and exclusion, and how long to look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Judge {
    /// r̂.
    pub reward: RewardKind,
    /// K.
    pub slate_size: usize,
    /// True if the observed actions of a user stay off the slates.
    pub exclude_observed: bool,
    /// Seconds of wall-clock time. The shortest candidate, and what training needs of the winner, are fitted
    /// whatever it is.
    pub within: u64,
}

impl Default for Judge {
    /// The default preset's reward, for 180 seconds.
    fn default() -> Self {
        Self { reward: RewardKind::Discounted, slate_size: 5, exclude_observed: true, within: 180 }
    }
}

/// The source of a folder's embeddings, and the settings that were chosen with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The source, never [`EmbeddingSource::Auto`] nor [`EmbeddingSource::Again`].
    pub source: EmbeddingSource,
    /// None for a source that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<ChosenSettings>,
}

/// The settings of vectors and contexts that earned the most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChosenSettings {
    /// How β is made of the source.
    pub embedding: Form,
    /// The encoder of contexts.
    pub encoder: EncoderKind,
    /// γ of the weighted mean.
    #[serde(serialize_with = "crate::decimal::shortest")]
    pub popularity_power: f32,
    /// ρ of the weighted mean.
    #[serde(default, serialize_with = "crate::decimal::shortest")]
    pub recency: f32,
}

/// Embeddings with their source, fitted on all training users and without each of the folds.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The source and the settings.
    pub choice: Choice,
    /// Fitted on all training users.
    pub embeddings: StoredEmbeddings,
    /// [`Prepared::folds`](super::Prepared::folds), and what was fitted without each, if anything was.
    pub folds: Option<(Folds, Vec<StoredEmbeddings>)>,
}

/// What a split holds out.
#[derive(Clone, Copy, Debug)]
pub enum HeldOut<'a> {
    /// Users, with everything they did.
    Users,
    /// Some of the items of users whose other items are trained on.
    Items,
    /// The latest of the items of users whose other items are trained on, by these times.
    Latest(&'a Times),
}

/// Chooses between embeddings for [`EmbeddingSource::Auto`].
pub type Choose<'a> = dyn Fn(&Sessions, HeldOut<'_>, &Judge, Seed) -> Result<Chosen> + 'a;

impl EmbeddingSource {
    /// What the preparation of `folder` chose, or was told, to be fitted to other interactions.
    ///
    /// # Errors
    /// [`Error::File`] where there is no prepared folder, or one whose embeddings are of a file.
    pub fn again(folder: &Path) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        let Some(source) = manifest.source().filter(Self::is_fitted) else {
            let problem = "its embeddings were not fitted to interactions, so they cannot be fitted again; \
                           give their file, or auto";
            return Err(Error::file(folder, problem));
        };
        let judge = manifest.judge();
        let choice = manifest.choice.unwrap_or(Choice { source, settings: None });
        Ok(Self::Again { choice: Box::new(choice), judge })
    }

    /// True if [`fit`](Self::fit) makes the embeddings of interactions.
    #[must_use]
    pub fn is_fitted(&self) -> bool {
        match self {
            Self::Svd { .. } | Self::Als { .. } | Self::Blend { .. } | Self::Neighbours { .. } => {
                true
            }
            Self::Auto(_) | Self::Import(_) | Self::Again { .. } => false,
        }
    }

    /// What stands beside neighbours.
    #[must_use]
    pub fn beside(beside: Beside, interactions: SessionPart) -> Self {
        match beside {
            Beside::Svd(options) => Self::Svd { interactions, options },
            Beside::Blend(options) => Self::Blend { interactions, options },
        }
    }

    /// This source with at most so many dimensions.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        match &mut self {
            Self::Svd { options, .. } => options.latent_dim = options.latent_dim.min(most),
            Self::Als { options, .. } => options.latent_dim = options.latent_dim.min(most),
            Self::Blend { options, .. } => *options = options.at_most(most),
            Self::Neighbours { options, .. } => *options = options.at_most(most),
            Self::Auto(_) | Self::Import(_) | Self::Again { .. } => {}
        }
        self
    }

    /// Fits the embeddings on the interactions of `users`, which are training contexts.
    ///
    /// # Errors
    /// Fails if the factorisation fails; [`Error::Setting`] for a source that fits nothing.
    pub fn fit(&self, sessions: &Sessions, users: &[u32], seed: Seed) -> Result<StoredEmbeddings> {
        let of = |part: &SessionPart| interactions_of(sessions, users, *part);
        match self {
            Self::Svd { interactions, options } => {
                let matrix = of(interactions);
                Ok(truncated_svd(&matrix, sessions.num_actions, *options, seed)?.into_stored())
            }
            Self::Als { interactions, options } => {
                implicit_als(&of(interactions), sessions.num_actions, *options, seed)
            }
            Self::Blend { interactions, options } => {
                let matrix = of(interactions);
                let svd = truncated_svd(&matrix, sessions.num_actions, options.svd, seed)?;
                blend(&svd.into_stored(), &matrix, *options)
            }
            Self::Neighbours { interactions, options } => {
                let beside = Self::beside(options.beside, *interactions);
                let beside = beside.fit(sessions, users, seed)?;
                let slim = Slim::new(&of(interactions), sessions.num_actions, options.count)?;
                with_neighbours(&beside, &slim, *options, seed)
            }
            Self::Auto(_) | Self::Import(_) | Self::Again { .. } => Err(Error::setting(
                "embeddings",
                "expected svd, als, a blend or neighbours, which are fitted",
            )),
        }
    }
}

impl Choice {
    /// Reads the choice of a prepared folder.
    ///
    /// # Errors
    /// [`Error::File`] for a file that is missing or damaged.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        read_toml(&folder.join(CHOICE))
    }

    /// Writes the choice into a folder.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        write_toml(&folder.join(CHOICE), self)
    }
}
