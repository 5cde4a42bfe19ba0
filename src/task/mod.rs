//! A prepared folder and settings in, a [`Task`] out: all that a policy is trained on and judged by.
//! A task holds no settings; a method's settings and its parts make an estimator.

mod audit;
mod contexts;
mod ef_search;
mod folds;
mod load;
mod redraw;
mod rows;
mod search;

use std::sync::Arc;

use burn::tensor::Device;

use self::folds::{CrossFit, CrossFitted, Fit};
use self::search::Graph;
use crate::dataset::{Sessions, Split, Times};
use crate::device::{self, Chosen};
use crate::embedding::ActionEmbeddings;
use crate::encoder::{ContextEncoder, Encoding, encode_all};
use crate::error::{Error, Result};
use crate::estimator::{AnyEstimator, Estimator};
use crate::logged::Logged;
use crate::matrix::Matrix;
use crate::method::{Learned, Method, Parts};
use crate::model::Model;
use crate::policy::Noise;
use crate::retrieval::{Retriever, Search, excluded_lists};
use crate::reward::SlateReward;
use crate::seed::{Purpose, Seed};
use crate::settings::Settings;
use crate::tower::TowerSettings;

pub use audit::{Audit, Audits};
pub use contexts::Profiles;
pub use ef_search::{EfSearch, TriedWidth};

/// Sessions, vectors, contexts, searches, reward and exclusion.
#[derive(Clone, Debug)]
pub struct Task {
    /// Observed and hidden actions of every context.
    pub sessions: Arc<Sessions>,
    /// β, `[P, L]`.
    pub actions: Arc<ActionEmbeddings>,
    /// The vectors of which contexts are made, `[P, L]`.
    pub inputs: Arc<Matrix>,
    /// What `encoder` was made of.
    pub encoding: Encoding,
    /// Encodes a user's actions, times and features as a context.
    pub encoder: Arc<dyn ContextEncoder>,
    /// Times and features of the users.
    pub profiles: Arc<Profiles>,
    /// M(X) of every context, `[U, D]`; those of a fold come from what was fitted without it.
    pub contexts: Arc<Matrix>,
    /// Exact search over β.
    pub exact: Arc<dyn Retriever>,
    /// Approximate search over β.
    graph: Arc<Graph>,
    /// r̂.
    pub reward: Arc<dyn SlateReward>,
    cross: Option<Arc<CrossFit>>,
    /// The times by which a split hid the latest items, if that is how it was done.
    order: Option<Arc<Times>>,
    /// True if held-out users hide any of their items.
    held_out_at_random: bool,
    split_seed: Seed,
    noise: Option<Arc<dyn Noise>>,
    /// The search of β elsewhere, in the place of those here.
    elsewhere: Option<Arc<dyn Retriever>>,
    /// True if training needs no graph, whatever its method searches with.
    exactly: bool,
    /// The GPU of exact searches, if they are made on one.
    gpu: Option<Chosen>,
    /// The task before, where the contexts are the rows of a log.
    before: Option<Arc<Task>>,
    /// The person of each of these rows.
    people: Option<Arc<Vec<u32>>>,
    /// The weights of these rows, if what a query earns is told by them.
    logged: Option<Arc<Logged>>,
    slate_size: usize,
    exclude_observed: bool,
}

impl Task {
    /// [D, L].
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        [self.contexts.cols(), self.actions.latent_dim()]
    }

    /// Up to `most` contexts of a split that a run with this seed reports on, ascending.
    pub(crate) fn reported(&self, split: Split, most: usize, seed: Seed) -> Vec<u32> {
        let mut contexts = match split {
            Split::Train => self.taught_by(),
            held_out => self.sessions.contexts(held_out),
        };
        let position = u64::from(split == Split::Validation);
        seed.stream(Purpose::Report, 0, position).shuffle(&mut contexts);
        contexts.truncate(most);
        contexts.sort_unstable();
        contexts
    }

    /// The training contexts that teach, ascending: those of all folds, where there are any.
    #[must_use]
    pub fn taught_by(&self) -> Vec<u32> {
        let of_folds = self.cross.as_ref().map(|cross| cross.folds.all());
        of_folds.unwrap_or_else(|| self.sessions.contexts(Split::Train))
    }

    /// The same in groups; those of a group are searched alike.
    #[must_use]
    pub fn training_groups(&self) -> Vec<Vec<u32>> {
        match self.searched_apart() {
            None => vec![self.taught_by()],
            Some(cross) => (0..cross.folds.count()).map(|fold| cross.folds.within(fold)).collect(),
        }
    }

    /// The folds of training users, whose contexts are from embeddings fitted without their fold.
    #[must_use]
    pub fn num_folds(&self) -> u16 {
        self.cross.as_ref().map_or(0, |cross| cross.folds.count())
    }

    /// A text that is equal for settings of which [`load`](Self::load) makes the same task.
    #[must_use]
    pub fn depends_on(settings: &Settings) -> String {
        let Settings { embedding, context, retrieval, reward, slate_size, .. } = settings;
        let learns_actions = settings.method.recipe().learned() == Learned::Actions;
        // A tower that balances tastes has a context of one encoder more.
        let of_context = (context, settings.encoders());
        format!("{:?}", (embedding, of_context, retrieval, reward, slate_size, learns_actions))
    }

    /// The seed of the preparation, which is that of other halves of held-out users.
    pub(crate) fn split_seed(&self) -> Seed {
        self.split_seed
    }

    /// Replaces the reward. A run's record says so where [`RunOrigin::reward`](crate::run::RunOrigin)
    /// names it.
    #[must_use]
    pub fn with_reward(self, reward: Arc<dyn SlateReward>) -> Self {
        Self { reward, ..self }
    }

    /// Replaces the latent noise that a method's settings name. A run's record says so where
    /// [`RunOrigin::noise`](crate::run::RunOrigin) names it.
    #[must_use]
    pub fn with_noise(self, noise: Arc<dyn Noise>) -> Self {
        Self { noise: Some(noise), ..self }
    }

    /// Has training search exactly, whatever its method says, so that no graph is built for it.
    #[must_use]
    pub(crate) fn exactly(self) -> Self {
        Self { exactly: true, ..self }
    }

    /// Replaces K; the reward keeps the weights it has.
    #[must_use]
    pub fn with_slate_size(self, slate_size: usize) -> Self {
        Self { slate_size, ..self }
    }

    /// True to keep the observed actions of a context off its slate.
    #[must_use]
    pub fn with_exclusion(self, exclude_observed: bool) -> Self {
        Self { exclude_observed, ..self }
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

    /// The actions that stay off the slates of `contexts`, a list for each of `times` queries a
    /// context, if any do.
    fn excluded_of(&self, contexts: &[u32], times: usize) -> Option<Vec<&[u32]>> {
        let excluded = self.exclude_observed.then_some(self.sessions.as_ref());
        excluded_lists(excluded, contexts, times)
    }

    /// The parts of this task that `method` is constructed from.
    ///
    /// # Errors
    /// Fails if the method searches an index that cannot be opened or built.
    pub fn parts(&self, method: &Method, seed: Seed) -> Result<Parts> {
        Ok(Parts {
            actions: Arc::clone(&self.actions),
            retriever: self.search(self.training_search(method).unwrap_or(Search::Exact))?,
            reward: Arc::clone(&self.reward),
            excluded: self.excluded(),
            slate_size: self.slate_size,
            seed,
            noise: self.noise.clone(),
            logged: self.logged.clone(),
        })
    }

    /// The gradient estimator of `method`, whose draws follow from `seed`.
    ///
    /// # Errors
    /// [`Error::Setting`] if the method's settings do not fit each other or this task.
    pub fn estimator(&self, method: &Method, seed: Seed) -> Result<AnyEstimator> {
        let parts = self.parts(method, seed)?;
        let estimator = method.recipe().estimator(&parts)?;
        let Some(cross) = self.searched_apart() else { return Ok(estimator) };
        let of_queries = |estimator| match estimator {
            AnyEstimator::Queries(estimator) => Ok(estimator),
            AnyEstimator::Actions(_) => {
                Err(Error::setting("context.folds", "learns β; set it to 0"))
            }
        };
        let of_fold = |fit: &Fit| {
            let (actions, retriever) = (Arc::clone(&fit.actions), Arc::clone(&fit.exact));
            let parts = Parts { actions, retriever, ..parts.clone() };
            of_queries(method.recipe().estimator(&parts)?)
        };
        let of_folds = cross.fits.iter().map(of_fold).collect::<Result<Vec<_>>>()?;
        let (cross, of_others) = (Arc::clone(cross), of_queries(estimator)?);
        let estimator: Arc<dyn Estimator> = Arc::new(CrossFitted { cross, of_folds, of_others });
        Ok(AnyEstimator::Queries(estimator))
    }

    /// Fails if no policy can be trained with `settings`: constructs everything that they describe.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that are out of range, or do not fit each other or this data.
    pub fn check(&self, settings: &Settings, device: &Device) -> Result<()> {
        settings.validate()?;
        if self.sessions.contexts(Split::Train).is_empty() {
            return Err(Error::setting("data", "no user is in the train split"));
        }
        // The perturbed queries and their scores, both [B, S, L]; the vectors of shared candidates, [B, M, L],
        // and the factors of their products, [B, M, M].
        let (batch, samples) = (settings.optimizer.batch_size, settings.method.num_samples());
        let (dim, method) = (self.actions.latent_dim() as f64, settings.method.latent());
        let candidates = method.filter(|latent| latent.shares_candidates());
        let candidates = candidates.map_or(0.0, |latent| latent.candidates as f64);
        let shared =
            if candidates < dim { candidates * (4.0 * dim + 8.0 * candidates) } else { 0.0 };
        let bytes = batch as f64 * (8.0 * samples as f64 * dim + shared);
        if let Some(available) = device::available_memory().filter(|available| *available < bytes) {
            let problem = format!(
                "{samples} samples of {batch} queries take {:.1} GB of memory, and {:.1} GB are \
                 available; lower it, optimizer.batch_size or method.candidates",
                bytes / 1e9,
                available / 1e9
            );
            return Err(Error::setting("method.samples", problem));
        }
        self.estimator(&settings.method, settings.seed)?;
        self.initial_model(settings, device)?;
        Ok(())
    }

    /// `model` with what this reward does not teach frozen. Under a linear one a slate is worth the sum of its
    /// actions, and no taste needs a place beside another.
    #[must_use]
    pub fn to_train(&self, model: Model) -> Model {
        if self.reward.as_linear().is_some() { model.with_balance_frozen() } else { model }
    }

    /// The model at step 0 of a run with `settings`, without autodiff.
    ///
    /// # Errors
    /// [`Error::Setting`] for an impossible initialisation.
    pub fn initial_model(&self, settings: &Settings, device: &Device) -> Result<Model> {
        if let Some(before) = &self.before {
            return before.initial_model(settings, device);
        }
        let dim = self.actions.latent_dim();
        if settings.method.recipe().learned() == Learned::Actions {
            if self.contexts.cols() != dim {
                let (found, problem) = (self.contexts.cols(), "the context is the query itself");
                let problem = format!("{problem}, so D = {found} has to be L = {dim}");
                return Err(Error::setting("method.learn_actions", problem));
            }
            return Ok(Model::of_actions(&self.actions, device));
        }
        let tower = TowerSettings { balance: settings.has_balance(), ..settings.tower.clone() };
        let users = self.sessions.contexts(Split::Train);
        let made_for = if self.cross.is_some() && tower.depends_on_contexts() {
            // Everybody's contexts, as whoever opens the run has them, without folds.
            let known = |context| self.profiles.observed(&self.sessions, context);
            encode_all(self.encoder.as_ref(), &users, known)
        } else {
            self.contexts.select(&users)
        };
        Ok(tower.init(&made_for, dim, settings.seed, device)?.into())
    }
}
