//! What a policy is trained on and judged by, put together once per process: sessions, β, the
//! contexts M(X), retrieval and the reward.

use std::sync::Arc;

use burn::tensor::Device;
use serde::Serialize;

use crate::dataset::{Sessions, Split};
use crate::embedding::{ActionEmbeddings, mean_contexts};
use crate::error::{Error, Result};
use crate::estimator::{BatchRows, ScoreFunction};
use crate::matrix::Matrix;
use crate::policy::LatentPerturbation;
use crate::prepared::Prepared;
use crate::retrieval::{Exact, Queries, RetrievalKind, Retriever, Slates, recall};
use crate::reward::SlateReward;
use crate::seed::Purpose;
use crate::settings::Settings;
use crate::tower::Tower;

/// A problem: everything but the policy.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Who has seen and hidden what.
    pub sessions: Arc<Sessions>,
    /// β.
    pub actions: Arc<ActionEmbeddings>,
    /// M(X) of every context, `[U, D]`.
    pub contexts: Matrix,
    /// Exact search over β.
    pub exact: Arc<dyn Retriever>,
    /// The search that training uses.
    pub retriever: Arc<dyn Retriever>,
    /// r̂.
    pub reward: Arc<dyn SlateReward>,
    slate_size: usize,
    exclude_observed: bool,
}

/// What an audit found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Audit {
    /// Mean share of the exact top K that the training search returns.
    pub recall: f64,
    /// Queries compared.
    pub queries: usize,
}

impl Audit {
    /// What to tell the user if recall is below the setting.
    #[must_use]
    pub fn warning(&self, settings: &Settings) -> Option<String> {
        let retrieval = &settings.retrieval;
        (self.recall < retrieval.recall_warning).then(|| {
            format!(
                "the index finds {:.1} % of the true slates, less than {:.1} %: raise \
                 retrieval.hnsw.ef_search ({}) or set retrieval.kind = \"exact\"",
                100.0 * self.recall,
                100.0 * retrieval.recall_warning,
                retrieval.hnsw.ef_search
            )
        })
    }
}

/// The step under which an audit draws its noise; no training step gets there.
const AUDIT_STEP: u64 = u64::MAX;

/// Queries of an audit, at least: one per sample and context.
const AUDIT_QUERIES: usize = 1000;

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
        let all: Vec<u32> = sessions.observed.contexts().collect();
        Ok(Self {
            contexts: mean_contexts(&sessions.observed, &all, &actions),
            reward: settings.reward.kind.init(settings.policy.slate_size, Arc::clone(&sessions)),
            slate_size: settings.policy.slate_size,
            exclude_observed: settings.retrieval.exclude_observed,
            sessions,
            actions,
            exact,
            retriever,
        })
    }

    /// The same problem with a reward of one's own.
    #[must_use]
    pub fn with_reward(self, reward: Arc<dyn SlateReward>) -> Self {
        Self { reward, ..self }
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

    /// The deterministic decision `d_θ(x) = argsort^K h_θ(x)ᵀβ_a` for each of `contexts`, through
    /// `retriever`.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn decide(
        &self,
        tower: &Tower,
        contexts: &[u32],
        retriever: &dyn Retriever,
    ) -> Result<Slates> {
        let latent = tower.latent(&self.contexts.select(contexts))?; // [B, L]
        let observed: Option<Vec<&[u32]>> = self
            .exclude_observed
            .then(|| contexts.iter().map(|&context| self.sessions.observed.of(context)).collect());
        retriever.search(Queries {
            latent: &latent,
            slate_size: self.slate_size,
            excluded: observed.as_deref(),
        })
    }

    /// The gradient estimator of `settings`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a biased or impossible combination.
    pub fn estimator(&self, settings: &Settings) -> Result<ScoreFunction> {
        let policy = &settings.policy;
        let (dim, norm) = (self.actions.latent_dim(), self.actions.mean_norm());
        ScoreFunction::new(
            policy.score_function(),
            LatentPerturbation::new(policy.sigma, policy.radial, dim, norm)?,
            Arc::clone(&self.retriever),
            Arc::clone(&self.reward),
            self.excluded(),
            settings.seed,
        )
    }

    /// The tower at step 0 of a run with `settings`, without autodiff.
    ///
    /// # Errors
    /// [`Error::Setting`] for an impossible initialisation.
    pub fn initial_tower(&self, settings: &Settings, device: &Device) -> Result<Tower> {
        let trained_on = self.contexts.select(&self.sessions.contexts(Split::Train));
        settings.tower.init(&trained_on, self.actions.latent_dim(), settings.seed, device)
    }

    /// Recall of the training search on perturbed training queries, with the run's exclusions.
    ///
    /// # Errors
    /// Those of the retriever and the device.
    pub fn audit(&self, settings: &Settings, tower: &Tower) -> Result<Audit> {
        let mut contexts = self.sessions.contexts(Split::Train);
        settings.seed.stream(Purpose::Audit, 0, 0).shuffle(&mut contexts);
        contexts.truncate(AUDIT_QUERIES.div_ceil(settings.policy.samples));
        let estimator = self.estimator(settings)?;
        let latent = tower.latent(&self.contexts.select(&contexts))?; // [N, L]
        let rows = BatchRows { step: AUDIT_STEP, first: 0, contexts: &contexts };
        let (queries, _) = estimator.perturbed(&latent, &estimator.noise(rows)); // [N·S, L]
        let excluded = estimator.excluded(&contexts);
        let searched = Queries {
            latent: &queries,
            slate_size: self.slate_size,
            excluded: excluded.as_deref(),
        };
        let recall = recall(self.retriever.as_ref(), self.exact.as_ref(), searched)?;
        Ok(Audit { recall, queries: queries.rows() })
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
