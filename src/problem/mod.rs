//! What a policy is trained on and judged by, put together once per process: sessions, β, the
//! contexts M(X), retrieval and the reward; and what a run's settings make of them: its policy and
//! estimator.

mod audit;
mod contexts;
mod method;
mod tuning;

use std::sync::Arc;

use burn::tensor::Device;

use crate::dataset::{Sessions, Split};
use crate::embedding::ActionEmbeddings;
use crate::encoder::{ContextEncoder, encode_all};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::model::{Model, SigmaFactor};
use crate::policy::Noise;
use crate::prepared::Prepared;
use crate::retrieval::{Exact, Queries, RetrievalKind, Retriever, Slates};
use crate::reward::SlateReward;
use crate::settings::Settings;

pub use audit::Audit;
pub use contexts::Profiles;
pub use tuning::{Tried, Tuning};

/// A problem: everything but the policy.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Who has seen and hidden what.
    pub sessions: Arc<Sessions>,
    /// β.
    pub actions: Arc<ActionEmbeddings>,
    /// What makes a context of what is known of somebody.
    pub encoder: Arc<dyn ContextEncoder>,
    /// What is known of the users beside their actions.
    pub profiles: Arc<Profiles>,
    /// M(X) of every context, `[U, D]`.
    pub contexts: Matrix,
    /// Exact search over β.
    pub exact: Arc<dyn Retriever>,
    /// The search that training uses.
    pub retriever: Arc<dyn Retriever>,
    /// r̂.
    pub reward: Arc<dyn SlateReward>,
    noise: Option<Arc<dyn Noise>>,
    slate_size: usize,
    exclude_observed: bool,
}

/// Through what the decision is retrieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Every action is scored.
    Exact,
    /// The search that training uses.
    Training,
}

impl Problem {
    /// The problem that `settings` make of a prepared folder. Builds the index if no run has
    /// needed it before.
    ///
    /// # Errors
    /// [`Error::SlateTooLarge`], or what embeddings and index refuse.
    pub fn load(prepared: &Prepared, settings: &Settings) -> Result<Self> {
        check_slate_size(&prepared.sessions, settings)?;
        let actions = Arc::new(prepared.embeddings.actions(settings.embedding.power)?);
        let exact: Arc<dyn Retriever> = Arc::new(Exact::new(Arc::clone(&actions)));
        let retriever = match settings.retrieval.kind {
            RetrievalKind::Exact => Arc::clone(&exact),
            RetrievalKind::Hnsw => Arc::new(prepared.index(&actions, &settings.retrieval.hnsw)?),
        };
        let sessions = Arc::clone(&prepared.sessions);
        let (encoder, profiles) = contexts::encoder(prepared, &actions, &settings.context)?;
        let everybody: Vec<u32> = sessions.observed.contexts().collect();
        let known = |context| profiles.observed(&sessions, context);
        Ok(Self {
            contexts: encode_all(encoder.as_ref(), &everybody, known),
            encoder,
            profiles: Arc::new(profiles),
            reward: settings.reward.kind.init(
                settings.policy.slate_size,
                Arc::clone(&sessions),
                &actions,
            ),
            noise: None,
            slate_size: settings.policy.slate_size,
            exclude_observed: settings.retrieval.exclude_observed,
            sessions,
            actions,
            exact,
            retriever,
        })
    }

    /// Equal for settings of which [`load`](Self::load) makes the same problem.
    #[must_use]
    pub fn depends_on(settings: &Settings) -> String {
        let Settings { embedding, context, retrieval, reward, policy, .. } = settings;
        format!("{:?}", (embedding.power, context, retrieval, reward, policy.slate_size))
    }

    /// The same problem with a reward of one's own.
    #[must_use]
    pub fn with_reward(self, reward: Arc<dyn SlateReward>) -> Self {
        Self { reward, ..self }
    }

    /// The same problem with a latent noise of one's own, whatever the settings name.
    #[must_use]
    pub fn with_noise(self, noise: Arc<dyn Noise>) -> Self {
        Self { noise: Some(noise), ..self }
    }

    /// The same problem with slates of another length; a reward keeps the weights it has.
    #[must_use]
    pub fn with_slate_size(self, slate_size: usize) -> Self {
        Self { slate_size, ..self }
    }

    /// K.
    #[must_use]
    pub fn slate_size(&self) -> usize {
        self.slate_size
    }

    /// The sessions whose observed actions stay off slates, if they do.
    #[must_use]
    pub fn excluded(&self) -> Option<Arc<Sessions>> {
        self.exclude_observed.then(|| Arc::clone(&self.sessions))
    }

    /// The actions that each of `times` queries of each context must not be answered with, if any.
    fn excluded_of(&self, contexts: &[u32], times: usize) -> Option<Vec<&[u32]>> {
        let of = |&context| std::iter::repeat_n(self.sessions.observed.of(context), times);
        self.exclude_observed.then(|| contexts.iter().flat_map(of).collect())
    }

    /// What retrieves the decisions of `model`: where it learns β, an exact search over that.
    ///
    /// # Errors
    /// Those of the device.
    pub fn retriever(&self, model: &Model, search: Search) -> Result<Arc<dyn Retriever>> {
        if let Some(actions) = model.learned_actions()? {
            return Ok(Arc::new(Exact::new(Arc::new(actions))));
        }
        Ok(Arc::clone(match search {
            Search::Exact => &self.exact,
            Search::Training => &self.retriever,
        }))
    }

    /// The deterministic decision `d_θ(x) = argsort^K h_θ(x)ᵀβ_a` for each of `contexts`, through
    /// `retriever`.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn decide(
        &self,
        model: &Model,
        contexts: &[u32],
        retriever: &dyn Retriever,
    ) -> Result<Slates> {
        let latent = model.latent(&self.contexts.select(contexts))?; // [B, L]
        let excluded = self.excluded_of(contexts, 1);
        retriever.search(Queries {
            latent: &latent,
            slate_size: self.slate_size,
            excluded: excluded.as_deref(),
        })
    }

    /// Fails if no policy can be trained with `settings`: constructs everything that they describe.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that do not fit each other or this data.
    pub fn check(&self, settings: &Settings, device: &Device) -> Result<()> {
        if self.sessions.contexts(Split::Train).is_empty() {
            return Err(Error::setting("data", "no user is in the train split"));
        }
        self.estimator(settings)?;
        self.initial_model(settings, device)?;
        Ok(())
    }

    /// The model at step 0 of a run with `settings`, without autodiff.
    ///
    /// # Errors
    /// [`Error::Setting`] for an impossible initialisation.
    pub fn initial_model(&self, settings: &Settings, device: &Device) -> Result<Model> {
        let dim = self.actions.latent_dim();
        if settings.embedding.learn {
            if self.contexts.cols() != dim {
                let (found, problem) = (self.contexts.cols(), "the context is the query itself");
                let problem = format!("{problem}, so D = {found} has to be L = {dim}");
                return Err(Error::setting("embedding.learn", problem));
            }
            return Ok(Model::of_actions(&self.actions, device));
        }
        let trained_on = self.contexts.select(&self.sessions.contexts(Split::Train));
        let tower = settings.tower.init(&trained_on, dim, settings.seed, device)?;
        let policy = &settings.policy;
        let sigma = policy.learn_sigma.then(|| SigmaFactor::new(policy.sigma_floor, device));
        Ok(Model { sigma, ..tower.into() })
    }
}

/// Fails unless every context has K actions to choose from.
fn check_slate_size(sessions: &Sessions, settings: &Settings) -> Result<()> {
    let (slate_size, num_actions) = (settings.policy.slate_size, sessions.num_actions);
    let observed = &sessions.observed;
    let excluded = if settings.retrieval.exclude_observed {
        observed.contexts().map(|context| observed.of(context).len()).max().unwrap_or(0)
    } else {
        0
    };
    let available = num_actions - excluded;
    if slate_size <= available {
        return Ok(());
    }
    let why = match excluded {
        0 => String::new(),
        most => format!(" ({num_actions} less the {most} that one context has observed)"),
    };
    Err(Error::SlateTooLarge { slate_size, available, why })
}
